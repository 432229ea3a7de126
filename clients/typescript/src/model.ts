/** What the library gives back: plain data. */

export type Json = Record<string, unknown>;

/** A file with all bytes of a stream, on the machine of the program. */
export interface Artifact {
  readonly path: string;
  readonly bytes: number;
}

/** The end of a command. Any exit code is a result. */
export interface Result {
  readonly taskId: string;
  /** Null if a signal killed it, or its end is not known. */
  readonly exitCode: number | null;
  /** All that it printed, as text: control sequences removed, secrets masked. */
  readonly stdout: string;
  readonly stderr: string;
  /** The signal that killed it. */
  readonly signal: number | null;
  /** `completed`, `failed`, `cancelled` or `interrupted`. */
  readonly status: string;
  /** It ended by itself, with exit code 0. */
  readonly ok: boolean;
  /** How it ended, in a few words. */
  readonly summary: string;
  /** The `timeoutMs` of the call has passed, and the command was stopped. */
  readonly timedOut: boolean;
  /** A stream was over `maxOutput`: a line in it tells how much was left out before its end. */
  readonly truncated: boolean;
  readonly durationMs: number;
  /** What ended it, if not the command itself: `timeout`, `stopped`, `oom_killed`, … */
  readonly endedBy: string | undefined;
  readonly flags: readonly string[];
  /** Processes that it left running; `Task.stop` ends them. */
  readonly backgroundPids: readonly number[];
  readonly artifacts: readonly Artifact[];
}

/** A task as it is at one moment. */
export interface TaskStatus {
  readonly taskId: string;
  /** `queued`, `running`, `cancelling`, `completed`, `failed`, `cancelled` or `interrupted`. */
  readonly status: string;
  readonly isRunning: boolean;
  readonly summary: string;
  readonly command: string;
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly pid: number | null;
  readonly waitingForInput: boolean;
  readonly backgroundPids: readonly number[];
  readonly artifacts: readonly Artifact[];
  /** All fields, as the program tells them. */
  readonly data: Json;
}

/** A condition of `Task.wait` holds. */
export interface Waited {
  /** `exit`, `port`, `output_matches`, `path_exists`, `silence_ms` or `waiting_for_input`. */
  readonly condition: string;
  readonly durationMs: number;
  /** What the task printed since it was last waited for. */
  readonly output: string;
  readonly status: TaskStatus;
}

/** The end of `Task.stop`. */
export interface Stopped {
  /** False if there was nothing to stop. */
  readonly requested: boolean;
  /** Processes that could not be ended. */
  readonly survivors: readonly number[];
  readonly status: TaskStatus;
}

export type Decision =
  /** On a copy first: the next question says what it would change. */
  | "try_first"
  /** Apply what it changed when it was tried, without running it again. */
  | "apply"
  | "allow_once"
  | "allow_once_unconfined"
  | "allow_session"
  | "allow_rule"
  | "deny";

/**
 * What an approval callback returns. True is `allow_once`, false is `deny`; undefined means that
 * nobody could be asked, which leaves the question open for `legwork approve`.
 */
export type Replied = boolean | Decision | { decision: Decision; note?: string } | undefined;

/** May this command run? */
export interface Question {
  /** The whole question as a person reads it. */
  readonly text: string;
  /** The decisions that can be given. */
  readonly replies: readonly Decision[];
  readonly approvalId: string;
  readonly command: string;
  /** Why it has to be asked, and the part of the command that is the cause. */
  readonly reason: string;
  readonly cause: string;
  readonly workdir: string;
  /** All fields, as the program tells them. */
  readonly data: Json;
}

/** The answer to a call of a tool: the text for a model, and the same as data. */
export interface Answer {
  readonly tool: string;
  /** The receipt. */
  readonly text: string;
  readonly isError: boolean;
  /** The envelope: `status`, `result` or `error`. */
  readonly envelope: Json;
}

/** Statuses after which nothing of a task changes any more. */
export const FINAL: ReadonlySet<string> = new Set([
  "completed",
  "failed",
  "cancelled",
  "interrupted",
]);

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Json)
    : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** Pids, told as numbers or with their commands. */
export function pidsOf(value: unknown): readonly number[] {
  const numbers = listOf(value).map((it) => numberOf(it) ?? numberOf(objectOf(it)["pid"]));
  return numbers.filter((it) => it !== null);
}

function artifactsOf(value: unknown): readonly Artifact[] {
  return listOf(value).map((it) => {
    const told = objectOf(it);
    return { path: textOf(told["path"]), bytes: numberOf(told["bytes"]) ?? 0 };
  });
}

export function statusOf(task: Json): TaskStatus {
  const status = textOf(task["status"]);
  return {
    taskId: textOf(task["task_id"]),
    status,
    isRunning: !FINAL.has(status),
    summary: textOf(task["summary"]),
    command: textOf(task["command"]),
    exitCode: numberOf(task["exit_status"]),
    signal: numberOf(task["signal"]),
    pid: numberOf(task["pid"]),
    waitingForInput: task["waiting_for_input"] === true,
    backgroundPids: pidsOf(task["background_pids"]),
    artifacts: artifactsOf(task["artifacts"]),
    data: task,
  };
}

/** The result from what ExecCommand or TaskStatus tells. */
export function resultOf(
  told: Json,
  streams: { stdout: string; stderr: string; truncated: boolean; timedOut: boolean },
): Result {
  const exitCode = numberOf(told["exit_status"]);
  const signal = numberOf(told["signal"]);
  const status = textOf(told["status"]) || (exitCode === 0 ? "completed" : "failed");
  let summary = `ended with an unknown exit code (${status})`;
  if (streams.timedOut) summary = "timed out";
  else if (exitCode !== null) summary = `exited with code ${exitCode}`;
  else if (signal !== null) summary = `was killed by signal ${signal}`;
  return {
    taskId: textOf(told["task_id"]),
    exitCode,
    signal,
    status,
    summary,
    ok: exitCode === 0 && !streams.timedOut,
    ...streams,
    durationMs: numberOf(told["duration_ms"]) ?? 0,
    endedBy: textOf(told["ended_by"]) || textOf(told["reason"]) || undefined,
    flags: listOf(told["flags"]).map(textOf),
    backgroundPids: pidsOf(told["background_pids"]),
    artifacts: artifactsOf(told["artifacts"]),
  };
}
