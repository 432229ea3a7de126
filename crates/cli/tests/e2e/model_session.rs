//! A model's session, as it reads it: every answer says the next step, nothing is repeated, and
//! nothing is missing between two answers.

use std::fs;

use insta::assert_snapshot;
use regex::Regex;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, fixture, open},
    mcp::Wire,
};

/// What the model reads, with what differs from run to run replaced.
fn read(wire: &mut Wire, tool: &str, input: &Value) -> String {
    let answer = wire.request("tools/call", &json!({ "name": tool, "arguments": input }));
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn task_of(text: &str) -> String {
    let task = text.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap();
    task.to_owned()
}

/// A text in which nothing differs from run to run.
fn steady(text: &str, scratch: &Scratch) -> String {
    let workspace = scratch.workspace.path().canonicalize().unwrap();
    let text = text.replace(&*scratch.state.path().to_string_lossy(), "STATE");
    let text =
        text.replace(&*workspace.to_string_lossy(), "WORKSPACE").replace(fixture(), "FIXTURE");
    let text = text.replace(&*scratch.workspace.path().to_string_lossy(), "WORKSPACE");
    let changes = [
        (r"t_[0-9a-z]{20,}", "TASK"),
        (r"a_[0-9a-z]{8,}", "QUESTION"),
        (r"c[0-9a-f]+\.[0-9a-f]+\.[0-9a-f]{8}", "CURSOR"),
        (r"\b[0-9.]+ (ms|s|min)\b", "TIME"),
        (r"(?m)^[0-9]{2,} ", "PID "),
    ];
    changes.iter().fold(text, |text, (pattern, word)| {
        Regex::new(pattern).unwrap().replace_all(&text, *word).into_owned()
    })
}

#[test]
fn every_answer_says_the_next_step_and_nothing_is_repeated_or_missing() {
    let scratch = Scratch::new();
    let policy = "excludeTools = [\"run_shell_command(rm)\"]\n";
    let mut server = scratch.guarded("mcp", "guarded", Some(policy));
    server.args(["--tools", "all"]);
    let mut wire = Wire::spawn(server);
    wire.initialize();
    let mut session = String::new();
    let mut say = |wire: &mut Wire, tool: &str, input: Value| {
        let text = read(wire, tool, &input);
        session.push_str(&format!("> {tool} {input}\n{}\n\n", text.trim_end()));
        text
    };
    // A build that is promoted, waited for and read.
    let (first, second) = (scratch.file("first"), scratch.file("second"));
    fs::write(
        scratch.file("build"),
        format!(
            "echo configuring\n{f} wait-then-exit {first} 0\necho compiling\necho some warnings >&2\n\
             {f} wait-then-exit {second} 0\necho built\n",
            f = fixture()
        ),
    )
    .unwrap();
    let build = json!({ "cmd": "sh build", "login": false, "yield_time_ms": 300 });
    let task = task_of(&say(&mut wire, "ExecCommand", build.clone()));
    say(&mut wire, "ExecCommand", build);
    open(&first);
    let compiles = json!({ "task_ids": [task], "until": { "output_matches": "warnings" } });
    say(&mut wire, "TaskWait", compiles);
    say(&mut wire, "TaskOutput", json!({ "task_id": task, "block": false }));
    open(&second);
    say(&mut wire, "TaskWait", json!({ "task_ids": [task] }));
    say(&mut wire, "TaskOutput", json!({ "task_id": task }));
    // A prompt that is answered.
    let asks = "printf 'Name? '; read name; echo \"Hello $name\"; read again";
    let asks = json!({ "cmd": asks, "login": false, "accepts_input": true });
    let task = task_of(&say(&mut wire, "ExecCommand", asks));
    say(&mut wire, "TaskInput", json!({ "task_id": task, "input": "Ada\n", "wait_ms": 30_000 }));
    say(&mut wire, "TaskStop", json!({ "task_id": task }));
    // A server that was left behind.
    let server = json!({ "cmd": "sleep 1000 & echo started", "login": false });
    say(&mut wire, "ExecCommand", server);
    let listed = say(&mut wire, "TaskList", json!({}));
    say(&mut wire, "TaskStop", json!({ "task_id": task_of(&listed) }));
    say(&mut wire, "TaskList", json!({}));
    // A command that is denied, and slips.
    say(&mut wire, "ExecCommand", json!({ "cmd": "rm -rf build", "login": false }));
    say(&mut wire, "ExecCommand", json!({ "command": "ls", "cwd": "." }));
    say(&mut wire, "execute_command", json!({ "command": "ls -la" }));
    say(&mut wire, "execute_command", json!({ "command": "true", "timeout": 5000 }));
    assert_snapshot!(steady(&session, &scratch));
}
