// Trials: commands that ran on a copy, what they would change, and whether that is applied.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, isAborted, post } from "../model/api";
import { mayAnswer } from "../model/session";
import { now, useSignal } from "../model/signal";
import { isActive, taskChange } from "../model/tasks";
import type { Session, Trial, TrialChanges } from "../model/types";
import { age, bytes, number, plural } from "../text/format";
import { Diff, Files } from "../ui/changes";
import { Sure } from "../ui/sure";
import { Command, Foreign, Problem, StatusBadge } from "../ui/words";

/** Events within this time are one reason to look again. */
const GATHER_MS = 300;

/** A trial whose last process is just ending is looked at again after this time. */
const AGAIN_MS = 1000;

export function Trials({ who }: { who: Session }): JSX.Element {
  const [trials, setTrials] = useState<Trial[] | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  const change = useSignal(taskChange);
  // An old answer must not take the place of a newer one.
  const turn = useRef(0);
  const look = (): void => {
    turn.current += 1;
    const mine = turn.current;
    const isNewest = (): boolean => mine === turn.current;
    get<{ trials: Trial[] }>("trials").then(
      ({ trials: found }) => {
        if (!isNewest()) return;
        setTrials(found);
        setFailure(undefined);
      },
      (error) => isNewest() && setFailure(error),
    );
  };
  useEffect(look, []);
  useEffect(() => {
    const timer = setTimeout(look, GATHER_MS);
    return () => clearTimeout(timer);
  }, [change]);
  return (
    <main>
      <h1>Trials</h1>
      <p role="status" class="faint">
        {trials === undefined && !failure && "Loading…"}
        {trials?.length === 0 &&
          "No trials. A command that is tried first runs on a copy, and is listed here."}
        {trials &&
          trials.length > 0 &&
          `${plural(trials.length, "command")} ran on a copy; nothing of that is in the workspace`}
      </p>
      <Problem error={failure} />
      {trials?.map((trial) => (
        <TrialCard key={trial.task_id} trial={trial} who={who} onChange={look} />
      ))}
    </main>
  );
}

function TrialCard(given: { trial: Trial; who: Session; onChange: () => void }): JSX.Element {
  const { trial, who, onChange } = given;
  const time = useSignal(now);
  const [isOpen, setOpen] = useState(false);
  const runs = isActive(trial.status);
  return (
    <article class="question trial" aria-label={`Trial ${trial.task_id}`}>
      <Command text={trial.command} />
      <p class="faint ages">
        tried {age(time - trial.created_at_ms)} ago in <Foreign text={trial.workspace} />,{" "}
        {bytes(trial.bytes)}
        {trial.applied.length > 0 && ", applied in part"}{" "}
        <a href={`#/task/${trial.task_id}`}>its task and output</a>
      </p>
      <div class="bar">
        <StatusBadge status={trial.status} text={trial.status} />
        {!runs && (
          <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Hide changes" : "Show changes"}
          </button>
        )}
        {!runs && mayAnswer(who) && <Discard id={trial.task_id} onChange={onChange} />}
      </div>
      {isOpen && !runs && <Changes id={trial.task_id} who={who} onChange={onChange} />}
    </article>
  );
}

/** Where the API has a trial. */
const pathOf = (id: string): string => `trials/${encodeURIComponent(id)}`;

function Discard({ id, onChange }: { id: string; onChange: () => void }): JSX.Element {
  return (
    <Sure
      text="Discard…"
      question="Discard this trial?"
      yes="Discard it"
      letter="d"
      no="Keep it"
      run={async () => {
        await post(`${pathOf(id)}/discard`, {});
        onChange();
      }}
    />
  );
}

/** What would be changed, and the button that applies it: what is applied was seen. */
function Changes(given: { id: string; who: Session; onChange: () => void }): JSX.Element {
  const { id, who, onChange } = given;
  const [found, setFound] = useState<TrialChanges | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      get<TrialChanges>(`${pathOf(id)}/changes?diff=true`, abort.signal).then(setFound, (error) => {
        if (isAborted(error)) return;
        setFailure(error);
        const mayEnd = error instanceof ApiError && error.kind === "still_running";
        if (mayEnd) timer = setTimeout(look, AGAIN_MS);
      });
    };
    look();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [id]);
  if (!found) return failure ? <Problem error={failure} /> : <p role="status">Loading…</p>;
  const inside = (path: string): string =>
    path.startsWith(`${found.workspace}/`) ? path.slice(found.workspace.length + 1) : path;
  const files = found.changes.map(({ kind, path, details }) => ({
    kind,
    path: inside(path),
    details,
  }));
  const more = found.total - files.length;
  return (
    <section aria-label="Its changes">
      <p>
        <strong>{found.summary}</strong>
      </p>
      <Files files={files} rest={more > 0 ? `and ${number(more)} more` : ""} />
      {found.diff && <Diff text={found.diff} />}
      {mayAnswer(who) && found.total > 0 && (
        <div class="bar">
          <Sure
            text="Apply…"
            question="Apply these changes to the workspace?"
            yes="Apply them"
            letter="a"
            no="Not now"
            run={async () => {
              await post(`${pathOf(id)}/apply`, {});
              onChange();
            }}
          />
        </div>
      )}
    </section>
  );
}

/** The changes of a task that was a trial, below its output. */
export function TaskTrial(given: { id: string; who: Session; onChange: () => void }): JSX.Element {
  return (
    <section aria-labelledby="trial">
      <div class="title">
        <h2 id="trial">It ran on a copy</h2>
        {mayAnswer(given.who) && <Discard id={given.id} onChange={given.onChange} />}
      </div>
      <Changes id={given.id} who={given.who} onChange={given.onChange} />
    </section>
  );
}
