// The keys of the whole page: what is typed anywhere on it, and what it answers.
import { Answering, HINT, type Key, NOTHING, type Offered, type Pressed } from "./answering";
import { Signal } from "./signal";

/** What keys can answer now, and what happens then. */
export interface Asked extends Offered {
  does: (pressed: Pressed) => void;
  /** A letter that moves about. */
  goes: (letter: string) => void;
  /** Whether it is on the screen, with the place of its hints. */
  isSeen: () => boolean;
  /** Brings it there. */
  see: () => void;
}

/** What is shown of keys. */
export interface KeysShown {
  /** The letter that Enter confirms. */
  armed: string | undefined;
  /** Whether a letter that allows would be taken. */
  isReady: boolean;
  /** Why a key did nothing. */
  hint: string;
}

/** The hint for a key that has brought the question back. */
const UNSEEN = "The question was not on the screen. Look at it, then press again";

export const keysShown = new Signal<KeysShown>({
  armed: undefined,
  isReady: false,
  hint: "",
});

const answering = new Answering();
let asked: Asked | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** What nobody can see cannot be answered; of what is off the screen only the moves are left. */
function offered(): Offered {
  if (!asked || document.hidden) return NOTHING;
  return asked.isSeen() ? asked : { ...NOTHING, moves: asked.moves };
}

/** Has keys answer this from now on; the result ends that. */
export function ask(what: Asked): () => void {
  asked = what;
  look(performance.now());
  return () => {
    if (asked === what) asked = undefined;
    // Not yet: another drawing of the same question may come at once.
    queueMicrotask(() => look(performance.now()));
  };
}

/** Presses a key, as the keyboard does, or a button that is operated without one. */
export function press(key: Key, nowMs: number): Pressed {
  const now = offered();
  const pressed = answering.press(key, now, nowMs);
  const isLetter = typeof key === "object" && key.letter !== " " && !now.moves.includes(key.letter);
  // A text in a field leaves the page where it is.
  const isMeant = isLetter || (key === "Enter" && pressed === "types");
  if (asked && !document.hidden && now !== asked && isMeant) {
    asked.see();
    look(nowMs, UNSEEN);
  } else {
    look(nowMs, pressed === "types" && now.letters !== "" ? HINT : "");
  }
  if (pressed !== "passes" && now === asked) asked.does(pressed);
  return pressed;
}

/** Shows what keys do now, and again when that changes by itself. */
function look(nowMs: number, why = ""): void {
  const now = offered();
  answering.show(now.subject, nowMs);
  const armed = answering.armed(nowMs);
  const isReady = now.letters !== "" && answering.isReady(nowMs);
  const before = keysShown.value;
  // The hint stays until what it asks for was done.
  const hint = why || (asked && !isReady ? before.hint : "");
  if (before.armed !== armed || before.isReady !== isReady || before.hint !== hint) {
    keysShown.value = { armed, isReady, hint };
  }
  clearTimeout(timer);
  const due = answering.due(nowMs);
  if (due !== undefined) {
    timer = setTimeout(() => look(performance.now()), Math.ceil(due - performance.now()) + 1);
  }
}

/** What a key is. None: a modifier alone. */
function keyOf(event: KeyboardEvent): Key | undefined {
  if (["Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock"].includes(event.key)) return;
  const isComposed = event.isComposing || ["Process", "Dead", "Unidentified"].includes(event.key);
  const isText = event.key.length === 1 || event.key === "Enter";
  if (isField(event.target)) return isText || isComposed ? "Text" : "Other";
  if (event.ctrlKey || event.altKey || event.metaKey) return "Other";
  if (isComposed || (event.repeat && event.key.length === 1)) return "Text";
  if (event.key === "Backspace") return { letter: "\b" };
  // A button that is operated by keys stands for its letter.
  const letter = letterOf(event.target);
  const isPress = event.key === " " || event.key === "Enter";
  const waits = letter !== undefined && answering.armed(event.timeStamp) === letter;
  if (letter && isPress && !event.repeat && !(waits && event.key === "Enter")) return { letter };
  if (event.key === "Enter") return event.repeat ? "Other" : "Enter";
  return event.key.length === 1 ? { letter: event.key } : "Other";
}

const isField = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.closest("input, textarea, select, .xterm") !== null;

const letterOf = (target: EventTarget | null): string | undefined =>
  target instanceof HTMLElement
    ? target.closest<HTMLElement>("button[data-letter]")?.dataset.letter
    : undefined;

addEventListener(
  "keydown",
  (event) => {
    const key = keyOf(event);
    if (key === undefined) return;
    const now = offered();
    const pressed = press(key, event.timeStamp);
    if (isField(event.target) || key === "Other") return;
    const isMove = typeof key === "object" && now.moves.includes(key.letter);
    if (pressed === "passes" && isMove) asked?.goes((key as { letter: string }).letter);
    // Neither does a key press the button that has the focus, nor does it scroll.
    if ((pressed !== "passes" && asked) || letterOf(event.target)) {
      event.preventDefault();
    }
  },
  true,
);

addEventListener("paste", (event) => {
  if (!isField(event.target)) press("Text", event.timeStamp);
});

const moved = (): void => look(performance.now());
addEventListener("scroll", moved, { capture: true, passive: true });
addEventListener("resize", moved);

// A letter waits for Enter, and for nothing else.
addEventListener("pointerdown", (event) => press("Click", event.timeStamp), true);

/** Whoever comes back to the page sees its question anew. */
function anew(): void {
  answering.show("", performance.now());
  look(performance.now());
}
addEventListener("focus", (event) => event.target === window && anew());
document.addEventListener("visibilitychange", anew);
