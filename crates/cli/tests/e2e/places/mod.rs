//! Other places: the same tools where commands run on another machine, or in a container.

mod docker;
mod measure;
mod session;
mod slurm;
mod ssh;

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    common::{Scratch, parts, text},
    mcp::Wire,
};

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

/// Codes, streams and input of what is run there are those of a command here.
fn assert_as_here(scratch: &Scratch, run: impl Fn(&[&str]) -> Command) {
    let output = run(&["sh", "-c", "echo out; echo err >&2; pwd; exit 7"]).output().unwrap();
    let folder = scratch.workspace.path().canonicalize().unwrap();
    let expected = format!("out\n{}\n", folder.display());
    assert_eq!(parts(&output), (Some(7), expected, "err\n".to_owned()));
    // More than memory holds, byte for byte.
    let output = run(&["seq", "1", "200000"]).output().unwrap();
    assert_eq!(output.stdout, Command::new("seq").args(["1", "200000"]).output().unwrap().stdout);
    // Input that comes bit by bit, and input that is a file.
    let mut piped = run(&["cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = piped.stdin.take().unwrap();
    stdin.write_all(b"a\n").unwrap();
    stdin.write_all(b"b\n").unwrap();
    drop(stdin);
    assert_eq!(text(&piped.wait_with_output().unwrap().stdout), "a\nb\n");
    fs::write(scratch.file("input"), "of a file\n").unwrap();
    let file = fs::File::open(scratch.file("input")).unwrap();
    assert_eq!(text(&run(&["cat"]).stdin(file).output().unwrap().stdout), "of a file\n");
    let output = run(&["no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}
