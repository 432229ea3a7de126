//! Typed errors for what keeps a command from running: a verdict, a shortage, a start that failed.

use std::{io, path::Path};

use legwork_warden::protocol::{StartFailure, StartStage};
use serde_json::json;

use crate::{
    error::{ErrorKind, StateProblem, ToolError},
    model::sandbox::SandboxReport,
    place::{Place, PlaceError},
    platform::{is_folder_error, is_no_terminal, is_shortage},
};

/// The typed error of a start beyond the limit of tasks.
pub(super) fn too_many_tasks(running: u64, tasks_max: u64) -> ToolError {
    ToolError::new(
        ErrorKind::LimitExceeded,
        format!("{running} tasks are running, and no more than {tasks_max} may"),
    )
    .detail("running", running)
    .detail("tasks_max", tasks_max)
    .hint(
        "wait for one to end (TaskWait) or stop one (TaskStop), then try again; [limits] tasks_max in the \
         configuration is the limit",
    )
}

/// What helps when the machine gives no more processes or descriptors.
const SHORTAGE_HINT: &str = "end other processes or raise the limit, then try again";

/// What helps when commands have written as much outside the workspace as may be kept.
pub(super) const LAYERS_FULL_HINT: &str =
    "bring it over or discard it (`--outside`), or raise `layer_bytes_max` of `[sandbox]`";

/// The typed error of a warden that cannot be had.
pub(crate) fn place_error(error: &PlaceError) -> ToolError {
    match error {
        PlaceError::Unfit(failure) => failed_start("the warden", failure, None),
        PlaceError::Io(io) if io.raw_os_error().is_some_and(is_shortage) => {
            ToolError::new(ErrorKind::LimitExceeded, format!("no process could be made: {io}"))
                .hint(SHORTAGE_HINT)
        }
        PlaceError::NoCopies(problem) => ToolError::new(
            ErrorKind::SandboxUnavailable,
            format!("commands cannot be tried here: {problem}"),
        )
        .hint("run it for real, or do without it"),
        PlaceError::NoLayer(problem) => ToolError::new(
            ErrorKind::SandboxUnavailable,
            format!(
                "what commands write outside the workspace cannot be kept in a layer: {problem}"
            ),
        )
        .hint("`outside = \"refuse\"` of `[sandbox]` does without layers"),
        PlaceError::LayersFull(problem) => {
            ToolError::new(ErrorKind::LimitExceeded, problem.clone()).hint(LAYERS_FULL_HINT)
        }
        other => ToolError::new(
            ErrorKind::ToolExecutionFailed,
            format!("the command's supervisor could not be started: {other}"),
        ),
    }
}

/// The typed error of a sandbox that lacks something, where nothing may.
pub(super) fn unprotected(report: &SandboxReport) -> ToolError {
    let missing: Vec<String> =
        report.missing.iter().map(|it| format!("{} ({})", it.layer, it.reason)).collect();
    ToolError::new(
        ErrorKind::SandboxUnavailable,
        format!(
            "the configuration requires the whole sandbox, but this machine lacks: {}",
            missing.join("; ")
        ),
    )
    .detail("missing", serde_json::to_value(&report.missing).unwrap_or_default())
    .hint("give this machine what is missing, or have the configuration not require it")
}

/// The typed error of a start that failed.
pub(super) fn start_error(place: &dyn Place, program: &str, failure: &StartFailure) -> ToolError {
    let refusal = (failure.stage == StartStage::Execute)
        .then(|| place.refusal_to_execute(Path::new(program), failure.errno));
    failed_start(program, failure, refusal)
}

fn failed_start(program: &str, failure: &StartFailure, refusal: Option<String>) -> ToolError {
    let problem = io::Error::from_raw_os_error(failure.errno);
    match failure.stage {
        StartStage::Folder => ToolError::state(StateProblem::of(&problem), &problem),
        StartStage::Process | StartStage::Descriptors if is_shortage(failure.errno) => {
            ToolError::new(ErrorKind::LimitExceeded, format!("no process could be made: {problem}"))
                .hint(SHORTAGE_HINT)
        }
        StartStage::Descriptors if is_folder_error(failure.errno) => ToolError::new(
            ErrorKind::ToolExecutionFailed,
            "stdin is a folder, which would lead out of the sandbox",
        )
        .hint("give the command a file, a pipe or nothing"),
        StartStage::Descriptors if is_no_terminal(failure.errno) => ToolError::new(
            ErrorKind::ToolExecutionFailed,
            "no terminal here: this Windows has no pseudo consoles",
        )
        .hint("run the command without a terminal"),
        StartStage::WorkingDirectory => ToolError::new(
            ErrorKind::WorkdirNotFound,
            format!("the working directory cannot be entered: {problem}"),
        )
        .hint("name a folder that may be entered, relative to the workspace"),
        StartStage::Execute => {
            let problem = refusal.unwrap_or_else(|| problem.to_string());
            spawn_failed(program, &problem).detail("errno", json!(failure.errno))
        }
        StartStage::Sandbox => ToolError::new(
            ErrorKind::SandboxUnavailable,
            format!("the command was not started: its sandbox could not be entered: {problem}"),
        )
        .detail("errno", json!(failure.errno))
        .hint("see which protections this machine has"),
        StartStage::Process | StartStage::Descriptors | StartStage::Limits => {
            spawn_failed(program, &problem.to_string()).detail("errno", json!(failure.errno))
        }
    }
}

/// A program that cannot be started.
pub(super) fn spawn_failed(program: &str, problem: &str) -> ToolError {
    ToolError::new(
        ErrorKind::CommandSpawnFailed,
        format!("`{program}` could not be started: {problem}"),
    )
    .detail("program", program)
    .hint("name a program that exists on this machine, or give its full path")
}

/// A stop that could not end everything.
pub(crate) fn survived(pids: &[u32]) -> ToolError {
    let shown: Vec<String> = pids.iter().map(u32::to_string).collect();
    ToolError::new(
        ErrorKind::ToolExecutionFailed,
        format!(
            "the command was stopped, but these processes cannot be ended: {}",
            shown.join(", ")
        ),
    )
    .detail("survivors", pids.to_vec())
    .hint("they belong to another user, or wait for a device; the task stays listed until they end")
}
