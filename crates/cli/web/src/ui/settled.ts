// Which buttons have stood where they are for half a second: a click on another one was meant for
// what was there before.

/** How long a button has to stand still. */
const SETTLE_MS = 500;

/** What a click is told that came too soon. */
export const TOO_SOON = "That button has just appeared or moved: click again";

interface Place {
  at: string;
  sinceMs: number;
  /** Whether a pointer went down on it where it stood, and it stands there still. */
  isPressed: boolean;
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
    if (isAnew || at !== place.at) Object.assign(place, { at, sinceMs: nowMs, isPressed: false });
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
  const place = { at: "", sinceMs: performance.now(), isPressed: false };
  const press = (): void => {
    look();
    place.isPressed = "settled" in button.dataset;
  };
  button.addEventListener("pointerdown", press);
  places.set(button, place);
  look();
  return () => {
    button.removeEventListener("pointerdown", press);
    places.delete(button);
    if (places.size > 0) return;
    mutations.disconnect();
    removeEventListener("scroll", moved, { capture: true });
    removeEventListener("resize", moved);
    removeEventListener("focus", anew);
    document.removeEventListener("visibilitychange", anew);
  };
}

/** Whether a click is for what its button says: it stood still before and while it was pressed. */
export function isMeant(event: MouseEvent): boolean {
  look();
  const button = event.currentTarget as HTMLElement;
  const place = places.get(button);
  const isPressed = place?.isPressed === true;
  if (place) place.isPressed = false;
  return isPressed && event.detail === 1 && "settled" in button.dataset;
}
