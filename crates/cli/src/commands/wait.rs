//! `legwork wait`: waits for a task to end, or for output, silence, a port, a path or a read of
//! input.

use std::{process::ExitCode, time::Duration};

use legwork::{Task, gate::units::shown_ms};
use serde_json::{Map, Value, json};

use super::{run::code_of_task, tool};
use crate::{
    arguments::WaitOptions,
    progress::waiting,
    render::{complain, complain_of},
};

/// Exit code when nothing came in time.
const TIMED_OUT: u8 = 124;

/// The longest wait, and the one where nobody says.
const WAIT_MAX: Duration = Duration::from_secs(3600);

pub(crate) async fn wait(options: WaitOptions) -> ExitCode {
    let until = until(&options);
    let timeout = options.timeout.unwrap_or(WAIT_MAX);
    if timeout > WAIT_MAX {
        return complain("--timeout can be at most 1h; wait again after that");
    }
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let engine = match options.state.with_tasks() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let ids = match tool::ids(&engine, &options.tasks).await {
        Ok(ids) => ids,
        Err(error) => return complain_of(&error),
    };
    let input = json!({ "task_ids": ids, "until": until, "timeout_ms": timeout_ms });
    let what = format!("legwork: waiting for {}; at most {}", aim(&options), shown_ms(timeout_ms));
    let waiting_for = tool::call(&engine, "TaskWait", input, options.json);
    let waited = match waiting(&what, waiting_for).await {
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

/// What is waited for, in words.
fn aim(options: &WaitOptions) -> String {
    let aims = [
        options.matches.as_ref().map(|pattern| format!("output that matches {pattern}")),
        options.silence_ms.map(|time| format!("{} of silence", shown_ms(time))),
        options.port.map(|port| format!("port {port}")),
        options.path.as_ref().map(|path| path.display().to_string()),
        options.input.then(|| "a read of its input".to_owned()),
    ];
    let aims: Vec<String> = aims.into_iter().flatten().collect();
    if aims.is_empty() {
        format!("the end of {}", options.tasks.join(", "))
    } else {
        aims.join(" or ")
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
