//! Helpers for verbs that call a tool (`wait`, `stop`, `send`): find full ids, call, translate the
//! tool's errors to options.

use std::process::ExitCode;

use legwork::{Caller, Engine, ErrorKind, ToolError};
use serde_json::Value;

use crate::render::{complain_of, print, print_json};

/// Finds the full ids of tasks.
pub(super) async fn ids(engine: &Engine, prefixes: &[String]) -> Result<Vec<String>, ToolError> {
    let mut ids = Vec::new();
    for prefix in prefixes {
        ids.push(engine.task(prefix).await?.task_id.to_string());
    }
    Ok(ids)
}

/// A tool's result.
pub(super) struct Called(Value);

impl Called {
    /// A field of it; null if there is none.
    pub(super) fn field(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }
}

/// Calls a tool and prints its receipt or its envelope; an error is a complaint.
pub(super) async fn call(
    engine: &Engine,
    tool: &str,
    input: Value,
    json: bool,
) -> Result<Called, ExitCode> {
    let answer = engine.call(tool, input, &Caller::person("cli")).await;
    if json {
        print_json(answer.envelope());
    }
    match answer.error() {
        Some(error) if json => Err(ExitCode::from(crate::render::error_code(error.kind))),
        Some(error) => Err(complain_of(&in_own_words(error))),
        None => {
            if !json {
                print(&format!("{}\n", answer.receipt()));
            }
            Ok(Called(answer.envelope().result.clone().unwrap_or_default()))
        }
    }
}

/// What the command line calls a field of a tool, and what to do where its value is wrong.
struct OwnWords {
    tool: &'static str,
    field: &'static str,
    option: &'static str,
    /// None where the tool's own hint has no words of the tool.
    hint: Option<&'static str>,
}

const fn own(
    tool: &'static str,
    field: &'static str,
    option: &'static str,
    hint: Option<&'static str>,
) -> OwnWords {
    OwnWords { tool, field, option, hint }
}

const OWN_WORDS: [OwnWords; 9] = [
    own("TaskWait", "task_ids", "TASKS", Some("wait for some of them first")),
    own("TaskWait", "until.output_matches", "--matches", None),
    own("TaskWait", "until.silence_ms", "--silence", Some("give a time from 1ms to 1h")),
    own("TaskWait", "until.port", "--port", Some("give the number of a TCP port")),
    own("TaskWait", "until.path_exists", "--path", Some("give the path of a file or folder")),
    own("TaskStop", "signal", "--signal", None),
    own("TaskStop", "grace_ms", "--grace", Some("give at most 10m")),
    own("TaskInput", "input", "TEXT", Some("send it in parts")),
    own("TaskInput", "key", "--key", Some("name one of these keys; a text goes without --key")),
];

/// An error about a tool's field, as one about the option that was typed.
fn in_own_words(error: &ToolError) -> ToolError {
    let mut told = error.clone();
    if error.kind == ErrorKind::UnknownTask {
        return told.hint("`legwork ps` lists the tasks");
    }
    let (tool, field) = (error.text_detail("tool_name"), error.text_detail("field"));
    let (Some(tool), Some(field)) = (tool, field) else { return told };
    let Some(own) = OWN_WORDS.iter().find(|own| own.tool == tool && own.field == field) else {
        return told;
    };
    let Some(problem) = error.message.strip_prefix(&format!("{tool}: `{field}` ")) else {
        return told;
    };
    told.message = format!("{} {problem}", own.option);
    if field == "key" && problem.starts_with("needs a terminal") {
        return told.hint("`legwork stop TASK --signal INT` interrupts a task");
    }
    match own.hint {
        Some(hint) => told.hint(hint),
        None => told,
    }
}
