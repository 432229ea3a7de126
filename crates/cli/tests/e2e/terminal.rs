//! Real terminals: driven by keys, read as screens.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::common::{Scratch, announced, eventually, fixture, is_alive, text};

fn tty() -> Value {
    json!({ "tty": true })
}

#[test]
fn it_is_a_terminal_of_24_by_80_and_the_raw_stream_is_the_artifact() {
    let scratch = Scratch::new();
    let cmd = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM && tty";
    let result = scratch.get("ExecCommand", &json!({ "cmd": cmd, "login": false, "tty": true }));
    let shown = result["stdout_preview"].as_str().unwrap();
    assert!(shown.starts_with("24 80\nxterm-256color\n/dev/pts/"), "{shown}");
    assert_eq!(result["stderr_preview"], Value::Null);
    let raw = fs::read(scratch.folder(&result["task_id"]).join("terminal")).unwrap();
    assert!(text(&raw).starts_with("24 80\r\nxterm-256color\r\n"));
}

#[test]
fn a_terminal_without_input_reads_the_end() {
    let scratch = Scratch::new();
    let input = json!({ "cmd": "cat; test -t 1 && echo yes", "login": false, "tty": true,
                        "accepts_input": false });
    assert_eq!(scratch.get("ExecCommand", &input)["stdout_preview"], "yes");
}

#[test]
fn python_answers_on_its_screen() {
    let scratch = Scratch::new();
    let task = scratch.promote("HOME=$PWD exec python3 -q -i", &tty());
    scratch.screen_with(&task, ">>>");
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    scratch.send(&task, &json!({ "input": "6*7", "key": "enter" }));
    let screen = scratch.screen_with(&task, "\n42\n");
    assert!(screen.starts_with(">>> 6*7\n42\n>>>"), "{screen}");
    let shown = scratch.screen(&task);
    assert_eq!(
        (&shown["screen"]["cursor_row"], &shown["screen"]["cursor_col"]),
        (&json!(2), &json!(4))
    );
    // A key interrupts.
    scratch.send(&task, &json!({ "input": "import time; time.sleep(1000)\n" }));
    scratch.screen_with(&task, "sleep(1000)");
    scratch.send(&task, &json!({ "key": "ctrl-c" }));
    scratch.screen_with(&task, "KeyboardInterrupt");
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    scratch.send(&task, &json!({ "input": "exit(3)\n" }));
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 3);
}

#[test]
fn the_end_of_input_is_typed_also_in_the_middle_of_a_line() {
    let scratch = Scratch::new();
    for typed in ["", "a line\n", "half"] {
        let task = scratch.promote(&format!("cat; : {typed:?}"), &tty());
        scratch.wait(&task, &json!({ "waiting_for_input": true }));
        scratch.send(&task, &json!({ "input": typed, "eof": true }));
        assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0, "{typed:?}");
    }
}

#[test]
fn each_end_of_input_ends_one_reader() {
    let scratch = Scratch::new();
    let task = scratch.promote("cat; echo one; cat; echo two; cat; echo three", &tty());
    for (word, next) in [("one", "two"), ("two", "three")] {
        scratch.wait(&task, &json!({ "waiting_for_input": true }));
        scratch.send(&task, &json!({ "eof": true }));
        let screen = scratch.screen_with(&task, word);
        assert!(!screen.contains(next), "{screen}");
    }
}

#[test]
fn a_new_size_reaches_the_program() {
    let scratch = Scratch::new();
    let cmd = "trap 'stty size' WINCH; echo ready; while :; do read line || :; done";
    let task = scratch.promote(cmd, &tty());
    scratch.screen_with(&task, "ready");
    scratch.send(&task, &json!({ "rows": 50, "cols": 132 }));
    scratch.screen_with(&task, "50 132");
    let screen = scratch.screen(&task)["screen"].clone();
    assert_eq!((&screen["rows"], &screen["cols"]), (&json!(50), &json!(132)));
}

#[test]
fn background_jobs_are_hung_up_when_the_terminal_closes() {
    let scratch = Scratch::new();
    let pid_file = scratch.file("pid");
    // Job control gives the background job a process group of its own.
    let cmd = format!("set -m; sleep 1000 & echo $! > {pid_file}; echo left");
    let input = json!({ "cmd": cmd, "login": false, "tty": true });
    let result = scratch.get("ExecCommand", &input);
    assert_eq!(result["exit_status"], 0, "{result:#}");
    let pid: u32 = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    eventually("the job is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn the_death_of_the_engine_does_not_hang_up() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let cmd = format!(
        "trap 'echo hup > {}' HUP; echo $$ > {ready}.tmp; mv {ready}.tmp {ready}; \
                       printf 'on '; cat",
        scratch.file("hup")
    );
    let told = wire.tool(
        "ExecCommand",
        &json!({ "cmd": cmd, "login": false, "tty": true, "yield_time_ms": 0 }),
    );
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    eventually("it runs", || fs::read_to_string(&ready).ok());
    crate::common::signal(wire.child.id(), rustix::process::Signal::KILL);
    wire.child.wait().unwrap();
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    scratch.send(&task, &json!({ "input": "typed\n" }));
    scratch.screen_with(&task, "on typed\ntyped");
    assert!(!fs::exists(scratch.file("hup")).unwrap());
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("LEGWORK_REQUIRE_PROGRAMS").is_none(), "{program} is missing");
        skips::skip(&format!("there is no {program}"));
    }
    found
}

#[test]
fn vim_edits_a_file_by_keys() {
    if !has("vim") {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.file("file.txt"), "first\nsecond\nthird\n").unwrap();
    let task = scratch.promote("vim -u NONE -i NONE -n file.txt", &tty());
    let screen = scratch.screen_with(&task, "third");
    assert!(screen.starts_with("first\nsecond\nthird\n~"), "{screen}");
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    // An arrow key, in whatever mode the program has put its terminal.
    scratch.send(&task, &json!({ "key": "down" }));
    scratch.send(&task, &json!({ "input": "Anew line" }));
    scratch.send(&task, &json!({ "key": "escape" }));
    let screen = scratch.screen_with(&task, "secondnew line");
    assert!(screen.starts_with("first\nsecondnew line\nthird\n~"), "{screen}");
    assert_eq!(scratch.screen(&task)["screen"]["cursor_row"], 1);
    scratch.send(&task, &json!({ "input": ":wq", "key": "enter" }));
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
    let saved = fs::read_to_string(scratch.file("file.txt")).unwrap();
    assert_eq!(saved, "first\nsecondnew line\nthird\n");
}

#[test]
fn top_is_read_from_its_screen_and_quit_by_a_key() {
    if !has("top") {
        return;
    }
    let scratch = Scratch::new();
    let task = scratch.promote("top", &tty());
    let screen = scratch.screen_with(&task, "PID USER");
    assert!(screen.starts_with("top - "), "{screen}");
    scratch.send(&task, &json!({ "input": "q" }));
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
}

#[test]
fn an_interactive_rebase_with_an_editor() {
    if !has("vim") || !has("git") {
        return;
    }
    let scratch = Scratch::new();
    let setup = "git init -q -b main . && git config user.email t@example.org && git config user.name t && \
        for n in 1 2 3; do echo $n > f; git add f; git commit -qm \"change $n\"; done";
    assert_eq!(scratch.result(setup)["exit_status"], 0);
    let cmd = "GIT_EDITOR='vim -u NONE -i NONE -n' git rebase -i HEAD~2";
    let task = scratch.promote(cmd, &tty());
    let screen = scratch.screen_with(&task, "change 3");
    assert!(screen.starts_with("pick "), "{screen}");
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    // The second commit is to be reworded: another editor follows.
    scratch.send(&task, &json!({ "input": "cwreword" }));
    scratch.send(&task, &json!({ "key": "escape" }));
    scratch.screen_with(&task, "reword ");
    scratch.send(&task, &json!({ "input": ":wq", "key": "enter" }));
    let screen = scratch.screen_with(&task, "Please enter the commit message");
    assert!(screen.starts_with("change 2"), "{screen}");
    scratch.send(&task, &json!({ "input": "ccanother word" }));
    scratch.send(&task, &json!({ "key": "escape" }));
    scratch.screen_with(&task, "another word");
    scratch.send(&task, &json!({ "input": ":wq", "key": "enter" }));
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
    let log = scratch.result("git log --format=%s");
    assert_eq!(log["stdout_preview"], "change 3\nanother word\nchange 1");
}

#[test]
fn an_interactive_shell_ends_with_its_terminal_and_not_by_force() {
    let scratch = Scratch::new();
    let task = scratch.promote("exec bash --norc -i", &tty());
    scratch.wait(&task, &json!({ "waiting_for_input": true }));
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 20_000 }));
    assert_ne!(stopped["outcome"]["signal"], 9, "{stopped:#}");
}

#[test]
fn a_program_that_fills_the_screen_is_shown_as_its_screen() {
    if !has("vim") {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.file("file.txt"), "only line\n").unwrap();
    let input = json!({ "cmd": "vim -u NONE -i NONE -n file.txt", "tty": true, "login": false,
                        "yield_time_ms": 1500 });
    let result = scratch.get("ExecCommand", &input);
    let shown = result["initial_output_preview"].as_str().unwrap();
    assert!(shown.starts_with("only line\n~\n~\n"), "{shown}");
}

#[test]
fn stopping_a_terminal_task_leaves_nothing() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let task = scratch.promote(&format!("{} ignore-term {ready}; :", fixture()), &tty());
    let pid = announced(&ready);
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 50 }));
    assert_eq!(stopped["survivors"], json!([]));
    assert!(!is_alive(pid));
}
