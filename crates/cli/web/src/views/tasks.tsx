// The tasks: a live table with filters.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { now, useSignal } from "../model/signal";
import { GROUPS, type Group, taskList } from "../model/tasks";
import type { Task } from "../model/types";
import { age, clock, folder, lasted, number, statusWords } from "../text/format";
import { visible } from "../text/visible";
import { Problem, StatusBadge } from "../ui/words";
import { VirtualTable } from "../ui/virtual";

const NAMES: Record<Group, string> = {
  all: "All",
  active: "Running",
  done: "Completed",
  failed: "Failed or stopped",
};

/** Below this width, in pixels, a row has two lines. */
const NARROW = 760;
const ROW = 36;
const ROW_NARROW = 64;

/** The group, so that it is the same when the view is opened again. */
let lastGroup: Group = "all";
let lastSearch = "";

/** Characters of a command in a row. */
const COMMAND_CHARACTERS = 300;

function matches(task: Task, sought: string): boolean {
  const text = `${task.command}\n${task.workdir}\n${task.asked_by}\n${task.task_id}\n${task.status}`;
  return text.toLowerCase().includes(sought);
}

function useIsNarrow(): boolean {
  const media = useMemo(() => matchMedia(`(max-width: ${NARROW}px)`), []);
  const [isNarrow, setNarrow] = useState(media.matches);
  useEffect(() => {
    const change = (): void => setNarrow(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, [media]);
  return isNarrow;
}

export function Tasks(): JSX.Element {
  const listed = useSignal(taskList.listed);
  const problem = useSignal(taskList.problem);
  const [group, setGroup] = useState<Group>(lastGroup);
  const [search, setSearch] = useState(lastSearch);
  const isNarrow = useIsNarrow();
  const sought = search.trim().toLowerCase();
  const tasks = useMemo(() => {
    const all = listed?.tasks ?? [];
    return sought ? all.filter((task) => matches(task, sought)) : all;
  }, [listed, sought]);
  useEffect(() => {
    // All of them are searched, not only those that were looked at already.
    if (sought) void taskList.more();
  }, [sought, listed]);
  const choose = (next: Group): void => {
    lastGroup = next;
    setGroup(next);
    taskList.choose(next);
  };
  return (
    <main class="tasks">
      <div class="title">
        <h1>Tasks</h1>
        <p role="status" class="faint">
          {listed ? countWords(tasks.length, listed.total, sought !== "") : "Loading…"}
        </p>
      </div>
      <div class="filters" role="search">
        <select
          aria-label="Status"
          value={group}
          onChange={(event) => choose(event.currentTarget.value as Group)}
        >
          {(Object.keys(GROUPS) as Group[]).map((name) => (
            <option key={name} value={name}>
              {NAMES[name]}
            </option>
          ))}
        </select>
        <input
          type="search"
          placeholder="Search commands, folders, callers"
          aria-label="Search"
          value={search}
          onInput={(event) => {
            lastSearch = event.currentTarget.value;
            setSearch(lastSearch);
          }}
        />
      </div>
      <Problem error={problem} />
      <VirtualTable
        items={tasks}
        height={isNarrow ? ROW_NARROW : ROW}
        label="Tasks"
        head={
          <div role="row" aria-rowindex={1} class="row">
            <span role="columnheader">Status</span>
            <span role="columnheader">Age</span>
            <span role="columnheader">Time</span>
            <span role="columnheader">Who</span>
            <span role="columnheader">Folder</span>
            <span role="columnheader">Command</span>
          </div>
        }
        keyOf={(task) => task.task_id}
        row={(task) => <TaskCells task={task} />}
        onEnd={() => void taskList.more()}
      />
    </main>
  );
}

function countWords(shown: number, total: number, isSearch: boolean): string {
  if (isSearch) return `${number(shown)} of ${number(total)} match`;
  return total === 1 ? "1 task" : `${number(total)} tasks`;
}

function TaskCells({ task }: { task: Task }): JSX.Element {
  const time = useSignal(now);
  return (
    <>
      <span role="cell" class="cell-status">
        <StatusBadge status={task.status} text={statusWords(task)} />
      </span>
      <span role="cell" class="cell-age" title={clock(task.created_at_ms)}>
        {age(time - task.created_at_ms)}
      </span>
      <span role="cell" class="cell-time">
        {lasted(task, time)}
      </span>
      <span role="cell" class="cell-who">
        {visible(task.asked_by)}
      </span>
      <span role="cell" class="cell-folder" title={visible(task.workdir)}>
        {visible(folder(task.workdir))}
      </span>
      <span role="cell" class="cell-command">
        {task.sandbox.outside && (
          <strong class="outside" title={task.sandbox.outside}>
            OUTSIDE{" "}
          </strong>
        )}
        <a href={`#/task/${task.task_id}`}>
          {visible(task.command.slice(0, COMMAND_CHARACTERS).replace(/\s+/g, " "))}
        </a>
      </span>
    </>
  );
}
