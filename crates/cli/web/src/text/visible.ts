// Makes characters visible that do not print, or that change how others do. The same list as the
// one of `visible` in the gate, so that a question reads the same everywhere.

const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

export const escaped = (character: string): string =>
  `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;

/** One line in which nothing hides. */
export function visible(text: string): string {
  return text.replace(HIDDEN, escaped);
}

/** The same, but lines stay lines. */
export function visibleLines(text: string): string {
  return text.split("\n").map(visible).join("\n");
}

export interface Shown {
  text: string;
  /** Whether it stands for a character that does not print. */
  isEscape: boolean;
}

/** A text in pieces: what prints, and escapes in the place of what does not. */
export function pieces(text: string): Shown[] {
  const found: Shown[] = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > at) found.push({ text: text.slice(at, match.index), isEscape: false });
    found.push({ text: escaped(match[0]), isEscape: true });
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push({ text: text.slice(at), isEscape: false });
  return found;
}
