// Decides which keys answer: a deny takes effect at once, everything that lets something happen
// takes two acts, a letter by itself and then Enter, and a typed word answers nothing.
//
// `legwork top` and the prompt at a terminal decide in the same way (`src/answering.rs`), and
// `tests/answering.json` holds both to the same cases.

/** How long nothing is typed before a letter that allows, and how long a question is shown. */
const PAUSE_MS = 1000;
/** The same after a word. */
const WORD_PAUSE_MS = 3000;
/** How long Enter confirms a letter. */
const ARMED_MS = 5000;
/** Enter this soon after its letter came with it. */
const CONFIRM_MS = 100;
/** A key this long after the one before it was pressed by itself. A held key repeats sooner. */
const APART_MS = 300;
/** Denies in a row, each pressed by itself, which are no typing and no held key. */
const DENIES_MIN = 2;

export const DENY = "n";
export const DENY_WITH_NOTE = "N";

export const HINT =
  "Typing answers nothing. Pause a moment; then n denies, one letter and Enter allow";

/**
 * What was pressed: a character, Enter, a text (pasted, typed into a field, held), the mouse,
 * another key.
 */
export type Key = { letter: string } | "Enter" | "Text" | "Click" | "Other";

/** What a key did. */
export type Pressed =
  | "passes"
  | "denies"
  | "denies with note"
  | "cancels"
  | "types"
  | { arms: string }
  | { confirms: string };

/** What keys can answer now. */
export interface Offered {
  /** What is asked, with all that is shown of it: an answer is to this and to nothing else. */
  subject: string;
  /** The letters that answer. */
  letters: string;
  /** The letters that move about, unless they are part of a word. */
  moves: string;
}

export const NOTHING: Offered = { subject: "", letters: "", moves: "" };

/** Characters with no pause between them. */
interface Burst {
  typed: number;
  moved: boolean;
  /** What was shown when it began. */
  subject: string;
  hasDenied: boolean;
  /** Denies at its end that were each pressed by itself, and refused. */
  refused: number;
}

const fresh = (): Burst => ({
  typed: 0,
  moved: false,
  subject: "",
  hasDenied: false,
  refused: 0,
});

/** What was typed lately, and what is shown. */
export class Answering {
  #subject = "";
  #shownMs = 0;
  #lastMs = -Infinity;
  /** When a word was typed last. */
  #wordMs = -Infinity;
  #burst = fresh();
  #armed: { letter: string; atMs: number; isVoid: boolean } | undefined;

  /** Notes what is on the screen now. */
  show(subject: string, nowMs: number): void {
    if (subject === this.#subject) return;
    this.#subject = subject;
    this.#shownMs = nowMs;
    if (this.#armed) this.#armed.isVoid = true;
  }

  /** The letter that Enter confirms now. */
  armed(nowMs: number): string | undefined {
    return this.#takesEnter(nowMs) ? this.#armed?.letter : undefined;
  }

  /** Whether a letter that allows would wait for Enter now. */
  isReady(nowMs: number): boolean {
    return nowMs >= this.#readyAt();
  }

  /** When any of this will be otherwise without a key. */
  due(nowMs: number): number | undefined {
    const armed = this.#armed && !this.#armed.isVoid ? this.#armed.atMs : -Infinity;
    const all = [this.#readyAt(), armed + CONFIRM_MS, armed + ARMED_MS];
    const later = all.filter((atMs) => atMs > nowMs);
    return later.length > 0 ? Math.min(...later) : undefined;
  }

  /** Takes a key. */
  press(key: Key, offered: Offered, nowMs: number): Pressed {
    this.show(offered.subject, nowMs);
    if (typeof key === "object") return this.#letter(key.letter, offered, nowMs);
    if (key === "Enter") return this.#enter(offered, nowMs);
    if (key === "Text") {
      this.#beginOrGoOn(nowMs);
      this.#burst.typed += 2;
      this.#burst.refused = 0;
      this.#armed = undefined;
      this.#lastMs = this.#wordMs = nowMs;
      return "types";
    }
    if (key === "Other") {
      this.#beginOrGoOn(nowMs);
      this.#lastMs = nowMs;
    }
    const wasArmed = this.#armed !== undefined;
    this.#armed = undefined;
    return wasArmed ? "cancels" : "passes";
  }

  #takesEnter(nowMs: number): boolean {
    if (!this.#armed || this.#armed.isVoid) return false;
    const ageMs = nowMs - this.#armed.atMs;
    return ageMs >= CONFIRM_MS && ageMs < ARMED_MS;
  }

  #readyAt(): number {
    return Math.max(
      this.#lastMs + PAUSE_MS,
      this.#wordMs + WORD_PAUSE_MS,
      this.#shownMs + PAUSE_MS,
    );
  }

  /** A pause ends what was typed. */
  #beginOrGoOn(nowMs: number): void {
    if (nowMs >= this.#lastMs + PAUSE_MS) this.#burst = fresh();
    if (this.#burst.typed === 0) this.#burst.subject = this.#subject;
  }

  #letter(letter: string, offered: Offered, nowMs: number): Pressed {
    const armed = this.#armed;
    this.#armed = undefined;
    const wasArmed = armed !== undefined && !armed.isVoid && nowMs < armed.atMs + ARMED_MS;
    const isReady = this.isReady(nowMs);
    const lastMs = this.#lastMs;
    this.#beginOrGoOn(nowMs);
    this.#lastMs = nowMs;
    const burst = this.#burst;
    const isTyping = burst.typed > 0;
    const asks = offered.letters.includes(DENY);
    const { refused } = burst;
    burst.refused = 0;
    if (offered.moves.includes(letter) && !(isTyping && asks)) {
      burst.moved = true;
      return "passes";
    }
    burst.typed += 1;
    const isOffered = offered.letters.includes(letter);
    if (isOffered && (letter === DENY || letter === DENY_WITH_NOTE)) {
      const presses = nowMs >= lastMs + APART_MS ? refused + 1 : 0;
      // What was typed at a question is for that one, and for none that takes its place.
      if (burst.subject === this.#subject || presses >= DENIES_MIN) {
        burst.hasDenied = true;
        return letter === DENY ? "denies" : "denies with note";
      }
      burst.refused = presses;
      this.#wordMs = nowMs;
      return "types";
    }
    if (isOffered && isReady && !wasArmed) {
      this.#armed = { letter, atMs: nowMs, isVoid: false };
      return { arms: letter };
    }
    if (isTyping || burst.moved || wasArmed || !isOffered) this.#wordMs = nowMs;
    return isOffered || wasArmed || asks ? "types" : "passes";
  }

  #enter(offered: Offered, nowMs: number): Pressed {
    const armed = this.#armed;
    if (armed) {
      const isInTime = this.#takesEnter(nowMs);
      this.#armed = undefined;
      this.#lastMs = nowMs;
      if (!isInTime) return "types";
      // It was no typing: the next question can be denied at once.
      this.#burst = fresh();
      return { confirms: armed.letter };
    }
    const isTyping =
      this.#burst.typed > 0 &&
      (nowMs < this.#lastMs + PAUSE_MS || nowMs < this.#wordMs + WORD_PAUSE_MS);
    if (isTyping && (offered.letters.includes(DENY) || this.#burst.hasDenied)) {
      this.#lastMs = nowMs;
      return "types";
    }
    this.#beginOrGoOn(nowMs);
    this.#lastMs = nowMs;
    return "passes";
  }
}
