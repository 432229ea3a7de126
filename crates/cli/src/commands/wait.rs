//! `legwork wait`: until a task has ended, or something else is so.

use std::process::ExitCode;

use legwork::Task;
use serde_json::{Map, Value, json};

use super::{run::code_of_task, tool};
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
        Ok(task) if !met => failure_of(&task),
        Ok(task) => code_of_task(&task),
        Err(error) => complain_of(&error),
    }
}

/// The task ended before what was waited for: that is no success, whatever its own code is.
fn failure_of(task: &Task) -> ExitCode {
    let succeeded = task.outcome.as_ref().is_some_and(|outcome| outcome.exit_status == Some(0));
    if succeeded { ExitCode::FAILURE } else { code_of_task(task) }
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
