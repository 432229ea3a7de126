//! Profiles in the sandbox: what one says of files that it may not write is in no result, from the
//! first command on, in every process; and every byte of the command's own is.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{Scratch, fixture, has_program, open, program},
    harness::stage,
    mcp::Wire,
};

/// A profile that writes below the home, as pyenv, nvm and conda do. It has a function, so that its
/// login stays a real one, and counts how often it is read.
const WRITES: &str = "echo read >>/tmp/read\nmkdir \"$HOME/.tool\"\ngreet() { :; }\n";

/// How often the profile was read; the command's own time counts.
const TIMES_READ: &str = "echo $(wc -l </tmp/read); echo own >&2";

/// A home that sandboxed commands see and cannot write.
struct Home {
    folder: TempDir,
    scratch: Scratch,
}

impl Home {
    /// None where no sandbox shows such a folder.
    fn with(profile: &str) -> Option<Self> {
        if !stage::is_seen_in_sandboxes() {
            return None;
        }
        let home =
            Self { folder: TempDir::new_in(stage::folder()).unwrap(), scratch: Scratch::new() };
        home.write(".profile", profile);
        home.write(".zprofile", profile);
        Some(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn kept(&self) -> PathBuf {
        self.scratch.state.path().join("logins.json")
    }

    fn legwork(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).args(["--mode", "guarded", "--state"]);
        command.arg(self.scratch.state.path()).current_dir(self.scratch.workspace.path());
        command.env_clear().envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")]);
        command.env("HOME", self.folder.path()).env("XDG_CONFIG_HOME", self.scratch.state.path());
        command.stdin(Stdio::null());
        command
    }

    fn server(&self) -> Wire {
        let mut wire = Wire::spawn(self.legwork(&["mcp", "--structured"]));
        wire.initialize();
        wire
    }

    /// What a call of its own answers.
    fn call(&self, input: &Value) -> Value {
        let output =
            self.legwork(&["call", "ExecCommand", "--json", &input.to_string()]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// Both streams of a script that is called so.
    fn streams(&self, cmd: &str) -> [String; 2] {
        streams(&self.call(&json!({ "shell": "bash", "cmd": cmd })))
    }
}

fn streams(envelope: &Value) -> [String; 2] {
    let result = &envelope["result"];
    assert_eq!(result["disposition"], "completed", "{envelope:#}");
    ["stdout_preview", "stderr_preview"]
        .map(|name| result[name].as_str().unwrap_or_default().to_owned())
}

fn exec(wire: &mut Wire, input: &Value) -> [String; 2] {
    streams(&wire.exec(input)["result"]["structuredContent"])
}

#[test]
fn the_first_command_of_a_server_does_not_show_what_its_profile_says_of_the_sandbox() {
    for shell in ["bash", "dash", "zsh"] {
        if shell == "zsh" && !has_program("zsh", &["-c", ":"]) {
            continue;
        }
        let Some(home) = Home::with(WRITES) else { return };
        let mut wire = home.server();
        let cmd = "echo out; echo own >&2";
        let all = |more: Value| {
            let mut input = json!({ "shell": shell, "cmd": cmd });
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            input
        };
        let expected = ["out", "own"].map(str::to_owned);
        assert_eq!(exec(&mut wire, &all(json!({}))), expected, "{shell}");
        assert_eq!(exec(&mut wire, &all(json!({}))), expected, "{shell}");
        // Wherever stderr goes.
        assert_eq!(exec(&mut wire, &all(json!({ "accepts_input": true }))), expected, "{shell}");
        let [printed, _] = exec(&mut wire, &all(json!({ "tty": true })));
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["out", "own"], "{shell}");
        assert_eq!(home.scratch.tasks().len(), 4, "nobody asked for what was heard");
    }
}

#[test]
fn first_commands_that_come_at_once_wait_for_the_same_and_show_nothing() {
    let Some(home) = Home::with(WRITES) else { return };
    let mut wire = home.server();
    for number in 0..4 {
        let arguments = json!({ "shell": "bash", "cmd": format!("echo own {number} >&2") });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": arguments }));
    }
    let mut said: Vec<_> = (0..4)
        .map(|_| streams(&wire.read()["result"]["structuredContent"]).last().unwrap().clone())
        .collect();
    said.sort();
    assert_eq!(said, [0, 1, 2, 3].map(|number| format!("own {number}")));
}

#[test]
fn a_call_of_its_own_shows_nothing_and_the_next_one_knows_already() {
    let Some(home) = Home::with(WRITES) else { return };
    assert_eq!(home.streams(TIMES_READ), ["3", "own"], "it was listened to twice");
    assert_eq!(home.streams(TIMES_READ), ["4", "own"], "that is known from before");
    let kept = fs::read_to_string(home.kept()).unwrap();
    assert!(kept.contains(".tool") && !kept.contains("PATH"), "{kept}");
    // A server knows it as well, from its first command on.
    let mut wire = home.server();
    let input = json!({ "shell": "bash", "cmd": TIMES_READ });
    assert_eq!(exec(&mut wire, &input), ["5", "own"]);
}

#[test]
fn a_profile_that_has_changed_is_listened_to_again() {
    let Some(home) = Home::with(&format!(". \"$HOME/more\"\n{WRITES}")) else { return };
    home.write("more", "export A=1\n");
    assert_eq!(home.streams("echo own >&2"), ["", "own"]);
    // The profile itself, and a file that it reads.
    home.write(".profile", ". \"$HOME/more\"\ntouch \"$HOME/another\"\n");
    assert_eq!(home.streams("echo own >&2"), ["", "own"]);
    home.write("more", "touch \"$HOME/a-third\"\n");
    assert_eq!(home.streams("echo own >&2"), ["", "own"]);
    // What it said once is not left out of what a command says.
    home.write(".profile", ": nothing to say\n");
    let [_, said] = home.streams("touch \"$HOME/another\"");
    assert!(said.contains("another") && said.lines().count() == 1, "{said}");
    // The same in a server that has it in its memory.
    home.write(".profile", &format!(". \"$HOME/more\"\n{WRITES}"));
    let mut wire = home.server();
    let input = json!({ "shell": "bash", "cmd": "echo own >&2" });
    assert_eq!(exec(&mut wire, &input), ["", "own"]);
    home.write("more", "touch \"$HOME/a-fourth\"\n");
    assert_eq!(exec(&mut wire, &input), ["", "own"]);
}

#[test]
fn the_words_of_a_command_are_its_own_also_where_its_profile_says_the_same() {
    let Some(home) = Home::with(WRITES) else { return };
    let own = "mkdir \"$HOME/.tool\"; echo done >&2";
    let said = home.streams(own);
    let tool = home.path(".tool");
    let words =
        format!("mkdir: cannot create directory ‘{}’: Read-only file system\ndone", tool.display());
    assert_eq!(said, ["", &words]);
    assert_eq!(home.streams(own), said, "and when it is known from before");
    // One that says something else besides is not left out at all.
    home.write(".profile", &format!("{WRITES}echo careful >&2\n"));
    let [_, said] = home.streams("echo own >&2");
    assert!(said.contains(".tool") && said.ends_with("careful\nown"), "{said}");
    // One that says it now and then proves nothing.
    let now_and_then = "if mkdir /tmp/once 2>/dev/null; then mkdir \"$HOME/.tool\"; fi\n";
    home.write(".profile", now_and_then);
    let [_, said] = home.streams("mkdir \"$HOME/.tool\"");
    assert!(said.contains(".tool") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_profile_that_hangs_holds_up_no_answer_and_the_command_runs_when_it_goes_on() {
    let waits = format!("{} wait-for \"$HOME/over\"\n{WRITES}", fixture());
    let Some(home) = Home::with(&waits) else { return };
    let mut wire = home.server();
    let input = json!({ "shell": "bash", "cmd": "echo ran", "yield_time_ms": 0 });
    let answer = wire.exec(&input)["result"]["structuredContent"].clone();
    assert_eq!(answer["result"]["disposition"], "promoted_to_task", "{answer:#}");
    let task = answer["result"]["task_handle"]["task_id"].clone();
    // It is a task like any other before its command has started.
    let told = wire.tool("TaskStatus", &json!({ "task_id": task }));
    assert!(told.contains("running"), "{told}");
    // Longer than the command waits for its profile, in a process of its own.
    let alone = home.call(&json!({ "shell": "bash", "cmd": "echo alone", "yield_time_ms": 2500 }));
    assert_eq!(alone["result"]["disposition"], "promoted_to_task", "{alone:#}");
    open(home.path("over").to_str().unwrap());
    let other = alone["result"]["task_handle"]["task_id"].clone();
    wire.tool("TaskWait", &json!({ "task_ids": [task, other] }));
    for (task, printed) in [(task, "ran"), (other, "alone")] {
        let told = wire.tool("TaskOutput", &json!({ "task_id": task, "after": "start" }));
        assert!(told.contains("completed") && told.contains(printed), "{told}");
    }
}

#[test]
fn a_command_runs_though_its_profile_hangs_where_it_is_listened_to() {
    // The first time it is read it hangs until the end of the test, and then never again.
    let hangs = format!("mkdir /tmp/first 2>/dev/null && {} wait-for \"$HOME/over\"\n", fixture());
    let Some(home) = Home::with(&hangs) else { return };
    let input = json!({ "shell": "bash", "cmd": "echo ran", "yield_time_ms": 15_000 });
    assert_eq!(streams(&home.call(&input)), ["ran", ""]);
    open(home.path("over").to_str().unwrap());
}

#[test]
fn a_command_that_waits_for_its_profile_can_be_stopped() {
    let waits = format!("{} wait-for \"$HOME/over\"\n", fixture());
    let Some(home) = Home::with(&waits) else { return };
    let mut wire = home.server();
    let input = json!({ "shell": "bash", "cmd": "echo ran", "yield_time_ms": 0 });
    let answer = wire.exec(&input)["result"]["structuredContent"].clone();
    let task = answer["result"]["task_handle"]["task_id"].clone();
    let told = wire.tool("TaskStop", &json!({ "task_id": task }));
    assert!(told.contains("cancelled"), "{told}");
    // The server ends though it listens, and nothing of it is left.
    wire.stdin = None;
    assert!(wire.child.wait().unwrap().success());
}

#[test]
fn whatever_stands_in_the_file_of_what_was_heard_does_no_harm() {
    let Some(home) = Home::with(WRITES) else { return };
    assert_eq!(home.streams("echo own >&2"), ["", "own"]);
    let good = fs::read_to_string(home.kept()).unwrap();
    let forged = good.replace("cannot create directory", "made").replace("Read-only file", "a");
    for spoilt in ["", "noise \u{0}", &good[..good.len() / 2], &forged, "{\"version\":9}"] {
        fs::write(home.kept(), spoilt).unwrap();
        assert_eq!(home.streams("echo own >&2"), ["", "own"], "{spoilt}");
        assert_eq!(fs::read_to_string(home.kept()).unwrap().len(), good.len(), "{spoilt}");
    }
    fs::remove_file(home.kept()).unwrap();
    fs::create_dir(home.kept()).unwrap();
    assert_eq!(home.streams("echo own >&2"), ["", "own"], "a folder is set aside");
}

#[test]
fn a_process_that_ends_hands_over_a_command_that_still_waits_for_its_profile() {
    let Some(home) = Home::with(WRITES) else { return };
    let input = json!({ "cmd": "sleep 600", "yield_time_ms": 0 }).to_string();
    let called = home.legwork(&["call", "ExecCommand", "--json", &input]).output().unwrap();
    let told: Value = serde_json::from_slice(&called.stdout).unwrap();
    let task = told["result"]["task_handle"]["task_id"].as_str().unwrap().to_owned();
    let look = json!({ "task_id": task }).to_string();
    let seen = home.legwork(&["call", "TaskOutput", "--json", &look]).output().unwrap();
    let seen: Value = serde_json::from_slice(&seen.stdout).unwrap();
    assert_eq!(seen["result"]["task"]["status"], "running", "{seen:#}");
    let stop = json!({ "task_id": task }).to_string();
    home.legwork(&["call", "TaskStop", "--json", &stop]).output().unwrap();
}
