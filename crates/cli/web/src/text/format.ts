// Times, sizes and names for people.
import type { Resources, Task } from "../model/types";

const UNITS: [seconds: number, name: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
];

/** A duration with its two biggest units: `2h 5m`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const seconds = Math.floor(ms / 1000);
  const place = UNITS.findIndex(([unit]) => seconds >= unit);
  const [unit, name] = UNITS[place] ?? [1, "s"];
  if (place < 0) return `${seconds}s`;
  const [next, nextName] = UNITS[place + 1] ?? [1, "s"];
  const rest = Math.floor((seconds % unit) / next);
  const whole = `${Math.floor(seconds / unit)}${name}`;
  return rest > 0 ? `${whole} ${rest}${nextName}` : whole;
}

/** An age with one unit: `3m`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [unit, name] = UNITS.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / unit)}${name}`;
}

export function bytes(count: number): string {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let place = 0;
  while (size >= 1024 && place < names.length - 1) {
    size /= 1024;
    place += 1;
  }
  return `${place > 0 && size < 10 ? size.toFixed(1) : Math.round(size)} ${names[place]}`;
}

/** Processor time: `1.2s (1.0s user, 210 ms system)`. */
export function processorTime(used: Resources): string {
  const { cpu_user_us: user, cpu_system_us: system } = used;
  const [all, ...parts] = [user + system, user, system].map((us) => duration(us / 1000));
  return `${all} (${parts[0]} user, ${parts[1]} system)`;
}

/** Memory: at most, of a task that has ended, or now. */
export function memory(used: Resources): string {
  if (used.memory_bytes !== undefined) return `${bytes(used.memory_bytes)} now`;
  const tree = used.tree_memory_peak_bytes;
  if (tree !== undefined) return `${bytes(tree)} at most`;
  return `${bytes(used.memory_peak_bytes ?? 0)} at most in one process`;
}

const NUMBER = new Intl.NumberFormat("en");

export const number = (count: number): string => NUMBER.format(count);

export const plural = (count: number, one: string, several = `${one}s`): string =>
  `${number(count)} ${count === 1 ? one : several}`;

const CLOCK = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** A time of this browser's zone: `2026-11-16 13:30:47`. */
export const clock = (ms: number): string => CLOCK.format(ms);

/** How long a task has run, or did. */
export function lasted(task: Task, now: number): string {
  const { outcome } = task;
  if (outcome?.lost !== undefined) return "unknown";
  return duration(outcome ? outcome.duration_ms : now - task.created_at_ms);
}

const SIGNALS = (
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP " +
  "TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split(" ");

export const signalName = (signal: number): string => `SIG${SIGNALS[signal - 1] ?? signal}`;

/** How a task is or how it ended, in a word or two. */
export function statusWords(task: Task): string {
  const { outcome, status } = task;
  if (!outcome || status === "interrupted") return status;
  const by = outcome.ended_by && outcome.ended_by !== "stopped" ? outcome.ended_by : undefined;
  const how = by?.replaceAll("_", " ") ?? (outcome.signal && signalName(outcome.signal));
  if (how) return `${status}, ${how}`;
  if (status === "failed")
    return outcome.exit_status === null ? status : `exit ${outcome.exit_status}`;
  return status;
}

/** The last parts of a folder's path, which tell it from others. */
export function folder(path: string): string {
  const parts = path.split("/").filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : path;
}
