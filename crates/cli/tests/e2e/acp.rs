//! `legwork acp` between two processes: an editor and an agent of the official library, or lines.

use std::{
    io::Write,
    process::{Child, Output, Stdio},
};

use crate::{
    common::{Scratch, program, text},
    libraries::{repository, succeeded},
    node::Node,
};

/// Starts it with an agent.
fn start(scratch: &Scratch, agent: &[&str]) -> Child {
    let mut command = scratch.legwork("acp");
    command.arg("--").args(agent).current_dir(scratch.workspace.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Gives it lines of an editor, which then leaves.
fn proxied(agent: &[&str], lines: &str) -> Output {
    let scratch = Scratch::new();
    let mut child = start(&scratch, agent);
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn what_it_has_no_part_in_passes_byte_for_byte() {
    let lines = "no JSON\n{\"jsonrpc\":\"2.0\",  \"method\":\"x\",\"params\":{\"b\":1e2,\"a\":\"\\u00e9\"}}\n\n[1]\nend";
    let output = proxied(&["cat"], lines);
    assert_eq!(text(&output.stdout), lines);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn it_ends_as_its_agent_does() {
    let output = proxied(&["sh", "-c", "cat >/dev/null; echo gone >&2; exit 7"], "");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(7), "gone\n".into()));
    let missing = proxied(&["/no/such/agent"], "");
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).starts_with("legwork: cannot start /no/such/agent"));
}

#[test]
fn a_request_that_makes_no_sense_is_answered() {
    // The agent speaks first, and ends when it has its answer; the editor stays for as long.
    let ask = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"terminal/{method}","params":{params}}}"#)
    };
    for (method, params, code) in [
        ("create", r#"{"sessionId":"s"}"#, -32602),
        ("create", r#"{"sessionId":"s","command":" "}"#, -32602),
        ("create", r#"{"sessionId":"s","command":"pwd","cwd":"/"}"#, -32603),
        ("output", r#"{"sessionId":"s","terminalId":"t_none"}"#, -32002),
        ("output", "{}", -32002),
    ] {
        let script =
            format!("echo '{}'; read -r answer; echo \"$answer\" >&2", ask(method, params));
        let scratch = Scratch::new();
        let mut child = start(&scratch, &["sh", "-c", &script]);
        let editor = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(editor);
        let answer: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert_eq!(answer["id"], 1);
        assert_eq!(text(&output.stdout), "", "nothing of it reaches the editor");
    }
}

#[test]
fn an_editor_and_an_agent_of_the_official_library_use_the_terminals_of_acp() {
    let folder = repository("crates/cli/tests/acp");
    let Some(node) = Node::install("acp", &folder, &["agent.mjs", "editor.mjs"]) else { return };
    let scratch = Scratch::new();
    let mut editor = node.run("editor.mjs", &[program()]);
    editor.args([scratch.state.path(), scratch.workspace.path()]).env("SHELL", "/bin/sh");
    let output = editor.output().unwrap();
    succeeded(&output);
    assert!(text(&output.stdout).ends_with("all well\n"));
}
