// The keys of the whole page: what is typed anywhere on it, and what it answers.
import { Answering, type Key, NOTHING, type Offered, type Pressed } from "./answering";
import { Signal } from "./signal";

/** What keys can answer now, and what happens then. */
export interface Asked extends Offered {
  does: (pressed: Pressed) => void;
  /** A letter that moves about. */
  goes: (letter: string) => void;
}

/** What is shown of keys. */
export interface KeysShown {
  /** The letter that Enter confirms. */
  armed: string | undefined;
  /** Whether a letter that allows would be taken. */
  isReady: boolean;
  /** Whether something was typed that answers nothing. */
  isTyping: boolean;
}

export const keysShown = new Signal<KeysShown>({
  armed: undefined,
  isReady: false,
  isTyping: false,
});

const answering = new Answering();
let asked: Asked | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** What nobody can see cannot be answered. */
const offered = (): Asked | Offered => (asked && !document.hidden ? asked : NOTHING);

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
  look(nowMs, pressed === "types" && now.letters !== "");
  if (pressed !== "passes" && "does" in now) now.does(pressed);
  return pressed;
}

/** Shows what keys do now, and again when that changes by itself. */
function look(nowMs: number, isTyping = false): void {
  answering.show(offered().subject, nowMs);
  const armed = answering.armed(nowMs);
  const isReady = answering.isReady(nowMs);
  const before = keysShown.value;
  // The hint stays until what it asks for was done.
  const hints = isTyping || (before.isTyping && !isReady);
  if (before.armed !== armed || before.isReady !== isReady || before.isTyping !== hints) {
    keysShown.value = { armed, isReady, isTyping: hints };
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
    if (pressed === "passes" && isMove && "goes" in now) now.goes((key as { letter: string }).letter);
    // Neither does a key press the button that has the focus, nor does it scroll.
    if ((pressed !== "passes" && now.letters !== "") || letterOf(event.target)) {
      event.preventDefault();
    }
  },
  true,
);

addEventListener("paste", (event) => {
  if (!isField(event.target)) press("Text", event.timeStamp);
});

// A letter waits for Enter, and for nothing else.
addEventListener("pointerdown", (event) => press("Other", event.timeStamp), true);

/** Whoever comes back to the page sees its question anew. */
function anew(): void {
  answering.show("", performance.now());
  look(performance.now());
}
addEventListener("focus", (event) => event.target === window && anew());
document.addEventListener("visibilitychange", anew);
