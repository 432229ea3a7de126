//! `legwork ps`: the tasks of the state folder.

use std::{fmt::Write, process::ExitCode};

use legwork::Task;
use serde_json::json;

use crate::{
    arguments::PsOptions,
    render::{complain_of, one_line, print, print_json, time},
};

const COMMAND_WIDTH: usize = 60;

pub(crate) async fn ps(options: PsOptions) -> ExitCode {
    let engine = match options.state.open() {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    match engine.tasks(!options.running, options.limit).await {
        Err(error) => complain_of(&error),
        Ok(tasks) => {
            let mask = engine.mask();
            let tasks: Vec<Task> = tasks.into_iter().map(|task| task.masked(&mask)).collect();
            if options.json {
                print_json(&json!({ "tasks": tasks }))
            } else {
                print(&table(&tasks))
            }
        }
    }
}

fn table(tasks: &[Task]) -> String {
    let mut text = format!(
        "{:<28}  {:<19}  {:<11}  {:>6}  {:<16}  COMMAND\n",
        "TASK", "STARTED", "STATUS", "EXIT", "ASKED BY"
    );
    for task in tasks {
        let _ = writeln!(
            text,
            "{:<28}  {:<19}  {:<11}  {:>6}  {:<16}  {}",
            task.task_id.as_str(),
            time(task.created_at_ms),
            task.status.as_str(),
            exit(task),
            one_line(&task.asked_by, 16),
            one_line(&task.command, COMMAND_WIDTH),
        );
    }
    text
}

/// The exit code, or the signal's number with a minus, or nothing.
fn exit(task: &Task) -> String {
    let outcome = task.outcome.as_ref();
    let code = outcome.and_then(|outcome| outcome.exit_status);
    let signal = outcome.and_then(|outcome| outcome.signal);
    code.or(signal.map(|signal| -signal)).map_or_else(String::new, |number| number.to_string())
}
