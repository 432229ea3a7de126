//! Other places: the same tools where commands run on another machine, or in a container.

mod docker;
mod measure;
mod session;
mod slurm;
mod ssh;

use std::{fs, process::Command};

use serde_json::Value;

use crate::{common::Scratch, mcp::Wire};

/// A place that is there for a test.
trait There {
    /// Its section in the configuration, named `there`.
    fn configuration(&self, scratch: &Scratch) -> String;
}

/// `legwork VERB` with this configuration.
fn with(scratch: &Scratch, verb: &str, configuration: &str) -> Command {
    scratch.guarded(verb, "open", Some(configuration))
}

/// A server with this configuration.
fn serving(scratch: &Scratch, configuration: &str, variables: &[(&str, String)]) -> Wire {
    let mut command = with(scratch, "mcp", configuration);
    command.envs(variables.iter().cloned());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

/// The task that a receipt names.
fn task_of(text: &str) -> String {
    let task = text.lines().find_map(|line| line.strip_prefix("Task: "));
    task.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// The record of a task, without asking its place.
fn recorded(scratch: &Scratch, task: &str) -> Value {
    let found = scratch.tasks().into_iter().find(|it| it["task_id"] == task);
    found.unwrap_or_else(|| panic!("{task} is not listed"))
}

/// Names in a folder; none if it is not there.
fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
