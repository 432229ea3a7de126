// One task: what it prints, what it is, and what can be done with it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { download, get, isAborted, post } from "../model/api";
import { mayChange, seesAll, seesQuestions } from "../model/session";
import { now, useSignal } from "../model/signal";
import { isActive, taskChange } from "../model/tasks";
import type { AuditPage, Session, Task, TaskShown } from "../model/types";
import { bytes, clock, lasted, memory, processorTime, statusWords } from "../text/format";
import { visibleLines } from "../text/visible";
import { Sure } from "../ui/sure";
import { Command, Facts, Foreign, Problem, StatusBadge } from "../ui/words";
import { Sandbox } from "./sandbox";
import { Output } from "./output";
import { TerminalView } from "./terminal";
import { TaskTrial } from "./trials";

/** A running task is looked at again after so long: what it uses is told by no event. */
const LOOK_MS = 2000;

export function TaskView({ id, who }: { id: string; who: Session }): JSX.Element {
  const [shown, setShown] = useState<TaskShown | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  const change = useSignal(taskChange);
  const [turn, setTurn] = useState(0);
  const look = (): void => setTurn((old) => old + 1);

  useEffect(() => {
    if (change?.id === id || change?.id === "") look();
  }, [change, id]);
  useEffect(() => {
    const abort = new AbortController();
    get<TaskShown>(`tasks/${encodeURIComponent(id)}`, abort.signal).then(
      (found) => {
        setShown(found);
        setFailure(undefined);
      },
      (error) => !isAborted(error) && setFailure(error),
    );
    return () => abort.abort();
  }, [id, turn]);
  const runs = shown !== undefined && isActive(shown.record.status);
  useEffect(() => {
    if (!runs) return undefined;
    const timer = setInterval(() => !document.hidden && look(), LOOK_MS);
    return () => clearInterval(timer);
  }, [runs]);

  return (
    <main class="task">
      <p>
        <a href="#/tasks">← Tasks</a>
      </p>
      <Problem error={failure} />
      {shown ? (
        <Shown shown={shown} who={who} onChange={look} />
      ) : (
        !failure && <p role="status">Loading…</p>
      )}
    </main>
  );
}

function Shown(given: { shown: TaskShown; who: Session; onChange: () => void }): JSX.Element {
  const { shown, who, onChange } = given;
  const { record: task } = shown;
  const runs = isActive(task.status);
  const held = shown.task.waiting_for_approval;
  return (
    <>
      <div class="title">
        <h1>
          Task <code class="id">{task.task_id}</code>
        </h1>
        <StatusBadge status={task.status} text={statusWords(task)} />
        {mayChange(who) && (runs || shown.processes.length > 0) && (
          <Stop id={task.task_id} runs={runs} onChange={onChange} />
        )}
      </div>
      <Command text={task.command} />
      {task.sandbox.outside && (
        <p role="note" class="outside">
          It {task.sandbox.outside}
        </p>
      )}
      {held && (
        <p class="problem">
          It waits for an answer: may <code>{held.program}</code> run?{" "}
          <a href="#/questions">Questions</a>
        </p>
      )}
      {task.tty && runs && <TerminalView id={task.task_id} onEnd={onChange} />}
      {task.tty && !runs && <LastScreen id={task.task_id} />}
      {!task.tty && <Output id={task.task_id} />}
      {runs && !task.tty && shown.takes_input && mayChange(who) && (
        <Input id={task.task_id} waits={shown.task.waiting_for_input === true} />
      )}
      {who.role === "operator" && <RawBytes task={task} />}
      {shown.trial && !runs && seesQuestions(who) && (
        <TaskTrial id={task.task_id} who={who} onChange={onChange} />
      )}
      <Details shown={shown} />
      <Sandbox report={shown.task.sandbox} />
      {seesAll(who) && <Timeline id={task.task_id} status={task.status} />}
    </>
  );
}

/** Asks once more before a task is stopped. */
function Stop(given: { id: string; runs: boolean; onChange: () => void }): JSX.Element {
  const { id, runs, onChange } = given;
  return (
    <Sure
      text={runs ? "Stop…" : "Stop its processes…"}
      question="Stop this task?"
      yes="Stop it"
      no="Keep it"
      run={async () => {
        await post(`tasks/${encodeURIComponent(id)}/stop`, {});
        onChange();
      }}
    />
  );
}

function Input({ id, waits }: { id: string; waits: boolean }): JSX.Element {
  const [failure, setFailure] = useState<unknown>(undefined);
  const [line, setLine] = useState("");
  const send = async (body: Record<string, unknown>): Promise<void> => {
    try {
      const path = `tasks/${encodeURIComponent(id)}/input`;
      const taken = await post<{ accepted_input: boolean; reason?: string }>(path, body);
      setFailure(taken.accepted_input ? undefined : new Error(taken.reason ?? "It was not taken"));
    } catch (error) {
      setFailure(error);
    }
  };
  return (
    <form
      class="bar"
      onSubmit={(event) => {
        event.preventDefault();
        void send({ input: `${line}\n`, wait_ms: 0 });
        setLine("");
      }}
    >
      <label for="input">{waits ? "It waits for input:" : "Input:"}</label>
      <input
        id="input"
        class="grows"
        autocomplete="off"
        value={line}
        onInput={(event) => setLine(event.currentTarget.value)}
      />
      <button>Send line</button>
      <button type="button" onClick={() => void send({ input: "", eof: true, wait_ms: 0 })}>
        End input
      </button>
      <Problem error={failure} />
    </form>
  );
}

/** What a terminal showed at its end. */
function LastScreen({ id }: { id: string }): JSX.Element {
  const [screen, setScreen] = useState<string | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    const path = `tasks/${encodeURIComponent(id)}/output?view=screen`;
    get<{ output_preview: string | null }>(path).then(
      ({ output_preview: text }) => setScreen(text ?? ""),
      setFailure,
    );
  }, [id]);
  return (
    <section aria-label="Last screen">
      <Problem error={failure} />
      {screen !== undefined && (
        <pre class="log" tabIndex={0} aria-label="The last screen of its terminal">
          {visibleLines(screen) || "The screen is empty"}
        </pre>
      )}
    </section>
  );
}

function RawBytes({ task }: { task: Task }): JSX.Element {
  const [failure, setFailure] = useState<unknown>(undefined);
  const fetchRaw = (stream: string): void => {
    const path = `tasks/${encodeURIComponent(task.task_id)}/raw/${stream}`;
    download(path).then(() => setFailure(undefined), setFailure);
  };
  const size = (stream: "stdout" | "stderr"): string =>
    task.outcome ? ` (${bytes(task.outcome[stream].bytes)})` : "";
  return (
    <div class="bar">
      Download the exact bytes, with secrets:
      <button onClick={() => fetchRaw("stdout")}>
        {task.tty ? "terminal" : "stdout"}
        {size("stdout")}
      </button>
      {!task.tty && (
        <button onClick={() => fetchRaw("stderr")}>stderr{size("stderr")}</button>
      )}
      <Problem error={failure} />
    </div>
  );
}

function Details({ shown }: { shown: TaskShown }): JSX.Element {
  const time = useSignal(now);
  const { record: task } = shown;
  const { outcome } = task;
  const end = outcome && task.updated_at_ms;
  const dropped = (outcome?.stdout.dropped_bytes ?? 0) + (outcome?.stderr.dropped_bytes ?? 0);
  return (
    <section aria-labelledby="details">
      <h2 id="details">Details</h2>
      <Facts
        rows={[
          ["Summary", shown.task.summary],
          ["Purpose", task.description && <Foreign text={`“${task.description}” (the agent)`} />],
          ["Folder", <Foreign text={task.workdir} />],
          ["Shell", task.shell && `${task.shell}${task.login ? " (login)" : ""}`],
          [
            "Asked by",
            <>
              <Foreign text={task.asked_by} /> ({task.trust}), through {task.tool}
            </>,
          ],
          ["Started", clock(task.created_at_ms)],
          ["Ended", end && clock(end)],
          ["Ran for", lasted(task, time)],
          ["CPU time", shown.resources && processorTime(shown.resources)],
          ["Memory", shown.resources && memory(shown.resources)],
          ["Process", shown.task.pid],
          ["Processes", shown.resources?.processes],
          ["Waits", shown.task.waiting_for_input === true && "for input"],
          ["Ended by", outcome?.ended_by?.replaceAll("_", " ")],
          ["Reason", task.reason?.replaceAll("_", " ")],
          ["stdout", outcome && `${bytes(outcome.stdout.bytes)}, ${outcome.stdout.lines} lines`],
          [
            "stderr",
            outcome && !task.tty && `${bytes(outcome.stderr.bytes)}, ${outcome.stderr.lines} lines`,
          ],
          ["Not stored", dropped > 0 && `${bytes(dropped)} of output`],
          ["Flags", outcome?.flags?.map((flag) => flag.replaceAll("_", " ")).join(", ")],
          [
            "Left running",
            shown.processes.length > 0 && (
              <ul>
                {shown.processes.map(({ pid, command }) => (
                  <li key={pid}>
                    {pid} <Foreign text={command} />
                  </li>
                ))}
              </ul>
            ),
          ],
          [
            "Refused",
            outcome?.denials && outcome.denials.length > 0 && (
              <ul>
                {outcome.denials.map((denial, place) => (
                  <li key={place}>
                    <Foreign text={denial.what} />
                  </li>
                ))}
              </ul>
            ),
          ],
          [
            "Warnings",
            outcome?.warnings && outcome.warnings.length > 0 && (
              <Foreign text={outcome.warnings.join("; ")} />
            ),
          ],
        ]}
      />
    </section>
  );
}

/** Verdict, answers and outcome of the task, from the audit log. */
function Timeline({ id, status }: { id: string; status: string }): JSX.Element {
  const [page, setPage] = useState<AuditPage | undefined>(undefined);
  useEffect(() => {
    const path = `audit?task_id=${encodeURIComponent(id)}&limit=100`;
    get<AuditPage>(path).then(setPage, () => setPage(undefined));
  }, [id, status]);
  if (!page) return <></>;
  const rows = page.entries.map((entry, place) => ({ entry, told: page.told[place] })).reverse();
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Verdict and timeline</h2>
      <ol class="timeline">
        {rows.map(({ entry, told }) => (
          <li key={entry.hash}>
            <time>{clock(entry.at_ms)}</time> <strong>{told?.[0]}</strong>{" "}
            <Foreign text={told?.[1] ?? ""} />
          </li>
        ))}
      </ol>
    </section>
  );
}
