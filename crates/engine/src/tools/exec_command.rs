//! `ExecCommand`: runs a shell script and answers with what it printed.

use std::{io, time::Duration};

use legwork_warden::folder::WindowSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    BuiltIn, Definition, Manners, Receipt, StartedTask, Success, Turn, WAIT_MS_MAX,
    diagnostics::CommandDiagnostics,
    progress, schema,
    task_output::full_screen,
    task_view::{
        ArtifactEntry, HeldByQuestion, ProcessEntry, TASK_KIND, held_tasks, lasted, processes,
    },
};
use crate::{
    engine::Engine,
    error::ToolError,
    id::TaskId,
    model::status::Status,
    model::{
        Caller, ConnectionRecord, Denial, DuplicatePolicy, EndedBy, Flag, Outcome, Outputs,
        OutsideChange, RefusedBy, Request, Stdin, changes_in_words, is_zero, signal_name,
    },
    output::{Artifact, Mask, Preview, Selection, TaskOutput, previews},
    platform::{ON_WINDOWS, SHELL_FIELD},
    store::ledger::Task,
    task::{
        Submitted,
        run::{Ended, Promotion, Run},
    },
};

pub(super) const NAME: &str = "ExecCommand";
const CMD_BYTES_MAX: usize = 100 * 1024;
const YIELD_MS_DEFAULT: u64 = 10_000;

/// A command that has waited for input for this long is promoted: nothing will happen until
/// somebody types.
const INPUT_WAIT: Duration = Duration::from_millis(300);

const DESCRIPTION: &str = "Runs a shell script on this machine and returns its exit code and what it \
printed to stdout and stderr. A command that takes longer than yield_time_ms goes on as a background task, \
to be followed with the Task tools. Long output is shown as head and tail, with the path of a file that \
holds all of it.";

const INSTRUCTIONS: &str = "\
Use ExecCommand to run a shell script: builds, tests, git, searches, anything you would type.
- `cmd` is passed to the shell as it is; pipes, redirects, `&&` and several lines work.
- Each call starts in the workspace, or in `workdir`; no `cd` and no variable carries over to the next.
- A non-zero exit code is a result, not an error: read it.
- When the receipt lists artifacts, part of the output was left out: search those files with your next
  command instead of running the same one again.
- A command that is not through after `yield_time_ms` is not stopped: it goes on as a task, and you get its
  id. Wait for what you need with TaskWait (an exit, an open port, a line of output), read more with
  TaskOutput, end it with TaskStop. For a server, pass a small `yield_time_ms`, or 0.
- The same command is not started twice: an equal one that still runs is named instead.
- `tty: true` gives a terminal, for programs that need one (editors, REPLs, pagers): type with TaskInput, and
  look with TaskOutput and `view: screen`. `accepts_input: true` opens stdin without a terminal.
- Processes that a command leaves running in the background are listed and go on.
- `login: false` starts much faster, when the script needs nothing from your shell profile.";

/// The same on Windows.
const INSTRUCTIONS_WINDOWS: &str = "\
Use ExecCommand to run a command on Windows: builds, tests, git, searches, anything you would type.
- `cmd` is passed to `cmd.exe /d /s /c` as it is: `&`, `&&`, `|` and redirects work; it is one line. For several lines, or for other words,
  name another `shell`: powershell, pwsh or bash (Git's), where they are installed.
- Each call starts in the workspace, or in `workdir`; no `cd` and no variable carries over to the next.
- A non-zero exit code is a result, not an error: read it.
- When the receipt lists artifacts, part of the output was left out: search those files with your next
  command instead of running the same one again.
- A command that is not through after `yield_time_ms` is not stopped: it goes on as a task, and you get its
  id. Wait for what you need with TaskWait (an exit, an open port, a line of output), read more with
  TaskOutput, end it with TaskStop. For a server, pass a small `yield_time_ms`, or 0.
- The same command is not started twice: an equal one that still runs is named instead.
- `tty: true` gives a terminal, where this Windows has one: type with TaskInput, and look with TaskOutput and
  `view: screen`. `accepts_input: true` opens stdin without a terminal.
- Processes that a command leaves running in the background are listed and go on.";

/// The schema of its input, which names the shells of this system.
fn input_schema() -> Value {
    let mut schema = schema::of::<Input>();
    let field = schema.pointer_mut("/properties/shell/description");
    if let (Some(text), Some(field)) = (SHELL_FIELD, field) {
        *field = text.into();
    }
    schema
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "local_environment",
            category: "System Execution",
            tags: &["command", "shell", "execute", "process", "task"],
            description: DESCRIPTION,
            input_schema: input_schema(),
            instructions: if ON_WINDOWS { INSTRUCTIONS_WINDOWS } else { INSTRUCTIONS },
            read_only: false,
            by_default: true,
            turn: Turn::Waits,
            manners: Manners::default(),
            takes_argv: false,
            shell: None,
            text_is_json: false,
            takes_place: true,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<ExecResult>,
        again,
    }
}

/// Input of `ExecCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names are the contract's")]
struct Input {
    /// The shell script to run, passed to the shell verbatim.
    cmd: String,
    /// The folder to run in: relative to the workspace, or an absolute path inside it. Default: the
    /// workspace.
    workdir: Option<String>,
    /// The shell to use, by name or path. Default: the user's shell if it is bash, zsh or sh, else
    /// sh.
    shell: Option<String>,
    /// Whether to start a login shell, which reads the user's profile. Default: true.
    login: Option<bool>,
    /// Whether to give the command a terminal of 24 lines with 80 characters. Default: false.
    tty: Option<bool>,
    /// What to do when an equal command is already running: `reuse_running` answers with the
    /// running task, `start_new` starts a second copy. Default: `reuse_running`.
    duplicate_policy: Option<DuplicatePolicy>,
    /// Whether stdin stays open for input to be sent later with `TaskInput`. Default: the value of
    /// tty.
    accepts_input: Option<bool>,
    /// How long to wait for the command to end, in milliseconds, up to 3600000; then it goes on as
    /// a background task. 0 makes it one at once. Default: 10000.
    #[schemars(range(max = 3_600_000))]
    yield_time_ms: Option<u64>,
    /// How many tokens of output to show at most, up to 64000. Default: 8000.
    max_output_tokens: Option<u64>,
}

/// The result, told apart by `disposition`, with what is known of the command's text.
#[derive(Debug, Serialize, Deserialize)]
struct ExecResult {
    #[serde(flatten)]
    outcome: Disposition,
    command_diagnostics: CommandDiagnostics,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
enum Disposition {
    Completed(Completed),
    PromotedToTask(PromotedToTask),
    AlreadyRunning(AlreadyRunning),
}

#[derive(Debug, Serialize, Deserialize)]
struct Completed {
    task_id: TaskId,
    exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    signal: Option<i32>,
    stdout_preview: Option<String>,
    stderr_preview: Option<String>,
    truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    artifacts: Vec<ArtifactEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    stdout_artifact: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    stderr_artifact: Option<usize>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    background_pids: Vec<u32>,
    /// The same with their command lines.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    background_processes: Vec<ProcessEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ended_by: Option<EndedBy>,
    #[serde(skip_serializing_if = "is_zero", default)]
    dropped_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    flags: Vec<Flag>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    denials: Vec<Denial>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    connections: Vec<ConnectionRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    warnings: Vec<String>,
    /// What it changed outside the workspace, in its layer over the home folder.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    changes: Vec<OutsideChange>,
    /// How many more such changes there are.
    #[serde(skip_serializing_if = "is_zero", default)]
    more_changes: u64,
    /// What the sandbox does to paths that the command complained of.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    sandbox_facts: Vec<String>,
    /// What the person who approved it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    approval_note: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PromotedToTask {
    task_handle: TaskHandle,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    initial_output_preview: Option<String>,
    initial_output_truncated: bool,
    /// Why it waits in a queue, in the word of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    queued_for: Option<String>,
    /// Whether the command is blocked reading its input; absent if that cannot be known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    waiting_for_input: Option<bool>,
    /// The program that it is about to run, and may not before somebody says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    waiting_for_approval: Option<HeldByQuestion>,
    /// What the person who approved it says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    approval_note: Option<String>,
    /// From where `TaskOutput` goes on without a gap.
    next_cursor: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct AlreadyRunning {
    task_handle: TaskHandle,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    command: Option<RunningCommand>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    summary: Option<String>,
    instructions: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct TaskHandle {
    task_id: TaskId,
    task_kind: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    initial_output: Option<String>,
}

impl TaskHandle {
    fn new(task_id: TaskId, status: Status, initial_output: Option<String>) -> Self {
        Self { task_id, task_kind: TASK_KIND.into(), status, initial_output }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct RunningCommand {
    cmd: String,
    cmd_digest: String,
    workdir: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    shell: Option<String>,
    login: bool,
    tty: bool,
}

impl Completed {
    /// Whether the record of the task and its output tell all of it: then it can be made again.
    fn is_told_by_record(&self) -> bool {
        let Self {
            task_id: _,
            exit_status,
            signal,
            stdout_preview: _,
            stderr_preview: _,
            truncated,
            artifacts,
            stdout_artifact: _,
            stderr_artifact: _,
            duration_ms: _,
            background_pids,
            background_processes,
            ended_by,
            dropped_bytes,
            flags,
            denials,
            connections,
            warnings,
            changes,
            more_changes: _,
            sandbox_facts,
            approval_note,
        } = self;
        let is_whole = !truncated && artifacts.is_empty() && *dropped_bytes == 0;
        let is_alone = background_pids.is_empty() && background_processes.is_empty();
        let is_plain = ended_by.is_none()
            && flags.iter().all(|flag| *flag == Flag::InvalidUtf8)
            && denials.is_empty()
            && connections.is_empty();
        let is_uncommented = warnings.is_empty()
            && changes.is_empty()
            && sandbox_facts.is_empty()
            && approval_note.is_none();
        let is_known = exit_status.is_some() || signal.is_some();
        is_known && is_whole && is_alone && is_plain && is_uncommented
    }
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

async fn call(engine: &Engine, mut input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let place = take_place(engine, &mut input)?;
    let input: Input = super::parse(NAME, input)?;
    input.check()?;
    let max_output_tokens = super::effective_tokens(engine, input.max_output_tokens);
    let mask = engine.mask();
    let command_diagnostics = CommandDiagnostics::of(&mask, &input.cmd, max_output_tokens);
    let wait = Duration::from_millis(input.yield_time_ms.unwrap_or(YIELD_MS_DEFAULT));
    let wait = caller.bounded(wait);
    let mut request = input.into_request(max_output_tokens);
    request.place = place;
    request.is_awaited = !wait.is_zero();
    let takes_input = matches!(request.stdin, Stdin::Open);
    let (sandbox, started, (outcome, summary)) = match engine.submit(request, caller).await? {
        Submitted::AlreadyRunning(task) => {
            let sandbox = task.sandbox.clone();
            let summary = how_it_is_doing(engine, &task).await;
            let outcome = Disposition::AlreadyRunning(already_running(*task, summary));
            (sandbox, None, (outcome, "an equal command is already running".to_owned()))
        }
        Submitted::Started(run) => {
            let shown = Shown { engine, mask: &mask, max_output_tokens };
            let (sandbox, task_id) = (run.sandbox().clone(), run.task_id().clone());
            let patience = Patience { wait, takes_input };
            (sandbox, Some(task_id), attend(run, patience, shown, caller).await?)
        }
    };
    let is_told_by_record =
        matches!(&outcome, Disposition::Completed(completed) if completed.is_told_by_record());
    let started = started.map(|task_id| StartedTask { task_id, is_told_by_record });
    let result = ExecResult { outcome, command_diagnostics };
    Ok(Success { started, ..super::success(result, summary).sandbox(sandbox) })
}

/// The place to run at, where there are several: otherwise the input has no such field.
fn take_place(engine: &Engine, input: &mut Value) -> Result<Option<String>, ToolError> {
    if engine.places().next().is_none() {
        return Ok(None);
    }
    match input.as_object_mut().and_then(|fields| fields.remove("place")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(place)) => Ok(Some(place)),
        Some(_) => Err(ToolError::invalid_field(NAME, "place", "is not a string")),
    }
}

/// The result again, from what is stored of a task.
fn again(engine: &Engine, task: &Task, output: &TaskOutput) -> Option<Success> {
    let (outcome, mask) = (task.outcome.as_ref()?, engine.mask());
    let max_output_tokens = engine.settings().output_tokens_max;
    let shown = Shown { engine, mask: &mask, max_output_tokens };
    let mut completed = completed(&task.task_id, outcome, output, shown).ok()?;
    // What is masked now was not masked then, or the answer would have been kept.
    completed.flags.retain(|flag| *flag != Flag::Masked);
    if !completed.is_told_by_record() {
        return None;
    }
    let command_diagnostics = CommandDiagnostics::of(&mask, &task.command, max_output_tokens);
    let result = ExecResult { outcome: Disposition::Completed(completed), command_diagnostics };
    Some(super::success(result, summary(outcome)).sandbox(task.sandbox.clone()))
}

impl Input {
    /// Checks what the types do not say.
    fn check(&self) -> Result<(), ToolError> {
        let invalid = |field, problem: String| Err(ToolError::invalid_field(NAME, field, problem));
        if self.cmd.trim().is_empty() {
            return invalid("cmd", "is blank: give the script to run".into());
        }
        if self.cmd.contains('\0') {
            return invalid("cmd", "contains a NUL character, which no shell accepts".into());
        }
        if self.cmd.len() > CMD_BYTES_MAX {
            let size = self.cmd.len();
            return invalid(
                "cmd",
                format!(
                    "has {size} bytes, over the limit of {CMD_BYTES_MAX}: write a script file and run it"
                ),
            );
        }
        if self.yield_time_ms.is_some_and(|wait| wait > WAIT_MS_MAX) {
            return invalid("yield_time_ms", format!("is over the limit of {WAIT_MS_MAX}"));
        }
        if self.shell.as_deref().is_some_and(|shell| shell.trim().is_empty()) {
            return invalid("shell", "is blank: leave it out for the default".into());
        }
        Ok(())
    }

    fn into_request(self, max_output_tokens: u64) -> Request {
        let tty = self.tty.unwrap_or(false);
        let accepts_input = self.accepts_input.unwrap_or(tty);
        let mut request = Request::script(self.cmd)
            .tool(NAME)
            .login(self.login.unwrap_or(true))
            .stdin(if accepts_input { Stdin::Open } else { Stdin::Null })
            .duplicates(self.duplicate_policy.unwrap_or_default());
        if let Some(shell) = self.shell {
            request = request.shell(shell);
        }
        if tty {
            request = request.outputs(Outputs::Terminal(WindowSize::default()));
        }
        request.workdir = self.workdir.map(Into::into);
        // A token is at least a byte: what is kept in memory is never cut in its preview, and what
        // is cut has its files.
        request.memory_bytes_max = max_output_tokens;
        request
    }
}

/// How much of the output is shown, and what not.
#[derive(Clone, Copy)]
struct Shown<'a> {
    engine: &'a Engine,
    mask: &'a Mask,
    max_output_tokens: u64,
}

/// How long a command is waited for.
#[derive(Clone, Copy)]
struct Patience {
    wait: Duration,
    /// Whether it may turn out that nothing will happen until somebody types.
    takes_input: bool,
}

/// Waits for a command, and lets it go on as a task if it takes longer, or waits for input.
async fn attend(
    mut run: Run,
    patience: Patience,
    shown: Shown<'_>,
    caller: &Caller,
) -> Result<(Disposition, String), ToolError> {
    let wait = patience.wait;
    let watched = patience.takes_input.then(|| run.waits_for_input(INPUT_WAIT));
    let waits = async {
        match watched {
            Some(waits) => waits.await,
            None => std::future::pending().await,
        }
    };
    let ended = async {
        match &caller.progress {
            None => run.ended().await,
            Some(sender) => progress::told(&mut run, shown.mask, sender).await,
        }
    };
    let in_time = tokio::select! {
        ended = tokio::time::timeout(wait, ended) => ended.ok(),
        () = waits => None,
    };
    let promoted_summary = || "command promoted to a managed task".to_owned();
    if in_time.is_none()
        && let Promotion::Promoted(report) = run.promote().await
    {
        let output = run.output_so_far().await;
        let queued = run.queued();
        let status = if queued.is_some() { Status::Queued } else { Status::Running };
        let mut promoted = promoted(run.task_id(), output, status, shown, caller).await;
        promoted.queued_for = queued.and_then(|queued| queued.reason);
        promoted.waiting_for_input = report.and_then(|report| report.waiting_for_input);
        promoted.waiting_for_approval = held_tasks(shown.engine).await.remove(run.task_id());
        promoted.approval_note = run.approval_note().map(str::to_owned);
        return Ok((Disposition::PromotedToTask(promoted), promoted_summary()));
    }
    let ended = match in_time {
        Some(ended) => ended?,
        None => run.ended().await?,
    };
    if wait.is_zero() {
        // Who does not wait gets a task, also one that has ended by now.
        let output = run.output(&ended).unwrap_or_default();
        let (status, _) = Status::of(&ended.outcome);
        let promoted = promoted(run.task_id(), output, status, shown, caller).await;
        return Ok((Disposition::PromotedToTask(promoted), promoted_summary()));
    }
    let mut completed = complete(&run, &ended, shown)?;
    // What this machine's sandbox does to paths says nothing about another's.
    if completed.exit_status != Some(0)
        && !run.is_far()
        && let Some(complaints) = &completed.stderr_preview
    {
        let (sandbox, trust) = (run.sandbox(), caller.trust);
        completed.sandbox_facts = shown.engine.sandbox_facts(sandbox, trust, complaints).await;
    }
    Ok((Disposition::Completed(completed), summary(&ended.outcome)))
}

/// Builds the result of a command that goes on.
///
/// It goes on whatever can be read of its output: no error may hide its id from the caller.
async fn promoted(
    task_id: &TaskId,
    output: TaskOutput,
    status: Status,
    shown: Shown<'_>,
    caller: &Caller,
) -> PromotedToTask {
    let Shown { mask, max_output_tokens, .. } = shown;
    let (mut preview, cursor) =
        output.overview(mask, Selection::Both, max_output_tokens, false).unwrap_or_default();
    if let Some(screen) = full_screen(output, mask).await {
        preview = Preview { text: Some(screen), ..Preview::default() };
    }
    super::note_seen(caller, task_id, cursor);
    PromotedToTask {
        next_cursor: cursor.to_text(task_id),
        task_handle: TaskHandle::new(task_id.clone(), status, preview.text.clone()),
        initial_output_preview: preview.text,
        initial_output_truncated: preview.truncated,
        queued_for: None,
        waiting_for_input: None,
        waiting_for_approval: None,
        approval_note: None,
    }
}

fn summary(outcome: &Outcome) -> String {
    match (outcome.exit_status, outcome.signal) {
        (Some(code), _) => format!("command exited with status {code}"),
        (None, Some(signal)) => format!("command was ended by {}", signal_name(signal)),
        (None, None) => "what became of the command cannot be known".to_owned(),
    }
}

/// Builds the result of a command that has ended, from what is recorded.
fn complete(run: &Run, ended: &Ended, shown: Shown<'_>) -> Result<Completed, ToolError> {
    let unreadable = |error: io::Error| ToolError::unreadable(run.task_id().as_str(), &error);
    let Outcome { stdout, stderr, background_pids, .. } = &*ended.outcome;
    let mut output = run.output(ended).map_err(unreadable)?;
    output.stdout = output.stdout.with_totals(stdout.came(), stdout.lines);
    output.stderr = output.stderr.with_totals(stderr.came(), stderr.lines);
    Ok(Completed {
        background_processes: processes(shown.mask, run.processes(background_pids)),
        approval_note: run.approval_note().map(str::to_owned),
        ..completed(run.task_id(), &ended.outcome, &output, shown)?
    })
}

/// The same without what only the run knows; the output is that until the command's end.
fn completed(
    task_id: &TaskId,
    outcome: &Outcome,
    output: &TaskOutput,
    shown: Shown<'_>,
) -> Result<Completed, ToolError> {
    if let Some(reason) = &outcome.lost {
        return Err(super::lost(task_id, reason));
    }
    let unreadable = |error: io::Error| ToolError::unreadable(task_id.as_str(), &error);
    let (out, err) = (&output.stdout, &output.stderr);
    let (stdout, stderr) =
        previews(shown.mask, out, err, shown.max_output_tokens).map_err(unreadable)?;
    let mut artifacts = Vec::new();
    let mut listed = |truncated: bool, artifact: &Artifact| {
        let path = artifact.path().filter(|_| truncated)?.to_owned();
        artifacts.push(ArtifactEntry { path, bytes: artifact.kept_bytes() });
        Some(artifacts.len() - 1)
    };
    let stdout_artifact = listed(stdout.truncated, out);
    let stderr_artifact = listed(stderr.truncated, err);
    let mut flags = outcome.flags.clone();
    if out.kept_bytes() < outcome.stdout.bytes || err.kept_bytes() < outcome.stderr.bytes {
        flags.push(Flag::OutputMissing);
    }
    if stdout.replaced || stderr.replaced {
        flags.push(Flag::InvalidUtf8);
    }
    if stdout.masked || stderr.masked {
        flags.push(Flag::Masked);
    }
    Ok(Completed {
        task_id: task_id.clone(),
        exit_status: outcome.exit_status,
        signal: outcome.signal,
        truncated: stdout.truncated || stderr.truncated,
        stdout_preview: stdout.text,
        stderr_preview: stderr.text,
        artifacts,
        stdout_artifact,
        stderr_artifact,
        duration_ms: outcome.duration_ms,
        background_pids: outcome.background_pids.clone(),
        background_processes: Vec::new(),
        ended_by: outcome.ended_by,
        dropped_bytes: outcome.stdout.dropped_bytes + outcome.stderr.dropped_bytes,
        flags,
        denials: outcome.denials.clone(),
        connections: outcome.connections.clone(),
        warnings: outcome.warnings.clone(),
        changes: outcome.changes.clone(),
        more_changes: outcome.more_changes,
        sandbox_facts: Vec::new(),
        approval_note: None,
    })
}

/// How a running command is doing, in a line: for how long, how much it printed, whether it waits.
async fn how_it_is_doing(engine: &Engine, task: &Task) -> Option<String> {
    let mut observer = engine.observe(task.clone()).await.ok()?;
    let report = observer.report().await.ok().flatten()?;
    let output = observer.output().await.unwrap_or_default();
    let bytes = output.stdout.bytes() + output.stderr.bytes();
    let waits = if report.waiting_for_input == Some(true) { ", waiting for input" } else { "" };
    Some(format!("running for {}, {bytes} bytes of output{waits}", lasted(report.duration_ms)))
}

fn already_running(task: Task, summary: Option<String>) -> AlreadyRunning {
    let digest = Sha256::digest(task.command.as_bytes());
    AlreadyRunning {
        task_handle: TaskHandle::new(task.task_id, task.status, None),
        command: Some(RunningCommand {
            cmd_digest: data_encoding::HEXLOWER.encode(&digest),
            cmd: task.command,
            workdir: task.workdir,
            shell: task.shell,
            login: task.login,
            tty: task.tty,
        }),
        summary,
        instructions: "An equal command is running in this workspace, so none was started. TaskWait waits for it, \
            TaskOutput shows what it printed. `duplicate_policy`: `start_new` starts a second copy."
            .into(),
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
        let pids = completed.background_pids.iter().map(|pid| {
            let known = completed.background_processes.iter().find(|known| known.pid == *pid);
            known.map_or_else(|| pid.to_string(), ToString::to_string)
        });
        let told = format!("They go on. TaskStop with the task {} ends them.", completed.task_id);
        block("Background processes", &pids.chain([told]).collect::<Vec<_>>().join("\n"));
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
        let refused = completed.denials.iter().filter(|denial| denial.refused_by() == by);
        let refused: Vec<String> = refused.map(refusal).collect();
        if !refused.is_empty() {
            block(heading, &refused.join("\n"));
        }
    }
    if !completed.sandbox_facts.is_empty() {
        block("Sandbox", &completed.sandbox_facts.join("\n"));
    }
    if !completed.changes.is_empty() {
        let changes = changes_in_words(&completed.changes, completed.more_changes);
        block("Changed outside the workspace, only in a layer", &changes.join("\n"));
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
