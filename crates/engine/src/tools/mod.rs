//! The tools that come with the library: one file each, and the list of them.
//!
//! Each is made of the engine's public interface, as a tool of another crate would be.

mod diagnostics;
mod exec_command;
mod exec_result;
mod execute_command;
mod progress;
mod run_shell_command;
mod schema;
mod slips;
mod task_input;
mod task_list;
mod task_output;
mod task_status;
mod task_stop;
mod task_view;
mod task_wait;
mod to_the_end;

use std::{sync::Arc, time::Duration};

pub use legwork_gate::Manners;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use crate::engine::{
    Answer, Definition, Envelope, EnvelopeStatus, Registry, Success, Tool, ToolFuture, ToolResult,
    Turn, export,
};
use crate::{
    engine::{Engine, Options},
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::config::Settings,
    model::{Caller, Outcome, sandbox::SandboxReport},
    output::Cursor,
};

/// A tool that comes with the library: its definition, and two functions.
struct BuiltIn {
    definition: Definition,
    call: for<'a> fn(&'a Engine, Value, &'a Caller) -> ToolFuture<'a>,
    render: fn(&Value) -> String,
}

impl Tool for BuiltIn {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call<'a>(&'a self, engine: &'a Engine, input: Value, caller: &'a Caller) -> ToolFuture<'a> {
        (self.call)(engine, input, caller)
    }

    fn render(&self, result: &Value) -> String {
        (self.render)(result)
    }
}

/// A result that can be told to a model, also when it was read back from its JSON.
trait Receipt: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The text for a model.
    fn receipt(&self) -> String;
}

/// What a tool brought, from its typed result.
fn success<R: Receipt>(result: R, summary: impl Into<String>) -> Success {
    let receipt = Some(result.receipt());
    let later = move || serde_json::to_value(&result).unwrap_or_default();
    Success {
        result: ToolResult::Later(Arc::new(later)),
        summary_text: Some(summary.into()),
        receipt,
        sandbox: None,
        not_started: None,
    }
}

/// Renders a result of this type.
fn render<R: Receipt>(result: &Value) -> String {
    match R::deserialize(result) {
        Ok(result) => result.receipt(),
        // A result that is not ours to read is shown as it is.
        Err(_) => result.to_string(),
    }
}

/// Longest wait of a call.
const WAIT_MS_MAX: u64 = 3_600_000;

/// The budget of a caller who names none, unless it is configured.
fn default_tokens() -> u64 {
    Settings::default().output_tokens
}

/// The budget that a caller gets.
fn effective_tokens(engine: &Engine, asked: Option<u64>) -> u64 {
    let Settings { output_tokens, output_tokens_max, .. } = engine.settings();
    match asked {
        None | Some(0) => output_tokens,
        Some(tokens) => tokens,
    }
    .min(output_tokens_max)
}

/// The wait that a caller asked for in `timeout_ms`, if it is allowed.
fn bounded_wait(tool: &str, asked: Option<u64>, default_ms: u64) -> Result<Duration, ToolError> {
    match asked.unwrap_or(default_ms) {
        wait_ms if wait_ms > WAIT_MS_MAX => {
            let problem = format!("is over the limit of {WAIT_MS_MAX}");
            Err(ToolError::invalid_field(tool, "timeout_ms", problem))
        }
        wait_ms => Ok(Duration::from_millis(wait_ms)),
    }
}

/// Where a caller's reading of a task goes on: behind the cursor that it names, or behind what it
/// has been shown.
fn seen_by(caller: &Caller, task: &TaskId) -> Option<Cursor> {
    caller.session.shown_of(task.as_str()).map(|(stdout, stderr)| Cursor { stdout, stderr })
}

/// Remembers what a caller has been shown of a task.
fn note_seen(caller: &Caller, task: &TaskId, cursor: Cursor) {
    caller.session.note_shown(task.as_str(), (cursor.stdout, cursor.stderr));
}

/// A result as the JSON text that is all of its receipt.
fn json_text(result: &impl Serialize) -> String {
    serde_json::to_string(result).unwrap_or_default()
}

/// Names what somebody should know of a command: that it is not in the sandbox, and what it did.
fn warnings(sandbox: &SandboxReport, outcome: Option<&Outcome>) -> Vec<String> {
    let outside = sandbox.outside.iter().map(|words| format!("The command {words}."));
    outside.chain(outcome.iter().flat_map(|it| it.warnings.iter().cloned())).collect()
}

/// An end that cannot be known.
fn lost(task_id: &TaskId, reason: &str) -> ToolError {
    ToolError::new(
        ErrorKind::ToolExecutionFailed,
        format!("what became of the command cannot be known ({reason})"),
    )
    .detail("task_id", task_id.as_str())
    .hint("TaskOutput shows what it printed until then")
}

/// Parses a tool's input, and says which field is wrong.
fn parse<T: DeserializeOwned>(tool: &str, mut input: Value) -> Result<T, ToolError> {
    if !input.is_object() {
        return Err(ToolError::unparsable(tool, &"the input must be a JSON object"));
    }
    ignore_foreign(&mut input);
    make_whole(&mut input);
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        let problem = in_plain_words(&error.into_inner().to_string());
        unreadable_field(tool, &path, &problem)
    })
}

/// The error of a field that is unknown, missing, or of another type; `path` is the place at which
/// the parser stopped.
fn unreadable_field(tool: &str, path: &str, problem: &str) -> ToolError {
    let named = |start: &str| problem.strip_prefix(start)?.split('`').next();
    let (field, what) = match (named("missing field `"), named("unknown field `")) {
        (Some(missing), _) if path == "." => (missing.to_owned(), problem),
        (Some(missing), _) => (format!("{path}.{missing}"), problem),
        // The fields that there are stand in the message.
        (None, Some(_)) => {
            (path.to_owned(), problem.split(", expected ").next().unwrap_or(problem))
        }
        (None, None) => (path.to_owned(), problem),
    };
    // The field is said once.
    let placed = |what: &str| {
        if what.contains(&format!("`{field}`")) {
            what.into()
        } else {
            format!("`{field}`: {what}")
        }
    };
    let error = ToolError::unparsable(tool, &placed(problem))
        .detail("parse_error", placed(what))
        .detail("field", field.clone());
    match slips::hint(problem) {
        Some(slip) => error.hint_before(&slip),
        None => error,
    }
}

/// The error of a script that is too long for its field.
fn too_long(tool: &str, field: &str, bytes: usize, limit: usize) -> ToolError {
    ToolError::invalid_field(tool, field, format!("has {bytes} bytes, over the limit of {limit}"))
        .hint_before("write it to a script file, in several calls, and run that")
}

/// Fields that a known client adds to the input of every tool.
const FOREIGN: &str = include_str!("foreign_fields.txt");

/// Takes out what a known client has added; any other field that is unknown stays an error.
fn ignore_foreign(input: &mut Value) {
    if let Value::Object(fields) = input {
        for name in FOREIGN.lines().filter(|line| !line.starts_with('#')) {
            fields.remove(name.trim());
        }
    }
}

/// Turns numbers such as `5000.0` into the integers that they are: some clients have no others.
fn make_whole(value: &mut Value) {
    // Beyond this a float does not tell its neighbours apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() < EXACT
            {
                #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        _ => {}
    }
}

/// What a parser says of a wrong type, without the names of our types.
fn in_plain_words(problem: &str) -> String {
    const WORDS: [(&str, &str); 9] = [
        ("expected u64", "expected a whole number that is not negative"),
        ("expected u32", "expected a whole number that is not negative"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected struct Conditions", "expected an object such as {\"exit\": true}"),
        ("expected a sequence", "expected a list"),
        ("expected a boolean", "expected true or false"),
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: list"),
        ("floating point", "number"),
    ];
    WORDS.iter().fold(problem.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

impl Registry {
    /// The tools that come with the library. A new tool is one file and one line here.
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        registry.add(exec_command::tool());
        registry.add(task_list::tool());
        registry.add(task_status::tool());
        registry.add(task_output::tool());
        registry.add(task_input::tool());
        registry.add(task_stop::tool());
        registry.add(task_wait::tool());
        registry.add(execute_command::tool());
        registry.add(run_shell_command::tool());
        registry
    }
}

impl Engine {
    /// Opens the state folder, with the tools that come with the library; starts nothing yet.
    pub fn open(options: Options) -> Result<Self, ToolError> {
        Self::open_with(options, Registry::builtin())
    }
}
