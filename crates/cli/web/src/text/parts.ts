// Finds the parts of a command in its text, so that each can be coloured by its verdict.
import type { Part, Verdict } from "../model/types";

export interface Stretch {
  text: string;
  verdict: Verdict | undefined;
}

const SEVERITY: Record<Verdict, number> = { allow: 0, ask: 1, deny: 2 };

/** The command in stretches. A part inside of another one shows only where it is graver. */
export function stretches(command: string, parts: readonly Part[]): Stretch[] {
  const verdicts: (Verdict | undefined)[] = new Array(command.length).fill(undefined);
  let at = 0;
  for (const [text, verdict] of parts) {
    // They come in the order of their beginnings.
    const place = text ? command.indexOf(text, at) : -1;
    if (place < 0) continue;
    at = place;
    for (let each = place; each < place + text.length; each += 1) {
      const known = verdicts[each];
      if (!known || SEVERITY[verdict] >= SEVERITY[known]) verdicts[each] = verdict;
    }
    at = place + 1;
  }
  const found: Stretch[] = [];
  for (let each = 0; each < command.length; each += 1) {
    const last = found.at(-1);
    const character = command.charAt(each);
    if (last && last.verdict === verdicts[each]) last.text += character;
    else found.push({ text: character, verdict: verdicts[each] });
  }
  return found;
}
