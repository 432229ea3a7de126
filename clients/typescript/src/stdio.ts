/** The transport over the pipes of a `legwork mcp` that belongs to this connection. */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";

import type { Conversation, Transport } from "./conversation.js";
import { ConnectionLost } from "./errors.js";
import type { Json } from "./model.js";

/** How long the program may take to stop the commands that were waited for, and to end. */
export const farewell = { ms: 10_000 };

/** Most characters of the program's complaints that are told when it dies. */
const COMPLAINTS_MAX = 4000;

export class StdioTransport implements Transport {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #ended: Promise<unknown>;
  #complaints = "";

  constructor(
    conversation: Conversation,
    program: string,
    options: readonly string[],
    env: NodeJS.ProcessEnv | undefined,
  ) {
    // A process group of its own: Ctrl-C is for this process, which then closes the connection.
    const how = { detached: true, ...(env ? { env } : {}) };
    this.#child = spawn(program, ["mcp", ...options], { ...how, stdio: "pipe" });
    this.#ended = new Promise((resolve) => this.#child.once("close", resolve));
    this.#child.once("error", (error) => {
      conversation.lost(new ConnectionLost(`${program}: ${error.message}`));
    });
    this.#child.once("close", (code, signal) => {
      const told = this.#complaints.trim();
      const how = `the program has ended (exit code ${code ?? signal})`;
      conversation.lost(new ConnectionLost(told ? `${how}: ${told}` : how));
    });
    // What cannot be written any more is told by the program's end.
    this.#child.stdin.on("error", () => undefined);
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#complaints = (this.#complaints + text).slice(0, COMPLAINTS_MAX);
    });
    createInterface({ input: this.#child.stdout, crlfDelay: Infinity }).on("line", (line) => {
      try {
        conversation.receive(JSON.parse(line) as Json);
      } catch {
        process.emitWarning(`legwork printed a line that is not JSON: ${line.slice(0, 200)}`);
      }
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  send(message: Json): void {
    if (this.#child.stdin.writable) this.#child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  async close(): Promise<void> {
    if (this.#child.pid === undefined) return;
    // The end of its input is how the program knows that the client has left.
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), farewell.ms);
    await this.#ended;
    clearTimeout(timer);
  }
}
