/** One conversation in MCP: requests go out, answers and questions come in, over any transport. */

import { ConnectionLost, LegworkError } from "./errors.js";
import {
  type Answer,
  type Decision,
  type Json,
  type Question,
  type Replied,
  listOf,
  objectOf,
  textOf,
} from "./model.js";

/** The revision of MCP that the library speaks. */
export const PROTOCOL_VERSION = "2025-11-25";

/** Asks for the envelope of a result beside its text. */
const STRUCTURED = "legwork/structured";

/** Has the fields of a question beside its text. */
const QUESTION = "legwork/question";

/** A call hears something every five seconds. After this long without a word nobody is there. */
export const limits = { silenceMs: 60_000 };

/** Decides about a command that has to be approved. */
export type Approve = (question: Question) => Replied | Promise<Replied>;

/** Carries messages. */
export interface Transport {
  send(message: Json): void;
  close(): Promise<void>;
}

interface Waiting {
  resolve(result: Json): void;
  reject(error: Error): void;
}

export class Conversation {
  instructions = "";
  #last = 0;
  #pending = new Map<number, Waiting>();
  #over: LegworkError | undefined;
  #heardAt = 0;
  #watch: NodeJS.Timeout | undefined;
  #transport: Transport | undefined;
  readonly #name: string;
  readonly #approve: Approve | undefined;

  constructor(name: string, approve: Approve | undefined) {
    this.#name = name;
    this.#approve = approve;
  }

  /** Speaks over this transport. */
  over(transport: Transport): void {
    this.#transport = transport;
  }

  /** The parameters of the first request. */
  hello(): Json {
    return {
      protocolVersion: PROTOCOL_VERSION,
      capabilities: this.#approve ? { elicitation: {} } : {},
      clientInfo: { name: this.#name, version: "1" },
    };
  }

  /** Takes the answer to the first request. */
  welcomed(result: Json): void {
    const version = textOf(result["protocolVersion"]);
    if (version !== PROTOCOL_VERSION) {
      throw new LegworkError("protocol_error", `the server speaks MCP ${version}`);
    }
    this.instructions = textOf(result["instructions"]);
  }

  /** Sends a request. An aborted call stops its command. */
  request(method: string, params: Json, signal?: AbortSignal): Promise<Json> {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(this.#over);
      if (signal?.aborted) return reject(signal.reason);
      const id = ++this.#last;
      const abort = (): void => {
        if (!this.#pending.has(id)) return;
        this.notify("notifications/cancelled", { requestId: id });
        this.#take(id)?.reject(signal?.reason);
      };
      const settled = (): void => signal?.removeEventListener("abort", abort);
      signal?.addEventListener("abort", abort, { once: true });
      this.#pending.set(id, {
        resolve: (result) => (settled(), resolve(result)),
        reject: (error) => (settled(), reject(error)),
      });
      if (this.#pending.size === 1) this.#heardAt = performance.now();
      this.#watch ??= setInterval(() => this.#look(), Math.min(1000, limits.silenceMs)).unref();
      this.#transport?.send({ jsonrpc: "2.0", id, method, params });
    });
  }

  notify(method: string, params?: Json): void {
    this.#transport?.send({ jsonrpc: "2.0", method, ...(params ? { params } : {}) });
  }

  /** Calls a tool as a model does. An error of the tool is an answer, too. */
  async call(tool: string, input: Json, signal?: AbortSignal): Promise<Answer> {
    const given = Object.entries(input).filter(([, value]) => value !== undefined);
    // Progress tells that a long call is alive; without it the server cuts calls short.
    const _meta = { [STRUCTURED]: true, progressToken: ++this.#last };
    const params = { name: tool, arguments: Object.fromEntries(given), _meta };
    const result = await this.request("tools/call", params, signal);
    const envelope = result["structuredContent"];
    if (typeof envelope !== "object" || envelope === null) {
      throw new LegworkError(
        "protocol_error",
        "the result has no data: the program is older than this library",
      );
    }
    const texts = listOf(result["content"]).map((it) => textOf(objectOf(it)["text"]));
    const isError = result["isError"] === true;
    return { tool, text: texts.join("\n"), isError, envelope: envelope as Json };
  }

  /** Takes a message from the transport. */
  receive(message: Json): void {
    this.#heardAt = performance.now();
    const id = message["id"];
    if (typeof message["method"] === "string") {
      if (id !== undefined) void this.#asked(message["method"], id, objectOf(message["params"]));
      return;
    }
    const waiting = typeof id === "number" ? this.#take(id) : undefined;
    if (message["error"] === undefined) return waiting?.resolve(objectOf(message["result"]));
    const error = objectOf(message["error"]);
    const details = { code: error["code"] };
    waiting?.reject(new LegworkError("protocol_error", textOf(error["message"]), { details }));
  }

  /** One request has failed. */
  fail(id: number, error: Error): void {
    this.#take(id)?.reject(error);
  }

  /** Nothing can be sent or received any more; the first reason stays. */
  lost(error: LegworkError): void {
    if (this.#over) return;
    this.#over = error;
    for (const id of [...this.#pending.keys()]) this.fail(id, error);
  }

  /** Ends the conversation; calls under way fail. May be called again. */
  async close(): Promise<void> {
    this.lost(new ConnectionLost("the connection was closed", "closed"));
    await this.#transport?.close();
  }

  #take(id: number): Waiting | undefined {
    const waiting = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) {
      clearInterval(this.#watch);
      this.#watch = undefined;
    }
    return waiting;
  }

  #look(): void {
    if (performance.now() - this.#heardAt < limits.silenceMs) return;
    const error = new ConnectionLost(`nothing was heard for ${limits.silenceMs / 1000} s`);
    for (const id of [...this.#pending.keys()]) this.fail(id, error);
  }

  async #asked(method: string, id: unknown, params: Json): Promise<void> {
    const reply = (outcome: Json): void => {
      this.#transport?.send({ jsonrpc: "2.0", id, ...outcome });
    };
    if (method === "ping") return reply({ result: {} });
    if (method !== "elicitation/create" || !this.#approve) {
      return reply({ error: { code: -32601, message: `there is no method ${method}` } });
    }
    let replied: Replied;
    try {
      replied = await this.#approve(questionOf(params));
    } catch (error) {
      process.emitWarning(`the approval callback failed: ${String(error)}`);
    }
    reply({ result: elicited(replied) });
  }
}

function questionOf(params: Json): Question {
  const data = objectOf(objectOf(params["_meta"])[QUESTION]);
  const schema = objectOf(objectOf(params["requestedSchema"])["properties"]);
  return {
    text: textOf(params["message"]),
    replies: listOf(objectOf(schema["decision"])["enum"]) as readonly Decision[],
    approvalId: textOf(data["approval_id"]),
    command: textOf(data["command"]),
    reason: textOf(data["reason"]),
    cause: textOf(data["cause"]),
    workdir: textOf(data["workdir"]),
    data,
  };
}

function elicited(replied: Replied): Json {
  if (replied === undefined) return { action: "cancel" };
  if (typeof replied === "object") return { action: "accept", content: { ...replied } };
  const decision = typeof replied === "string" ? replied : replied ? "allow_once" : "deny";
  return { action: "accept", content: { decision } };
}
