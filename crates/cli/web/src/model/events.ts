// The stream of what happens. It is opened again when it breaks, and goes on where it was.
import { ApiError, address, get, query } from "./api";
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
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = "";
  let isOver = false;

  const noted = (event: Event): void => {
    last = (event as MessageEvent).lastEventId || last;
    link.value = "live";
  };

  const open = (): void => {
    const who = session.value;
    if (isOver || !who) return;
    // Whoever can answer says so: callers then wait for the answer.
    const answering = mayAnswer(who) ? "true" : undefined;
    source = new EventSource(address(`events${query({ answering, after: last || undefined })}`));
    for (const name of ["following", "lagged"]) {
      source.addEventListener(name, (event) => {
        noted(event);
        listener.lookAnew();
      });
    }
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        noted(event);
        listener.happened(JSON.parse((event as MessageEvent).data));
      });
    }
    source.onerror = () => {
      link.value = "lost";
      // A browser comes back by itself unless the answer was an error.
      if (source?.readyState !== EventSource.CLOSED) return;
      source.close();
      timer = setTimeout(() => void retry(), RETRY_MS);
    };
  };

  const retry = async (): Promise<void> => {
    try {
      // Tells whether we have to sign in again, which an EventSource does not.
      await get("session");
    } catch (error) {
      if (error instanceof ApiError && error.isSignedOut) return;
    }
    open();
  };

  open();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source?.close();
  };
}
