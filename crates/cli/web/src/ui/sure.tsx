// A button that asks once more before it does something. Changes are applied or thrown away by a
// click on a button that has stood still, or by a letter and then Enter; a task is stopped at once.
import type { JSX } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { DENY, type Pressed } from "../model/answering";
import { ask, keysShown, press } from "../model/keys";
import { Said } from "./said";
import { isOnScreen } from "./seen";
import { isMeant, settling } from "./settled";
import { Problem } from "./words";

interface Given {
  /** The button. */
  text: string;
  /** What is asked. */
  question: string;
  yes: string;
  no: string;
  /** The letter of yes, which waits for Enter. None: the second click counts as soon as it can be made. */
  letter?: string;
  run: () => Promise<void>;
}

export function Sure({ text, question, yes, no, letter, run }: Given): JSX.Element {
  const [isSure, setSure] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [isHasty, setHasty] = useState(false);
  const [hasFocus, setFocus] = useState(false);
  const [failure, setFailure] = useState<unknown>(undefined);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();

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

  const does = (pressed: Pressed): void => {
    setHasty(false);
    if (pressed === "denies") setSure(false);
    if (typeof pressed === "object" && "confirms" in pressed && !isBusy) void begin();
  };

  // Keys are for the one that has the focus: several may be open. A deny is the other button.
  useLayoutEffect(() => {
    if (!letter || !isSure || !hasFocus) return undefined;
    return ask({
      subject: `${id} ${question}`,
      letters: DENY + letter,
      moves: "",
      does,
      goes: () => {},
      isSeen: () => isOnScreen(button.current),
      see: () => button.current?.scrollIntoView({ block: "center" }),
    });
  });
  useLayoutEffect(() => {
    if (!isSure) return undefined;
    button.current?.focus();
    return letter ? settling(button.current) : undefined;
  }, [isSure]);

  const click = (event: MouseEvent): void => {
    if (letter && event.detail === 0) {
      press(keysShown.value.armed === letter ? "Enter" : { letter }, event.timeStamp);
      return;
    }
    const isHeld = letter === undefined || isMeant(event);
    setHasty(!isHeld);
    if (isHeld) void begin();
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
    <span
      role="group"
      aria-label={question}
      onFocusIn={() => setFocus(true)}
      onFocusOut={() => setFocus(false)}
    >
      <button
        class="refuse"
        data-letter={letter}
        ref={button}
        disabled={isBusy}
        onKeyDown={(event) => event.repeat && event.preventDefault()}
        onClick={click}
      >
        {yes} {letter && <kbd aria-hidden="true">{letter}</kbd>}
      </button>{" "}
      <button data-letter={letter && DENY} disabled={isBusy} onClick={() => setSure(false)}>
        {no} {letter && <kbd aria-hidden="true">{DENY}</kbd>}
      </button>
      {letter && <Said letters={[[letter, yes]]} isChosen={hasFocus} isHasty={isHasty} />}
      <Problem error={failure} />
    </span>
  );
}
