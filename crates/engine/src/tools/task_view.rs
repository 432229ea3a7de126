//! The view of a task that the task tools share: the same fields and the same lines in all of them.

use std::{collections::HashMap, fmt, path::PathBuf};

use jiff::Timestamp;
use legwork_warden::protocol::Report;
use serde::{Deserialize, Serialize};

use crate::{
    clock::now_ms,
    engine::Engine,
    id::TaskId,
    model::sandbox::{MissingLayer, SandboxReport},
    model::status::Status,
    model::{
        ConnectionRecord, Denial, EndedBy, Flag, LimitLayer, LimitsKnown, Outcome, is_zero,
        signal_name,
    },
    output::{Mask, TaskOutput},
    store::ledger::Task,
};

/// What a command is among the tasks.
pub(super) const TASK_KIND: &str = "command_task";

/// Most characters of a command in a list.
const COMMAND_CHARS: usize = 200;

/// A task in a few words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TaskBrief {
    pub task_id: TaskId,
    pub kind: String,
    pub status: Status,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What there is to say in one line.
    pub summary: String,
    pub created_at: String,
    pub updated_at: String,
    pub command: String,
    pub exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// The program that it is about to run, and may not before somebody says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for_approval: Option<HeldByQuestion>,
    /// What it did that somebody should know of.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<String>,
}

/// A question that holds a running command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeldByQuestion {
    pub approval_id: String,
    pub program: String,
}

impl fmt::Display for HeldByQuestion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` (question {})", self.program, self.approval_id)
    }
}

/// The questions that hold running commands, by task.
pub(super) async fn held_tasks(engine: &Engine) -> HashMap<TaskId, HeldByQuestion> {
    // Who cannot read them says less.
    let open = engine.approvals().await.unwrap_or_default();
    let mask = engine.mask();
    let held = open.into_iter().filter_map(|question| {
        let program = shortened(&mask.text(question.cause.as_deref().unwrap_or_default()));
        Some((question.task_id?, HeldByQuestion { approval_id: question.approval_id, program }))
    });
    held.collect()
}

impl TaskBrief {
    /// What the ledger knows, in a few words.
    pub(super) fn new(task: &Task, mask: &Mask) -> Self {
        let outcome = task.outcome.as_ref();
        Self {
            task_id: task.task_id.clone(),
            kind: TASK_KIND.into(),
            status: task.status,
            reason: task.reason.clone(),
            summary: summary(task),
            created_at: time(task.created_at_ms),
            updated_at: time(task.updated_at_ms),
            command: shortened(&mask.text(&task.command)),
            exit_status: outcome.and_then(|outcome| outcome.exit_status),
            signal: outcome.and_then(|outcome| outcome.signal),
            waiting_for_approval: None,
            warnings: super::warnings(&task.sandbox, outcome),
        }
    }

    /// The same with the question that holds it, if one does.
    pub(super) fn held_by(mut self, held: &HashMap<TaskId, HeldByQuestion>) -> Self {
        self.waiting_for_approval = held.get(&self.task_id).cloned();
        self
    }
}

/// Everything that is known of a task but its output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TaskView {
    #[serde(flatten)]
    pub brief: TaskBrief,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_by: Option<EndedBy>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flags: Vec<Flag>,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub dropped_bytes: u64,
    pub pid: Option<u32>,
    pub background_pids: Vec<u32>,
    pub duration_ms: u64,
    /// Null if that cannot be known.
    pub waiting_for_input: Option<bool>,
    pub sandbox: SandboxReport,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub denials: Vec<Denial>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connections: Vec<ConnectionRecord>,
    pub artifacts: Vec<ArtifactEntry>,
}

/// The file of a stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ArtifactEntry {
    pub path: PathBuf,
    pub bytes: u64,
}

/// A process, with its command line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ProcessEntry {
    pub pid: u32,
    pub command: String,
}

impl fmt::Display for ProcessEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.pid, self.command)
    }
}

/// Processes as they are shown.
pub(super) fn processes(mask: &Mask, known: Vec<(u32, String)>) -> Vec<ProcessEntry> {
    let entry = |(pid, command): (u32, String)| ProcessEntry {
        pid,
        command: shortened(&mask.text(&command)),
    };
    known.into_iter().map(entry).collect()
}

impl TaskView {
    /// What the ledger knows, and what the warden reports while there is one.
    pub(super) fn new(
        task: &Task,
        mask: &Mask,
        report: Option<&Report>,
        output: &TaskOutput,
    ) -> Self {
        let outcome = task.outcome.as_ref();
        let pid = report.map(|report| report.pid).or(outcome.map(|outcome| outcome.pid));
        let running = !task.status.is_final();
        Self {
            brief: TaskBrief::new(task, mask),
            ended_by: outcome.and_then(|outcome| outcome.ended_by),
            flags: outcome.map(|outcome| outcome.flags.clone()).unwrap_or_default(),
            dropped_bytes: output.stdout.dropped_bytes() + output.stderr.dropped_bytes(),
            pid: pid.filter(|pid| *pid != 0),
            background_pids: report.map_or_else(Vec::new, |report| report.background_pids.clone()),
            duration_ms: match (report, outcome) {
                (_, Some(outcome)) => outcome.duration_ms,
                (Some(report), None) => report.duration_ms,
                (None, None) => 0,
            },
            waiting_for_input: match report {
                Some(report) if running => report.waiting_for_input,
                _ => Some(false),
            },
            sandbox: with_limits(SandboxReport::clone(&task.sandbox), report, outcome),
            denials: outcome.map(|outcome| outcome.denials.clone()).unwrap_or_default(),
            connections: outcome.map(|outcome| outcome.connections.clone()).unwrap_or_default(),
            artifacts: artifacts(output),
        }
    }
}

/// What a sandbox enforces, and what the limits of a command do.
fn with_limits(
    mut sandbox: SandboxReport,
    report: Option<&Report>,
    outcome: Option<&Outcome>,
) -> SandboxReport {
    let limits = match (report, outcome) {
        (_, Some(outcome)) => outcome.limits.clone(),
        (Some(report), None) => LimitsKnown::from(&report.limits),
        (None, None) => LimitsKnown::default(),
    };
    sandbox.enforced.extend(limits.enforced.iter().map(|layer| layer.as_str().to_owned()));
    sandbox.missing.extend(limits.missing.into_iter().map(|reason| MissingLayer {
        layer: LimitLayer::CgroupLimits.as_str().to_owned(),
        reason,
    }));
    sandbox
}

/// The files of an output.
pub(super) fn artifacts(output: &TaskOutput) -> Vec<ArtifactEntry> {
    [&output.stdout, &output.stderr]
        .into_iter()
        .filter_map(|artifact| {
            let path = artifact.path()?.to_owned();
            Some(ArtifactEntry { path, bytes: artifact.kept_bytes() })
        })
        .collect()
}

/// How a task is or how it ended, in a few words.
fn summary(task: &Task) -> String {
    let since = u64::try_from(now_ms() - task.created_at_ms).unwrap_or(0);
    let Some(outcome) = &task.outcome else {
        return format!("{} for {}", task.status.as_str(), lasted(since));
    };
    let end = ending(outcome, task.reason.as_deref());
    format!("{end} after {}", lasted(outcome.duration_ms))
}

/// A duration for people and models.
pub(super) fn lasted(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..10_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        10_000..120_000 => format!("{} s", milliseconds / 1000),
        _ => format!("{} min", milliseconds / 60_000),
    }
}

fn ending(outcome: &Outcome, reason: Option<&str>) -> String {
    let by = outcome.ended_by.map(|by| format!(" ({})", by.as_str())).unwrap_or_default();
    match (outcome.exit_status, outcome.signal) {
        (Some(code), _) => format!("exited with status {code}{by}"),
        (None, Some(signal)) => format!("ended by {}{by}", signal_name(signal)),
        (None, None) => format!("its end cannot be known ({})", reason.unwrap_or("lost")),
    }
}

/// A time as JSON has it.
fn time(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds).map_or_else(|_| String::new(), |at| at.to_string())
}

/// A command in one line, cut where it is long.
pub(super) fn shortened(command: &str) -> String {
    let line: String = command.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMMAND_CHARS) {
        Some((place, _)) => format!("{}…", line.get(..place).unwrap_or_default()),
        None => line,
    }
}

/// Lines of a receipt: first plain ones, then labelled blocks.
#[derive(Debug, Default)]
pub(super) struct Lines(String);

impl Lines {
    /// Begins with this line.
    pub(super) fn new(first: &str) -> Self {
        Self(first.to_owned())
    }

    /// Adds a line.
    pub(super) fn line(&mut self, text: &str) {
        self.0.push('\n');
        self.0.push_str(text);
    }

    /// Adds what every receipt says of its task.
    pub(super) fn task(&mut self, task: &TaskBrief) {
        self.line(&format!("Task: {}", task.task_id));
        let reason = task.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        self.line(&format!("Status: {}{reason}", task.status.as_str()));
        if let Some(code) = task.exit_status {
            self.line(&format!("Exit status: {code}"));
        }
        if let Some(signal) = task.signal {
            self.line(&format!("Signal: {} ({signal})", signal_name(signal)));
        }
        self.held(task);
    }

    /// Names the question that holds a task.
    pub(super) fn held(&mut self, task: &TaskBrief) {
        if let Some(question) = &task.waiting_for_approval {
            self.line(&format!("Waiting for approval: {question}; a person answers it"));
        }
    }

    /// Adds a block, if there is anything in it.
    pub(super) fn block(&mut self, label: &str, content: &str) {
        if !content.trim().is_empty() {
            self.0.push_str(&format!("\n\n{label}:\n{content}"));
        }
    }

    /// Adds what a command did that somebody should know of.
    pub(super) fn warnings(&mut self, task: &TaskBrief) {
        self.block("Warnings", &task.warnings.join("\n"));
    }

    /// Adds the block of files.
    pub(super) fn artifacts(&mut self, artifacts: &[ArtifactEntry]) {
        let paths = artifacts.iter().map(|artifact| artifact.path.display().to_string());
        self.block("Artifacts", &paths.collect::<Vec<_>>().join("\n"));
    }

    /// The text.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Numbers in a row.
pub(super) fn numbers(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
