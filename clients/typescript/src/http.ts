/** The transport to a `legwork serve`: MCP's Streamable HTTP, with sessions and resumption. */

import { setTimeout as sleep } from "node:timers/promises";

import { type Conversation, PROTOCOL_VERSION, type Transport } from "./conversation.js";
import { ConnectionLost, LegworkError, errorFrom } from "./errors.js";
import { type Json, objectOf } from "./model.js";

/** How often, and at which distance, a broken call is looked for again. */
const RESUMPTIONS_MAX = 5;
const RESUMPTION_MS = 200;

/** The server does not know the session: the request was not looked at. */
class SessionGone extends ConnectionLost {}

export class HttpTransport implements Transport {
  readonly #conversation: Conversation;
  readonly #url: string;
  readonly #token: string;
  readonly #closing = new AbortController();
  #session: string | undefined;
  #opening: Promise<void> | undefined;
  #underWay = new Set<Promise<void>>();

  constructor(conversation: Conversation, url: string, token: string) {
    this.#conversation = conversation;
    const base = url.replace(/\/+$/, "");
    this.#url = base.endsWith("/mcp") ? base : `${base}/mcp`;
    this.#token = token;
  }

  /** Begins a session; fails if there is no server, or it does not accept the token. */
  async open(): Promise<void> {
    const params = this.#conversation.hello();
    const request = { jsonrpc: "2.0", id: 0, method: "initialize", params };
    const response = await this.#exchange("POST", { body: request });
    let result: Json | undefined;
    for await (const { message } of messages(response)) {
      if (message["result"] !== undefined) result = objectOf(message["result"]);
    }
    const session = response.headers.get("mcp-session-id");
    if (!session || !result) {
      throw new LegworkError("protocol_error", `${this.#url} is not a \`legwork serve\``);
    }
    this.#conversation.welcomed(result);
    this.#session = session;
    await this.#post({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  send(message: Json): void {
    const carried = this.#carry(message).finally(() => this.#underWay.delete(carried));
    this.#underWay.add(carried);
  }

  async close(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    if (session !== undefined) {
      // Commands that were waited for end with the session.
      await this.#exchange("DELETE", { session }).catch(() => undefined);
    }
    this.#closing.abort();
    await Promise.allSettled(this.#underWay);
  }

  /** Sends a message, and hands in what comes back for it. */
  async #carry(message: Json): Promise<void> {
    const id = "method" in message && typeof message["id"] === "number" ? message["id"] : undefined;
    try {
      await this.#post(message, id);
      if (id !== undefined) {
        // Has no effect if the answer was there.
        this.#conversation.fail(id, new ConnectionLost("the server answered without a result"));
      }
    } catch (error) {
      if (id !== undefined) this.#conversation.fail(id, lost(this.#url, error));
    }
  }

  async #post(message: Json, id?: number): Promise<void> {
    const session = this.#session;
    try {
      const response = await this.#exchange("POST", { body: message, session });
      await this.#hear(response, id);
    } catch (error) {
      if (!(error instanceof SessionGone) || this.#closing.signal.aborted) throw error;
      // Nothing was done: the server has been started again, or was idle for long.
      if (this.#session === session) {
        this.#opening ??= this.open().finally(() => (this.#opening = undefined));
        await this.#opening;
      }
      const response = await this.#exchange("POST", { body: message, session: this.#session });
      await this.#hear(response, id);
    }
  }

  /** Hands in messages until the answer to the request is among them. */
  async #hear(first: Response, id: number | undefined): Promise<void> {
    let response: Response | undefined = first;
    let last = "";
    let isAnswered = id === undefined;
    for (let attempt = 0; ; attempt += 1) {
      try {
        response ??= await this.#exchange("GET", { session: this.#session, last });
        for await (const event of messages(response)) {
          last = event.id || last;
          attempt = 0;
          if (event.message["id"] === id && !("method" in event.message)) isAnswered = true;
          this.#conversation.receive(event.message);
        }
        if (isAnswered || !last) return;
      } catch (error) {
        const isOver = attempt >= RESUMPTIONS_MAX || this.#closing.signal.aborted;
        if (isAnswered) return;
        if (isOver || !last || error instanceof LegworkError) throw error;
      }
      if (attempt >= RESUMPTIONS_MAX) throw new ConnectionLost("the call was not found again");
      response = undefined;
      if (attempt > 0) await sleep(RESUMPTION_MS);
    }
  }

  async #exchange(
    method: string,
    what: { body?: Json; session?: string | undefined; last?: string },
  ): Promise<Response> {
    const headers: Record<string, string> = {
      Accept: "application/json, text/event-stream",
      Authorization: `Bearer ${this.#token}`,
      "MCP-Protocol-Version": PROTOCOL_VERSION,
    };
    if (what.body) headers["Content-Type"] = "application/json";
    if (what.session) headers["Mcp-Session-Id"] = what.session;
    if (what.last) headers["Last-Event-ID"] = what.last;
    const request: RequestInit = { method, headers, signal: this.#closing.signal };
    if (what.body) request.body = JSON.stringify(what.body);
    const response = await fetch(this.#url, request);
    if (response.ok) return response;
    const text = await response.text();
    if (response.status === 404 && what.session) throw new SessionGone("the session is over");
    let told: Json = {};
    try {
      told = objectOf(objectOf(JSON.parse(text))["error"]);
    } catch {
      // The text is all that is known.
    }
    if (told["kind"] !== undefined) throw errorFrom(told);
    const kind = response.status === 401 ? "unauthorized" : "protocol_error";
    throw new LegworkError(kind, `HTTP ${response.status}: ${text.slice(0, 500)}`);
  }
}

/** What went wrong, as an error of ours. */
export function lost(url: string, error: unknown): LegworkError {
  if (error instanceof LegworkError) return error;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return new ConnectionLost(`${url}: ${cause instanceof Error ? cause.message : String(cause)}`);
}

/** The JSON-RPC messages of an answer, each with the id of its event. */
async function* messages(response: Response): AsyncGenerator<{ message: Json; id: string }> {
  const kind = (response.headers.get("content-type") ?? "").split(";")[0]?.trim();
  if (kind !== "text/event-stream" || !response.body) {
    const text = await response.text();
    if (text.trim()) yield { message: objectOf(JSON.parse(text)), id: "" };
    return;
  }
  let rest = "";
  let data: string[] = [];
  let id = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split(/\r?\n/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
      if (name === "data") data.push(value);
      else if (name === "id") id = value;
      else if (line === "") {
        const text = data.join("\n");
        // An event without data only says where to resume.
        if (text.trim()) yield { message: objectOf(JSON.parse(text)), id };
        else if (id) yield { message: { method: "notifications/none" }, id };
        data = [];
      }
    }
  }
}
