//! What is approved is what runs, and a question belongs to its asker.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, text},
    mcp::Wire,
    rights::{CONFINED, OPERATOR, begin_with},
};

const RUN: &str = "run_shell_command";

/// Calls a tool; returns the id of the question, or none where it ran.
fn call(mut command: Command, tool: &str, input: &Value) -> Option<String> {
    let output = command.args([tool, &input.to_string(), "--json"]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    if output.status.success() {
        return None;
    }
    let error = &envelope["error"];
    assert_eq!(error["kind"], "approval_unavailable", "{envelope:#}");
    Some(error["details"]["approval_id"].as_str().unwrap().to_owned())
}

fn questions(scratch: &Scratch) -> Vec<Value> {
    let output = scratch.legwork("approvals").arg("--json").output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["approvals"].as_array().unwrap().clone()
}

fn approve(scratch: &Scratch, id: &str, more: &[&str]) {
    let output = scratch.legwork("approve").arg(id).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_late_answer_serves_no_call_that_differs_in_what_was_approved() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("sub")).unwrap();
    fs::write(scratch.file("mysh"), "#!/bin/sh\necho mine\n").unwrap();
    fs::set_permissions(scratch.file("mysh"), fs::Permissions::from_mode(0o755)).unwrap();
    let strict = |policy| scratch.guarded("call", "strict", policy);
    let exec = |command, more: Value| {
        let mut input = json!({ "cmd": "echo again > log", "login": false });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(command, "ExecCommand", &input)
    };
    let id = exec(strict(None), json!({})).unwrap();
    approve(&scratch, &id, &[]);
    let mut integration = strict(None);
    integration.args(["--trust", "trusted_integration"]);
    let mut untrusted = strict(None);
    untrusted.args(["--trust", "untrusted_external"]);
    let other = Scratch::new();
    let mut elsewhere = strict(None);
    elsewhere.current_dir(other.workspace.path());
    let mut asked = vec![id];
    for (what, id) in [
        ("trust", exec(integration, json!({}))),
        ("no trust", exec(untrusted, json!({}))),
        ("level", exec(strict(Some("[sandbox]\nlevel = \"read-only\"\n")), json!({}))),
        ("network", exec(strict(Some("[sandbox]\nnetwork = false\n")), json!({}))),
        ("shell", exec(strict(None), json!({ "shell": "./mysh" }))),
        ("another shell", exec(strict(None), json!({ "shell": "bash" }))),
        ("login", exec(strict(None), json!({ "login": true }))),
        ("folder", exec(strict(None), json!({ "workdir": "sub" }))),
        ("workspace", exec(elsewhere, json!({}))),
    ] {
        let id = id.unwrap_or_else(|| panic!("it ran: {what}"));
        assert!(!asked.contains(&id), "{what}: the question of another call");
        asked.push(id);
    }
    assert_eq!(exec(strict(None), json!({})), None, "the very same call");
    assert!(exec(strict(None), json!({})).is_some(), "once is once");
}

#[test]
fn what_the_person_who_approves_says_reaches_the_caller() {
    let scratch = Scratch::new();
    let input = json!({ "cmd": "echo done > log", "login": false }).to_string();
    let run = |arguments: &[&str]| {
        let mut command = scratch.guarded("call", "strict", None);
        command.args(["ExecCommand", &input]).args(arguments).output().unwrap()
    };
    let envelope: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    let id = envelope["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
    approve(&scratch, &id, &["--note", "only this file"]);
    let receipt = text(&run(&[]).stdout);
    assert!(receipt.contains("The person who approved it says:\nonly this file"), "{receipt}");
}

#[test]
fn a_question_shows_what_it_binds() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("sub")).unwrap();
    fs::write(scratch.file("mysh"), "#!/bin/sh\necho mine\n").unwrap();
    fs::set_permissions(scratch.file("mysh"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(scratch.file("mysh"), scratch.file("sub/sh")).unwrap();
    let mut strict = scratch.guarded("call", "strict", None);
    strict.args(["--trust", "trusted_integration"]);
    let input = json!({ "cmd": "touch hi", "shell": "./sh", "workdir": "sub", "login": false });
    call(strict, "ExecCommand", &input).unwrap();
    let shown = text(&scratch.legwork("approvals").arg("a_").output().unwrap().stdout);
    let workspace = scratch.workspace.path().canonicalize().unwrap();
    let workspace = workspace.display();
    for line in [
        format!("run by:   {workspace}/sub/./sh -> {workspace}/mysh\n"),
        format!("in:       {workspace}/sub\n"),
        format!("project:  {workspace}\n"),
        "sandbox:  workspace-write, no network\n".to_owned(),
        "(trusted_integration), through ExecCommand\n".to_owned(),
    ] {
        assert!(shown.contains(&line), "{line}{shown}");
    }
    // The default shell goes without saying; a program is named by its path.
    let strict = || scratch.guarded("call", "strict", None);
    call(strict(), "ExecCommand", &json!({ "cmd": "touch x" })).unwrap();
    call(strict(), "execute_command", &json!({ "command": "touch", "args": ["y"] })).unwrap();
    let open = questions(&scratch);
    assert_eq!(open[1].get("interpreter"), None, "{open:#?}");
    assert!(open[2]["interpreter"].as_str().unwrap().contains("/touch"), "{open:#?}");
}

#[test]
fn a_saved_rule_serves_its_workspace_and_no_lower_trust() {
    let scratch = Scratch::new();
    let touch = |more: &[&str], folder: &Scratch| {
        let mut command = scratch.guarded("call", "guarded", None);
        command.args(more).current_dir(folder.workspace.path());
        call(command, RUN, &json!({ "command": "touch x" }))
    };
    let id = touch(&["--trust", "trusted_integration"], &scratch).unwrap();
    approve(&scratch, &id, &["--rule"]);
    let saved = fs::read_to_string(scratch.state.path().join("legwork/config.toml")).unwrap();
    let workspace = scratch.workspace.path().canonicalize().unwrap();
    for line in [
        format!("workspace = \"{}\"\n", workspace.display()),
        "trust = \"trusted_integration\"\n".to_owned(),
    ] {
        assert!(saved.contains(&line), "{line}{saved}");
    }
    assert_eq!(touch(&["--trust", "trusted_integration"], &scratch), None);
    assert_eq!(touch(&[], &scratch), None, "an operator is trusted further");
    assert!(touch(&["--trust", "untrusted_external"], &scratch).is_some());
    assert!(touch(&[], &Scratch::new()).is_some(), "another workspace");
}

/// A folder that no sandbox lets be written; none where the tests themselves are in `/tmp`.
fn outside() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let real = folder.path().canonicalize().unwrap();
    (!real.starts_with("/tmp")).then_some(folder)
}

#[test]
fn yes_means_yes_also_outside_the_sandbox() {
    let scratch = Scratch::new();
    let Some(outside) = outside() else { return };
    let target = outside.path().join("x").display().to_string();
    let input = json!({ "command": format!("touch {target}") });
    let guarded = || scratch.guarded("call", "guarded", None);
    let id = call(guarded(), RUN, &input).unwrap();
    let open = questions(&scratch);
    assert_eq!(open[0]["refused"], json!([target]), "{open:#?}");
    let shown = text(&scratch.legwork("approvals").arg("a_").output().unwrap().stdout);
    assert!(shown.contains(&format!("{target} is not writable in the sandbox\n")), "{shown}");
    // Inside it stays refused, as was said.
    approve(&scratch, &id, &[]);
    let inside = guarded().args([RUN, &input.to_string(), "--json"]).output().unwrap();
    let inside: Value = serde_json::from_slice(&inside.stdout).unwrap();
    assert_ne!(inside["result"]["exitCode"], 0, "{inside:#}");
    assert!(!fs::exists(&target).unwrap());
    let id = call(guarded(), RUN, &input).unwrap();
    approve(&scratch, &id, &["--outside-sandbox"]);
    let left = guarded().args([RUN, &input.to_string(), "--json"]).output().unwrap();
    let left: Value = serde_json::from_slice(&left.stdout).unwrap();
    assert_eq!(left["result"]["exitCode"], 0, "{left:#}");
    assert!(fs::exists(&target).unwrap());
    assert_eq!(left["sandbox_missing"][0]["layer"], "sandbox", "{left:#}");
    let newest = scratch.legwork("show").args(["@", "--json"]).output().unwrap();
    let newest: Value = serde_json::from_slice(&newest.stdout).unwrap();
    let sandbox = newest.pointer("/sandbox").or(newest.pointer("/task/sandbox")).unwrap();
    assert_eq!(sandbox["level"], "none", "{newest:#}");
    assert!(sandbox.to_string().contains("outside the sandbox"), "{newest:#}");
    // Once is once.
    assert!(call(guarded(), RUN, &input).is_some());
}

#[test]
fn only_a_trusted_caller_is_let_out_of_the_sandbox() {
    let scratch = Scratch::new();
    let input = json!({ "command": "touch x" });
    for (more, may) in [
        (&["--trust", "trusted_operator"][..], true),
        (&["--trust", "trusted_system"], true),
        (&["--trust", "trusted_integration"], false),
        (&["--trust", "untrusted_external"], false),
    ] {
        let mut command = scratch.guarded("call", "guarded", None);
        command.args(more);
        let id = call(command, RUN, &input).unwrap();
        let open = questions(&scratch);
        let asked = open.iter().find(|open| open["approval_id"] == json!(id)).unwrap();
        assert_eq!(asked["may_leave_sandbox"], may, "{more:?}");
        let answer = scratch.legwork("approve").args([&id, "--outside-sandbox"]).output().unwrap();
        assert_eq!(answer.status.code(), Some(if may { 0 } else { 125 }), "{answer:?}");
        let still = questions(&scratch).iter().any(|open| open["approval_id"] == json!(id));
        assert_eq!(still, !may, "an answer that cannot be given leaves it open");
    }
    let required = scratch.guarded("call", "guarded", Some("[sandbox]\nrequired = true\n"));
    call(required, RUN, &json!({ "command": "touch y" })).unwrap();
    assert_eq!(questions(&scratch).last().unwrap()["may_leave_sandbox"], false);
}

#[test]
fn an_answer_to_leave_the_sandbox_is_worth_nothing_once_it_is_required() {
    let scratch = Scratch::new();
    let input = json!({ "command": "touch x" });
    let id = call(scratch.guarded("call", "guarded", None), RUN, &input).unwrap();
    approve(&scratch, &id, &["--outside-sandbox"]);
    let required = scratch.guarded("call", "guarded", Some("[sandbox]\nrequired = true\n"));
    let again = call(required, RUN, &input);
    assert!(again.is_some_and(|again| again != id), "it is asked anew");
    assert!(!fs::exists(scratch.file("x")).unwrap());
}

#[test]
fn every_answer_is_in_the_audit_log_whoever_gave_it() {
    let scratch = Scratch::new();
    let guarded = || scratch.guarded("call", "guarded", None);
    let ask = |text: &str| call(guarded(), RUN, &json!({ "command": text })).unwrap();
    approve(&scratch, &ask("touch a"), &["--note", "fine"]);
    approve(&scratch, &ask("touch b"), &["--rule"]);
    let denied = scratch.legwork("deny").arg(ask("touch c")).output().unwrap();
    assert!(denied.status.success());
    assert_eq!(call(guarded(), RUN, &json!({ "command": "touch a" })), None);
    let answers = noted(&scratch, "approval");
    let of = |name: &str| answers.iter().map(|entry| entry[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("decision"), ["allow_once", "allow_rule", "deny"]);
    assert_eq!(of("command"), ["touch a", "touch b", "touch c"]);
    assert_eq!(of("answered_by"), ["the command line"; 3]);
    assert_eq!(of("note"), [json!("fine"), json!(null), json!(null)]);
    assert!(of("rule_saved")[1].as_str().unwrap().contains("program = \"touch\""));
    assert!(of("rule_file")[1].as_str().unwrap().ends_with("legwork/config.toml"));
    assert!(answers.iter().all(|entry| entry["approval_id"].is_string() && entry["uid"].is_u64()));
    // And a call that passes by one of them says by which.
    let used = noted(&scratch, "approval_used");
    assert_eq!(used.len(), 1);
    assert_eq!(used[0]["approval_id"], answers[0]["approval_id"]);
    let shown = text(&verb(&scratch.legwork("audit"), "show").output().unwrap().stdout);
    assert!(shown.contains("the command line allowed from now on: "), "{shown}");
}

/// `legwork audit --state …` as it has to be written: the verb comes first.
fn verb(command: &Command, name: &str) -> Command {
    let mut with = Command::new(command.get_program());
    let mut arguments = command.get_args();
    with.args(arguments.next()).arg(name).args(arguments);
    with
}

#[test]
fn a_client_is_offered_the_answers_that_can_be_given() {
    let scratch = Scratch::new();
    for (trust, expected) in [
        ("trusted_operator", &["deny", "allow_once", "allow_once_unconfined", "allow_session"][..]),
        ("trusted_integration", &["deny", "allow_once", "allow_session"]),
    ] {
        let mut command = scratch.guarded("mcp", "guarded", None);
        command.args(["--tools", "all", "--trust", trust]);
        let mut wire = Wire::spawn(command);
        let asked = wire.request(
            "tools/call",
            &json!({
                "name": RUN, "arguments": { "command": "touch x; touch y" },
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
                },
            }),
        );
        let form = &asked["result"]["inputRequests"]["approval"]["params"];
        let decision = &form["requestedSchema"]["properties"]["decision"];
        let mut expected = expected.to_vec();
        if crate::trials::can_try() {
            expected.insert(1, "try_first");
        }
        assert_eq!(decision["enum"], json!(expected), "{asked:#}");
    }
}

/// A server, and a call of it that waits.
fn waiting(scratch: &Scratch, words: &str) -> Wire {
    let mut command = scratch.guarded("mcp", "guarded", Some("[approval]\nwait_ms = 60000\n"));
    command.args(["--tools", "all"]);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire.send("tools/call", &again(words));
    wire
}

fn again(words: &str) -> Value {
    json!({ "name": RUN, "arguments": { "command": "echo again", "description": words } })
}

#[test]
fn two_askers_of_the_same_have_a_question_each_and_a_session_of_their_own() {
    let scratch = Scratch::new();
    let mut one = waiting(&scratch, "words of one");
    let of = |words: &str| {
        eventually("the question is there", || {
            let open = questions(&scratch);
            let mut mine = open.iter().filter(|open| open["description"] == words);
            Some(mine.next()?["approval_id"].as_str()?.to_owned())
        })
    };
    let first = of("words of one");
    let other = waiting(&scratch, "words of another");
    let second = of("words of another");
    assert_ne!(first, second);
    assert_eq!(questions(&scratch).len(), 2);
    approve(&scratch, &first, &["--session"]);
    assert_eq!(one.read()["result"]["isError"], false);
    assert_eq!(one.request("tools/call", &again("later"))["result"]["isError"], false);
    assert_eq!(questions(&scratch).len(), 1, "the other one is still asked about");
    let denied = scratch.legwork("deny").arg(&second).output().unwrap();
    assert!(denied.status.success(), "{denied:?}");
    assert_eq!(other.read()["result"]["isError"], true);
}

#[test]
fn what_an_asker_leaves_behind_serves_the_next_one_of_its_kind() {
    let scratch = Scratch::new();
    let mut wire = waiting(&scratch, "words of one");
    let id = eventually("the question is there", || {
        Some(questions(&scratch).first()?["approval_id"].as_str()?.to_owned())
    });
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
    // Open as it is, it is the next one's, with that one's words.
    let heir = waiting(&scratch, "words of the heir");
    eventually("the heir has it", || {
        let open = questions(&scratch);
        (open.len() == 1 && open[0]["description"] == "words of the heir").then_some(())
    });
    approve(&scratch, &id, &[]);
    assert_eq!(heir.read()["result"]["isError"], false);
    // A caller of another name is another asker.
    let id =
        call(scratch.guarded("call", "guarded", None), RUN, &json!({ "command": "echo again" }));
    assert!(id.is_some_and(|other| other != id_of(&scratch, "words of the heir")));
}

/// The id of an open question by its words; empty if there is none.
fn id_of(scratch: &Scratch, words: &str) -> String {
    let open = questions(scratch);
    let mine = open.iter().find(|open| open["description"] == words);
    mine.map(|open| open["approval_id"].as_str().unwrap().to_owned()).unwrap_or_default()
}

/// What is in the audit log of an event.
fn noted(scratch: &Scratch, event: &str) -> Vec<Value> {
    let shown = verb(&scratch.legwork("audit"), "show").arg("--json").output().unwrap();
    let lines = text(&shown.stdout);
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|entry| entry["event"] == event).collect()
}

#[test]
fn what_is_typed_to_a_shell_is_in_the_audit_log_and_what_is_data_is_not() {
    let scratch = Scratch::new();
    let shell = scratch.promote("exec sh", &json!({ "accepts_input": true }));
    let long = "x".repeat(10_000);
    scratch.send(&shell, &json!({ "input": format!("echo typed; : {long}\n") }));
    scratch.wait(&shell, &json!({ "output_matches": "typed" }));
    let data = scratch.promote("read password; echo done", &json!({ "accepts_input": true }));
    scratch.send(&data, &json!({ "input": "hunter2\n" }));
    scratch.wait(&data, &json!({}));
    let typed = noted(&scratch, "input");
    assert_eq!(typed.len(), 1, "{typed:#?}");
    assert_eq!((&typed[0]["task_id"], &typed[0]["reader"]), (&json!(shell), &json!("shell")));
    let input = typed[0]["input"].as_str().unwrap();
    assert!(input.starts_with("echo typed; : xxx") && input.len() <= 4096, "{}", input.len());
    assert!(typed[0]["input_bytes"].as_u64().unwrap() > 10_000);
}

#[test]
fn in_strict_mode_what_is_typed_to_a_shell_is_judged_as_a_command() {
    let scratch = Scratch::new();
    // In the sandbox that those have who type.
    let input = json!({ "cmd": "exec sh", "accepts_input": true });
    let shell = begin_with(&scratch, OPERATOR, &CONFINED, &input);
    let ran = scratch.file("ran");
    let send = |more: Value| {
        let mut input = json!({ "task_id": shell });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let strict = scratch.guarded("call", "strict", Some("excludeTools = [\"Bash(rm)\"]\n"));
        let mut strict = strict;
        let output = strict.args(["TaskInput", &input.to_string(), "--json"]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        envelope["error"]["kind"].as_str().unwrap_or("sent").to_owned()
    };
    assert_eq!(send(json!({ "input": format!("touch {ran}\n") })), "approval_unavailable");
    assert_eq!(send(json!({ "input": "rm -r x\n" })), "command_denied");
    assert_eq!(send(json!({ "input": "touch" })), "command_denied", "half a line");
    assert_eq!(send(json!({ "key": "up" })), "command_denied", "a key that edits");
    assert_eq!(send(json!({ "input": "echo fine\n" })), "sent", "it only prints");
    scratch.wait(&shell, &json!({ "output_matches": "fine" }));
    assert!(!fs::exists(&ran).unwrap());
    let id = questions(&scratch)[0]["approval_id"].as_str().unwrap().to_owned();
    let shown = text(&scratch.legwork("approvals").arg("a_").output().unwrap().stdout);
    assert!(shown.contains(&format!("run by:   the shell of task {shell}: exec sh")), "{shown}");
    approve(&scratch, &id, &[]);
    assert_eq!(send(json!({ "input": format!("touch {ran}\n") })), "sent");
    eventually("it ran", || fs::exists(&ran).unwrap().then_some(()));
    assert_eq!(send(json!({ "eof": true })), "sent");
}

#[test]
fn a_no_that_comes_later_is_told_once_with_its_note() {
    let scratch = Scratch::new();
    let asked = || {
        let mut strict = scratch.guarded("call", "strict", None);
        let input = json!({ "cmd": "touch x", "login": false }).to_string();
        let output = strict.args(["ExecCommand", &input, "--json"]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        envelope["error"].clone()
    };
    let error = asked();
    let id = error["details"]["approval_id"].as_str().unwrap();
    let output = scratch.legwork("deny").args([id, "--note", "use make"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let error = asked();
    assert_eq!(error["kind"], "approval_refused", "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("the person says: use make"), "{error:#}");
    assert_eq!(asked()["kind"], "approval_unavailable", "it can be asked about again");
}
