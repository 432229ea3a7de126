// Trials: commands that ran on a copy, what they would change, and whether that is applied. And what
// commands changed outside their workspace, which is kept apart until it is applied.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, isAborted, post } from "../model/api";
import { mayAnswer, seesAll } from "../model/session";
import { now, useSignal } from "../model/signal";
import { isActive, taskChange } from "../model/tasks";
import type { OutsideChanges, Session, Trial, TrialChanges } from "../model/types";
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
  const [outside, setOutside] = useState<OutsideChanges[]>([]);
  const [failure, setFailure] = useState<unknown>(undefined);
  const change = useSignal(taskChange);
  // An old answer must not take the place of a newer one.
  const turn = useRef(0);
  const look = (): void => {
    turn.current += 1;
    const mine = turn.current;
    const isNewest = (): boolean => mine === turn.current;
    Promise.all([
      get<{ trials: Trial[] }>("trials"),
      seesAll(who) ? get<{ outside: OutsideChanges[] }>("outside") : { outside: [] },
    ]).then(
      ([{ trials: found }, { outside: kept }]) => {
        if (!isNewest()) return;
        setTrials(found);
        setOutside(kept);
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
      {outside.length > 0 && <h2>Outside the workspace</h2>}
      {outside.map((kept) => (
        <OutsideCard key={kept.id} kept={kept} who={who} onChange={look} />
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
        {!runs && mayAnswer(who) && <Discard of={ofTrial(trial.task_id)} onChange={onChange} />}
      </div>
      {isOpen && !runs && <Changes of={ofTrial(trial.task_id)} who={who} onChange={onChange} />}
    </article>
  );
}

/** What commands of a workspace changed in the home folder, where that is kept in a layer. */
function OutsideCard(given: {
  kept: OutsideChanges;
  who: Session;
  onChange: () => void;
}): JSX.Element {
  const { kept, who, onChange } = given;
  const time = useSignal(now);
  const [isOpen, setOpen] = useState(false);
  const of: Changed = {
    path: `outside/${encodeURIComponent(kept.id)}`,
    name: "these changes",
    place: "the home folder",
  };
  // Where commands have added to it, it is shown and asked about anew.
  const stamp = `${kept.began_at_ms} ${kept.bytes}`;
  return (
    <article class="question trial" aria-label={`Changes in ${kept.home}`}>
      <p>
        Changes in <Foreign text={kept.home} /> by commands of <Foreign text={kept.workspace} />
      </p>
      <p class="faint ages">
        the last of them ran {age(time - kept.began_at_ms)} ago, {bytes(kept.bytes)}; the folder
        itself is as it was
      </p>
      <div class="bar">
        <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Hide changes" : "Show changes"}
        </button>
        {mayAnswer(who) && <Discard of={of} onChange={onChange} />}
      </div>
      {isOpen && <Changes key={stamp} of={of} who={who} onChange={onChange} />}
    </article>
  );
}

/** What was changed: its path in the API, how it is called, and what it would be applied to. */
interface Changed {
  path: string;
  name: string;
  place: string;
}

const ofTrial = (id: string): Changed => ({
  path: `trials/${encodeURIComponent(id)}`,
  name: "this trial",
  place: "the workspace",
});

function Discard({ of, onChange }: { of: Changed; onChange: () => void }): JSX.Element {
  return (
    <Sure
      text="Discard…"
      question={`Discard ${of.name}?`}
      yes="Discard it"
      letter="d"
      no="Keep it"
      run={async () => {
        await post(`${of.path}/discard`, {});
        onChange();
      }}
    />
  );
}

/** What would be changed, and the button that applies it: what is applied was seen. */
function Changes(given: { of: Changed; who: Session; onChange: () => void }): JSX.Element {
  const { of, who, onChange } = given;
  const [found, setFound] = useState<TrialChanges | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      get<TrialChanges>(`${of.path}/changes?diff=true`, abort.signal).then(setFound, (error) => {
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
  }, [of.path]);
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
      {found.note && <p role="note">{found.note}</p>}
      <Files files={files} rest={more > 0 ? `and ${number(more)} more` : ""} />
      {found.diff && <Diff text={found.diff} />}
      {mayAnswer(who) && found.total > 0 && (
        <div class="bar">
          <Sure
            text="Apply…"
            question={`Apply these changes to ${of.place}?`}
            yes="Apply them"
            letter="a"
            no="Not now"
            run={async () => {
              await post(`${of.path}/apply`, {});
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
  const of = ofTrial(given.id);
  return (
    <section aria-labelledby="trial">
      <div class="title">
        <h2 id="trial">It ran on a copy</h2>
        {mayAnswer(given.who) && <Discard of={of} onChange={given.onChange} />}
      </div>
      <Changes of={of} who={given.who} onChange={given.onChange} />
    </section>
  );
}
