//! Approvals: asked by one process, answered by another, by a person at a terminal, or by nobody.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    common::{
        Scratch, by_system, eventually, given, inner_program, parts, program, shown, text,
        unix_lines,
    },
    harness::windows::is_tested,
};

const RUN: &str = "run_shell_command";

/// A command that says in a file that it ran.
fn noting(word: &str) -> String {
    // A blank before the arrow would be in the file, by cmd.
    by_system(format!("echo {word} >> log"), format!("echo {word}>> log"))
}

/// What such commands have said.
fn noted(scratch: &Scratch) -> String {
    unix_lines(&fs::read_to_string(scratch.file("log")).unwrap())
}

/// A call that has to be asked about.
fn call(scratch: &Scratch, policy: Option<&str>, command: &str) -> (Option<i32>, Value) {
    let mut call = scratch.guarded("call", "guarded", policy);
    let input = json!({ "command": command, "description": "a word" }).to_string();
    let output = call.args([RUN, &input, "--json"]).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn open_questions(scratch: &Scratch) -> Vec<Value> {
    let output = scratch.legwork("approvals").arg("--json").output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["approvals"].as_array().unwrap().clone()
}

#[test]
fn nobody_to_ask_fails_at_once_and_a_later_answer_lets_one_call_pass() {
    let scratch = Scratch::new();
    let command = &noting("ran");
    let (code, envelope) = call(&scratch, None, command);
    assert_eq!(code, Some(126));
    let error = &envelope["error"];
    assert_eq!(error["kind"], "approval_unavailable");
    let id = error["details"]["approval_id"].as_str().unwrap().to_owned();
    let for_the_user = error["details"]["for_the_user"].as_str().unwrap();
    let state = shown(scratch.state.path());
    assert!(for_the_user.contains(&format!("legwork approve --state {state} {id}")), "{error:#}");
    assert_eq!(error["retryable"], true, "{error:#}");
    // An equal question is the same question.
    let (_, again) = call(&scratch, None, command);
    assert_eq!(again["error"]["details"]["approval_id"], json!(id));
    let open = open_questions(&scratch);
    assert_eq!(open.len(), 1);
    assert_eq!((&open[0]["command"], &open[0]["description"]), (&json!(command), &json!("a word")));
    let (code, told, _) = parts(&scratch.legwork("approve").arg(&id[..8]).output().unwrap());
    assert_eq!((code, told), (Some(0), format!("Allowed once. {command}\n")));
    assert!(open_questions(&scratch).is_empty());
    assert_eq!(call(&scratch, None, command).0, Some(0));
    assert_eq!(call(&scratch, None, command).0, Some(126), "once is once");
    assert_eq!(noted(&scratch), "ran\n");
    let twice = scratch.legwork("approve").arg(&id).output().unwrap();
    assert_eq!(twice.status.code(), Some(125), "it was answered");
}

#[test]
fn a_person_answers_in_a_second_terminal_while_the_agent_waits() {
    let scratch = Scratch::new();
    let patient = "[approval]\nwait_ms = 30000\n";
    let answers = |verb: &str, more: &[&str]| {
        let id = eventually("the question is there", || {
            Some(open_questions(&scratch).first()?["approval_id"].as_str()?.to_owned())
        });
        let output = scratch.legwork(verb).arg(id).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    thread::scope(|scope| {
        let waits = scope.spawn(|| call(&scratch, Some(patient), "echo yes"));
        answers("approve", &[]);
        let (code, envelope) = waits.join().unwrap();
        let printed = unix_lines(envelope["result"]["stdout"].as_str().unwrap());
        assert_eq!((code, &*printed), (Some(0), "yes\n"));
        let waits = scope.spawn(|| call(&scratch, Some(patient), "touch no"));
        answers("deny", &["--note", "use the Makefile"]);
        let (code, envelope) = waits.join().unwrap();
        assert_eq!((code, &envelope["error"]["kind"]), (Some(126), &json!("approval_refused")));
        assert!(envelope["error"]["message"].as_str().unwrap().contains("use the Makefile"));
    });
    assert!(!fs::exists(scratch.file("no")).unwrap());
}

#[test]
fn a_rule_is_shown_before_it_is_saved_and_is_no_wider_than_the_command() {
    let scratch = Scratch::new();
    let ask =
        |command: &str| call(&scratch, None, command).1["error"]["details"]["approval_id"].clone();
    let id = ask("touch x");
    let shown = text(&scratch.legwork("approvals").arg("a_").output().unwrap().stdout);
    assert!(shown.contains("program = \"touch\"") && shown.contains("exact = true"), "{shown}");
    let saved = scratch.legwork("approve").args([id.as_str().unwrap(), "--rule"]).output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    for _ in 0..2 {
        assert_eq!(call(&scratch, None, "touch x").0, Some(0), "for good");
    }
    for other in ["touch x y", "touch y", by_system("touch x; touch z", "touch x & touch z")] {
        assert_eq!(call(&scratch, None, other).0, Some(126), "{other}");
    }
    // What runs anything else gets none.
    let id = ask(by_system("bash -c 'touch w'", "cmd /c touch w"));
    let refused =
        scratch.legwork("approve").args([id.as_str().unwrap(), "--rule"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(open_questions(&scratch).iter().any(|open| open["approval_id"] == id), "still open");
    // Each part of a longer command is shown with its own verdict, where it is understood.
    if is_tested() {
        return;
    }
    ask("echo a && rm -rf b");
    let parts = open_questions(&scratch).last().unwrap()["parts"].clone();
    let shown = |part: &Value| json!([part["text"], part["verdict"]]);
    let shown: Vec<Value> = parts.as_array().unwrap().iter().map(shown).collect();
    assert_eq!(shown, [json!(["echo a", "ask"]), json!(["rm -rf b", "ask"])]);
}

#[test]
fn questions_expire() {
    let scratch = Scratch::new();
    let (code, envelope) =
        call(&scratch, Some("[approval]\nwait_ms = 200\nexpires_ms = 300\n"), "touch x");
    assert_eq!((code, &envelope["error"]["kind"]), (Some(126), &json!("approval_expired")));
    eventually("it is over", || open_questions(&scratch).is_empty().then_some(()));
    let id = envelope["error"]["details"]["approval_id"].as_str().unwrap();
    let late = scratch.legwork("approve").arg(id).output().unwrap();
    assert_eq!(late.status.code(), Some(125));
    assert!(text(&late.stderr).contains("no open question"), "{late:?}");
}

#[test]
fn a_session_lasts_as_long_as_the_program_that_asked() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("mcp", "guarded", Some("[approval]\nwait_ms = 30000\n"));
    command.args(["--tools", "all"]);
    let mut wire = crate::mcp::Wire::spawn(command);
    wire.initialize();
    let call_it = json!({ "name": RUN, "arguments": { "command": "echo again" } });
    wire.send("tools/call", &call_it);
    let id = eventually("the question is there", || {
        Some(open_questions(&scratch).first()?["approval_id"].as_str()?.to_owned())
    });
    assert!(scratch.legwork("approve").args([&id, "--session"]).output().unwrap().status.success());
    assert_eq!(wire.read()["result"]["isError"], false);
    for _ in 0..3 {
        assert_eq!(wire.request("tools/call", &call_it)["result"]["isError"], false);
    }
    // Exactly this command, and nobody else's.
    assert_eq!(call(&scratch, None, "echo again").0, Some(126));
}

/// A call of the newer era, by a client that can be asked.
fn modern(wire: &mut crate::mcp::Wire, command: &str, more: &Value) -> Value {
    let mut parameters = json!({
        "name": RUN, "arguments": { "command": command },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        },
    });
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    wire.request("tools/call", &parameters)["result"].clone()
}

#[test]
fn a_state_that_travels_is_good_for_one_answer_to_one_call() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("mcp", "guarded", None);
    command.args(["--tools", "all"]);
    let mut wire = crate::mcp::Wire::spawn(command);
    let command = &noting("ran");
    let asked = modern(&mut wire, command, &json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    let form = &asked["inputRequests"]["approval"];
    assert_eq!(form["method"], "elicitation/create", "{form:#}");
    assert!(form["params"]["message"].as_str().unwrap().contains(command));
    let state = asked["requestState"].as_str().unwrap().to_owned();
    let yes =
        json!({ "approval": { "action": "accept", "content": { "decision": "allow_once" } } });
    let retry = |state: &str| json!({ "requestState": state, "inputResponses": yes });
    let mut altered = state.clone().into_bytes();
    let last = altered.len() - 1;
    altered[last] = if altered[last] == b'A' { b'B' } else { b'A' };
    // Altered, and of another call.
    for (command, state) in [
        (command, String::from_utf8(altered).unwrap()),
        (&noting("other"), state.clone()),
        (command, "nonsense".into()),
    ] {
        let answer = modern(&mut wire, command, &retry(&state));
        assert_eq!(answer["isError"], true, "{answer:#}");
        assert!(answer.to_string().contains("approval_refused"), "{answer:#}");
    }
    assert!(!fs::exists(scratch.file("log")).unwrap());
    let ran = modern(&mut wire, command, &retry(&state));
    assert_eq!(ran["isError"], false, "{ran:#}");
    // Replayed.
    let replayed = modern(&mut wire, command, &retry(&state));
    assert!(replayed.to_string().contains("approval_refused"), "{replayed:#}");
    assert_eq!(noted(&scratch), "ran\n");
}

#[test]
fn a_person_at_the_terminal_denies_with_one_key_and_allows_with_two() {
    let scratch = Scratch::new();
    let program = program();
    let state = scratch.state.path().display();
    let outside = "allow once OUTSIDE the sandbox";
    for (letter, words, runs) in
        [('y', "allow once", true), ('o', outside, true), ('n', "deny", false)]
    {
        let _ = fs::remove_file(scratch.file("x"));
        let outer = Scratch::new();
        let target = scratch.file("x");
        let folder = scratch.workspace.path().display();
        let command = format!(
            "cd {folder}; exec {program} sh --state {state} --mode strict 'touch {target}'"
        );
        let task = outer.promote(&command, &json!({ "tty": true }));
        let screen = outer.screen_with(&task, "[N] deny, with a note");
        assert!(screen.contains(&format!("touch {target}")), "{screen}");
        if runs {
            outer.confirms(&task, letter, words);
        } else {
            outer.send(&task, &json!({ "input": letter.to_string() }));
        }
        let waited = outer.wait(&task, &json!({}));
        let code = if runs { 0 } else { 126 };
        assert_eq!(waited["tasks"][0]["exit_status"], code, "{waited:#}");
        assert_eq!(fs::exists(scratch.file("x")).unwrap(), runs, "{words}");
    }
}

#[test]
fn keys_typed_before_the_question_do_not_answer_it() {
    let scratch = Scratch::new();
    let outer = Scratch::new();
    let (program, target, gate) = (program(), scratch.file("x"), scratch.file("gate"));
    let state = scratch.state.path().display();
    let command = format!(
        "echo ready; while [ ! -e {gate} ]; do sleep 0.01; done; \
         exec {program} sh --state {state} --mode strict 'touch {target}'"
    );
    let task = outer.promote(&command, &json!({ "tty": true }));
    outer.screen_with(&task, "ready");
    outer.send(&task, &json!({ "input": "y\n" }));
    outer.screen_with(&task, "\ny");
    crate::common::open(&gate);
    outer.screen_with(&task, "[N] deny, with a note");
    assert!(!fs::exists(&target).unwrap());
    // Nor do they with more behind them.
    outer.send(&task, &json!({ "key": "enter" }));
    outer.screen_with(&task, "Typing answers nothing");
    assert!(!fs::exists(&target).unwrap());
    outer.screen_with(&task, "[y] allow once");
    outer.send(&task, &json!({ "input": "n" }));
    assert_eq!(outer.wait(&task, &json!({}))["tasks"][0]["exit_status"], 126);
    assert!(!fs::exists(&target).unwrap());
}

#[test]
fn a_watcher_is_somebody_to_ask() {
    let scratch = Scratch::new();
    let person = Scratch::new();
    let watcher = watcher(&scratch, &person);
    thread::scope(|scope| {
        let waits = scope.spawn(|| call(&scratch, None, "echo watched"));
        person.screen_with(&watcher, "echo watched");
        person.confirms(&watcher, 'y', "allow once");
        let (code, envelope) = waits.join().unwrap();
        let printed = unix_lines(envelope["result"]["stdout"].as_str().unwrap_or_default());
        assert_eq!((code, &*printed), (Some(0), "watched\n"), "{envelope:#}");
    });
    let noted = std::process::Command::new(program())
        .args(["audit", "show", "--json", "--state"])
        .arg(scratch.state.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&noted.stdout).contains("\"decision\":\"allow_once\""));
}

/// A watcher in a terminal of its own.
fn watcher(scratch: &Scratch, person: &Scratch) -> String {
    let state = given(scratch.state.path());
    let command = format!("exec {} approvals --watch --state {state}", inner_program());
    let watcher = person.promote(&command, &json!({ "tty": true }));
    person.screen_with(&watcher, "Waiting for questions");
    watcher
}

/// Has something done until it took less time than a pause in typing, which a busy machine may need
/// several tries for.
fn at_a_stretch(what: &str, mut is_done: impl FnMut() -> bool) {
    assert!((0..5).any(|_| is_done()), "never: {what}");
}

#[test]
fn one_sentence_typed_at_a_watcher_denies_one_question() {
    at_a_stretch("one of three questions is denied", || {
        let (scratch, person) = (Scratch::new(), Scratch::new());
        let watcher = watcher(&scratch, &person);
        thread::scope(|scope| {
            let calls = ["one", "two", "three"].map(|word| {
                let scratch = &scratch;
                scope.spawn(move || call(scratch, None, &format!("touch {word}")))
            });
            eventually("all are asked", || (open_questions(&scratch).len() == 3).then_some(()));
            person.screen_with(&watcher, "[y] allow once");
            for typed in ["n", "o", ", not that one please, nothing now"] {
                person.send(&watcher, &json!({ "input": typed, "wait_ms": 0 }));
            }
            person.send(&watcher, &json!({ "key": "enter", "wait_ms": 0 }));
            person.screen_with(&watcher, "Typing answers nothing");
            let denied = 3 - open_questions(&scratch).len();
            assert!(denied > 0);
            for question in open_questions(&scratch) {
                let id = question["approval_id"].as_str().unwrap();
                assert!(scratch.legwork("deny").arg(id).status().unwrap().success());
            }
            for call in calls {
                assert_eq!(call.join().unwrap().0, Some(126));
            }
            denied == 1
        })
    });
}

#[test]
fn a_watcher_goes_on_when_its_question_is_answered_elsewhere() {
    let (scratch, person) = (Scratch::new(), Scratch::new());
    let watcher = watcher(&scratch, &person);
    person.send(&watcher, &json!({ "rows": 80, "cols": 100 }));
    thread::scope(|scope| {
        let first = scope.spawn(|| call(&scratch, None, "touch first"));
        person.screen_with(&watcher, "touch first");
        let second = scope.spawn(|| call(&scratch, None, "touch second"));
        eventually("both are asked", || (open_questions(&scratch).len() == 2).then_some(()));
        let open = open_questions(&scratch);
        let id = open.iter().find(|it| it["command"] == "touch first").unwrap();
        let id = id["approval_id"].as_str().unwrap();
        assert!(scratch.legwork("deny").arg(id).status().unwrap().success());
        assert_eq!(first.join().unwrap().0, Some(126));
        let screen = person.screen_with(&watcher, "touch second");
        assert!(screen.contains("Answered elsewhere, or expired: touch first"), "{screen}");
        // The next key is for this one.
        person.send(&watcher, &json!({ "input": "n", "wait_ms": 0 }));
        assert_eq!(second.join().unwrap().0, Some(126));
    });
    let noted = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    assert_eq!(noted.matches("\"decision\":\"deny\"").count(), 2, "{noted}");
}

#[test]
fn a_note_typed_behind_a_deny_does_not_reach_the_shell() {
    at_a_stretch("the note is taken", || {
        let (scratch, outer) = (Scratch::new(), Scratch::new());
        let (program, state) = (program(), scratch.state.path().display());
        let command = format!(
            "{program} sh --state {state} --mode strict 'touch x'; echo back with $?; exec cat"
        );
        let task = outer.promote(&command, &json!({ "tty": true }));
        outer.screen_with(&task, "[N] deny, with a note");
        outer.send(&task, &json!({ "input": "n", "wait_ms": 0 }));
        outer.send(&task, &json!({ "input": "o | touch pwned\r", "wait_ms": 0 }));
        // The answer is there before the terminal is given back.
        let noted = || fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
        eventually("it is denied", || noted().contains("\"decision\":\"deny\"").then_some(()));
        took_the_note(&outer, &task)
    });
}

/// Ends the `cat` behind a denied command. True if the question took the rest of a note: then `cat`
/// got nothing of it.
fn took_the_note(outer: &Scratch, task: &str) -> bool {
    outer.screen_with(task, "back with 126");
    outer.send(task, &json!({ "input": "the end\r" }));
    let screen = outer.screen_with(task, "the end");
    outer.send(task, &json!({ "eof": true }));
    outer.wait(task, &json!({}));
    let is_ignored = screen.contains("Ignored: pause");
    assert!(!is_ignored || !screen.contains("pwned"), "{screen}");
    is_ignored
}

/// A shell command at a terminal, behind the question whether it may run.
fn shell_asked(scratch: &Scratch, outer: &Scratch, script: &str, then: &str) -> String {
    let (program, state) = (program(), scratch.state.path().display());
    let command = format!("{program} sh --state {state} --mode strict '{script}'{then}");
    let task = outer.promote(&command, &json!({ "tty": true }));
    outer.screen_with(&task, "[N] deny, with a note");
    task
}

fn answer_elsewhere(scratch: &Scratch, verb: &str) {
    let id = open_questions(scratch)[0]["approval_id"].as_str().unwrap().to_owned();
    assert!(scratch.legwork(verb).arg(id).output().unwrap().status.success());
}

#[test]
fn an_open_note_counts_as_typing_however_long_its_last_key_is_ago() {
    at_a_stretch("the note is taken", || {
        let (scratch, outer) = (Scratch::new(), Scratch::new());
        let task = shell_asked(&scratch, &outer, "touch x", "; echo back with $?; exec cat");
        outer.send(&task, &json!({ "input": "N" }));
        outer.screen_with(&task, "Deny, because");
        // Longer than the pause that ends what is typed.
        thread::sleep(Duration::from_millis(1200));
        answer_elsewhere(&scratch, "deny");
        outer.screen_with(&task, "it was refused");
        outer.send(&task, &json!({ "input": "touch pwned\r", "wait_ms": 0 }));
        took_the_note(&outer, &task)
    });
}

#[test]
fn a_note_does_not_reach_a_command_that_is_allowed_elsewhere() {
    at_a_stretch("the note is taken", || {
        let (scratch, outer) = (Scratch::new(), Scratch::new());
        let script = "touch x; stty -echo; echo ready$((6 * 7)); read line; echo \"<$line>\"";
        let task = shell_asked(&scratch, &outer, script, "");
        outer.send(&task, &json!({ "input": "N" }));
        outer.screen_with(&task, "Deny, because");
        outer.send(&task, &json!({ "input": "wai", "wait_ms": 0 }));
        answer_elsewhere(&scratch, "approve");
        let typed = Instant::now();
        outer.send(&task, &json!({ "input": "t, please\r", "wait_ms": 0 }));
        let is_ignored = outer.screen_with(&task, "ready42").contains("Ignored: pause");
        // The pause after a word: until then the terminal has one reader, and no command.
        assert!(!is_ignored || typed.elapsed() >= Duration::from_secs(3));
        outer.send(&task, &json!({ "input": "hunter2\r", "wait_ms": 0 }));
        outer.wait(&task, &json!({}));
        let screen = outer.screen_with(&task, "ready42");
        assert!(!is_ignored || screen.contains("<hunter2>"), "{screen}");
        assert!(!is_ignored || screen.matches("hunter2").count() == 1, "no echo: {screen}");
        is_ignored
    });
}

#[test]
fn ctrl_c_while_a_late_note_is_taken_keeps_an_allowed_command_from_starting() {
    at_a_stretch("the note is taken", || {
        let (scratch, outer) = (Scratch::new(), Scratch::new());
        let task = shell_asked(&scratch, &outer, "touch x; echo began", "");
        outer.send(&task, &json!({ "input": "N" }));
        outer.screen_with(&task, "Deny, because");
        answer_elsewhere(&scratch, "approve");
        outer.send(&task, &json!({ "input": "wait\r", "wait_ms": 0 }));
        outer.send(&task, &json!({ "key": "ctrl-c", "wait_ms": 0 }));
        outer.wait(&task, &json!({}));
        let screen = outer.screen_with(&task, "Deny, because");
        let is_cancelled = screen.contains("legwork: cancelled; nothing was run");
        assert!(!is_cancelled || !screen.contains("\nbegan"), "{screen}");
        is_cancelled
    });
}

#[test]
fn a_question_about_a_program_is_answered_at_the_terminal_of_the_command() {
    let (scratch, outer) = (Scratch::new(), Scratch::new());
    let config = scratch.state.path().join("legwork/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let rule = "[[rule]]\nid = \"ask-touch\"\ndecision = \"ask\"\nprogram = \"touch\"\n";
    fs::write(config, rule).unwrap();
    let script = outer.file("release");
    let words = "stty -echo; touch made; echo \"gave $?\"; read line; echo \"<$line>\"";
    fs::write(&script, format!("#!/bin/sh\n{words}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (program, state) = (program(), scratch.state.path().display());
    let command = format!(
        "XDG_CONFIG_HOME={state} {program} run --state {state} -- ./release; \
         echo back with $?; stty -a"
    );
    for (letter, gave) in [('y', "gave 0"), ('n', "gave 126")] {
        let task = outer.promote(&command, &json!({ "tty": true }));
        outer.send(&task, &json!({ "rows": 60, "cols": 100 }));
        outer.screen_with(&task, "May this program run?");
        match letter {
            'n' => drop(outer.send(&task, &json!({ "input": "n", "wait_ms": 0 }))),
            letter => outer.confirms(&task, letter, "allow once"),
        }
        outer.screen_with(&task, gave);
        // What follows a deny at once may be a note.
        thread::sleep(Duration::from_millis(1200));
        outer.send(&task, &json!({ "input": "hunter2\r", "wait_ms": 0 }));
        let screen = outer.screen_with(&task, "lnext");
        outer.wait(&task, &json!({}));
        let screen = format!("{screen}{}", outer.screen_with(&task, "back with 0"));
        assert!(screen.contains("<hunter2>") && screen.contains(" icanon"), "{screen}");
    }
    assert!(fs::exists(outer.file("made")).unwrap());
}

#[test]
fn a_call_does_not_wait_when_the_last_watcher_has_left_or_was_killed() {
    for signal in ["INT", "KILL"] {
        let (scratch, person) = (Scratch::new(), Scratch::new());
        let watcher = watcher(&scratch, &person);
        thread::scope(|scope| {
            let asked = format!("touch without-{signal}");
            let waits = scope.spawn({
                let (scratch, asked) = (&scratch, asked.clone());
                move || call(scratch, None, &asked)
            });
            person.screen_with(&watcher, &asked);
            assert!(!waits.is_finished(), "it waits for the watcher");
            person.get("TaskStop", &json!({ "task_id": watcher, "signal": signal }));
            let (code, envelope) = waits.join().unwrap();
            assert_eq!(code, Some(126), "{signal}: {envelope:#}");
            assert_eq!(envelope["error"]["kind"], "approval_unavailable", "{signal}: {envelope:#}");
        });
    }
}

#[test]
fn words_typed_at_a_question_on_the_terminal_allow_nothing() {
    let scratch = Scratch::new();
    let (program, state) = (program(), scratch.state.path().display());
    let target = scratch.file("x");
    for (typed, denies) in [("use yarn first", true), ("please use the Makefile", false)] {
        let outer = Scratch::new();
        let command = format!("exec {program} sh --state {state} --mode strict 'touch {target}'");
        let task = outer.promote(&command, &json!({ "tty": true }));
        outer.screen_with(&task, "[y] allow once");
        for letter in typed.chars().take_while(|letter| !denies || *letter != 'n') {
            outer.send(&task, &json!({ "input": letter.to_string(), "wait_ms": 0 }));
        }
        outer.screen_with(&task, "Typing answers nothing");
        outer.send(&task, &json!({ "key": "enter" }));
        // In one piece, as a paste without its marks.
        outer.send(&task, &json!({ "input": "y\r\r" }));
        outer.screen_with(&task, "Typing answers nothing");
        assert!(!fs::exists(&target).unwrap(), "{typed}");
        outer.send(&task, &json!({ "input": "N" }));
        outer.screen_with(&task, "Deny, because");
        outer.send(&task, &json!({ "input": "it is a test, sorry", "key": "enter" }));
        assert_eq!(outer.wait(&task, &json!({}))["tasks"][0]["exit_status"], 126);
        assert!(!fs::exists(&target).unwrap(), "{typed}");
    }
    let noted = fs::read_to_string(scratch.state.path().join("audit.jsonl")).unwrap();
    assert!(noted.contains("it is a test, sorry") && !noted.contains("allow_once"), "{noted}");
}
