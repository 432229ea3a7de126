//! `legwork send`: sends text, a key or the end of input to a task.

use std::{
    io::{self, Read},
    process::ExitCode,
};

use serde_json::{Map, Value};

use super::tool;
use crate::{
    OUR_FAILURE,
    arguments::SendOptions,
    render::{complain, complain_of},
};

/// Most bytes that are read from stdin; the tool says no to more.
const INPUT_BYTES_MAX: u64 = 1024 * 1024 + 1;

pub(crate) async fn send(options: SendOptions) -> ExitCode {
    if options.text.is_none() && options.key.is_none() && !options.eof {
        return complain("nothing to send: give a text, --key or --eof");
    }
    let text = match read(options.text.as_deref()) {
        Ok(text) => text,
        Err(error) => return complain(&format!("stdin: {error}")),
    };
    let from_stdin = options.text.as_deref() == Some("-");
    let enter = text.is_some() && !options.no_newline && !from_stdin && options.key.is_none();
    let mut input = Map::new();
    if let Some(text) = text {
        input.insert("input".into(), text.into());
    }
    // A line ends as it does when it is typed: a terminal has its own idea of that.
    let key = options.key.or_else(|| enter.then(|| "enter".into()));
    if let Some(key) = key {
        input.insert("key".into(), key.into());
    }
    input.insert("eof".into(), options.eof.into());
    let engine = match options.state.with_tasks() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let id = match engine.task(&options.task).await {
        Ok(task) => task.task_id.to_string(),
        Err(error) => return complain_of(&error),
    };
    input.insert("task_id".into(), id.into());
    match tool::call(&engine, "TaskInput", Value::Object(input), options.json).await {
        Err(code) => code,
        Ok(sent) => {
            let accepted = *sent.field("accepted_input") == true;
            ExitCode::from(if accepted { 0 } else { OUR_FAILURE })
        }
    }
}

fn read(text: Option<&str>) -> io::Result<Option<String>> {
    match text {
        Some("-") => {
            let mut text = String::new();
            io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
            Ok(Some(text))
        }
        other => Ok(other.map(str::to_owned)),
    }
}
