// Cuts a command into stretches, so that each of its parts can be coloured by its verdict.
import type { Part, Verdict } from "../model/types";

export interface Stretch {
  text: string;
  verdict: Verdict | undefined;
}

const SEVERITY: Record<Verdict, number> = { allow: 0, ask: 1, deny: 2 };

/** Where each character begins that a place in bytes can name. */
function places(command: string): Map<number, number> {
  const found = new Map<number, number>();
  let bytes = 0;
  let at = 0;
  for (const character of command) {
    found.set(bytes, at);
    bytes += new TextEncoder().encode(character).length;
    at += character.length;
  }
  return found.set(bytes, at);
}

/** The command in stretches. A part inside of another one shows only where it is graver. */
export function stretches(command: string, parts: readonly Part[]): Stretch[] {
  const verdicts: (Verdict | undefined)[] = new Array(command.length).fill(undefined);
  const place = places(command);
  for (const { verdict, span } of parts) {
    const end = place.get(span.end) ?? 0;
    for (let each = place.get(span.start) ?? end; each < end; each += 1) {
      const known = verdicts[each];
      if (!known || SEVERITY[verdict] >= SEVERITY[known]) verdicts[each] = verdict;
    }
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
