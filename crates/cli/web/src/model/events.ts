// The stream of what happens. It is opened again when it breaks, and goes on where it was.
import { ApiError, isAborted, query, send } from "./api";
import { mayAnswer, session } from "./session";
import { Signal } from "./signal";

export interface Happened {
  event: string;
  task_id?: string;
  approval_id?: string;
}

const NAMES = [
  "task_started",
  "task_cancelling",
  "task_standing",
  "task_ended",
  "task_removed",
  "waiting_for_input",
  "question_opened",
  "question_answered",
  "question_expired",
];

const RETRY_MS = 1000;

export type Link = "connecting" | "live" | "lost";

export const link = new Signal<Link>("connecting");

interface Listener {
  /** Something happened. */
  happened(what: Happened): void;
  /** It is not known what happened: look at everything. */
  lookAnew(): void;
}

/** Follows what happens, until the result is called. */
export function follow(listener: Listener): () => void {
  const abort = new AbortController();
  let last: string | undefined;

  const heard = ({ id, event, data }: Frame): void => {
    last = id ?? last;
    link.value = "live";
    if (!event) return;
    if (NAMES.includes(event)) listener.happened(JSON.parse(data));
    else listener.lookAnew();
  };

  const run = async (): Promise<void> => {
    for (;;) {
      try {
        const who = session.value;
        if (!who) return;
        // Whoever can answer says so: callers then wait for the answer.
        const answering = mayAnswer(who) ? "true" : undefined;
        const path = `events${query({ answering, after: last })}`;
        const { body } = await send("GET", path, { signal: abort.signal });
        if (body) await read(body, heard);
      } catch (error) {
        if (isAborted(error) || (error instanceof ApiError && error.isSignedOut)) return;
      }
      link.value = "lost";
      await new Promise((done) => setTimeout(done, RETRY_MS));
      if (abort.signal.aborted) return;
    }
  };

  void run();
  return () => abort.abort();
}

/** A server-sent event; one without a name tells how far we have heard everything. */
interface Frame {
  id?: string;
  event?: string;
  data: string;
}

/** Reads server-sent events to the end. An EventSource does so, too, but sends no header. */
async function read(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  heard: (frame: Frame) => void,
): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop() ?? "";
    for (const text of frames) heard({ data: "", ...frame(text) });
  }
}

function frame(text: string): Record<string, string> {
  const fields = text.split("\n").map((line) => line.split(/: (.*)/, 2));
  return Object.fromEntries(fields.map(([name, value]) => [name, value ?? ""]));
}
