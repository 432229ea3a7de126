//! *Try it first* as an answer, wherever questions are asked.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::{can_try, tree};
use crate::{
    common::{Scratch, program, text},
    mcp::Wire,
};

const CLEAN: &str = "git clean -fdx";

/// A repository with files that git does not know.
fn repository() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("known.txt", "known\n");
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@x"]).args(words);
        assert!(command.current_dir(scratch.workspace.path()).status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    scratch.write("notes.txt", "not in git\n");
    scratch.write("data/precious.csv", "1,2\n");
    scratch
}

/// A client that can be asked while its call waits.
fn client(scratch: &Scratch, policy: Option<&str>) -> Wire {
    let mut wire = Wire::spawn(scratch.guarded("mcp", "guarded", policy));
    wire.request(
        "initialize",
        &json!({
            "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "asked", "version": "1" },
        }),
    );
    wire.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    wire
}

fn send(wire: &mut Wire, cmd: &str) {
    let input = json!({ "cmd": cmd, "login": false });
    wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
}

/// The next question, and an answer to it.
fn answer(wire: &mut Wire, decision: &str, note: Option<&str>) -> Value {
    let question = wire.read();
    assert_eq!(question["method"], "elicitation/create", "{question:#}");
    let offered = &question["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    let offered: Vec<&str> = offered.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(offered.contains(&decision), "{decision}: {offered:?}");
    let mut content = json!({ "decision": decision });
    if let Some(note) = note {
        content["note"] = json!(note);
    }
    let result = json!({ "action": "accept", "content": content });
    wire.write(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }).to_string());
    question["params"].clone()
}

#[test]
fn a_person_sees_what_would_go_says_no_and_the_model_reads_why() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let before = tree(scratch.workspace.path());
    let mut wire = client(&scratch, None);
    send(&mut wire, CLEAN);
    let first = answer(&mut wire, "try_first", None);
    assert!(first["message"].as_str().unwrap().contains("May this command run?"), "{first:#}");
    let second = answer(&mut wire, "deny", Some("keep my notes, remove build files only"));
    let shown = second["message"].as_str().unwrap();
    for line in
        ["was tried on a copy", "exit code 0", "2 removed", "- notes.txt", "- data/precious.csv"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.contains("-not in git"), "the difference: {shown}");
    let sandbox =
        "workspace-write, no network when it was tried; workspace-write, with network if it runs";
    assert!(shown.contains(sandbox), "{shown}");
    let result = wire.read()["result"].clone();
    assert_eq!(result["isError"], true, "{result:#}");
    let told = result["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("approval_refused"), "{told}");
    assert!(told.contains("keep my notes, remove build files only"), "{told}");
    assert_eq!(tree(scratch.workspace.path()), before);
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

#[test]
fn what_was_tried_is_applied_and_its_result_is_the_answer() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let mut wire = client(&scratch, None);
    send(&mut wire, CLEAN);
    answer(&mut wire, "try_first", None);
    answer(&mut wire, "apply", None);
    let result = wire.read()["result"].clone();
    assert_eq!(result["isError"], false, "{result:#}");
    let told = result["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("Process exited with code 0"), "{told}");
    assert!(told.contains("notes.txt"), "{told}");
    assert!(!fs::exists(scratch.file("notes.txt")).unwrap());
    assert!(fs::exists(scratch.file("known.txt")).unwrap());
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    // Allowed instead, it runs for real.
    scratch.write("more.txt", "x\n");
    send(&mut wire, CLEAN);
    answer(&mut wire, "try_first", None);
    answer(&mut wire, "allow_once", None);
    assert_eq!(wire.read()["result"]["isError"], false);
    assert!(!fs::exists(scratch.file("more.txt")).unwrap());
}

#[test]
fn a_rule_has_a_command_tried_before_anybody_is_asked() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let policy = "[[rule]]\nid = \"see-first\"\ndecision = \"try\"\nprogram = \"rm\"\n";
    let mut wire = client(&scratch, Some(policy));
    send(&mut wire, "rm notes.txt");
    let only = answer(&mut wire, "deny", None);
    let shown = only["message"].as_str().unwrap();
    assert!(shown.contains("was tried on a copy") && shown.contains("- notes.txt"), "{shown}");
    assert_eq!(wire.read()["result"]["isError"], true);
    assert!(fs::exists(scratch.file("notes.txt")).unwrap());
}

#[test]
fn a_client_of_the_newer_era_is_asked_twice_by_its_calls() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let mut wire = Wire::spawn(scratch.guarded("mcp", "guarded", None));
    let mut call = |more: Value| {
        let mut parameters = json!({
            "name": "ExecCommand", "arguments": { "cmd": CLEAN, "login": false },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
            },
        });
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wire.request("tools/call", &parameters)["result"].clone()
    };
    let answered = |asked: &Value, decision: &str| {
        assert_eq!(asked["resultType"], "input_required", "{asked:#}");
        let answer = json!({ "action": "accept", "content": { "decision": decision } });
        json!({ "requestState": asked["requestState"], "inputResponses": { "approval": answer } })
    };
    let first = call(json!({}));
    let second = call(answered(&first, "try_first"));
    let message = &second["inputRequests"]["approval"]["params"]["message"];
    assert!(message.as_str().unwrap().contains("- notes.txt"), "{message}");
    let done = call(answered(&second, "apply"));
    assert_eq!(done["isError"], false, "{done:#}");
    assert!(
        done["content"][0]["text"].as_str().unwrap().contains("exited with code 0"),
        "{done:#}"
    );
    assert!(!fs::exists(scratch.file("notes.txt")).unwrap());
}

#[test]
fn a_person_at_the_terminal_tries_first() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let outer = Scratch::new();
    let (state, folder) = (scratch.state.path().display(), scratch.workspace.path().display());
    let program = program();
    let command =
        format!("cd {folder}; exec {program} sh --state {state} --mode strict 'rm notes.txt'");
    let task = outer.promote(&command, &json!({ "tty": true }));
    outer.confirms(&task, 't', "try it first");
    let screen = outer.screen_with(&task, "[a] apply what it did");
    assert!(screen.contains("- notes.txt"), "{screen}");
    assert!(fs::exists(scratch.file("notes.txt")).unwrap());
    outer.confirms(&task, 'a', "apply what it did");
    assert_eq!(outer.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
    assert!(!fs::exists(scratch.file("notes.txt")).unwrap());
}

#[test]
fn an_answer_by_approve_comes_to_the_next_calls() {
    if !can_try() {
        return;
    }
    let scratch = repository();
    let call = || {
        let input = json!({ "cmd": CLEAN, "login": false }).to_string();
        let mut call = scratch.guarded("call", "guarded", None);
        let output = call.args(["ExecCommand", &input, "--json"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let approve = |envelope: &Value, option: &str| {
        let id = envelope["error"]["details"]["approval_id"].as_str().unwrap().to_owned();
        let output = scratch.legwork("approve").args([&id, option]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let first = call();
    assert!(approve(&first, "--try").contains("tried on a copy"));
    let second = call();
    assert_ne!(first["error"]["details"]["approval_id"], second["error"]["details"]["approval_id"]);
    let shown = text(&scratch.legwork("approvals").arg("a_").output().unwrap().stdout);
    assert!(shown.contains("- notes.txt") && shown.contains("--apply"), "{shown}");
    approve(&second, "--apply");
    // The caller is gone: whoever answers applies.
    assert!(!fs::exists(scratch.file("notes.txt")).unwrap());
    let third = call();
    assert!(third["error"]["message"].as_str().unwrap().contains("it is done"), "{third:#}");
}
