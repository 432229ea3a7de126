//! `legwork wait`: until a task has ended, or something else is so.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::{run::code_of, tool};
use crate::{arguments::WaitOptions, render::complain_of};

/// Exit code when nothing came in time.
const TIMED_OUT: u8 = 124;

/// How long to wait where nobody says.
const WAIT_SECONDS: u64 = 3600;

pub(crate) async fn wait(options: WaitOptions) -> ExitCode {
    let until = until(&options);
    let timeout_ms = options.timeout.unwrap_or(WAIT_SECONDS).saturating_mul(1000);
    let engine = match options.state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let ids = match tool::ids(&engine, &options.tasks).await {
        Ok(ids) => ids,
        Err(error) => return complain_of(&error),
    };
    let input = json!({ "task_ids": ids, "until": until, "timeout_ms": timeout_ms });
    let waited = match tool::call(&engine, "TaskWait", input, options.json).await {
        Ok(waited) => waited,
        Err(code) => return code,
    };
    let met = *waited.field("met") == true;
    if met && *waited.field("condition") != "exit" {
        return ExitCode::SUCCESS;
    }
    if !met && *waited.field("ended") != true {
        return ExitCode::from(TIMED_OUT);
    }
    // The first task that ended gives its code.
    let ended = waited.field("task_id").as_str();
    let id = ended.or(ids.first().map(String::as_str)).unwrap_or_default();
    match engine.task(id).await {
        Ok(task) => task.outcome.as_ref().map_or(ExitCode::SUCCESS, code_of),
        Err(error) => complain_of(&error),
    }
}

fn until(options: &WaitOptions) -> Value {
    let mut until = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            until.insert(name.into(), value);
        }
    };
    add("output_matches", options.matches.clone().map(Value::from));
    add("silence_ms", options.silence_ms.map(Value::from));
    add("port", options.port.map(Value::from));
    let absolute = options.path.as_ref().and_then(|path| std::path::absolute(path).ok());
    add("path_exists", absolute.map(|path| path.display().to_string().into()));
    add("waiting_for_input", options.input.then_some(true.into()));
    Value::Object(until)
}
