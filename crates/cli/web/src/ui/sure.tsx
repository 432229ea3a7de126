// A button that asks once more before it does something. Changes are not applied or thrown
// away by a second click that comes too soon; a task is stopped at once.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { TOO_SOON, isSettled, settling } from "./settled";
import { Problem } from "./words";

interface Given {
  /** The button. */
  text: string;
  /** What is asked. */
  question: string;
  yes: string;
  no: string;
  /** The second click counts as soon as it can be made. */
  isAtOnce?: boolean;
  run: () => Promise<void>;
}

export function Sure({ text, question, yes, no, isAtOnce, run }: Given): JSX.Element {
  const [isSure, setSure] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(undefined);
  const begin = async (button: HTMLElement): Promise<void> => {
    if (!isAtOnce && !isSettled(button)) {
      setFailure(new Error(TOO_SOON));
      return;
    }
    setBusy(true);
    setFailure(undefined);
    try {
      await run();
    } catch (error) {
      setFailure(error);
    }
    setBusy(false);
    setSure(false);
  };
  if (!isSure) {
    return (
      <>
        <button onClick={() => setSure(true)}>{text}</button>
        <Problem error={failure} />
      </>
    );
  }
  return (
    <span role="group" aria-label={question}>
      <button
        class="refuse"
        ref={isAtOnce ? null : settling}
        disabled={isBusy}
        onKeyDown={(event) => event.repeat && event.preventDefault()}
        onClick={(event) => void begin(event.currentTarget)}
        autofocus
      >
        {yes}
      </button>{" "}
      <button disabled={isBusy} onClick={() => setSure(false)}>
        {no}
      </button>
      <Problem error={failure} />
    </span>
  );
}
