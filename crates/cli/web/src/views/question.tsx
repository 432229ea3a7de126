// One question, with its answers.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { answer } from "../model/questions";
import { mayAnswer } from "../model/session";
import { now, useSignal } from "../model/signal";
import type { Decision, Question, Session, Tried } from "../model/types";
import { age, duration } from "../text/format";
import { visibleLines } from "../text/visible";
import { Diff, Files, listed } from "../ui/changes";
import { Command, Facts, Foreign, Parts, Problem } from "../ui/words";
import { isTyping } from "./questions";

/** A question takes no key before it was there for so long: the key was meant for another one. */
const SETTLE_MS = 600;

type Button = [Decision, key: string, text: string];

const BUTTONS: Button[] = [
  ["allow_once", "a", "Allow once"],
  ["try_first", "t", "Try it first"],
  ["allow_session", "s", "Allow for this session"],
  ["allow_rule", "r", "Allow always: save the rule"],
  ["allow_once_unconfined", "", "Allow once, outside the sandbox"],
];

/** Those of a command that was tried: what was seen is what `a` lets happen. */
const BUTTONS_TRIED: Button[] = [
  ["apply", "a", "Apply"],
  ["allow_once", "", "Run it for real"],
  ...BUTTONS.filter(([decision]) => decision !== "allow_once" && decision !== "try_first"),
];

/** The answers that a question offers. */
function buttonsOf({ tried, replies }: Question): Button[] {
  return (tried ? BUTTONS_TRIED : BUTTONS).filter(([decision]) => replies.includes(decision));
}

interface Given {
  question: Question;
  who: Session;
  /** Whether keys are for it. */
  isChosen: boolean;
  onChoose: () => void;
}

export function QuestionCard({ question, who, isChosen, onChoose }: Given): JSX.Element {
  const [isRefusing, setRefusing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [takesKeys, setTakesKeys] = useState(false);
  const [failure, setFailure] = useState<unknown>(undefined);
  const note = useRef<HTMLTextAreaElement>(null);
  const may = mayAnswer(who);

  const reply = async (decision: Decision): Promise<void> => {
    setBusy(true);
    try {
      await answer(question, decision, note.current?.value ?? "");
    } catch (error) {
      setFailure(error);
      setBusy(false);
    }
  };

  useEffect(() => {
    setTakesKeys(false);
    if (!isChosen || !may) return undefined;
    const timer = setTimeout(() => setTakesKeys(true), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [isChosen, may, question.approval_id]);

  // With the drawing, not after it: what is shown to take keys takes the very next one. While a
  // note is written, a letter that misses it answers nothing.
  useLayoutEffect(() => {
    if (!takesKeys || isBusy || isRefusing) return undefined;
    const press = (event: KeyboardEvent): void => {
      if (isTyping(event)) return;
      const button = buttonsOf(question).find(([, key]) => key === event.key);
      if (button) void reply(button[0]);
      else if (event.key === "d") setRefusing(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [takesKeys, isBusy, isRefusing, question.approval_id]);

  useLayoutEffect(() => {
    if (isRefusing) note.current?.focus();
  }, [isRefusing]);

  return (
    <article
      id={question.approval_id}
      class={`question ${isChosen ? "chosen" : ""} ${takesKeys ? "takes-keys" : ""}`}
      aria-labelledby={`${question.approval_id}-why`}
      onFocusIn={onChoose}
      onClick={onChoose}
    >
      <h2 id={`${question.approval_id}-why`}>
        <Foreign text={question.reason} />
      </h2>
      <Ages question={question} />
      <Command text={question.command} parts={colouredParts(question)} />
      {question.parts && question.parts.length > 1 && <Parts parts={question.parts} />}
      {question.lineage && question.lineage.length > 0 && (
        <>
          <p>A running command waits: may this program run?</p>
          <ol class="lineage">
            {question.lineage.map((line, depth) => (
              <li key={depth}>
                <code>
                  <Foreign text={line} />
                </code>
              </li>
            ))}
          </ol>
        </>
      )}
      {question.tried && <TriedOut tried={question.tried} />}
      <Circumstances question={question} />
      {question.description && (
        <figure class="own-words">
          <figcaption>The agent's own words, which nobody has checked</figcaption>
          <blockquote>
            <Foreign text={question.description} />
          </blockquote>
        </figure>
      )}
      {may && (
        <div class="answers">
          {buttonsOf(question).map(([decision, key, text]) => (
            <button
              key={decision}
              class={key === "a" ? "primary" : ""}
              disabled={isBusy}
              onClick={() => void reply(decision)}
            >
              {text} <Key name={key} />
            </button>
          ))}
          <button
            class="refuse"
            disabled={isBusy}
            aria-expanded={isRefusing}
            onClick={() => setRefusing(!isRefusing)}
          >
            No… <Key name="d" />
          </button>
        </div>
      )}
      {may && isRefusing && (
        <form
          class="note"
          onSubmit={(event) => {
            event.preventDefault();
            void reply("deny");
          }}
        >
          <label for={`${question.approval_id}-note`}>
            A note to the agent, if you like: what to do instead
          </label>
          <textarea
            id={`${question.approval_id}-note`}
            ref={note}
            rows={2}
            maxLength={4000}
            onKeyDown={(event) => {
              if (event.key === "Escape") setRefusing(false);
              if (event.key === "Enter" && !event.shiftKey) {
                event.preventDefault();
                void reply("deny");
              }
            }}
          />
          <button class="refuse" disabled={isBusy}>
            Refuse
          </button>
        </form>
      )}
      <Problem error={failure} />
      {question.proposed_rule && question.replies.includes("allow_rule") && (
        <details>
          <summary>The rule that can be saved</summary>
          <pre tabIndex={0}>{question.proposed_rule}</pre>
        </details>
      )}
    </article>
  );
}

/** What the command did when it was tried. */
function TriedOut({ tried }: { tried: Tried }): JSX.Element {
  return (
    <section class="tried" aria-label="What it did when it was tried on a copy">
      <p>
        It was tried on a copy: {tried.ended}; <strong>{tried.summary}</strong>. Is that to be
        applied?
      </p>
      <Files {...listed(tried.list)} />
      {tried.diff && <Diff text={tried.diff} />}
      {tried.output && (
        <details>
          <summary>The end of what it printed</summary>
          <pre tabIndex={0}>{visibleLines(tried.output)}</pre>
        </details>
      )}
    </section>
  );
}

/** What is coloured in the text: its parts, or where there is only one the cause. */
function colouredParts({ parts, cause }: Question): NonNullable<Question["parts"]> {
  if (parts && parts.length > 0) return parts;
  return cause ? [[cause, "ask"]] : [];
}

function Key({ name }: { name: string }): JSX.Element | null {
  return name ? <kbd aria-hidden="true">{name}</kbd> : null;
}

function Ages({ question }: { question: Question }): JSX.Element {
  const time = useSignal(now);
  const left = question.expires_at_ms - time;
  return (
    <p class="faint ages">
      asked {age(time - question.created_at_ms)} ago,{" "}
      {left > 0 ? `expires in ${duration(left)}` : "expired"}
      {!question.asking && "; its caller has gone, and reads the answer when it asks again"}
    </p>
  );
}

function Circumstances({ question }: { question: Question }): JSX.Element {
  const code = (text: string): ComponentChildren => (
    <code>
      <Foreign text={text} />
    </code>
  );
  const { tried } = question;
  return (
    <Facts
      rows={[
        ["Cause", question.cause && code(question.cause)],
        ["Rule", <Foreign text={question.rule} />],
        ["Run by", question.interpreter && code(question.interpreter)],
        ["Folder", code(question.workdir)],
        ["Project", question.workspace !== question.workdir && code(question.workspace)],
        [
          "Asked by",
          <>
            <Foreign text={question.asked_by} /> ({question.trust}), through {question.tool}
          </>,
        ],
        ["Sandbox when tried", tried?.sandbox && <SandboxWords text={tried.sandbox} />],
        [tried?.sandbox ? "Sandbox if it runs" : "Sandbox", <SandboxWords text={question.sandbox} />],
        [
          "It refuses",
          question.refused && question.refused.length > 0 && (
            <ul>
              {question.refused.map((path) => (
                <li key={path}>writing to {code(path)}</li>
              ))}
            </ul>
          ),
        ],
        ["Task", question.task_id && <a href={`#/task/${question.task_id}`}>{question.task_id}</a>],
      ]}
    />
  );
}

const LEVELS: [begin: string, text: string][] = [
  ["workspace-write", "It can write inside the project and its own /tmp, and nowhere else"],
  ["read-only", "It can write to its own /tmp, and nowhere else"],
  ["none", "It can do all that you can"],
];

const NETWORKS: [words: string, text: string][] = [
  ["no network", "; no network"],
  ["network by name", "; it connects only to hosts that rules or a person allow"],
  ["with network", "; it has the network"],
];

/** What a sandbox does and does not let a command do. */
export function SandboxWords({ text }: { text: string }): JSX.Element {
  const level = LEVELS.find(([begin]) => text.startsWith(begin));
  const network = NETWORKS.find(([words]) => text.includes(words))?.[1] ?? "";
  return (
    <>
      {text}
      {level && (
        <span class="faint">
          {" "}
          {level[1]}
          {network}.
        </span>
      )}
    </>
  );
}
