// One question, with its answers.
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { DENY, DENY_WITH_NOTE, type Pressed } from "../model/answering";
import { ask, keysShown, press } from "../model/keys";
import { answer } from "../model/questions";
import { mayAnswer } from "../model/session";
import { now, useSignal } from "../model/signal";
import type { Decision, Question, Session, Tried } from "../model/types";
import { age, duration } from "../text/format";
import { visibleLines } from "../text/visible";
import { Diff, Files, listed } from "../ui/changes";
import { Said } from "../ui/said";
import { isOnScreen } from "../ui/seen";
import { isMeant, settling } from "../ui/settled";
import { Command, Facts, Foreign, Parts, Problem } from "../ui/words";

type Button = [Decision, letter: string, text: string];

/** The answers that let something happen: letters and words are those of `legwork top`. */
const BUTTONS: Button[] = [
  ["apply", "a", "Apply what it did"],
  ["allow_once", "y", "Allow once"],
  ["try_first", "t", "Try it first"],
  ["allow_session", "s", "Allow for this session"],
  ["allow_rule", "r", "Allow always, save the rule"],
  ["allow_once_unconfined", "o", "Allow once OUTSIDE the sandbox"],
];

/** The answers that a question offers. */
function buttonsOf({ replies }: Question): Button[] {
  return BUTTONS.filter(([decision]) => replies.includes(decision));
}

/** Whether what is asked is on the screen, and the place where keys are told what they do. */
function isSeen(card: Element | null | undefined): boolean {
  const answers = card?.querySelector(".answers");
  const ends = answers?.getBoundingClientRect().top;
  return isOnScreen(card?.querySelector(".command"), ends) && isOnScreen(card?.querySelector(".said"));
}

/** Brings a question to the screen. */
export function see(card: Element | null | undefined): void {
  const command = card?.querySelector(".command");
  if (!isSeen(card)) card?.scrollIntoView({ block: "nearest" });
  if (!isSeen(card)) card?.scrollIntoView({ block: "start" });
  if (!isSeen(card)) command?.scrollIntoView({ block: "start" });
}

interface Given {
  question: Question;
  who: Session;
  /** Whether keys are for it. */
  isChosen: boolean;
  onChoose: () => void;
  /** A letter that chooses another question. */
  onMove: (letter: string) => void;
}

export function QuestionCard({ question, who, isChosen, onChoose, onMove }: Given): JSX.Element {
  const [isRefusing, setRefusing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [isHasty, setHasty] = useState(false);
  const keys = useSignal(keysShown);
  const [failure, setFailure] = useState<unknown>(undefined);
  const note = useRef<HTMLTextAreaElement>(null);
  const card = useRef<HTMLElement>(null);
  const may = mayAnswer(who);
  const buttons = buttonsOf(question);
  const takesKeys = isChosen && keys.isReady;

  const reply = async (decision: Decision): Promise<void> => {
    setBusy(true);
    try {
      await answer(question, decision, note.current?.value ?? "");
    } catch (error) {
      setFailure(error);
      setBusy(false);
    }
  };

  const does = (pressed: Pressed): void => {
    if (isBusy) return;
    setHasty(false);
    if (pressed === "denies") void reply("deny");
    else if (pressed === "denies with note") setRefusing(true);
    else if (typeof pressed === "object" && "confirms" in pressed) {
      const button = buttons.find(([, letter]) => letter === pressed.confirms);
      if (button) void reply(button[0]);
    }
  };

  // With the drawing, not after it: what is shown to take keys takes the very next one. While a
  // note is written, a letter that misses it allows nothing.
  useLayoutEffect(() => {
    if (!isChosen || !may) return undefined;
    const letters = [DENY, DENY_WITH_NOTE, ...(isRefusing ? [] : buttons.map(([, key]) => key))];
    const subject = JSON.stringify(question);
    return ask({
      subject,
      letters: letters.join(""),
      moves: "jk",
      does,
      goes: onMove,
      isSeen: () => isSeen(card.current),
      see: () => see(card.current),
    });
  });

  /** A click: by a pointer on a button that stood still, or by a tool that has no pointer. */
  const click = (event: MouseEvent, [decision, letter]: Button): void => {
    // Without a pointer a button stands for its letter, which is for the chosen question.
    if (event.detail === 0 && isChosen) {
      press(keysShown.value.armed === letter ? "Enter" : { letter }, event.timeStamp);
      return;
    }
    const isForThis = isMeant(event);
    setHasty(!isForThis);
    if (isForThis) void reply(decision);
  };

  useLayoutEffect(() => {
    if (isRefusing) note.current?.focus();
  }, [isRefusing]);

  return (
    <article
      id={question.approval_id}
      ref={card}
      class={`question ${isChosen ? "chosen" : ""} ${takesKeys ? "takes-keys" : ""}`}
      aria-labelledby={`${question.approval_id}-why`}
      onFocusIn={onChoose}
      onClick={onChoose}
    >
      <h2 id={`${question.approval_id}-why`}>
        <Foreign text={question.reason} />
      </h2>
      <Ages question={question} />
      <Command text={question.command} parts={question.parts ?? []} />
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
          <button
            class="refuse"
            data-letter={DENY}
            disabled={isBusy}
            onClick={() => void reply("deny")}
          >
            Deny <Letter name={DENY} />
          </button>
          <button
            class="refuse"
            data-letter={DENY_WITH_NOTE}
            disabled={isBusy}
            aria-expanded={isRefusing}
            onClick={() => setRefusing(!isRefusing)}
          >
            Deny with a note… <Letter name={DENY_WITH_NOTE} />
          </button>
          {buttons.map((button) => (
            <button
              key={button[0]}
              class={isMain(button[0], question) ? "allows primary" : "allows"}
              data-letter={button[1]}
              ref={settling}
              disabled={isBusy}
              onClick={(event) => click(event, button)}
            >
              {button[2]} <Letter name={button[1]} />
            </button>
          ))}
          {/* In every card: a click that chooses another one moves no button. */}
          <Said
            letters={buttons.map(([, letter, text]) => [letter, text])}
            isChosen={isChosen}
            isHasty={isHasty}
          />
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
            Deny
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

function Letter({ name }: { name: string }): JSX.Element {
  return <kbd aria-hidden="true">{name}</kbd>;
}

/** The answer that is offered first: of a command that was tried, what was seen. */
function isMain(decision: Decision, { tried }: Question): boolean {
  return decision === (tried ? "apply" : "allow_once");
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
      <span class={text.includes("OUTSIDE") ? "outside" : ""}>{text}</span>
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
