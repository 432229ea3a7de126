//! What the verbs share that are a tool called by hand.

use std::process::ExitCode;

use legwork::{Caller, Engine, ToolError};
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
    let answer = engine.call(tool, input, &Caller::operator("cli")).await;
    if json {
        print_json(answer.envelope());
    }
    match answer.error() {
        Some(error) if json => Err(ExitCode::from(crate::render::error_code(error.kind))),
        Some(error) => Err(complain_of(error)),
        None => {
            if !json {
                print(&format!("{}\n", answer.receipt()));
            }
            Ok(Called(answer.envelope().result.clone().unwrap_or_default()))
        }
    }
}
