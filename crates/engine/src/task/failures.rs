//! Typed errors for what keeps a command from running: a verdict, a shortage, a start that failed.

use std::{
    io,
    path::{Path, PathBuf},
};

use legwork_warden::protocol::{StartFailure, StartStage};
use serde_json::json;

use crate::{
    error::{ErrorKind, StateProblem, ToolError},
    model::{Request, sandbox::SandboxReport},
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

/// What helps when the kernel takes no more arguments and variables, whatever the program.
const TOO_LONG_HINT: &str = "pass less as arguments and in the environment: put long data into a file or stdin; a limit \
     on memory (`memory_bytes_max`) or on the stack (`ulimit -s`) leaves less room for them";

/// The typed error of a warden that cannot be had.
pub(crate) fn place_error(error: &PlaceError) -> ToolError {
    match error {
        PlaceError::Unfit(failure) => failed_start(&Named::default(), failure, None),
        PlaceError::Io(io) if io.raw_os_error().is_some_and(is_shortage) => {
            ToolError::new(ErrorKind::LimitExceeded, format!("no process could be made: {io}"))
                .hint(SHORTAGE_HINT)
        }
        PlaceError::NoCopies(problem) => ToolError::new(
            ErrorKind::SandboxUnavailable,
            format!("commands cannot be tried here: {problem}"),
        )
        .hint("run it for real, or do without it"),
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

/// What the error of a start that failed names.
#[derive(Debug)]
pub(crate) struct Named {
    pub program: String,
    pub folder: NamedFolder,
}

impl Default for Named {
    fn default() -> Self {
        let folder = NamedFolder { field: "workdir", asked: PathBuf::from(".") };
        Self { program: "the warden".into(), folder }
    }
}

/// A folder to run in, as the caller named it: errors use the words of the tool that was called.
#[derive(Debug, Clone)]
pub(crate) struct NamedFolder {
    field: &'static str,
    pub asked: PathBuf,
}

impl NamedFolder {
    pub(super) fn of(request: &Request) -> Self {
        let asked = request.workdir.clone().unwrap_or_else(|| ".".into());
        Self { field: request.workdir_field, asked }
    }

    fn error(&self, kind: ErrorKind, problem: &str) -> ToolError {
        let (field, shown) = (self.field, self.asked.display().to_string());
        ToolError::new(kind, format!("`{field}`: the folder `{shown}` {problem}"))
            .detail(field, shown)
    }

    pub(super) fn unusable(&self, problem: &str) -> ToolError {
        self.error(ErrorKind::WorkdirNotFound, &format!("cannot be used: {problem}")).hint(EXISTING)
    }

    /// A folder that could not be opened.
    pub(super) fn unopened(&self, error: &io::Error) -> ToolError {
        match error.kind() {
            io::ErrorKind::NotFound => {
                self.error(ErrorKind::WorkdirNotFound, "does not exist").hint(EXISTING)
            }
            io::ErrorKind::NotADirectory => self.unusable("it is no folder"),
            io::ErrorKind::PermissionDenied => self.unusable("permission denied"),
            _ => self.unusable(&error.to_string()),
        }
    }

    /// A folder that is there, but not for the command.
    fn not_entered(&self, error: &io::Error) -> ToolError {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => {
                let own = OWN_FOLDERS.into_iter().find(|own| self.asked.starts_with(own));
                let own = own.map(|own| format!(", which has a {own} of its own"));
                format!("is not there inside the sandbox{}", own.unwrap_or_default())
            }
            io::ErrorKind::PermissionDenied => "cannot be entered: permission denied".to_owned(),
            _ => format!("cannot be entered: {error}"),
        };
        self.error(ErrorKind::WorkdirNotFound, &problem)
            .hint("name a folder that may be entered, relative to the workspace")
    }

    pub(super) fn absolute(&self) -> ToolError {
        let problem = "is absolute: it must be relative to the project's root";
        self.error(ErrorKind::ExecutionRootViolation, problem)
            .hint("name a folder inside the project, relative to its root, or leave it out")
    }

    pub(super) fn outside(&self, roots: &[PathBuf]) -> ToolError {
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        let problem = format!("is outside of where commands may run: {}", roots.join(", "));
        self.error(ErrorKind::ExecutionRootViolation, &problem)
            .hint("use a folder inside the workspace, by a path relative to it")
    }
}

/// Folders of which a sandbox has its own.
const OWN_FOLDERS: [&str; 6] = ["/tmp", "/var/tmp", "/proc", "/run", "/dev", "/sys"];

const EXISTING: &str = "name an existing folder, relative to the workspace";

/// The typed error of a start that failed.
pub(super) fn start_error(place: &dyn Place, named: &Named, failure: &StartFailure) -> ToolError {
    let refusal = (failure.stage == StartStage::Execute)
        .then(|| place.refusal_to_execute(Path::new(&named.program), failure.errno));
    failed_start(named, failure, refusal)
}

fn failed_start(named: &Named, failure: &StartFailure, refusal: Option<String>) -> ToolError {
    let Named { program, folder } = named;
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
        StartStage::WorkingDirectory => folder.not_entered(&problem),
        StartStage::Execute => {
            let told = refusal.unwrap_or_else(|| problem.to_string());
            let failed = spawn_failed(program, &told).detail("errno", json!(failure.errno));
            if problem.kind() == io::ErrorKind::ArgumentListTooLong {
                return failed.hint(TOO_LONG_HINT);
            }
            failed
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
