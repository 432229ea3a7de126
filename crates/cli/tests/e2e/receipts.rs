//! The answer to the call that started a task can be seen later, byte for byte as the model got it.

use std::{fs, path::PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, announced_line, signal, text},
    mcp::Wire,
};

const SECRET: &str = "kT7-unguessable/Zq9+xW41";

/// A server with all tools, and a secret in its environment that nobody else knows.
fn server(scratch: &Scratch) -> Wire {
    let mut command = scratch.legwork("mcp");
    command.args(["--tools", "all"]).env("E2E_API_TOKEN", SECRET);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

/// What another process shows as the answer to the call that started the newest task.
fn seen_later(scratch: &Scratch) -> String {
    let output = scratch.legwork("show").args(["@", "--receipt"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).strip_suffix('\n').unwrap().to_owned()
}

/// The answers that are kept in files.
fn kept(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.state.path().join("receipts")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_answer_of_a_short_command_is_made_again_and_costs_no_file() {
    let scratch = Scratch::new();
    let mut wire = server(&scratch);
    for cmd in [
        "true",
        "echo hi; echo to stderr >&2; exit 3",
        "printf '\\n\\n  indented \\377 \\n\\n\\n'",
        "printf '\\033[31mred\\033[0m\\rover\\n'",
        "kill -9 $$",
        // Long enough to be in a folder.
        "sleep 0.4; seq 1000",
    ] {
        let got = wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
        assert_eq!(seen_later(&scratch), got, "{cmd}");
    }
    let programs: [(&str, Value); 4] = [
        ("execute_command", json!({ "command": "printf", "args": ["a\\033b\\377\\n"] })),
        ("execute_command", json!({ "command": "false" })),
        ("run_shell_command", json!({ "command": "echo hi; echo err >&2; exit 4" })),
        ("run_shell_command", json!({ "command": "kill -9 $$" })),
    ];
    for (tool, input) in programs {
        let got = wire.tool(tool, &input);
        assert_eq!(seen_later(&scratch), got, "{input}");
    }
    assert_eq!(kept(&scratch), Vec::<PathBuf>::new());
}

#[test]
fn the_answer_that_a_record_does_not_tell_is_kept() {
    let scratch = Scratch::new();
    let mut wire = server(&scratch);
    let exec = |cmd: &str, more: Value| {
        let mut input = json!({ "cmd": cmd, "login": false });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("ExecCommand", input)
    };
    let pid = scratch.file("pid");
    let leaving = format!("sleep 61 >/dev/null 2>&1 & echo $! > {pid}; echo left");
    let calls = [
        exec("seq 100000", json!({})),
        exec("seq 1000", json!({ "max_output_tokens": 100 })),
        exec("echo $E2E_API_TOKEN", json!({})),
        exec("sleep 60", json!({ "yield_time_ms": 0 })),
        exec("true", json!({ "yield_time_ms": 0 })),
        exec(&leaving, json!({})),
        exec("printf 'name? '; read name", json!({ "accepts_input": true })),
        ("execute_command", json!({ "command": "sh", "args": ["-c", "echo $E2E_API_TOKEN"] })),
        ("execute_command", json!({ "command": "sleep", "args": ["62"], "timeout": 1 })),
        ("run_shell_command", json!({ "command": "echo $E2E_API_TOKEN" })),
    ];
    for (count, (tool, input)) in calls.into_iter().enumerate() {
        let got = wire.tool(tool, &input);
        assert_eq!(seen_later(&scratch), got, "{input}");
        assert!(!got.contains(SECRET), "{got}");
        assert_eq!(kept(&scratch).len(), count + 1, "{input}: {got}");
    }
    signal(announced_line(&pid), Signal::KILL);
    // They go with their tasks.
    let gone = scratch.legwork("gc").args(["--bytes-max", "0"]).output().unwrap();
    assert!(gone.status.success(), "{gone:?}");
    let left = kept(&scratch).len();
    assert_eq!(left, scratch.tasks().len(), "of those that still run: {gone:?}");
    assert!(left > 0 && left < 5, "{left}: {gone:?}");
    // One of them has ended, and what it left behind runs.
    for task in scratch.tasks() {
        wire.tool("TaskStop", &json!({ "task_id": task["task_id"] }));
    }
}

#[test]
fn an_answer_that_is_not_known_is_not_made_up() {
    let scratch = Scratch::new();
    let ran = scratch.legwork("run").args(["--", "true"]).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let output = scratch.legwork("show").args(["@", "--receipt"]).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(told.contains("no answer to the call") && told.contains("no call of a tool"), "{told}");
}
