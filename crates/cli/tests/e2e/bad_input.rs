//! Input that lies: a typed error each time, and nothing is started.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::common::Scratch;

fn error(scratch: &Scratch, input: &Value) -> Value {
    let envelope = scratch.exec(input);
    assert_eq!(envelope["status"], "error", "{envelope:#}");
    assert_eq!(envelope["error"]["retryable"], false);
    envelope["error"].clone()
}

/// One wrong input a line: the kind of its error, and the field that is named.
fn wrong_inputs() -> Vec<(Value, &'static str, Option<&'static str>)> {
    let invalid = "invalid_tool_input";
    let with = |name: &str, value: Value| json!({ "cmd": "true", name: value });
    let mut cases = vec![
        (json!({ "cmd": " \n\t" }), invalid, Some("cmd")),
        (json!({ "cmd": "a\u{0}b" }), invalid, Some("cmd")),
        (json!({ "cmd": "x".repeat(100 * 1024 + 1) }), invalid, Some("cmd")),
        (json!({}), invalid, None),
        (json!({ "cmd": 5 }), invalid, None),
    ];
    for (name, value, kind, field) in [
        ("yield_time_ms", json!(3_600_001), invalid, Some("yield_time_ms")),
        ("yield_time_ms", json!(-1), invalid, None),
        ("yield_time_ms", json!(1.5), invalid, None),
        ("shell", json!("  "), invalid, Some("shell")),
        ("login", json!("yes"), invalid, None),
        ("duplicate_policy", json!("maybe"), invalid, None),
        ("command", json!("x"), invalid, None),
        ("status", json!("x"), invalid, None),
        ("task_handle", json!("x"), invalid, None),
        ("continue_on_result", json!(true), invalid, None),
        ("background", json!(true), invalid, None),
        ("workdir", json!("nowhere"), "workdir_not_found", None),
        ("workdir", json!("file"), "workdir_not_found", None),
        ("workdir", json!(".."), "execution_root_violation", None),
        ("workdir", json!("/"), "execution_root_violation", None),
        ("workdir", json!("link"), "execution_root_violation", None),
        ("shell", json!("no-such-shell"), "command_spawn_failed", None),
    ] {
        cases.push((with(name, value), kind, field));
    }
    cases
}

#[test]
fn every_wrong_input_has_its_kind_and_field() {
    let scratch = Scratch::new();
    std::fs::write(scratch.file("file"), "").unwrap();
    std::os::unix::fs::symlink("/", scratch.file("link")).unwrap();
    for (input, kind, field) in wrong_inputs() {
        let error = error(&scratch, &input);
        assert_eq!(error["kind"], kind, "{error:#}");
        if kind != "invalid_tool_input" {
            continue;
        }
        let details = &error["details"];
        assert_eq!(details["tool_name"], "ExecCommand");
        if let Some(field) = field {
            assert_eq!(details["field"], field);
        }
        let hint = error["recovery_hint"].as_str().unwrap();
        assert!(
            hint.contains("provide input for ExecCommand that matches the published tool schema")
        );
    }
    assert!(scratch.tasks().is_empty(), "a refused call registers no task");
    assert!(scratch.folders().is_empty());
}

#[test]
fn a_shell_that_cannot_be_executed_is_a_failed_task() {
    let scratch = Scratch::new();
    let error = error(&scratch, &json!({ "cmd": "true", "shell": "/etc/passwd" }));
    assert_eq!(error["kind"], "command_spawn_failed");
    let task = &scratch.tasks()[0];
    assert_eq!((&task["status"], &task["reason"]), (&json!("failed"), &json!("spawn_failed")));
    assert!(scratch.folders().is_empty());
}

#[test]
fn error_receipts() {
    let scratch = Scratch::new();
    let mut text = String::new();
    for (tool, input) in [
        ("ExecCommand", r#"{"cmd":""}"#),
        ("ExecCommand", r#"{"cmd":"true","command":"x"}"#),
        ("ExecCommand", r#"{"cmd":"true","workdir":"nowhere"}"#),
        ("ExecCommand", r#"{"cmd":"true","shell":"no-such-shell"}"#),
        ("ExecCommand", r#"{"cmd":"true","login":"yes"}"#),
        ("ExecCommand", r#"["true"]"#),
        ("ExecCommand", "not json"),
        ("Nothing", "not json"),
        ("Nothing", "{}"),
        ("TaskList", r#"{"limit":0}"#),
        ("TaskStatus", "{}"),
        ("TaskStatus", r#"{"task_id":"t_nothing"}"#),
        ("TaskStop", r#"{"task_id":"t_nothing","signal":"LOUD"}"#),
        ("TaskInput", r#"{"task_id":"t_nothing"}"#),
        ("TaskInput", r#"{"task_id":"t_nothing","key":"any"}"#),
        ("TaskWait", r#"{"task_ids":[]}"#),
        ("TaskWait", r#"{"task_ids":["t_nothing"],"until":{"moon":"full"}}"#),
    ] {
        let (receipt, code) = scratch.receipt(tool, input);
        assert_eq!(code, 125);
        text.push_str(&format!("$ call {tool} {input}\n{receipt}\n"));
    }
    assert_snapshot!(text);
}
