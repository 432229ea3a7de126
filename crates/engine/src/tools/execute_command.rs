//! `execute_command`: a program and its arguments, run directly, with everything it printed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    BuiltIn, Definition, Manners, Receipt, Success, Turn, schema,
    task_view::ArtifactEntry,
    to_the_end::{self, EndResult, Everything},
};
use crate::{
    engine::Engine,
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{Caller, Confinement, ConnectionRecord, Denial, EndedBy, Outcome, Request},
};

pub(super) const NAME: &str = "execute_command";
const TIMEOUT_SECONDS: u64 = 60;
const TIMEOUT_SECONDS_MAX: u64 = 120;

const DESCRIPTION: &str = "Executes a system command and returns its standard output, standard error, and \
return code. Allows specifying arguments, a working directory, and a timeout.";

const INSTRUCTIONS: &str = r#"Use execute_command to run one program to its end and get everything it printed.
Parameters:
- `command` (string): the program, by name or path. It is not a shell line: no pipes, redirects, globs or variables.
- `args` (list of strings, optional): its arguments, one element each; nothing in them is interpreted.
- `cwd` (string, optional): the folder to run in, relative to the workspace, which is the default, or absolute. Relative
  paths in `command` and `args` begin there: mind it.
- `timeout` (integer, optional): seconds after which the program and all it started are stopped, 1 to 120, default 60.
  Give one to whatever may hang.
The result is JSON with `stdout`, `stderr`, `return_code` and `timed_out`:
- `return_code` is the exit status; -N if signal N ended it; null if it did not start or ran out of time.
- A program that cannot be started is a result too: `stderr` begins with `Error: ` and says why.
- `timed_out` is true when the timeout stopped it; what it had printed until then is there.
- `ended_by` is there if another limit ended it: `cpu_limit`, `oom_killed`, `file_size_limit` or `layer_limit`.
- `denials` lists what the sandbox or a rule refused while it ran.
- `background_pids` lists processes that it left running, `task_id` is the task that they belong to.
  A later command cannot signal them.
- Past 1 MiB a stream shows head and tail, `truncated` is true, and `artifacts` names the complete files.
Use it for a single command whose complete output you need: to compile, to run a script, to run tests. Pipes and
redirects need an explicit shell: `{"command": "bash", "args": ["-c", "ls | wc -l"]}`. Put complex logic into a
script file, and run that."#;

/// Input of `execute_command`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The program to run: a name on PATH or a path; not a shell line.
    command: String,
    /// The arguments of the program, one element for each.
    #[schemars(extend("default" = []))]
    args: Option<Vec<String>>,
    /// The folder to run in: relative to the workspace, or absolute. Default: the workspace.
    cwd: Option<String>,
    /// Seconds after which it is stopped, from 1 to 120.
    #[schemars(with = "Option<u64>", range(min = 1, max = 120), extend("default" = TIMEOUT_SECONDS))]
    timeout: Option<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Executed {
    stdout: String,
    stderr: String,
    return_code: Option<i32>,
    timed_out: bool,
    /// The limit that ended it, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ended_by: Option<EndedBy>,
    /// What the sandbox refused, and programs that a rule kept from being executed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    denials: Vec<Denial>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    connections: Vec<ConnectionRecord>,
    /// What somebody should know of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    warnings: Vec<String>,
    /// What it left running.
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
            tags: &["command", "shell", "execute", "process", "system"],
            description: DESCRIPTION,
            input_schema: schema::of::<Input>(),
            instructions: INSTRUCTIONS,
            read_only: false,
            by_default: false,
            turn: Turn::Waits,
            manners: Manners::default(),
            takes_argv: true,
            shell: None,
            text_is_json: true,
            takes_place: false,
        },
        call: |engine, input, caller| Box::pin(call(engine, input, caller)),
        render: super::render::<Executed>,
    }
}

async fn call(engine: &Engine, input: Value, caller: &Caller) -> Result<Success, ToolError> {
    let input: Input = super::parse(NAME, input)?;
    let timeout = input.check()?;
    let line = input.is_line().then(|| input.command.clone());
    let request = input.into_request(timeout);
    let mut end = to_the_end::run::<Executed>(engine, request, caller).await?;
    let executed = &mut end.result;
    if let (None, false, Some(line)) = (executed.return_code, executed.timed_out, line) {
        executed.stderr.push_str(&not_a_program(&line));
    }
    let summary = match executed.return_code {
        Some(code) => format!("command returned {code}"),
        None if executed.timed_out => "command timed out".into(),
        None => "command could not be started".into(),
    };
    Ok(end.success(summary))
}

/// What to do about a shell line in the place of a program.
fn not_a_program(line: &str) -> String {
    // What only a shell understands is no argument.
    let own = match legwork_gate::single_command(line).as_deref() {
        Some([program, args @ ..]) => {
            format!("{{\"command\": {}, \"args\": {}}}, or ", json!(program), json!(args))
        }
        _ => String::new(),
    };
    format!(
        "\n`command` is one program, not a line: pass {own}{{\"command\": \"bash\", \"args\": [\"-c\", {}]}}",
        json!(line)
    )
}

impl Input {
    /// Whether the program looks like a line for a shell.
    fn is_line(&self) -> bool {
        self.command.trim().contains(char::is_whitespace)
            && self.args.as_ref().is_none_or(Vec::is_empty)
    }

    /// Checks what the types do not say; returns the timeout in seconds.
    fn check(&self) -> Result<u64, ToolError> {
        let invalid = |field, problem: &str| Err(ToolError::invalid_field(NAME, field, problem));
        if self.command.trim().is_empty() {
            return invalid("command", "is blank: name the program to run");
        }
        if self.command.contains('\0') {
            return invalid("command", "contains a NUL character");
        }
        if self.args.iter().flatten().any(|word| word.contains('\0')) {
            return invalid("args", "contain a NUL character, which no program can be given");
        }
        // Of any type until here, so that whatever is wrong with it is answered with the bounds.
        let seconds = match &self.timeout {
            None => Some(TIMEOUT_SECONDS),
            Some(value) => value.as_u64(),
        };
        match seconds.filter(|seconds| (1..=TIMEOUT_SECONDS_MAX).contains(seconds)) {
            Some(seconds) => Ok(seconds),
            None if seconds.is_some_and(|it| it >= 1000) => invalid(
                "timeout",
                "must be an integer from 1 to 120: it is in seconds, not in milliseconds",
            ),
            None => invalid("timeout", "must be an integer from 1 to 120 (seconds)"),
        }
    }

    fn into_request(self, timeout: u64) -> Request {
        let words = [self.command].into_iter().chain(self.args.unwrap_or_default());
        Request::program(words)
            .tool(NAME)
            // The sandbox confines, not this argument.
            .confined_to(Confinement::None)
            .timeout(Duration::from_secs(timeout))
            .workdir_of("cwd", self.cwd)
    }
}

impl EndResult for Executed {
    fn of(_engine: &Engine, task_id: &TaskId, outcome: &Outcome, all: Everything) -> Self {
        let denials = all.denials(outcome);
        let timed_out = outcome.ended_by == Some(EndedBy::Timeout);
        let left_behind = !outcome.background_pids.is_empty();
        Self {
            stdout: all.stdout,
            stderr: all.stderr,
            return_code: match (outcome.exit_status, outcome.signal) {
                _ if timed_out => None,
                (Some(code), _) => Some(code),
                (None, signal) => signal.map(|signal| -signal),
            },
            timed_out,
            ended_by: outcome.ended_by.filter(|by| by.is_limit()),
            denials,
            connections: outcome.connections.clone(),
            warnings: all.warnings,
            background_pids: outcome.background_pids.clone(),
            task_id: left_behind.then(|| task_id.clone()),
            truncated: all.truncated,
            artifacts: all.artifacts,
        }
    }

    fn not_started(error: ToolError) -> Result<Self, ToolError> {
        match error.kind {
            ErrorKind::CommandSpawnFailed | ErrorKind::WorkdirNotFound => {
                let stderr = format!("Error: {}", error.message);
                Ok(Self { stderr, ..Self::default() })
            }
            _ => Err(error),
        }
    }
}

impl Receipt for Executed {
    fn receipt(&self) -> String {
        super::json_text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_four_keys_reads_back() {
        let text = Executed { return_code: Some(0), ..Executed::default() }.receipt();
        assert_eq!(text, r#"{"stdout":"","stderr":"","return_code":0,"timed_out":false}"#);
        let read: Executed = serde_json::from_str(&text).unwrap();
        assert_eq!(read.receipt(), text);
    }
}
