/** Errors. Each has a `kind`, the same word that the program uses for the error. */

import type { Json, Result, TaskStatus } from "./model.js";

/** Legwork could not do its part. What a command does (an exit code, a signal) is a result. */
export class LegworkError extends Error {
  readonly kind: string;
  readonly details: Json;
  readonly recoveryHint: string | undefined;
  readonly retryable: boolean;

  constructor(
    kind: string,
    message: string,
    more: { details?: Json; recoveryHint?: string | undefined; retryable?: boolean } = {},
  ) {
    super(message);
    this.name = new.target.name;
    this.kind = kind;
    this.details = more.details ?? {};
    this.recoveryHint = more.recoveryHint;
    this.retryable = more.retryable ?? false;
  }
}

/** A rule or a person said no, or nobody could be asked. `kind` tells which. */
export class Denied extends LegworkError {
  /** The open question, for `legwork approve ID`; then the same call works. */
  get approvalId(): string | undefined {
    const found = this.details["approval_id"];
    return typeof found === "string" ? found : undefined;
  }
}

/** The program or the server went away, or does not answer. Started tasks go on. */
export class ConnectionLost extends LegworkError {
  constructor(message: string, kind = "connection_lost") {
    super(kind, message, { retryable: kind === "connection_lost" });
  }
}

/** No condition of a wait held in time. The task goes on. */
export class WaitTimeout extends LegworkError {
  constructor(
    message: string,
    /** What the task printed during the wait. */
    readonly output: string = "",
  ) {
    super("wait_timeout", message, { retryable: true });
  }
}

/** The task ended before the condition of a wait held. */
export class TaskEnded extends LegworkError {
  constructor(
    message: string,
    readonly status: TaskStatus,
    /** What the task printed during the wait. */
    readonly output: string,
  ) {
    super("task_ended", message);
  }
}

/** `check`: the command ended otherwise than with exit code 0. */
export class CommandFailed extends LegworkError {
  constructor(readonly result: Result) {
    const end = result.stderr.trim().slice(-2000);
    super("command_failed", `the command ${result.summary}${end ? `: ${end}` : ""}`);
  }
}

const DENIED = new Set([
  "command_denied",
  "command_substitution_denied",
  "approval_refused",
  "approval_unavailable",
  "approval_expired",
]);

/** The error that the program tells of. */
export function errorFrom(told: Json): LegworkError {
  const kind = typeof told["kind"] === "string" ? told["kind"] : "tool_execution_failed";
  const message = typeof told["message"] === "string" ? told["message"] : "no message";
  const hint = told["recovery_hint"];
  const details = told["details"];
  const more = {
    details: typeof details === "object" && details !== null ? (details as Json) : {},
    recoveryHint: typeof hint === "string" ? hint : undefined,
    retryable: told["retryable"] === true,
  };
  return DENIED.has(kind) ? new Denied(kind, message, more) : new LegworkError(kind, message, more);
}
