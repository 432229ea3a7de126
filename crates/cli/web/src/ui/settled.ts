// Which buttons have stood where they are for half a second: a click on another one was meant for
// what was there before.

/** How long a button has to stand still. */
const SETTLE_MS = 500;

/** What a click is told that came too soon. */
export const TOO_SOON = "That button has just appeared or moved: click again";

interface Place {
  at: string;
  sinceMs: number;
}

const places = new Map<HTMLElement, Place>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Looks where the buttons are. */
function look(isAnew = false): void {
  const nowMs = performance.now();
  let next = Infinity;
  for (const [button, place] of places) {
    const { x, y, width, height } = button.getBoundingClientRect();
    const at = [x, y, width, height].join(" ");
    if (isAnew || at !== place.at) [place.at, place.sinceMs] = [at, nowMs];
    const left = place.sinceMs + SETTLE_MS - nowMs;
    if (left > 0) next = Math.min(next, left);
    if (left > 0 === "settled" in button.dataset) button.toggleAttribute("data-settled", left <= 0);
  }
  clearTimeout(timer);
  if (next < Infinity) timer = setTimeout(look, Math.ceil(next) + 1);
}

const mutations = new MutationObserver(() => look());
const moved = (): void => look();
const anew = (): void => look(true);

/** Looks after a button, as its `ref`, until it is gone. */
export function settling(button: HTMLElement | null): (() => void) | undefined {
  if (!button) return undefined;
  if (places.size === 0) {
    const what = { subtree: true, childList: true, attributes: true, characterData: true };
    mutations.observe(document.body, what);
    addEventListener("scroll", moved, { capture: true, passive: true });
    addEventListener("resize", moved);
    addEventListener("focus", anew);
    document.addEventListener("visibilitychange", anew);
  }
  places.set(button, { at: "", sinceMs: performance.now() });
  look();
  return () => {
    places.delete(button);
    if (places.size > 0) return;
    mutations.disconnect();
    removeEventListener("scroll", moved, { capture: true });
    removeEventListener("resize", moved);
    removeEventListener("focus", anew);
    document.removeEventListener("visibilitychange", anew);
  };
}

/** Whether a click on a button is for what it says. */
export function isSettled(button: HTMLElement): boolean {
  look();
  return "settled" in button.dataset;
}
