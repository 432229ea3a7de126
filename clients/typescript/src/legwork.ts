/** `Legwork` and `Task`: what a program holds. */

import { type Approve, Conversation } from "./conversation.js";
import { CommandFailed, LegworkError, TaskEnded, WaitTimeout, errorFrom } from "./errors.js";
import { HttpTransport, lost } from "./http.js";
import {
  type Answer,
  FINAL,
  type Json,
  type Result,
  type Stopped,
  type TaskStatus,
  type Waited,
  listOf,
  objectOf,
  pidsOf,
  resultOf,
  statusOf,
  textOf,
} from "./model.js";
import { findProgram } from "./program.js";
import { StdioTransport } from "./stdio.js";

/** Most characters of each stream in a result; the artifacts have all of it. */
const MAX_OUTPUT = 1024 * 1024;

/** The longest that one call waits; longer waits are several calls. */
const WINDOW_MS_MAX = 3_600_000;

/** A longer line comes in pieces. */
const LINE_MAX = 1024 * 1024;

export interface LegworkOptions {
  /** The folder that commands run in and may write to; the current one by default. */
  workspace?: string;
  /** A `legwork serve` instead of a program of our own; its token says workspace and trust. */
  url?: string;
  /** The token for the server at `url`. */
  token?: string;
  /** Called with each question about a command; without it such a command is refused. */
  approve?: Approve;
  ask?: "never" | "guarded" | "strict";
  sandbox?: "none" | "read-only" | "workspace-write";
  trust?: string;
  policy?: readonly string[];
  tools?: readonly string[];
  state?: string;
  /** The program; by default $LEGWORK_PROGRAM, this package's own or that on PATH. */
  program?: string;
  /** The environment of the program and its commands, instead of this process's. */
  env?: NodeJS.ProcessEnv;
  /** Who is asking, for `legwork ps` and the audit log. */
  name?: string;
}

export interface ExecOptions {
  workdir?: string;
  shell?: string;
  login?: boolean;
}

export interface RunOptions extends ExecOptions {
  /** After this the command is stopped, with all that it started. */
  timeoutMs?: number;
  /** Anything but exit code 0 throws CommandFailed. */
  check?: boolean;
  /** Most characters of each stream in the result. */
  maxOutput?: number;
  /** Aborting stops the command. */
  signal?: AbortSignal;
}

export interface StartOptions extends ExecOptions {
  tty?: boolean;
  /** Its stdin stays open for `Task.send`; the default of a `tty`. */
  acceptsInput?: boolean;
  /** An equal command that runs already is taken instead of a second one. */
  reuse?: boolean;
}

export interface WaitOptions {
  port?: number;
  /** A regular expression. */
  output?: string;
  path?: string;
  silenceMs?: number;
  waitingForInput?: boolean;
  exit?: boolean;
  /** 30000 by default. */
  timeoutMs?: number;
}

/**
 * Runs commands: judged, sandboxed, supervised and recorded by the program `legwork`.
 *
 * Commands that somebody waits for end with `close()`; tasks that were started go on for ten
 * minutes (`orphan_ttl_ms`), unless somebody returns to them.
 */
export class Legwork implements AsyncDisposable {
  readonly #conversation: Conversation;
  /** The process of the program, if it is our own. */
  readonly pid: number | undefined;

  private constructor(conversation: Conversation, pid: number | undefined) {
    this.#conversation = conversation;
    this.pid = pid;
  }

  /** Starts a program, or connects to a server. */
  static async open(options: LegworkOptions = {}): Promise<Legwork> {
    const name = options.name ?? "legwork-typescript";
    const conversation = new Conversation(name, options.approve);
    if (options.url !== undefined) {
      const transport = new HttpTransport(conversation, options.url, tokenOf(options));
      conversation.over(transport);
      await transport.open().catch((error: unknown) => {
        throw lost(options.url ?? "", error);
      });
      return new Legwork(conversation, undefined);
    }
    if (options.token !== undefined) throw new TypeError("`token` goes with `url`");
    const program = findProgram(options.program);
    const transport = new StdioTransport(conversation, program, argv(options), options.env);
    conversation.over(transport);
    try {
      conversation.welcomed(await conversation.request("initialize", conversation.hello()));
      conversation.notify("notifications/initialized");
    } catch (error) {
      await conversation.close();
      throw error;
    }
    return new Legwork(conversation, transport.pid);
  }

  /** Ends the connection. May be called again. */
  async close(): Promise<void> {
    await this.#conversation.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** What a model should know about the tools and the sandbox in force. */
  get instructions(): string {
    return this.#conversation.instructions;
  }

  /** Runs a shell script and waits for its end. */
  async run(command: string, options: RunOptions = {}): Promise<Result> {
    const result = await this.#run(command, options);
    if (options.check && !result.ok) throw new CommandFailed(result);
    return result;
  }

  /** Starts a shell script as a task, and does not wait for it. */
  async start(command: string, options: StartOptions = {}): Promise<Task> {
    const told = await this.do("ExecCommand", {
      ...execInput(command, options),
      tty: options.tty,
      accepts_input: options.acceptsInput,
      duplicate_policy: options.reuse ? "reuse_running" : "start_new",
      yield_time_ms: 0,
    });
    return this.task(taskIdOf(told));
  }

  /** A task by its id, whoever started it in this workspace. */
  task(id: string): Task {
    return new Task(this, id);
  }

  /** The tasks of the workspace, newest first. */
  async tasks(
    options: { includeFinished?: boolean; limit?: number } = {},
  ): Promise<readonly TaskStatus[]> {
    const input = { include_finished: options.includeFinished, limit: options.limit };
    const told = await this.do("TaskList", input);
    return listOf(told["tasks"]).map((task) => statusOf(objectOf(task)));
  }

  /** Calls a tool as a model does. An error of the tool is an answer, too. */
  async call(tool: string, input: Json, options: { signal?: AbortSignal } = {}): Promise<Answer> {
    return this.#conversation.call(tool, input, options.signal);
  }

  /** The tools, as MCP describes them. */
  async tools(): Promise<readonly Json[]> {
    const listed = await this.#conversation.request("tools/list", {});
    return listOf(listed["tools"]).map(objectOf);
  }

  /** The result of a call; throws the error of an answer that is one. */
  async do(tool: string, input: Json, signal?: AbortSignal): Promise<Json> {
    const answer = await this.#conversation.call(tool, input, signal);
    if (answer.isError) throw errorFrom(objectOf(answer.envelope["error"]));
    return objectOf(answer.envelope["result"]);
  }

  async #run(command: string, options: RunOptions): Promise<Result> {
    const { timeoutMs, signal, maxOutput = MAX_OUTPUT } = options;
    const window = Math.min(timeoutMs ?? WINDOW_MS_MAX, WINDOW_MS_MAX);
    const input = { ...execInput(command, options), yield_time_ms: Math.ceil(window) };
    const told = await this.do("ExecCommand", input, signal);
    const task = this.task(taskIdOf(told));
    if (told["disposition"] === "completed") {
      // The preview leaves out blank lines at the ends, so it only says whether there is text.
      const has = (name: string): boolean => typeof told[`${name}_preview`] === "string";
      const streams = await task.streams(maxOutput, has);
      return resultOf(told, { ...streams, timedOut: false });
    }
    let timedOut = false;
    const stop = (): void => void task.stop().catch(() => undefined);
    signal?.addEventListener("abort", stop, { once: true });
    try {
      if (timeoutMs === undefined) await task.ended();
      else if (!(await task.ended(timeoutMs - window))) timedOut = (await task.stop()).requested;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
    signal?.throwIfAborted();
    return task.finished(maxOutput, timedOut);
  }
}

/** A command that was started. `await using` stops it at the end of the block. */
export class Task implements AsyncDisposable {
  readonly #legwork: Legwork;
  readonly id: string;

  constructor(legwork: Legwork, id: string) {
    this.#legwork = legwork;
    this.id = id;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /**
   * Waits until one of the conditions holds; without any, for the end. Throws WaitTimeout, or
   * TaskEnded if it ended first.
   */
  async wait(options: WaitOptions = {}): Promise<Waited> {
    const { timeoutMs = 30_000 } = options;
    const until = {
      port: options.port,
      output_matches: options.output,
      path_exists: options.path,
      silence_ms: options.silenceMs,
      waiting_for_input: options.waitingForInput || undefined,
      exit: options.exit || undefined,
    };
    const isEmpty = Object.values(until).every((value) => value === undefined);
    const told = await this.#wait(isEmpty ? { exit: true } : until, timeoutMs);
    const status = statusOf(objectOf(listOf(told["tasks"])[0]));
    const output = textOf(told["output_preview"]);
    if (told["met"] === true) {
      const met = told["condition"];
      const condition = textOf(met) || (Object.keys(objectOf(met))[0] ?? "");
      return { condition, durationMs: Number(told["duration_ms"]), output, status };
    }
    const sought = textOf(told["sought"]);
    if (!status.isRunning) {
      const message = `the task ${status.summary}, and this never happened: ${sought}`;
      throw new TaskEnded(message, status, output);
    }
    throw new WaitTimeout(`this did not happen within ${timeoutMs} ms: ${sought}`, output);
  }

  /** Waits for the end, and returns the result with all output. */
  async result(options: { timeoutMs?: number; maxOutput?: number } = {}): Promise<Result> {
    if (!(await this.ended(options.timeoutMs))) {
      throw new WaitTimeout("the task has not ended in time");
    }
    return this.finished(options.maxOutput ?? MAX_OUTPUT, false);
  }

  /** The lines of its output from the beginning, as they come, until it has ended. */
  async *lines(
    options: { stream?: "both" | "stdout" | "stderr" } = {},
  ): AsyncGenerator<string, void, undefined> {
    let rest = "";
    for await (const { text, isLast } of this.#pieces(options.stream ?? "both", true)) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      if (rest && (isLast || rest.length > LINE_MAX)) {
        lines.push(rest);
        rest = "";
      }
      yield* lines;
    }
  }

  /**
   * Types text (end a line with a newline), presses a key, or ends the input. Returns what was
   * printed in response.
   */
  async send(
    text: string,
    options: { key?: string; eof?: boolean; waitMs?: number } = {},
  ): Promise<string> {
    const { key, eof, waitMs } = options;
    const input = { input: text || undefined, key, eof, wait_ms: waitMs };
    return textOf((await this.#input(input))["output_preview"]);
  }

  /** Gives its terminal another size. */
  async resize(rows: number, cols: number): Promise<void> {
    await this.#input({ rows, cols, wait_ms: 0 });
  }

  /** What its terminal shows now. */
  async screen(): Promise<string> {
    const told = await this.#do("TaskOutput", { view: "screen" });
    return textOf(told["output_preview"]);
  }

  async status(): Promise<TaskStatus> {
    return statusOf(objectOf((await this.#do("TaskStatus", {}))["task"]));
  }

  /** Stops it and everything that it started: the signal, and after the grace KILL. */
  async stop(options: { signal?: string; graceMs?: number } = {}): Promise<Stopped> {
    const input = { signal: options.signal, grace_ms: options.graceMs };
    const told = await this.#do("TaskStop", input);
    return {
      requested: told["stop_requested"] === true,
      survivors: pidsOf(told["survivors"]),
      status: statusOf(objectOf(told["task"])),
    };
  }

  /** @internal Whether it has ended within this time; without one, it waits for the end. */
  async ended(timeoutMs?: number): Promise<boolean> {
    for (let left = timeoutMs ?? Infinity; ; left -= WINDOW_MS_MAX) {
      const told = await this.#wait({ exit: true }, Math.max(0, Math.min(left, WINDOW_MS_MAX)));
      if (told["met"] === true) return true;
      if (left <= WINDOW_MS_MAX) return false;
    }
  }

  /** @internal The result of a task that has ended. */
  async finished(maxOutput: number, timedOut: boolean): Promise<Result> {
    const told = objectOf((await this.#do("TaskStatus", {}))["task"]);
    return resultOf(told, { ...(await this.streams(maxOutput)), timedOut });
  }

  /** @internal Both streams, of a task that has ended. */
  async streams(
    most: number,
    has: (name: string) => boolean = () => true,
  ): Promise<{ stdout: string; stderr: string; truncated: boolean }> {
    const nothing = { text: "", truncated: false };
    const stdout = has("stdout") ? await this.#stream("stdout", most) : nothing;
    const stderr = has("stderr") ? await this.#stream("stderr", most) : nothing;
    const truncated = stdout.truncated || stderr.truncated;
    return { stdout: stdout.text, stderr: stderr.text, truncated };
  }

  async #stream(stream: string, most: number): Promise<{ text: string; truncated: boolean }> {
    let whole = "";
    for await (const { text, isLast } of this.#pieces(stream, false)) {
      whole += text;
      if (whole.length <= most || isLast) continue;
      // Without a cursor it goes on from there: with a line that tells the gap, and the end.
      const told = await this.#do("TaskOutput", { stream, block: false });
      return { text: whole + textOf(told["output_preview"]), truncated: true };
    }
    return { text: whole, truncated: false };
  }

  /** The output from its beginning, piece by piece. */
  async *#pieces(
    stream: string,
    block: boolean,
  ): AsyncGenerator<{ text: string; isLast: boolean }, void, undefined> {
    for (let after = "start"; ; ) {
      const told = await this.#do("TaskOutput", { stream, after, block });
      after = textOf(told["next_cursor"]) || after;
      const hasEnded = FINAL.has(textOf(objectOf(told["task"])["status"]));
      const isLast = told["more"] !== true && (hasEnded || !block);
      yield { text: textOf(told["output_preview"]), isLast };
      if (isLast) return;
    }
  }

  async #wait(until: Json, timeoutMs: number): Promise<Json> {
    const given = Object.entries(until).filter(([, value]) => value !== undefined);
    const input = { until: Object.fromEntries(given), timeout_ms: Math.ceil(timeoutMs) };
    return this.#legwork.do("TaskWait", { task_ids: [this.id], ...input });
  }

  async #input(input: Json): Promise<Json> {
    const told = await this.#do("TaskInput", input);
    if (told["accepted_input"] === true) return told;
    const reason = textOf(told["reason"]) || "the task takes no input";
    throw new LegworkError("input_refused", reason);
  }

  #do(tool: string, input: Json): Promise<Json> {
    return this.#legwork.do(tool, { task_id: this.id, ...input });
  }
}

function execInput(command: string, options: ExecOptions): Json {
  const { workdir, shell, login } = options;
  // What a program asks for twice it wants twice.
  return { cmd: command, workdir, shell, login, duplicate_policy: "start_new" };
}

function taskIdOf(told: Json): string {
  return textOf(objectOf(told["task_handle"])["task_id"]) || textOf(told["task_id"]);
}

function tokenOf(options: LegworkOptions): string {
  const own = ["workspace", "ask", "sandbox", "trust", "policy", "tools", "state"] as const;
  const given = own.find((name) => options[name] !== undefined);
  if (given) throw new TypeError(`\`${given}\` is the server's, or its token's`);
  if (options.token) return options.token;
  throw new TypeError("a server at a `url` needs a `token`: `legwork token add` makes one");
}

/** The options of `legwork mcp`. */
function argv(options: LegworkOptions): string[] {
  const { workspace, state, ask, sandbox, trust, policy = [], tools } = options;
  const named = Object.entries({ workspace, state, ask, sandbox, trust, tools: tools?.join(",") });
  const given = [...named, ...policy.map((file) => ["policy", file] as const)];
  return given.flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, value]));
}
