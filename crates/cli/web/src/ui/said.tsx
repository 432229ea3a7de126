// What is said of keys and clicks at something that they answer.
import type { JSX } from "preact";
import { keysShown } from "../model/keys";
import { useSignal } from "../model/signal";
import { TOO_SOON } from "./settled";

interface Given {
  /** What each letter does. */
  letters: [letter: string, text: string][];
  /** Whether keys are for it. */
  isChosen: boolean;
  /** Whether a click came too soon. */
  isHasty: boolean;
}

/** What Enter would do now, or why a key or a click did nothing. */
export function Said({ letters, isChosen, isHasty }: Given): JSX.Element {
  const { armed: letter, hint } = useSignal(keysShown);
  const armed = isChosen && letters.find(([known]) => known === letter);
  return (
    <span role="status" class={armed ? "said armed" : "said"}>
      {armed ? `${armed[1]}? Enter confirms, Esc cancels` : isHasty ? TOO_SOON : isChosen && hint}
    </span>
  );
}
