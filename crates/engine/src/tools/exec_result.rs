//! The result of `ExecCommand`: its fields, and the receipt that a model reads.
//!
//! A receipt is rendered from the result alone.

use serde::{Deserialize, Serialize};

use super::{
    Receipt,
    diagnostics::CommandDiagnostics,
    task_view::{ArtifactEntry, HeldByQuestion, ProcessEntry, TASK_KIND},
};
use crate::{
    id::TaskId,
    model::{
        ConnectionRecord, Denial, EndedBy, FILES_LAYER, Flag, PROCESSES_LAYER, RefusedBy, is_zero,
        signal_name, status::Status,
    },
};

/// The result, told apart by `disposition`, with what is known of the command's text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExecResult {
    #[serde(flatten)]
    pub(super) outcome: Disposition,
    pub(super) command_diagnostics: CommandDiagnostics,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
pub(super) enum Disposition {
    Completed(Completed),
    PromotedToTask(PromotedToTask),
    AlreadyRunning(AlreadyRunning),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Completed {
    pub(super) task_id: TaskId,
    pub(super) exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) signal: Option<i32>,
    pub(super) stdout_preview: Option<String>,
    pub(super) stderr_preview: Option<String>,
    pub(super) truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) artifacts: Vec<ArtifactEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) stdout_artifact: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) stderr_artifact: Option<usize>,
    pub(super) duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) background_pids: Vec<u32>,
    /// The same with their command lines.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) background_processes: Vec<ProcessEntry>,
    /// Whether they end with the session of the caller, who cannot end them.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(super) ends_with_session: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ended_by: Option<EndedBy>,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) dropped_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) flags: Vec<Flag>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) denials: Vec<Denial>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) connections: Vec<ConnectionRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) warnings: Vec<String>,
    /// What the person who approved it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) approval_note: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PromotedToTask {
    pub(super) task_handle: TaskHandleEntry,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) initial_output_preview: Option<String>,
    pub(super) initial_output_truncated: bool,
    /// How long was waited, where that is less than what was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) wait_cut_to_ms: Option<u64>,
    /// Why it waits in a queue, in the word of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) queued_for: Option<String>,
    /// Whether the command is blocked reading its input; absent if that cannot be known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) waiting_for_input: Option<bool>,
    /// The program that it is about to run, and may not before somebody says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) waiting_for_approval: Option<HeldByQuestion>,
    /// What the person who approved it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) approval_note: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) warnings: Vec<String>,
    /// From where `TaskOutput` goes on without a gap.
    pub(super) next_cursor: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AlreadyRunning {
    pub(super) task_handle: TaskHandleEntry,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) command: Option<RunningCommand>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) summary: Option<String>,
    pub(super) instructions: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskHandleEntry {
    pub(super) task_id: TaskId,
    pub(super) task_kind: String,
    pub(super) status: Status,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) initial_output: Option<String>,
}

impl TaskHandleEntry {
    pub(super) fn new(task_id: TaskId, status: Status, initial_output: Option<String>) -> Self {
        Self { task_id, task_kind: TASK_KIND.into(), status, initial_output }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunningCommand {
    pub(super) cmd: String,
    pub(super) cmd_digest: String,
    pub(super) workdir: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) shell: Option<String>,
    pub(super) login: bool,
    pub(super) tty: bool,
}

impl Receipt for ExecResult {
    fn receipt(&self) -> String {
        match &self.outcome {
            Disposition::Completed(completed) => render_completed(completed),
            Disposition::PromotedToTask(promoted) => render_promoted(promoted),
            Disposition::AlreadyRunning(running) => render_already_running(running),
        }
    }
}

/// What stands above the words of a person who approved a command.
const APPROVED: &str = "The person who approved it says";

/// Who can have refused something, each with the heading for it.
const REFUSED: [(RefusedBy, &str); 3] = [
    (RefusedBy::Sandbox, "Refused by the sandbox"),
    (RefusedBy::Rule, "Refused by a rule"),
    (RefusedBy::Person, "Refused by a person"),
];

/// Whether what was refused is a path or a process, which is a fact and has a block of its own.
fn is_fact(denial: &Denial) -> bool {
    [FILES_LAYER, PROCESSES_LAYER].contains(&&*denial.layer)
}

/// One thing that was refused, in a line.
fn refusal(denial: &Denial) -> String {
    match denial.program {
        None if denial.rule.is_none() => format!("system call {}", denial.what),
        _ => denial.what.clone(),
    }
}

fn render_completed(completed: &Completed) -> String {
    let mut text = match completed.exit_status {
        Some(code) => format!("Process exited with code {code}"),
        None => "Process exited".to_owned(),
    };
    if let Some(signal) = completed.signal {
        text.push_str(&format!("\nSignal: {} ({signal})", signal_name(signal)));
    }
    if let Some(by) = completed.ended_by {
        text.push_str(&format!("\nEnded by: {} ({})", by.as_str(), by.sentence()));
    }
    let mut block = |label: &str, content: &str| text.push_str(&format!("\n\n{label}:\n{content}"));
    if let Some(note) = &completed.approval_note {
        block(APPROVED, note);
    }
    if let Some(stdout) = &completed.stdout_preview {
        block("stdout", stdout);
    }
    if let Some(stderr) = &completed.stderr_preview {
        block("stderr", stderr);
    }
    if !completed.background_pids.is_empty() {
        block("Background processes", &describe_background(completed));
    }
    if completed.dropped_bytes > 0 {
        let lost = format!("{} bytes of output are not stored", completed.dropped_bytes);
        block("Incomplete", &format!("{lost}{}", why_dropped(&completed.flags)));
    }
    if completed.flags.contains(&Flag::ProcessLimitHit) {
        block("Limited", "the command was refused more processes than processes_max");
    }
    if completed.flags.contains(&Flag::OutputMissing) {
        block(
            "Incomplete",
            "stored output is not there any more: its folder was removed or altered",
        );
    }
    for (by, heading) in REFUSED {
        let refused = completed.denials.iter().filter(|it| it.by == by && !is_fact(it));
        let refused: Vec<String> = refused.map(refusal).collect();
        if !refused.is_empty() {
            block(heading, &refused.join("\n"));
        }
    }
    let paths = completed.denials.iter().filter(|denial| is_fact(denial));
    let paths: Vec<&str> = paths.map(|denial| &*denial.what).collect();
    if !paths.is_empty() {
        block("Sandbox", &paths.join("\n"));
    }
    if !completed.warnings.is_empty() {
        block("Warnings", &completed.warnings.join("\n"));
    }
    if !completed.artifacts.is_empty() {
        let paths = completed.artifacts.iter().map(|artifact| artifact.path.display().to_string());
        block("Artifacts", &paths.collect::<Vec<_>>().join("\n"));
    }
    text
}

/// The processes that a command left running, and how they end.
fn describe_background(completed: &Completed) -> String {
    let pids = completed.background_pids.iter().map(|pid| {
        let known = completed.background_processes.iter().find(|known| known.pid == *pid);
        known.map_or_else(|| pid.to_string(), ToString::to_string)
    });
    let end = if completed.ends_with_session {
        "They go on until this session ends.".to_owned()
    } else {
        format!("They go on. TaskStop with the task {} ends them.", completed.task_id)
    };
    pids.chain([end]).collect::<Vec<_>>().join("\n")
}

/// Why output is not stored.
fn why_dropped(flags: &[Flag]) -> &'static str {
    let has = |flag| flags.contains(&flag);
    match () {
        () if has(Flag::DiskFull) => ": the disk was full",
        () if has(Flag::LowDisk) => ": the disk has little room left",
        () if has(Flag::WriteFailed) => ": the disk could not be written",
        () => ": head and tail are kept (output_bytes_max)",
    }
}

fn render_promoted(promoted: &PromotedToTask) -> String {
    let mut text =
        format!("Command promoted to background task\nTask: {}", promoted.task_handle.task_id);
    if promoted.task_handle.status == Status::Queued {
        let reason = promoted.queued_for.as_deref().map(|reason| format!(" ({reason})"));
        text.push_str(&format!("\nStatus: queued{}", reason.unwrap_or_default()));
    }
    if let Some(waited_ms) = promoted.wait_cut_to_ms {
        text.push_str(&format!(
            "\nWaited: {waited_ms} ms, no longer: this client may give up ([mcp] answer_within_ms)"
        ));
    }
    if promoted.waiting_for_input == Some(true) {
        text.push_str("\nWaiting for input: yes");
    }
    if let Some(question) = &promoted.waiting_for_approval {
        text.push_str(&format!("\nWaiting for approval: {question}; a person answers it"));
    }
    if let Some(note) = &promoted.approval_note {
        text.push_str(&format!("\n\n{APPROVED}:\n{note}"));
    }
    let output = promoted.initial_output_preview.as_deref();
    text.push_str("\n\nInitial output:\n");
    text.push_str(output.unwrap_or("(none captured before promotion)"));
    if !promoted.warnings.is_empty() {
        text.push_str(&format!("\n\nWarnings:\n{}", promoted.warnings.join("\n")));
    }
    text.push_str(&format!("\n\nCursor: {}\n", promoted.next_cursor));
    text.push_str(if promoted.waiting_for_input == Some(true) {
        "Next: answer with TaskInput, or end it with TaskStop."
    } else {
        "Next: TaskWait waits for its end, a line of output or a port; TaskOutput reads what is new."
    });
    text
}

fn render_already_running(running: &AlreadyRunning) -> String {
    let mut lines = vec![
        "Command is already running".to_owned(),
        format!("Task: {}", running.task_handle.task_id),
        match running.task_handle.status {
            Status::Queued => "Status: Queued".to_owned(),
            _ => "Status: Running".to_owned(),
        },
    ];
    if let Some(summary) = &running.summary {
        lines.push(format!("Task summary: {summary}"));
    }
    if let Some(command) = &running.command {
        lines.push(format!("Command: {}", command.cmd));
        lines.push(format!("workdir={}", command.workdir));
        lines.extend(command.shell.as_ref().map(|shell| format!("shell={shell}")));
    }
    lines.push(String::new());
    lines.push(running.instructions.clone());
    lines.join("\n")
}
