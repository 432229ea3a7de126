// Follows the output of a task: the newest of it, then what comes.
import { ApiError, isAborted, send } from "./api";
import { Signal } from "./signal";
import type { Status } from "./types";
import { Log, type StreamName } from "../text/log";

interface Told {
  stream?: StreamName;
  text?: string;
  skipped_bytes?: number;
  ended?: Status;
  error?: { message: string };
}

const RETRY_MS = 1000;

/** A log that is being filled. */
export class Following {
  log = new Log();
  /** Grows whenever there is something to draw. */
  readonly version = new Signal(0);
  readonly problem = new Signal<string | undefined>(undefined);
  readonly isOver = new Signal(false);
  #abort = new AbortController();
  #drawing = false;

  constructor(private id: string) {
    void this.#follow();
  }

  stop(): void {
    this.#abort.abort();
  }

  async #follow(): Promise<void> {
    while (!this.#abort.signal.aborted && !this.isOver.value) {
      try {
        await this.#once();
      } catch (error) {
        if (isAborted(error)) return;
        if (error instanceof ApiError && !error.isUnreachable) {
          this.problem.value = error.message;
          return;
        }
      }
      if (!this.isOver.value) await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  /** Reads one answer to its end; what it begins with takes the place of what was shown. */
  async #once(): Promise<void> {
    const path = `tasks/${encodeURIComponent(this.id)}/follow`;
    const response = await send("GET", path, { signal: this.#abort.signal });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    if (!reader) return;
    this.log = new Log();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#hear(JSON.parse(line));
      this.#draw();
      // What is read is drawn before more is read: the page stays responsive, and the server skips
      // what comes too fast.
      await nextFrame();
    }
  }

  #hear({ stream, text, skipped_bytes: skipped, ended, error }: Told): void {
    if (error) this.problem.value = error.message;
    if (ended) this.isOver.value = true;
    if (!stream) return;
    if (skipped) this.log.skip(stream, skipped);
    if (text) this.log.add(stream, text);
  }

  #draw(): void {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.version.value += 1;
    });
  }
}

/** The next frame; or soon, where none is drawn because the page is hidden. */
function nextFrame(): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, 200);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      done();
    });
  });
}
