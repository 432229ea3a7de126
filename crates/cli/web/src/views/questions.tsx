// The questions: what an agent wants to run, why that is asked, and the answers.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { askPermission, canAsk } from "../model/notify";
import { type GivenAnswer, given, questions, triedLast } from "../model/questions";
import { mayAnswer, seesAll } from "../model/session";
import { useSignal } from "../model/signal";
import type { Session } from "../model/types";
import { plural } from "../text/format";
import { Foreign } from "../ui/words";
import { QuestionCard, see } from "./question";

export function Questions({ who }: { who: Session }): JSX.Element {
  const open = useSignal(questions);
  const isTried = useSignal(triedLast);
  const [last, ...earlier] = useSignal(given);
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const [mayNotify, setMayNotify] = useState(canAsk());
  const list = useRef<HTMLDivElement>(null);
  const place = open?.findIndex((it) => it.approval_id === chosen) ?? -1;
  const current = place >= 0 ? chosen : open?.[0]?.approval_id;

  const move = (letter: string): void => {
    const at = open?.findIndex((it) => it.approval_id === current) ?? -1;
    const next = open?.[at + (letter === "j" ? 1 : -1)];
    if (!next) return;
    setChosen(next.approval_id);
    see(list.current?.querySelector(`#${next.approval_id}`));
  };

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
      <p role="status" class={last ? "last-answer" : ""}>
        {last && <Given answer={last} who={who} />}
      </p>
      <div ref={list}>
        {open?.map((question) => (
          <QuestionCard
            key={question.approval_id}
            question={question}
            who={who}
            isChosen={question.approval_id === current}
            onChoose={() => setChosen(question.approval_id)}
            onMove={move}
          />
        ))}
      </div>
      {open && open.length > 0 && mayAnswer(who) && (
        <p class="faint keys">
          <kbd>n</kbd> denies at once, <kbd>N</kbd> with a note. Then Enter: <kbd>y</kbd> allow once,{" "}
          <kbd>s</kbd> for the session, <kbd>r</kbd> always, <kbd>t</kbd> try it first, <kbd>a</kbd>{" "}
          apply what it did, <kbd>o</kbd> OUTSIDE the sandbox. <kbd>j</kbd> and <kbd>k</kbd> choose a
          question.
        </p>
      )}
      {earlier.length > 0 && (
        <details class="earlier">
          <summary>Earlier answers</summary>
          <ul>
            {earlier.map((answer) => (
              <li key={answer.question.approval_id}>
                <Given answer={answer} who={who} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </main>
  );
}

/** An answer that was given here, and where more of it is found. */
function Given({ answer, who }: { answer: GivenAnswer; who: Session }): JSX.Element {
  const { command, task_id: task } = answer.question;
  return (
    <>
      {answer.words}:{" "}
      <code>
        <Foreign text={command} />
      </code>{" "}
      {task && <a href={`#/task/${task}`}>its task</a>}{" "}
      {seesAll(who) && <a href="#/audit">audit log</a>}
    </>
  );
}
