//! `Finished`: the result of a command that has ended: exit code, signal and output.

use std::{io, sync::Arc, time::Duration};

use super::Engine;
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{EndedBy, Outcome, sandbox::SandboxReport, signal_name, status::Status},
    output::{Artifact, Complete, Mask, TaskOutput},
    store::ledger::Task,
    task::{progress::Ended, run::Run},
};

/// Bytes that are read at a time.
const READ_BYTES: u64 = 1024 * 1024;

/// Most characters of the line of stderr that an error has.
const LINE_CHARS: usize = 200;

/// How much text a [`Finished`] has, and of what kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts {
    /// Most bytes of each stream.
    pub bytes_max: u64,
    /// Whether secrets are masked.
    pub masked: bool,
}

/// A command that has ended: how, and what it printed.
///
/// Whatever the command did is a result: a code that is not 0, a signal, a timeout, even an end
/// that cannot be known. [`Finished::into_success`] makes an error of all that, for those who want
/// one.
#[derive(Debug)]
pub struct Finished {
    task_id: TaskId,
    outcome: Arc<Outcome>,
    sandbox: Arc<SandboxReport>,
    output: TaskOutput,
    stdout: Complete,
    stderr: Complete,
    mask: Arc<Mask>,
}

impl Finished {
    /// From a run that this engine has driven to its end.
    pub(super) fn of_run(
        engine: &Engine,
        run: &Run,
        ended: &Ended,
        texts: Texts,
    ) -> Result<Self, ToolError> {
        let task_id = run.task_id().clone();
        let output = run.output(ended).map_err(|error| unreadable(&task_id, &error))?;
        Self::new(engine, task_id, ended.outcome.clone(), run.sandbox().clone(), output, texts)
    }

    /// From a task that is over, whoever started it.
    pub(super) async fn of_task(
        engine: &Engine,
        task: &Task,
        texts: Texts,
    ) -> Result<Self, ToolError> {
        let outcome = task.outcome.clone().unwrap_or_default();
        if outcome == Outcome::default() {
            return Err(never_started(task));
        }
        let (id, sandbox) = (task.task_id.clone(), task.sandbox.clone());
        let output = engine.output(&id).await?;
        Self::new(engine, id, Arc::new(outcome), sandbox, output, texts)
    }

    fn new(
        engine: &Engine,
        task_id: TaskId,
        outcome: Arc<Outcome>,
        sandbox: Arc<SandboxReport>,
        mut output: TaskOutput,
        texts: Texts,
    ) -> Result<Self, ToolError> {
        if outcome.lost.is_none() {
            // What was printed later, by processes that it left behind, is not its own.
            output.stdout = output.stdout.with_totals(outcome.stdout.came(), outcome.stdout.lines);
            output.stderr = output.stderr.with_totals(outcome.stderr.came(), outcome.stderr.lines);
        }
        let mask = engine.mask();
        let text = |artifact: &Artifact| {
            let complete = if texts.masked {
                artifact.complete(&mask, texts.bytes_max)
            } else {
                artifact.complete(&Mask::none(), texts.bytes_max)
            };
            complete.map_err(|error| unreadable(&task_id, &error))
        };
        let (stdout, stderr) = (text(&output.stdout)?, text(&output.stderr)?);
        Ok(Self { task_id, outcome, sandbox, output, stdout, stderr, mask })
    }

    /// The id by which the task is known from now on.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// Whether it ended by itself, with exit code 0.
    pub fn success(&self) -> bool {
        self.status() == Status::Completed
    }

    /// The exit code; none after a signal, and where the end cannot be known.
    pub fn code(&self) -> Option<i32> {
        self.outcome.exit_status
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.outcome.signal
    }

    /// Whether it was stopped because its time was over.
    pub fn timed_out(&self) -> bool {
        self.outcome.ended_by == Some(EndedBy::Timeout)
    }

    /// What of ours ended it: a limit, or somebody who asked.
    pub fn ended_by(&self) -> Option<EndedBy> {
        self.outcome.ended_by
    }

    /// The final status of its task.
    pub fn status(&self) -> Status {
        Status::of(&self.outcome).0
    }

    /// Everything that is recorded of its end.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// How long it ran.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.outcome.duration_ms)
    }

    /// What it was confined by, and which protection it should have had and had not.
    pub fn sandbox(&self) -> &SandboxReport {
        &self.sandbox
    }

    /// Processes that it left running; [`TaskHandle::stop`](super::TaskHandle::stop) ends them.
    pub fn background_pids(&self) -> &[u32] {
        &self.outcome.background_pids
    }

    /// What it printed to stdout, or on its terminal, as text; bytes that are no text are replaced.
    ///
    /// All of it, up to [`Command::text_bytes_max`](super::Command::text_bytes_max). Of a longer
    /// one head and tail, with a line between them that says how much is left out and where it is;
    /// then [`Finished::is_complete`] is false.
    pub fn stdout(&self) -> &str {
        &self.stdout.text
    }

    /// What it printed to stderr as text, in the same way.
    pub fn stderr(&self) -> &str {
        &self.stderr.text
    }

    /// The lines of [`Finished::stdout`].
    pub fn lines(&self) -> std::str::Lines<'_> {
        self.stdout.text.lines()
    }

    /// Whether [`Finished::stdout`] and [`Finished::stderr`] have all that was printed.
    pub fn is_complete(&self) -> bool {
        !self.stdout.truncated && !self.stderr.truncated
    }

    /// Reads every stored byte of stdout: exactly what was printed, never masked, in as much memory
    /// as that takes.
    pub fn stdout_bytes(&self) -> Result<Vec<u8>, ToolError> {
        self.all(&self.output.stdout)
    }

    /// Reads every stored byte of stderr, in the same way.
    pub fn stderr_bytes(&self) -> Result<Vec<u8>, ToolError> {
        self.all(&self.output.stderr)
    }

    /// Where everything is kept that it printed: sizes, paths, what was dropped, the bytes at any
    /// offset.
    pub fn output(&self) -> &TaskOutput {
        &self.output
    }

    /// The same if it is a [`Finished::success`]; otherwise an error with the kind
    /// [`ErrorKind::CommandFailed`] that says how it ended.
    pub fn into_success(self) -> Result<Self, ToolError> {
        if self.success() { Ok(self) } else { Err(self.failure()) }
    }

    fn failure(&self) -> ToolError {
        let end = match (self.outcome.ended_by, self.code(), self.signal()) {
            (Some(by), _, _) => by.sentence().to_owned(),
            (None, Some(code), _) => format!("the command exited with code {code}"),
            (None, None, Some(signal)) => {
                format!("the command was ended by {}", signal_name(signal))
            }
            (None, None, None) => {
                let reason = self.outcome.lost.as_deref().unwrap_or("unknown");
                format!("the command's outcome is unknown ({reason})")
            }
        };
        let last = self.stderr.text.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map(|line| {
            let line: String = self.mask.text(line).chars().take(LINE_CHARS).collect();
            format!("; its stderr ends with: {line}")
        });
        let mut error =
            ToolError::new(ErrorKind::CommandFailed, end + said.as_deref().unwrap_or_default())
                .detail("task_id", self.task_id.as_str());
        for (name, number) in [("exit_status", self.code()), ("signal", self.signal())] {
            if let Some(number) = number {
                error = error.detail(name, number);
            }
        }
        match self.outcome.ended_by {
            Some(by) => error.detail("ended_by", by.as_str()),
            None => error,
        }
    }

    fn all(&self, artifact: &Artifact) -> Result<Vec<u8>, ToolError> {
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            at = artifact.skip(at);
            let piece = artifact.read(at, READ_BYTES);
            let piece = piece.map_err(|error| unreadable(&self.task_id, &error))?;
            if piece.is_empty() {
                return Ok(all);
            }
            at += piece.len() as u64;
            all.extend(piece);
        }
    }
}

fn unreadable(task_id: &TaskId, error: &io::Error) -> ToolError {
    ToolError::unreadable(task_id.as_str(), error)
}

/// The error of a task whose command never ran; the one that started it knows why.
fn never_started(task: &Task) -> ToolError {
    ToolError::new(
        ErrorKind::CommandSpawnFailed,
        format!("the command of task {} could not be started", task.task_id),
    )
    .detail("task_id", task.task_id.as_str())
}
