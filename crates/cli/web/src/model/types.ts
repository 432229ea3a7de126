// What the API answers with, as far as the page uses it.

export type Role = "operator" | "agent" | "viewer";

export interface Session {
  name: string;
  role: Role;
  trust: string;
  /** The workspace that the token is confined to. */
  workspace: string | null;
}

export type Verdict = "allow" | "ask" | "deny";

export type Decision =
  | "deny"
  | "try_first"
  | "apply"
  | "allow_once"
  | "allow_once_unconfined"
  | "allow_session"
  | "allow_rule";

/** What a command did that was tried on a copy. */
export interface Tried {
  task_id: string;
  /** How it ended, in words. */
  ended: string;
  /** What it was confined to; not told by older programs. */
  sandbox?: string;
  /** How many files it made, changed and removed, in words. */
  summary: string;
  /** The files, one a line, each with a sign before it. */
  list: string;
  diff: string;
  /** The end of what it printed. */
  output: string;
}

/** A place in a script, in bytes of UTF-8. */
export interface Span {
  start: number;
  end: number;
}

/** A simple command of a script, with the verdict on it. */
export interface Part {
  text: string;
  verdict: Verdict;
  span: Span;
  /** Where the name of its program is. */
  program?: Span;
}

export interface Question {
  approval_id: string;
  tool: string;
  command: string;
  description?: string;
  interpreter?: string;
  workdir: string;
  workspace: string;
  asked_by: string;
  trust: string;
  reason: string;
  rule: string;
  cause?: string;
  sandbox: string;
  refused?: string[];
  task_id?: string;
  tried?: Tried;
  lineage?: string[];
  parts?: Part[];
  proposed_rule?: string;
  created_at_ms: number;
  expires_at_ms: number;
  replies: Decision[];
  /** Whether the program that asks still waits. */
  asking: boolean;
}

export type Status =
  "queued" | "running" | "cancelling" | "completed" | "failed" | "cancelled" | "interrupted";

export interface StreamTotal {
  bytes: number;
  lines: number;
  dropped_bytes?: number;
}

export interface Denial {
  layer: string;
  what: string;
}

export interface Outcome {
  exit_status: number | null;
  signal?: number;
  lost?: string;
  ended_by?: string;
  pid: number;
  duration_ms: number;
  stdout: StreamTotal;
  stderr: StreamTotal;
  background_pids?: number[];
  flags?: string[];
  denials?: Denial[];
  warnings?: string[];
}

/** What a task has used, or uses now: of one that runs, memory and processes are those of now. */
export interface Resources {
  cpu_user_us: number;
  cpu_system_us: number;
  /** Of the biggest process. */
  memory_peak_bytes?: number;
  /** Of all processes together, where a cgroup counts that. */
  tree_memory_peak_bytes?: number;
  memory_bytes?: number;
  processes?: number;
}

export interface SandboxReport {
  level: string;
  network: boolean;
  /** Whether that was of hosts that rules allow, by their names. */
  network_by_name?: boolean;
  /** That a rule or a person let it run outside the sandbox, in words. */
  outside?: string;
  enforced: string[];
  missing: { layer: string; reason: string }[];
}

export interface Task {
  task_id: string;
  tool: string;
  status: Status;
  reason?: string;
  command: string;
  description?: string;
  workdir: string;
  shell?: string;
  login: boolean;
  tty: boolean;
  workspace: string;
  asked_by: string;
  trust: string;
  created_at_ms: number;
  updated_at_ms: number;
  outcome?: Outcome;
  sandbox: SandboxReport;
}

/** The answer about one task. */
export interface TaskShown {
  task: {
    summary: string;
    pid: number | null;
    duration_ms: number;
    waiting_for_input: boolean | null;
    sandbox: SandboxReport;
    waiting_for_approval?: { approval_id: string; program: string };
  };
  record: Task;
  takes_input: boolean;
  /** Null if nobody has measured it. */
  resources: Resources | null;
  processes: { pid: number; command: string }[];
  /** Whether it ran on a copy, and what it changed there is kept. */
  trial: boolean;
}

/** A command that ran on a copy. */
export interface Trial {
  task_id: string;
  command: string;
  workspace: string;
  status: Status;
  created_at_ms: number;
  /** The paths that were applied already. */
  applied: string[];
  bytes: number;
}

export type ChangeKind = "made" | "changed" | "removed" | "touched";

export interface TrialChanges {
  workspace: string;
  /** How many of which kind, in words. */
  summary: string;
  /** How many there are; the list may be shorter. */
  total: number;
  changes: {
    path: string;
    kind: ChangeKind;
    file: string;
    bytes: number;
    /** What else is to be known of it, in words. */
    details: string[];
  }[];
  diff: string | null;
}

export interface Checked {
  verdict: Verdict;
  reason: string;
  rule?: string;
  understood: boolean;
  substitution: boolean;
  parts: Part[];
  proposed_rule: string | null;
  trust: string;
  workspace: string;
  sandbox: string;
}

export interface AuditEntry {
  at_ms: number;
  event: string;
  task_id?: string;
  verdict?: Verdict;
  command?: string;
  hash: string;
}

export interface AuditPage {
  entries: AuditEntry[];
  /** What each entry tells, in a word and in a sentence. */
  told: [word: string, sentence: string][];
  next_before: number | null;
}

export interface AuditState {
  whole: boolean;
  lines: number;
  problem: string | null;
}

export interface Machine {
  version: string;
  began_at_ms: number;
  workspace: string;
  state: string;
  usage: {
    ledger_bytes: number;
    tasks: number;
    folders: number;
    folder_bytes: number;
    oldest_at_ms?: number;
  };
  sandbox: SandboxReport;
  wardens: { ready: number; busy: number };
  tasks_running: number;
  questions_open: number;
  audit_bytes: number;
}

export interface Doctor {
  healthy: boolean;
  checks: { name: string; ok: boolean; detail: string }[];
  layers: { name: string; available: boolean; reason?: string }[];
  effective: { ask: string; sandbox: string; network: boolean };
}
