// A button that asks once more before it does something.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Problem } from "./words";

interface Given {
  /** The button. */
  text: string;
  /** What is asked. */
  question: string;
  yes: string;
  no: string;
  run: () => Promise<void>;
}

export function Sure({ text, question, yes, no, run }: Given): JSX.Element {
  const [isSure, setSure] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(undefined);
  const begin = async (): Promise<void> => {
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
      <button class="refuse" disabled={isBusy} onClick={() => void begin()} autofocus>
        {yes}
      </button>{" "}
      <button disabled={isBusy} onClick={() => setSure(false)}>
        {no}
      </button>
    </span>
  );
}
