//! `run_shell_command`: a script for bash (on Windows for `cmd.exe`), with everything it printed
//! and what it left running.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_view::ArtifactEntry,
    to_the_end::{self, EndResult, Everything},
};
use crate::{
    engine::Engine,
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::config::Settings,
    model::limits::lower,
    model::{Caller, Confinement, ConnectionRecord, Denial, EndedBy, Outcome, Request},
    platform::{COMMON_SHELL, ON_WINDOWS},
};

pub(super) const NAME: &str = "run_shell_command";
const COMMAND_BYTES_MAX: usize = 100 * 1024;

/// The shell that reads its commands.
const SHELL: &str = COMMON_SHELL;

/// The original asks about everything that its user did not list, and runs no substitution.
const MANNERS: Manners = Manners { asks_by_default: true, refuses_substitution: true };

/// What the schema says of the command.
const COMMAND_FIELD: &str = if ON_WINDOWS {
    "The exact command for cmd.exe to run, on one line."
} else {
    "The exact bash command to run."
};

/// By which a command can know that it is run by this tool.
const MARK: [&str; 2] = ["ASIMI_CLI", "1"];

const DESCRIPTION: &str = "This tool executes a given shell command. On Windows, it uses `cmd.exe /c`. On other \
platforms, it uses `bash -c`. It can start background processes. Command substitution (`$(...)`, backticks, \
`<(...)`, `>(...)`) is refused before anything runs, and a command that is not allowed yet is asked for.";

/// The instructions: how they begin, and what of the result differs between systems.
macro_rules! instructions {
    ($begin:literal, $result:literal) => {
        concat!(
            $begin,
            "
- `directory` is relative to the project's root, which is the default; absolute paths are refused.
- `description` tells the person who may be asked to approve what the command is for.
- Each call is independent: no `cd` and no variable carries over.
- A non-zero `exitCode`, or text on `stderr`, may be a failure: read both before you go on.
- What the user has denied (`excludeTools`) fails; what is not allowed yet is asked for.
The result is JSON with `stdout`, `stderr` and ",
            $result,
            " `error` is there only if the command could not be started or ran into its limit (600 s unless configured otherwise)."
        )
    };
}

const INSTRUCTIONS: &str = if ON_WINDOWS {
    instructions!(
        "\
Use run_shell_command to run a command of cmd.exe to its end and get everything it printed.
- `command` is given to `cmd.exe /d /s /c`: `&`, `&&`, `|` and redirects work, and so does `start /b`. `for /f` and
  `$(...)` are refused.",
        "\
`exitCode`, the shell's `pid`, and the `taskId` of the task that
processes which it left running belong to."
    )
} else {
    instructions!(
        "\
Use run_shell_command to run a bash command to its end and get everything it printed.
- `command` is given to `bash -c`: pipes, redirects, `&&`, `;` and `&` work. Command substitution is refused,
  with the construct and its place: run the inner command by itself first, and use what it printed.",
        "\
`exitCode` (null if a signal ended it: then `signal` has its
number), the shell's `pid`, and `backgroundPids` of processes that it left running, with the `taskId` of
the task that they belong to; a later command cannot signal them. `denials` lists what the sandbox or a rule refused while it ran."
    )
};

/// Input of `run_shell_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// What it is depends on the system.
    command: String,
    /// What the command does, for the person who may be asked to approve it.
    description: Option<String>,
    /// The folder to run in, relative to the project's root. Default: the root.
    directory: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ran {
    stdout: String,
    stderr: String,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
    /// What the sandbox refused, and programs that a rule kept from being executed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    denials: Vec<Denial>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    connections: Vec<ConnectionRecord>,
    /// What somebody should know of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    background_pids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    artifacts: Vec<ArtifactEntry>,
}

/// The tool.
pub(super) fn tool() -> BuiltIn {
    BuiltIn {
        definition: Definition {
            name: NAME,
            family: "local_environment",
            category: "System Execution",
            tags: &["command", "shell", "bash", "execute", "background"],
            description: DESCRIPTION,
            input_schema: schema::with::<Input>("command", COMMAND_FIELD),
            instructions: INSTRUCTIONS,
            read_only: false,
            by_default: false,
            turn: Turn::Waits,
            manners: MANNERS,
            takes_argv: false,
            shell: Some(SHELL),
            text_is_json: true,
            takes_place: false,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<Ran>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    input.check()?;
    let request = input.into_request(engine.settings().shell_timeout);
    let end = to_the_end::run::<Ran>(engine, request, caller).await?;
    let ran = &end.result;
    let summary = match (ran.exit_code, &ran.error) {
        (_, Some(error)) => error.clone(),
        (Some(code), None) => format!("command exited with status {code}"),
        (None, None) => "command was ended by a signal".into(),
    };
    Ok(end.success(summary))
}

impl Input {
    fn check(&self) -> Result<(), ToolError> {
        let invalid = |problem: String| Err(ToolError::invalid_field(NAME, "command", problem));
        match &self.command {
            text if text.trim().is_empty() => invalid("is blank: give the command to run".into()),
            text if text.contains('\0') => invalid("contains a NUL character".into()),
            text if text.len() > COMMAND_BYTES_MAX => {
                Err(super::too_long(NAME, "command", text.len(), COMMAND_BYTES_MAX))
            }
            _ => Ok(()),
        }
    }

    fn into_request(self, timeout: Duration) -> Request {
        let [mark, set] = MARK;
        let mut request = Request::script(self.command)
            .tool(NAME)
            .manners(MANNERS)
            .shell(SHELL)
            .confined_to(Confinement::Workspace)
            .env(mark, set)
            .timeout(timeout)
            .workdir_of("directory", self.directory);
        request.description = self.description;
        request
    }
}

/// What to say when the command did not end by itself.
fn ended_by_us(by: Option<EndedBy>, settings: &Settings) -> Option<String> {
    let why = match by? {
        EndedBy::Timeout => {
            let own = u64::try_from(settings.shell_timeout.as_millis()).ok();
            let limit = lower(own, settings.task_limits.wall_ms_max).unwrap_or(u64::MAX);
            format!("the command was stopped: it ran into the limit of {limit} ms")
        }
        other => other.sentence().into(),
    };
    Some(why)
}

impl EndResult for Ran {
    fn of(engine: &Engine, task_id: &TaskId, outcome: &Outcome, all: Everything) -> Self {
        let denials = all.denials(outcome);
        let left_behind = !outcome.background_pids.is_empty();
        Self {
            stdout: all.stdout,
            stderr: all.stderr,
            exit_code: outcome.exit_status,
            signal: outcome.signal,
            error: ended_by_us(outcome.ended_by, &engine.settings()),
            denials,
            connections: outcome.connections.clone(),
            warnings: all.warnings,
            pid: Some(outcome.pid),
            // On Windows the original has none to tell; the task ends them all the same.
            background_pids: if ON_WINDOWS { Vec::new() } else { outcome.background_pids.clone() },
            task_id: left_behind.then(|| task_id.clone()),
            truncated: all.truncated,
            artifacts: all.artifacts,
        }
    }

    fn not_started(error: ToolError) -> Result<Self, ToolError> {
        match error.kind {
            ErrorKind::CommandSpawnFailed => {
                Ok(Self { error: Some(error.message), ..Self::default() })
            }
            _ => Err(error),
        }
    }
}

impl Receipt for Ran {
    fn receipt(&self) -> String {
        super::json_text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_what_is_left_out_reads_back() {
        let ran = Ran { stdout: "hi".into(), exit_code: Some(0), ..Ran::default() };
        let text = ran.receipt();
        assert_eq!(text, r#"{"stdout":"hi","stderr":"","exitCode":0}"#);
        let read: Ran = serde_json::from_str(&text).unwrap();
        assert_eq!(read.receipt(), text);
    }
}
