// The questions: what an agent wants to run, why that is asked, and the answers.
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { askPermission, canAsk } from "../model/notify";
import { questions, triedLast } from "../model/questions";
import { mayAnswer } from "../model/session";
import { useSignal } from "../model/signal";
import type { Session } from "../model/types";
import { plural } from "../text/format";
import { QuestionCard } from "./question";

export function Questions({ who }: { who: Session }): JSX.Element {
  const open = useSignal(questions);
  const isTried = useSignal(triedLast);
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const [mayNotify, setMayNotify] = useState(canAsk());
  const list = useRef<HTMLDivElement>(null);
  const place = open?.findIndex((it) => it.approval_id === chosen) ?? -1;
  const current = place >= 0 ? chosen : open?.[0]?.approval_id;

  useLayoutEffect(() => {
    const step = (event: KeyboardEvent): void => {
      if (isTyping(event) || !open || (event.key !== "j" && event.key !== "k")) return;
      const at = open.findIndex((it) => it.approval_id === current);
      const next = open[at + (event.key === "j" ? 1 : -1)];
      if (!next) return;
      setChosen(next.approval_id);
      list.current?.querySelector(`#${next.approval_id}`)?.scrollIntoView({ block: "nearest" });
    };
    addEventListener("keydown", step);
    return () => removeEventListener("keydown", step);
  }, [open, current]);

  return (
    <main>
      <div class="title">
        <h1>Questions</h1>
        {mayAnswer(who) && mayNotify && (
          <button onClick={() => void askPermission().finally(() => setMayNotify(canAsk()))}>
            Notify me
          </button>
        )}
      </div>
      <p role="status" class="faint">
        {open === undefined && "Loading…"}
        {open?.length === 0 &&
          (isTried
            ? "The command is tried on a copy, without network. The next question shows what it did."
            : "No command waits for an answer. New questions appear here.")}
        {open && open.length > 0 && `${plural(open.length, "command")} waiting for an answer`}
      </p>
      <div ref={list}>
        {open?.map((question) => (
          <QuestionCard
            key={question.approval_id}
            question={question}
            who={who}
            isChosen={question.approval_id === current}
            onChoose={() => setChosen(question.approval_id)}
          />
        ))}
      </div>
      {open && open.length > 0 && mayAnswer(who) && (
        <p class="faint keys">
          Keys: <kbd>a</kbd> once, or apply what was tried, <kbd>s</kbd> for the session,{" "}
          <kbd>r</kbd> save the rule, <kbd>t</kbd> try it first, <kbd>d</kbd> no; <kbd>j</kbd> and{" "}
          <kbd>k</kbd> choose a question.
        </p>
      )}
    </main>
  );
}

/** Whether a key belongs to a field, or to the browser. */
export function isTyping(event: KeyboardEvent): boolean {
  const { target } = event;
  const isField =
    target instanceof HTMLElement && target.closest("input, textarea, select, .xterm") !== null;
  return isField || event.ctrlKey || event.altKey || event.metaKey || event.repeat;
}
