//! `ExecCommand`: runs a shell script and answers with what it printed.

use std::{io, time::Duration};

use legwork_warden::folder::WindowSize;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    BuiltIn, Definition, Manners, Success, Turn, WAIT_MS_MAX,
    diagnostics::CommandDiagnostics,
    exec_result::{
        AlreadyRunning, Completed, Disposition, ExecResult, PromotedToTask, RunningCommand,
        TaskHandleEntry,
    },
    progress, schema,
    task_output::full_screen,
    task_view::{ArtifactEntry, held_tasks, lasted, processes},
};
use crate::{
    engine::Engine,
    error::ToolError,
    id::TaskId,
    model::{
        Caller, DuplicatePolicy, Flag, Outcome, Outputs, Request, Stdin, signal_name,
        status::Status,
    },
    output::{Artifact, Mask, Preview, Selection, TaskOutput, previews},
    platform::{ON_WINDOWS, SHELL_FIELD},
    store::ledger::Task,
    task::{
        Submitted,
        progress::Ended,
        run::{Promotion, Run},
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
holds all of it. Pass no `status` and no `task_handle`: those are fields of results.";

/// The instructions: how they begin, when there is a terminal, and how they end differs between
/// systems.
macro_rules! instructions {
    ($begin:literal, $terminal:literal, $end:literal) => {
        concat!(
            $begin,
            "
- Each call starts in the workspace, or in `workdir`; no `cd` and no variable carries over to the next.
- A non-zero exit code is a result, not an error: read it.
- When the receipt lists artifacts, part of the output was left out: search those files with your next
  command instead of running the same one again.
- A command that is not through after `yield_time_ms` is not stopped: it goes on as a task, and you get its
  id. Wait for what you need with TaskWait (an exit, an open port, a line of output), read more with
  TaskOutput. Leave `yield_time_ms` out, but for a server: pass a small one, or 0.
- The same command is not started twice: an equal one that still runs is named instead.
- `tty: true` gives a terminal, ",
            $terminal,
            ": type with TaskInput, and
  look with TaskOutput and `view: screen`. `accepts_input: true` opens stdin without a terminal.
- Processes that a command leaves running in the background are listed and go on.",
            $end
        )
    };
}

const INSTRUCTIONS: &str = if ON_WINDOWS {
    instructions!(
        "\
Use ExecCommand to run a command on Windows: builds, tests, git, searches, anything you would type.
- `cmd` is passed to `cmd.exe /d /s /c` as it is: `&`, `&&`, `|` and redirects work; it is one line. For several
  lines, or for other words, name another `shell`: powershell, pwsh or bash (Git's), where they are installed.",
        "where this Windows has one",
        ""
    )
} else {
    instructions!(
        "\
Use ExecCommand to run a shell script: builds, tests, git, searches, anything you would type.
- `cmd` is passed to the shell as it is; pipes, redirects, `&&` and several lines work.",
        "for programs that need one (editors, REPLs, pagers)",
        "
- `login: false` starts much faster, when the script needs nothing from your shell profile."
    )
};

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "local_environment",
            category: "System Execution",
            tags: &["command", "shell", "execute", "process", "task"],
            description: DESCRIPTION,
            input_schema: schema::with::<Input>("shell", SHELL_FIELD),
            instructions: INSTRUCTIONS,
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
    /// Which there are depends on the system.
    shell: Option<String>,
    /// Whether to start a login shell, which reads the user's profile.
    #[schemars(extend("default" = true))]
    login: Option<bool>,
    /// Whether to give the command a terminal of 24 lines with 80 characters.
    #[schemars(extend("default" = false))]
    tty: Option<bool>,
    /// What to do when an equal command is already running: `reuse_running` answers with the
    /// running task, `start_new` starts a second copy.
    #[schemars(extend("default" = DuplicatePolicy::default()))]
    duplicate_policy: Option<DuplicatePolicy>,
    /// Whether stdin stays open for input to be sent later with `TaskInput`. Default: the value of
    /// tty.
    accepts_input: Option<bool>,
    /// How long to wait for the command to end, in milliseconds, up to 3600000; then it goes on as
    /// a background task. 0 makes it one at once. Set it only on purpose.
    #[schemars(range(max = 3_600_000), extend("default" = YIELD_MS_DEFAULT))]
    yield_time_ms: Option<u64>,
    /// How many tokens of output to show at most, up to 64000.
    #[schemars(extend("default" = super::default_tokens()))]
    max_output_tokens: Option<u64>,
}

async fn call(engine: &Engine, mut input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let place = take_place(engine, &mut input)?;
    let input: Input = super::parse(NAME, input)?;
    input.check()?;
    let max_output_tokens = super::effective_tokens(engine, input.max_output_tokens);
    let mask = engine.mask();
    let command_diagnostics = CommandDiagnostics::of(&mask, &input.cmd, max_output_tokens);
    let asked = Duration::from_millis(input.yield_time_ms.unwrap_or(YIELD_MS_DEFAULT));
    let wait = caller.bounded(asked);
    let mut request = input.into_request(max_output_tokens);
    request.place = place;
    request.is_awaited = !wait.is_zero();
    let takes_input = matches!(request.stdin, Stdin::Open);
    let (sandbox, (outcome, summary)) = match engine.submit(request, caller).await? {
        Submitted::AlreadyRunning(task) => {
            let sandbox = task.sandbox.clone();
            let summary = how_it_is_doing(engine, &task).await;
            let outcome = Disposition::AlreadyRunning(already_running(*task, summary));
            (sandbox, (outcome, "an equal command is already running".to_owned()))
        }
        Submitted::Started(run) => {
            let shown = Shown { engine, mask: &mask, max_output_tokens };
            let sandbox = run.sandbox().clone();
            let patience = Patience { wait, is_cut: wait < asked, takes_input };
            (sandbox, attend(run, patience, shown, caller).await?)
        }
    };
    let result = ExecResult { outcome, command_diagnostics };
    Ok(super::success(result, summary).sandbox(sandbox))
}

/// The place to run at, where there are several: otherwise the input has no such field.
fn take_place(engine: &Engine, input: &mut Value) -> Result<Option<String>, ToolError> {
    if engine.places().is_empty() {
        return Ok(None);
    }
    match input.as_object_mut().and_then(|fields| fields.remove("place")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(place)) => Ok(Some(place)),
        Some(_) => Err(ToolError::invalid_field(NAME, "place", "is not a string")),
    }
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
            return Err(super::too_long(NAME, "cmd", self.cmd.len(), CMD_BYTES_MAX));
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
        request = request.workdir_of("workdir", self.workdir);
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
    /// Whether the caller asked for more, and its client cannot wait for that.
    is_cut: bool,
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
        if patience.is_cut && promoted.waiting_for_input != Some(true) {
            promoted.wait_cut_to_ms = u64::try_from(wait.as_millis()).ok();
        }
        promoted.waiting_for_approval = held_tasks(shown.engine).await.remove(run.task_id());
        promoted.approval_note = run.approval_note().map(str::to_owned);
        promoted.warnings = super::warnings(run.sandbox(), None);
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
        let mut promoted = promoted(run.task_id(), output, status, shown, caller).await;
        promoted.warnings = super::warnings(run.sandbox(), Some(&ended.outcome));
        return Ok((Disposition::PromotedToTask(promoted), promoted_summary()));
    }
    let mut completed = complete(&run, &ended, shown)?;
    let complaints = completed.stderr_preview.as_deref().unwrap_or_default();
    let refused = shown.engine.sandbox_facts(&run, &ended.outcome, caller, complaints).await;
    completed.denials.extend(refused);
    completed.warnings = super::warnings(run.sandbox(), Some(&ended.outcome));
    completed.ends_with_session = caller.session.ends_what_is_left();
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
        task_handle: TaskHandleEntry::new(task_id.clone(), status, preview.text.clone()),
        initial_output_preview: preview.text,
        initial_output_truncated: preview.truncated,
        wait_cut_to_ms: None,
        queued_for: None,
        waiting_for_input: None,
        waiting_for_approval: None,
        approval_note: None,
        warnings: Vec::new(),
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
        ends_with_session: false,
        ended_by: outcome.ended_by,
        dropped_bytes: outcome.stdout.dropped_bytes + outcome.stderr.dropped_bytes,
        flags,
        denials: outcome.denials.clone(),
        connections: outcome.connections.clone(),
        warnings: outcome.warnings.clone(),
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
        task_handle: TaskHandleEntry::new(task.task_id, task.status, None),
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
