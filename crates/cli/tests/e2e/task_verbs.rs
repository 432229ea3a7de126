//! The verbs of the command line that look at tasks and take part in them.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Scratch, announced, eventually, fixture, is_alive, open, parts, program, signal, text,
};

#[test]
fn logs_can_be_followed_to_the_end_from_another_process() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!(
        "echo one; echo err >&2; {} wait-for {gate}; echo two; {} flood 300000; exit 9",
        fixture(),
        fixture()
    );
    let task = scratch.promote(&cmd, &json!({}));
    let mut child = scratch
        .legwork("logs")
        .args(["-f", &task])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    open(&gate);
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    assert_eq!(lines.count(), 300_000 / 16);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(9), "err\n".into()));
    // Of a task that has ended it is the same.
    let again = scratch.legwork("logs").args(["-f", &task]).output().unwrap();
    assert_eq!(again.status.code(), Some(9));
    let all = scratch.legwork("logs").arg(&task).output().unwrap();
    assert_eq!((all.status.code(), all.stdout), (Some(0), again.stdout));
}

#[test]
fn following_and_leaving_stops_nothing() {
    let scratch = Scratch::new();
    let task = scratch.promote("echo up; exec sleep 1000", &json!({}));
    for verb in ["logs", "attach"] {
        let mut child = following(&scratch, verb, &task);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        signal(child.id(), Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{verb}");
        assert_eq!(scratch.status(&task)["status"], "running");
    }
}

fn following(scratch: &Scratch, verb: &str, task: &str) -> Child {
    let mut command = scratch.legwork(verb);
    command.arg(task).stdout(Stdio::piped()).stderr(Stdio::null());
    if verb == "logs" {
        command.arg("-f");
    }
    command.spawn().unwrap()
}

#[test]
fn send_wait_and_stop_work_by_prefix_from_any_process() {
    let scratch = Scratch::new();
    let task =
        scratch.promote("read a; echo got $a; exec sleep 1000", &json!({ "accepts_input": true }));
    let run = |verb: &str, arguments: &[&str]| {
        parts(&scratch.legwork(verb).args(arguments).output().unwrap())
    };
    let prefix = &task[..8];
    assert_eq!(run("wait", &[prefix, "--input", "--timeout", "30"]).0, Some(0));
    let (code, told, _) = run("send", &["@", "something"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(run("wait", &[&task, "--matches", "^got something$"]).0, Some(0));
    assert_eq!(run("wait", &[&task, "--timeout", "0"]).0, Some(124));
    let (code, told, _) = run("stop", &["@"]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("Task stopped\n"), "{told}");
    assert_eq!(run("wait", &[&task]).0, Some(143));
    let (code, told, complaint) = run("send", &[&task, "x"]);
    assert_eq!((code, complaint.as_str()), (Some(125), ""));
    assert!(told.contains("Reason: the task has ended"), "{told}");
    let (code, _, complaint) = run("stop", &["t_nothing"]);
    assert_eq!(code, Some(125));
    assert!(complaint.contains("no task has the id"), "{complaint}");
}

#[test]
fn every_task_verb_speaks_json() {
    let scratch = Scratch::new();
    let task = scratch.promote("echo hi; read a; exit 2", &json!({ "accepts_input": true }));
    let json = |verb: &str, arguments: &[&str]| -> Value {
        let output = scratch.legwork(verb).arg("--json").args(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{verb}: {output:?}"))
    };
    assert_eq!(json("wait", &[&task, "--input"])["result"]["condition"], "waiting_for_input");
    assert_eq!(json("logs", &[&task]), json!({ "stream": "stdout", "offset": 0, "text": "hi\n" }));
    assert_eq!(json("send", &[&task, "x"])["result"]["accepted_input"], true);
    assert_eq!(json("wait", &[&task])["result"]["tasks"][0]["exit_status"], 2);
    assert_eq!(json("stop", &[&task])["result"]["stop_requested"], false);
    assert_eq!(json("show", &[&task])["status"], "failed");
}

/// A person at a terminal, which is a terminal task of another state folder.
pub struct Person {
    pub scratch: Scratch,
    pub terminal: String,
}

impl Person {
    pub fn types(command: &str) -> Self {
        let scratch = Scratch::new();
        let terminal = scratch.promote(command, &json!({ "tty": true }));
        Self { scratch, terminal }
    }

    pub fn sees(&self, words: &str) -> String {
        self.scratch.screen_with(&self.terminal, words)
    }

    pub fn sends(&self, input: &Value) {
        self.scratch.send(&self.terminal, input);
    }

    pub fn leaves_with(&self, code: i32) {
        let waited = self.scratch.wait(&self.terminal, &json!({}));
        assert_eq!(waited["tasks"][0]["exit_status"], code, "{waited:#}");
    }
}

fn legwork(scratch: &Scratch, verb: &str) -> String {
    let program = program();
    let mode = if verb == "run" { " --mode open" } else { "" };
    format!("exec {program} {verb}{mode} --state {}", scratch.state.path().display())
}

#[test]
fn run_on_a_terminal_gives_the_command_one() {
    let scratch = Scratch::new();
    let command = format!(
        "{} -- sh -c 'test -t 0 && stty size; read a; echo \"<$a>\"; trap \"exit 42\" INT; \
         echo armed; while :; do sleep 1; done'",
        legwork(&scratch, "run")
    );
    let person = Person::types(&command);
    person.sees("24 80");
    person.sends(&json!({ "input": "hello\n" }));
    person.sees("<hello>");
    person.sees("armed");
    person.sends(&json!({ "key": "ctrl-c" }));
    person.leaves_with(42);
    assert_eq!(scratch.tasks()[0]["tty"], true);
}

#[test]
fn a_new_size_of_our_terminal_reaches_the_command() {
    let scratch = Scratch::new();
    let command = format!(
        "{} -- sh -c 'trap \"stty size\" WINCH; echo ready; while :; do sleep 0.05; done'",
        legwork(&scratch, "run")
    );
    let person = Person::types(&command);
    person.sees("ready");
    person.sends(&json!({ "rows": 40, "cols": 100 }));
    person.sees("40 100");
}

#[test]
fn attach_joins_a_terminal_and_leaves_it_running() {
    let scratch = Scratch::new();
    let task = scratch.promote("echo welcome; exec cat", &json!({ "tty": true }));
    scratch.screen_with(&task, "welcome");
    let person = Person::types(&format!("{} {task}", legwork(&scratch, "attach")));
    person.sees("welcome");
    person.sends(&json!({ "input": "typed here\n" }));
    person.sees("typed here\ntyped here");
    scratch.screen_with(&task, "typed here\ntyped here");
    person.sends(&json!({ "key": "ctrl-]" }));
    person.leaves_with(0);
    assert_eq!(scratch.status(&task)["status"], "running");
    // Again, and to the end: its exit code is ours.
    let person = Person::types(&format!("{} {task}", legwork(&scratch, "attach")));
    person.sees("typed here\ntyped here");
    person.sends(&json!({ "key": "ctrl-d" }));
    person.leaves_with(0);
    assert_eq!(scratch.status(&task)["status"], "completed");
}

#[test]
fn a_terminal_that_goes_away_takes_the_command_of_run_along() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let command = format!("{} -- {} ignore-term {ready}", legwork(&scratch, "run"), fixture());
    let person = Person::types(&command);
    let pid = announced(&ready);
    person.scratch.get("TaskStop", &json!({ "task_id": person.terminal, "signal": "HUP" }));
    eventually("the command is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_stream_that_goes_elsewhere_is_no_terminal_and_neither_is_a_job_in_the_background() {
    let scratch = Scratch::new();
    let errors = scratch.file("errors");
    let command =
        format!("{} -- sh -c 'echo out; echo err >&2' 2>{errors}", legwork(&scratch, "run"));
    let person = Person::types(&command.replace("exec ", ""));
    person.sees("out");
    person.leaves_with(0);
    assert_eq!(std::fs::read_to_string(errors).unwrap(), "err\n");
    let job = format!(
        "set -m; {} -- sh -c 'echo from the job' & wait; echo over",
        legwork(&scratch, "run").replace("exec ", "")
    );
    let person = Person::types(&job);
    assert!(person.sees("over").contains("from the job"));
}

#[test]
fn a_wait_for_what_never_came_is_no_success() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let task = scratch.promote(&format!("{} wait-for {gate}", fixture()), &json!({}));
    open(&gate);
    let waited = scratch.legwork("wait").args([&task, "--port", "1"]).output().unwrap();
    assert_eq!(waited.status.code(), Some(1), "{waited:?}");
    assert_eq!(scratch.legwork("wait").arg(&task).output().unwrap().status.code(), Some(0));
}

#[test]
fn following_a_task_whose_folder_is_gone_does_not_spin() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let task = scratch.promote(&format!("echo x; exec {} wait-for {gate}", fixture()), &json!({}));
    scratch.wait(&task, &json!({ "output_matches": "x" }));
    std::fs::remove_dir_all(scratch.folder(&json!(task))).unwrap();
    let follower = following(&scratch, "logs", &task);
    let turns = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", follower.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    eventually("it waits", || {
        let before = turns()?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        (turns()? <= before + 2).then_some(())
    });
    open(&gate);
    assert!(follower.wait_with_output().unwrap().status.success());
}

#[test]
fn attach_passes_lines_to_a_task_without_a_terminal() {
    let scratch = Scratch::new();
    let attached = |task: &str| {
        let mut command = scratch.legwork("attach");
        command.arg(task).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let task =
        scratch.promote("read a; echo \"got $a\"; exit 5", &json!({ "accepts_input": true }));
    let mut child = attached(&task);
    child.stdin.as_mut().unwrap().write_all(b"a line\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(5), "got a line\n".into()));
    // The end of a pipe is passed on, too.
    let task = scratch.promote("cat", &json!({ "accepts_input": true }));
    let mut child = attached(&task);
    child.stdin.take().unwrap().write_all(b"all\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "all\n".into()));
}
