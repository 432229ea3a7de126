// Audit: what was asked, decided and done, and whether the log is intact.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, isAborted, query } from "../model/api";
import type { AuditPage, AuditState } from "../model/types";
import { clock, plural } from "../text/format";
import { Foreign, Problem } from "../ui/words";

const EVENTS: [value: string, text: string][] = [
  ["", "Everything"],
  ["verdict", "Verdicts"],
  ["approval", "Answers"],
  ["outcome", "Outcomes"],
  ["refused", "Refused calls"],
  ["program_refused", "Refused programs"],
  ["typing", "Typing"],
  ["input", "Input"],
];

const VERDICTS: [value: string, text: string][] = [
  ["", "Any verdict"],
  ["allow", "Allowed"],
  ["ask", "Asked"],
  ["deny", "Denied"],
];

const SINCE: [value: string, text: string][] = [
  ["", "Any time"],
  [String(3600_000), "The last hour"],
  [String(86_400_000), "The last day"],
  [String(7 * 86_400_000), "The last week"],
];

interface Wanted {
  event: string;
  verdict: string;
  since: string;
  task: string;
}

function path(wanted: Wanted, before?: number): string {
  const since = wanted.since ? Date.now() - Number(wanted.since) : undefined;
  return `audit${query({
    event: wanted.event,
    verdict: wanted.verdict,
    task_id: wanted.task.trim(),
    since_ms: since,
    before,
    limit: 100,
  })}`;
}

export function Audit(): JSX.Element {
  const [wanted, setWanted] = useState<Wanted>({ event: "", verdict: "", since: "", task: "" });
  const [pages, setPages] = useState<AuditPage[]>([]);
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    get<AuditPage>(path(wanted), abort.signal).then(
      (page) => {
        setPages([page]);
        setFailure(undefined);
      },
      (error) => !isAborted(error) && setFailure(error),
    );
    return () => abort.abort();
  }, [wanted]);
  const before = pages.at(-1)?.next_before;
  const more = async (): Promise<void> => {
    if (before) setPages([...pages, await get<AuditPage>(path(wanted, before))]);
  };
  const choice = (
    name: "event" | "verdict" | "since",
    label: string,
    options: [string, string][],
  ) => (
    <select
      aria-label={label}
      value={wanted[name]}
      onChange={(event) => setWanted({ ...wanted, [name]: event.currentTarget.value })}
    >
      {options.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
  return (
    <main>
      <h1>Audit</h1>
      <Chain />
      <div class="filters" role="search">
        {choice("event", "Kind", EVENTS)}
        {choice("verdict", "Verdict", VERDICTS)}
        {choice("since", "Time", SINCE)}
        <input
          type="search"
          placeholder="Task"
          aria-label="Task"
          value={wanted.task}
          onChange={(event) => setWanted({ ...wanted, task: event.currentTarget.value })}
        />
      </div>
      <Problem error={failure} />
      <ol class="timeline">
        {pages.flatMap((page) =>
          page.entries.map((entry, place) => (
            <li key={entry.hash}>
              <time>{clock(entry.at_ms)}</time>{" "}
              <strong class={`word ${entry.verdict ?? ""}`}>{page.told[place]?.[0]}</strong>{" "}
              <Foreign text={page.told[place]?.[1] ?? ""} />{" "}
              {entry.task_id && <a href={`#/task/${entry.task_id}`}>{entry.task_id.slice(0, 8)}</a>}
            </li>
          )),
        )}
      </ol>
      {pages.length > 0 && pages.every((page) => page.entries.length === 0) && (
        <p class="faint">Nothing of this kind is in the log.</p>
      )}
      {before && <button onClick={() => void more().catch(setFailure)}>Older entries</button>}
    </main>
  );
}

/** Whether the chain of hashes is intact. */
function Chain(): JSX.Element {
  const [state, setState] = useState<AuditState | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    get<AuditState>("audit/verify").then(setState, setFailure);
  }, []);
  if (failure) return <Problem error={failure} />;
  if (!state) return <p role="status">Checking the log…</p>;
  return state.whole ? (
    <p role="status" class="good">
      The log is intact: {plural(state.lines, "entry", "entries")}, nothing changed or removed.
    </p>
  ) : (
    <p role="alert" class="problem">
      The log is not intact. {state.problem}
    </p>
  );
}
