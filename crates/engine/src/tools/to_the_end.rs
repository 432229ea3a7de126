//! Tools that wait for the end of their command, whatever it takes.

use std::{io, sync::Arc};

use super::{Receipt, Success, task_view};
use crate::{
    engine::Engine,
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{Caller, Denial, Outcome, Request, sandbox::SandboxReport},
    output::{Artifact, TaskOutput},
};

/// The result of such a tool.
pub(super) trait EndResult: Receipt {
    /// The result from what is recorded.
    fn of(engine: &Engine, task_id: &TaskId, outcome: &Outcome, all: Everything) -> Self;

    /// What a command that cannot be started gives; anything else stays an error.
    fn not_started(error: ToolError) -> Result<Self, ToolError>;
}

/// A result, with what is known of the task if one was started.
pub(super) struct AtTheEnd<R> {
    pub result: R,
    pub sandbox: Option<Arc<SandboxReport>>,
    pub not_started: Option<ErrorKind>,
}

impl<R> AtTheEnd<R> {
    /// The success of the tool, with its result.
    pub(super) fn success(self, summary: impl Into<String>) -> Success
    where
        R: Receipt,
    {
        let Self { result, sandbox, not_started } = self;
        Success { sandbox, not_started, ..super::success(result, summary) }
    }
}

/// Runs a command to its end; one that never started is a result too.
pub(super) async fn run<R: EndResult>(
    engine: &Engine,
    request: Request,
    caller: &Caller,
) -> Result<AtTheEnd<R>, ToolError> {
    let mut run = match engine.start(request, caller).await {
        Ok(run) => run,
        Err(error) => {
            let not_started = Some(error.kind);
            let result = R::not_started(error)?;
            return Ok(AtTheEnd { result, sandbox: None, not_started });
        }
    };
    let task_id = run.task_id().clone();
    let (result, not_started) = match run.ended().await {
        Ok(ended) => {
            let unreadable = |error| ToolError::unreadable(task_id.as_str(), &error);
            let output = run.output(&ended).map_err(unreadable)?;
            let mut all = everything(engine, &task_id, &output)?;
            let outcome = &ended.outcome;
            all.refused = engine.sandbox_facts(&run, outcome, caller, &all.stderr).await;
            all.warnings = super::warnings(run.sandbox(), Some(outcome));
            if let Some(reason) = &outcome.lost {
                return Err(super::lost(&task_id, reason));
            }
            (R::of(engine, &task_id, outcome, all), None)
        }
        Err(error) => {
            let kind = error.kind;
            (R::not_started(error)?, Some(kind))
        }
    };
    let sandbox = Some(run.sandbox().clone());
    Ok(AtTheEnd { result, sandbox, not_started })
}

/// Everything that a run printed, as the tools give it that promise so.
pub(super) struct Everything {
    pub stdout: String,
    pub stderr: String,
    pub truncated: bool,
    /// The files, where a stream was too long.
    pub artifacts: Vec<task_view::ArtifactEntry>,
    /// The paths and processes that the sandbox kept from it, as far as it complains of them.
    refused: Vec<Denial>,
    /// What somebody should know of it.
    pub warnings: Vec<String>,
}

impl Everything {
    /// All that was refused to the command.
    pub(super) fn denials(&self, outcome: &Outcome) -> Vec<Denial> {
        outcome.denials.iter().chain(&self.refused).cloned().collect()
    }
}

/// Reads everything that a run printed.
fn everything(
    engine: &Engine,
    task_id: &TaskId,
    output: &TaskOutput,
) -> Result<Everything, ToolError> {
    let unreadable = |error: io::Error| ToolError::unreadable(task_id.as_str(), &error);
    let mask = engine.mask();
    let complete = |artifact: &Artifact| {
        artifact.complete(&mask, engine.settings().complete_bytes_max).map_err(unreadable)
    };
    let (stdout, stderr) = (complete(&output.stdout)?, complete(&output.stderr)?);
    let truncated = stdout.truncated || stderr.truncated;
    let artifacts = if truncated { task_view::artifacts(output) } else { Vec::new() };
    let (stdout, stderr) = (stdout.text, stderr.text);
    let (refused, warnings) = (Vec::new(), Vec::new());
    Ok(Everything { stdout, stderr, truncated, artifacts, refused, warnings })
}
