// The list of tasks: pages of the server's list, kept up to date by events.
import { get, query } from "./api";
import { Signal } from "./signal";
import type { Status, Task, TaskShown } from "./types";

const PAGE = 500;

/** Most tasks that are kept here; who looks for older ones filters. */
const KEPT_MAX = 20_000;

/** Changes within this time are read together. */
const GATHER_MS = 100;

/** More changed tasks than this are read as a list. */
const SINGLE_MAX = 20;

export const GROUPS = {
  all: [],
  active: ["queued", "running", "cancelling"],
  done: ["completed"],
  failed: ["failed", "cancelled", "interrupted"],
} satisfies Record<string, Status[]>;

export type Group = keyof typeof GROUPS;

export interface Listed {
  tasks: Task[];
  /** How many there are in all. */
  total: number;
  /** Where the next page goes on. */
  before: string | null;
}

const isNewer = (a: Task, b: Task): number =>
  b.created_at_ms - a.created_at_ms || (a.task_id < b.task_id ? 1 : -1);

export class TaskList {
  readonly listed = new Signal<Listed | undefined>(undefined);
  readonly problem = new Signal<unknown>(undefined);
  #changed = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #reading = false;
  #queue: Promise<void> = Promise.resolve();
  /** Answers to what was asked before this number are old. */
  #turn = 0;

  constructor(private group: Group) {}

  /** Shows another group. */
  choose(group: Group): void {
    if (group !== this.group) {
      this.group = group;
      this.#turn += 1;
      this.listed.value = undefined;
      void this.reload();
    }
  }

  #path(before?: string): string {
    const status = GROUPS[this.group].join(",");
    return `tasks${query({ status, limit: PAGE, before })}`;
  }

  /** Reads the first page, and forgets the others. */
  reload(): Promise<void> {
    return this.#next(() => this.#reload());
  }

  /** Reads one after the other: an old answer must not take the place of a newer one. */
  #next(read: () => Promise<void>): Promise<void> {
    this.#queue = this.#queue.then(read);
    return this.#queue;
  }

  async #reload(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const page = await get<{ tasks: Task[]; total: number; next_before: string | null }>(
        this.#path(),
      );
      if (turn === this.#turn) {
        this.listed.value = { tasks: page.tasks, total: page.total, before: page.next_before };
        this.problem.value = undefined;
      }
    } catch (error) {
      if (turn === this.#turn) this.problem.value = error;
    }
  }

  /** Reads the next page, if there is one. */
  async more(): Promise<void> {
    const listed = this.listed.value;
    if (!listed?.before || this.#reading || listed.tasks.length >= KEPT_MAX) return;
    const turn = this.#turn;
    this.#reading = true;
    try {
      const page = await get<{ tasks: Task[]; total: number; next_before: string | null }>(
        this.#path(listed.before),
      );
      const now = this.listed.value;
      if (turn === this.#turn && now) {
        const known = new Set(now.tasks.map((it) => it.task_id));
        const fresh = page.tasks.filter((it) => !known.has(it.task_id));
        const tasks = [...now.tasks, ...fresh];
        this.listed.value = { tasks, total: now.total, before: page.next_before };
      }
    } catch (error) {
      this.problem.value = error;
    } finally {
      this.#reading = false;
    }
  }

  /** Notes that something happened to a task. */
  changed(id: string): void {
    this.#changed.add(id);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#next(() => this.#readChanged());
    }, GATHER_MS);
  }

  /** How many there are now; only the server knows. */
  async #total(): Promise<number | undefined> {
    const status = GROUPS[this.group].join(",");
    try {
      return (await get<{ total: number }>(`tasks${query({ status, limit: 1 })}`)).total;
    } catch {
      return undefined;
    }
  }

  async #readChanged(): Promise<void> {
    const ids = [...this.#changed];
    this.#changed.clear();
    if (ids.length > SINGLE_MAX) return this.#reload();
    const turn = this.#turn;
    const read = await Promise.all(
      ids.map(async (id) => {
        try {
          return (await get<TaskShown>(`tasks/${encodeURIComponent(id)}`)).record;
        } catch {
          return undefined;
        }
      }),
    );
    const total = await this.#total();
    const listed = this.listed.value;
    if (turn !== this.#turn || !listed) return;
    const wanted: readonly Status[] = GROUPS[this.group];
    const oldest = listed.before ? listed.tasks.at(-1) : undefined;
    const shown = read
      .filter((it) => it !== undefined)
      .filter((it) => wanted.length === 0 || wanted.includes(it.status))
      // What is older than all that is here comes with its own page.
      .filter((it) => !oldest || isNewer(it, oldest) <= 0);
    const kept = listed.tasks.filter((it) => !ids.includes(it.task_id));
    const tasks = [...kept, ...shown].sort(isNewer);
    this.listed.value = { ...listed, tasks, total: total ?? listed.total };
  }
}

export const taskList = new TaskList("all");

/** The newest change of each task: who shows one looks again. */
export const taskChange = new Signal<{ id: string } | undefined>(undefined);

export const isActive = (status: Status): boolean =>
  (GROUPS.active as readonly Status[]).includes(status);
