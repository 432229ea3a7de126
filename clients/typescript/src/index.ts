/**
 * Runs commands for AI agents through Legwork: judged, sandboxed, supervised, recorded.
 *
 *     const lw = await Legwork.open({ workspace: "path/to/project" });
 *     const { exitCode, stdout } = await lw.run("npm test");
 *     await lw.close();
 */

export type { Approve } from "./conversation.js";
export {
  CommandFailed,
  ConnectionLost,
  Denied,
  LegworkError,
  TaskEnded,
  WaitTimeout,
} from "./errors.js";
export {
  Legwork,
  type ExecOptions,
  type LegworkOptions,
  type RunOptions,
  type StartOptions,
  Task,
  type WaitOptions,
} from "./legwork.js";
export type {
  Answer,
  Artifact,
  Decision,
  Question,
  Replied,
  Result,
  Stopped,
  TaskStatus,
  Waited,
} from "./model.js";
export { findProgram, toolDefinitions } from "./program.js";
