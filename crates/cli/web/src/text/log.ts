// The output of a command as lines with colours. Whatever a command prints, this costs bounded
// memory: the newest lines are kept, and the beginning of a line that is very long.
import { type Look, PLAIN, type Painted, after, painted } from "./colours";
import { bytes } from "./format";
import { pieces } from "./visible";

export type StreamName = "stdout" | "stderr";

export interface Span extends Painted {
  text: string;
}

export interface Line {
  stream: StreamName;
  spans: Span[];
  /** Characters that are shown. */
  length: number;
  /** Characters that are not. */
  cut: number;
  /** A note of ours instead of output. */
  note?: string;
}

/** Lines that are drawn together. */
export interface Block {
  id: number;
  lines: Line[];
  /** Grows with each change. */
  version: number;
}

export const LINE_CHARACTERS_MAX = 4000;
const BLOCK_LINES = 100;
const BLOCKS_MAX = 60;
/** An escape sequence that is longer than this is no such thing. */
const SEQUENCE_CHARACTERS_MAX = 4096;

/** Text without control characters; a sequence; or a single control character. */
const TOKEN = new RegExp(
  [
    "[^\\u0000-\\u001f\\u007f-\\u009f]+",
    // CSI, then strings that a terminal takes as commands (OSC, DCS, PM, APC, SOS), then the rest.
    "(?:\\u001b\\[|\\u009b)[0-?]*[ -/]*[@-~]",
    "(?:\\u001b[\\]P^_X]|[\\u0090\\u0098\\u009d-\\u009f])[^\\u0007\\u001b\\u009c]*(?:\\u0007|\\u001b\\\\|\\u009c)",
    "\\u001b[ -/]+[0-~]",
    "\\u001b[0-Z\\\\^_`-~]",
    "[\\u0000-\\u001f\\u007f-\\u009f]",
  ].join("|"),
  "gu",
);

const COLOUR = /^(?:\u001b\[|\u009b)([0-9;:]*)m$/u;

/** What may be the beginning of a sequence, at the end of a piece. */
const UNFINISHED =
  /(?:\u001b|\u009b|\u001b\[|\u009b)[0-?]*[ -/]*$|(?:\u001b[\]P^_X]|[\u0090\u0098\u009d-\u009f])[^\u0007\u001b\u009c]*\u001b?$/u;

/** The place of a stream. */
class Pen {
  line: Line | undefined;
  block: Block | undefined;
  look: Look = PLAIN;
  /** The next text begins the line anew: progress is shown as it is last. */
  isReturned = false;
  rest = "";
}

export class Log {
  blocks: Block[] = [];
  /** Lines that were here and are not any more. */
  dropped = 0;
  /** Bytes that were never here. */
  skipped = 0;
  #nextId = 0;
  #pens: Record<StreamName, Pen> = { stdout: new Pen(), stderr: new Pen() };

  /** Adds what a stream printed. */
  add(stream: StreamName, text: string): void {
    const pen = this.#pens[stream];
    let input = pen.rest + text;
    pen.rest = "";
    const unfinished = UNFINISHED.exec(input);
    if (unfinished && input.length - unfinished.index <= SEQUENCE_CHARACTERS_MAX) {
      pen.rest = input.slice(unfinished.index);
      input = input.slice(0, unfinished.index);
    }
    for (const [token] of input.matchAll(TOKEN)) this.#take(stream, pen, token);
  }

  #take(stream: StreamName, pen: Pen, token: string): void {
    const first = token.charCodeAt(0);
    if (first >= 0x20 && first !== 0x7f && !(first >= 0x80 && first < 0xa0)) {
      this.#write(stream, pen, token);
    } else if (token === "\n") {
      this.#open(stream, pen);
      pen.line = undefined;
      pen.isReturned = false;
    } else if (token === "\r") {
      pen.isReturned = true;
    } else if (token === "\t") {
      this.#write(stream, pen, "\t");
    } else if (token === "\b") {
      this.#erase(pen);
    } else if (token.length > 1) {
      const colour = COLOUR.exec(token);
      if (colour) pen.look = after(pen.look, colour[1] ?? "");
    } else if (token !== "\u0007" && token !== "\u0000") {
      this.#write(stream, pen, token);
    }
  }

  /** The line that a stream is in; a new one if it has none. */
  #open(stream: StreamName, pen: Pen): Line {
    if (pen.line && pen.block) return pen.line;
    const line: Line = { stream, spans: [], length: 0, cut: 0 };
    pen.line = line;
    pen.block = this.#append(line);
    return line;
  }

  #append(line: Line): Block {
    let block = this.blocks.at(-1);
    if (!block || block.lines.length >= BLOCK_LINES) {
      block = { id: this.#nextId++, lines: [], version: 0 };
      this.blocks.push(block);
      if (this.blocks.length > BLOCKS_MAX) {
        this.dropped += this.blocks.shift()?.lines.length ?? 0;
      }
    }
    block.lines.push(line);
    block.version += 1;
    return block;
  }

  #write(stream: StreamName, pen: Pen, text: string): void {
    const line = this.#open(stream, pen);
    if (pen.block) pen.block.version += 1;
    if (pen.isReturned) {
      pen.isReturned = false;
      Object.assign(line, { spans: [], length: 0, cut: 0 });
    }
    const room = LINE_CHARACTERS_MAX - line.length;
    if (text.length > room) {
      line.cut += text.length - Math.max(0, room);
      text = text.slice(0, Math.max(0, room));
    }
    if (!text) return;
    line.length += text.length;
    const look = painted(pen.look);
    if (text === "\t") {
      append(line, { ...look, text });
      return;
    }
    for (const piece of pieces(text)) {
      const span = piece.isEscape ? { ...look, classes: `${look.classes} escape` } : look;
      append(line, { ...span, text: piece.text });
    }
  }

  #erase(pen: Pen): void {
    const last = pen.line?.spans.at(-1);
    if (pen.line && pen.block && last?.text) {
      last.text = last.text.slice(0, -1);
      pen.line.length -= 1;
      pen.block.version += 1;
    }
  }

  /** Says in a line of its own that so many bytes of output are left out. */
  skip(stream: StreamName, count: number): void {
    this.skipped += count;
    const pen = this.#pens[stream];
    Object.assign(pen, { line: undefined, isReturned: false, rest: "" });
    const note = `${bytes(count)} of ${stream} are left out here`;
    this.#append({ stream, spans: [], length: 0, cut: 0, note });
  }

  get isEmpty(): boolean {
    return this.blocks.length === 0;
  }
}

/** Adds a span, to the one before if it looks the same. */
function append(line: Line, span: Span): void {
  const last = line.spans.at(-1);
  const isSame =
    last &&
    last.classes === span.classes &&
    last.color === span.color &&
    last.background === span.background;
  if (isSame) last.text += span.text;
  else line.spans.push(span);
}
