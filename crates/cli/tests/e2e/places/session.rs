//! The session of an agent, which reads the same wherever its commands run: a build that is
//! promoted and waited for, input, a terminal, a port, a stop.

use std::fs;

use regex::Regex;
use serde_json::{Value, json};

use super::{serving, task_of};
use crate::common::{Scratch, fixture, open};

/// Calls tools, and keeps what a model reads.
struct Session<'a> {
    scratch: &'a Scratch,
    wire: crate::mcp::Wire,
    place: Option<&'a str>,
    text: String,
}

impl Session<'_> {
    fn say(&mut self, tool: &str, mut input: Value) -> String {
        self.text.push_str(&format!("> {tool} {input}\n"));
        if tool == "ExecCommand" {
            // The user's own may be another one there.
            input["shell"] = json!("/bin/sh");
            if let Some(place) = self.place {
                input["place"] = json!(place);
            }
        }
        let text = self.wire.tool(tool, &input);
        self.text.push_str(&format!("{}\n\n", text.trim_end()));
        text
    }

    /// A build that is promoted, joined, waited for and read.
    fn build(&mut self) {
        let (first, second) = (self.scratch.file("first"), self.scratch.file("second"));
        let f = fixture();
        let script = format!(
            "echo configuring\n{f} wait-then-exit {first} 0\necho compiling\n\
             echo some warnings >&2\n{f} wait-then-exit {second} 0\nseq 1 20000\necho built\n"
        );
        fs::write(self.scratch.file("build"), script).unwrap();
        let build = json!({ "cmd": "sh build; exit 3", "login": false, "yield_time_ms": 4000 });
        let task = task_of(&self.say("ExecCommand", build.clone()));
        self.say("ExecCommand", build);
        open(&first);
        let compiles = json!({ "task_ids": [task], "until": { "output_matches": "warnings" } });
        self.say("TaskWait", compiles);
        self.say("TaskOutput", json!({ "task_id": task, "block": false }));
        open(&second);
        self.say("TaskWait", json!({ "task_ids": [task] }));
        let end = json!({ "task_id": task, "after": "start", "max_output_tokens": 50 });
        self.say("TaskOutput", end);
    }

    /// A prompt that is answered, and a terminal.
    fn prompt(&mut self) {
        let asks = "printf 'Name? '; read name; echo \"Hello $name\"; read again";
        let asks = json!({ "cmd": asks, "login": false, "accepts_input": true });
        let task = task_of(&self.say("ExecCommand", asks));
        let answer = json!({ "task_id": task, "input": "Ada\n", "wait_ms": 30_000 });
        self.say("TaskInput", answer);
        self.say("TaskStop", json!({ "task_id": task }));
        let types = "stty -echo; tput cols; printf '> '; read line; echo \"[$line]\"; read more";
        let types = json!({ "cmd": types, "login": false, "tty": true });
        let task = task_of(&self.say("ExecCommand", types));
        self.say("TaskInput", json!({ "task_id": task, "input": "on it\n", "wait_ms": 30_000 }));
        let until = json!({ "output_matches": r"\[on it\]" });
        self.say("TaskWait", json!({ "task_ids": [task], "until": until }));
        self.say("TaskOutput", json!({ "task_id": task, "view": "screen" }));
        self.say("TaskStop", json!({ "task_id": task }));
    }

    /// What is waited for besides output: a file, a port, silence, input.
    fn conditions(&mut self) {
        let (gate, made) = (self.scratch.file("gate"), self.scratch.file("made"));
        let f = fixture();
        let cmd = format!("{f} wait-then-exit {gate} 0; echo quiet; touch {made}; cat");
        let more = json!({ "login": false, "yield_time_ms": 0, "accepts_input": true });
        let mut input = json!({ "cmd": cmd });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let task = task_of(&self.say("ExecCommand", input));
        open(&gate);
        for until in [
            json!({ "path_exists": made }),
            json!({ "silence_ms": 200 }),
            json!({ "waiting_for_input": true }),
        ] {
            self.say("TaskWait", json!({ "task_ids": [task], "until": until }));
        }
        let last = json!({ "task_id": task, "input": "last\n", "eof": true, "wait_ms": 30_000 });
        self.say("TaskInput", last);
        self.say("TaskWait", json!({ "task_ids": [task] }));
    }
}

/// A text in which nothing differs from run to run, or from place to place.
fn steady(text: &str, scratch: &Scratch) -> String {
    let workspace = scratch.workspace.path().canonicalize().unwrap();
    let text = text.replace(&*scratch.state.path().to_string_lossy(), "STATE");
    let text = text.replace(&*workspace.to_string_lossy(), "WORKSPACE");
    let changes = [
        (r"t_[0-9a-z]{20,}", "TASK"),
        (r"c[0-9a-f]+\.[0-9a-f]+\.[0-9a-f]{8}", "CURSOR"),
        (r"\b[0-9.]+ (ms|s|min)\b", "TIME"),
        (r"(?m)^[0-9]+ sh -c", "PID sh -c"),
        // Who does not wait for a command may find it in a queue, and is told so.
        (r"(promoted to background task\nTask: TASK)\nStatus: queued[^\n]*", "$1"),
    ];
    changes.iter().fold(text, |text, (pattern, word)| {
        Regex::new(pattern).unwrap().replace_all(&text, *word).into_owned()
    })
}

/// Compares two sessions, line by line.
#[track_caller]
pub fn assert_same(there: &str, here: &str) {
    for (there, here) in there.lines().zip(here.lines()) {
        assert_eq!(there, here);
    }
    assert_eq!(there.lines().count(), here.lines().count());
}

/// What a model reads in a session at a place.
pub fn session(
    scratch: &Scratch,
    configuration: &str,
    place: Option<&str>,
    variables: &[(&str, String)],
) -> String {
    for gate in ["first", "second", "gate", "made"] {
        let _ = fs::remove_file(scratch.file(gate));
    }
    let wire = serving(scratch, configuration, variables);
    let mut session = Session { scratch, wire, place, text: String::new() };
    session.build();
    session.prompt();
    session.conditions();
    steady(&session.text, scratch)
}
