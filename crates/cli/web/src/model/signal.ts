// A value that others can watch.
import { useEffect, useState } from "preact/hooks";

export class Signal<T> {
  #watchers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set value(next: T) {
    if (next !== this.current) {
      this.current = next;
      for (const watcher of [...this.#watchers]) watcher();
    }
  }

  /** Calls back at each change, until the result is called. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

/** The value of a signal; the component is drawn again when it changes. */
export function useSignal<T>(signal: Signal<T>): T {
  const [, redraw] = useState({});
  useEffect(() => {
    // It may have changed between the drawing and now.
    redraw({});
    return signal.watch(() => redraw({}));
  }, [signal]);
  return signal.value;
}

/** The time, as often as it changes what is shown: once a second while the page can be seen. */
export const now = new Signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));
