//! Input that lies: a typed error each time, and nothing is started.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{common::Scratch, mcp::Wire};

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
        (json!({}), invalid, Some("cmd")),
        (json!({ "cmd": 5 }), invalid, Some("cmd")),
    ];
    for (name, value, kind, field) in [
        ("yield_time_ms", json!(3_600_001), invalid, Some("yield_time_ms")),
        ("yield_time_ms", json!(-1), invalid, Some("yield_time_ms")),
        ("yield_time_ms", json!(1.5), invalid, Some("yield_time_ms")),
        ("shell", json!("  "), invalid, Some("shell")),
        ("login", json!("yes"), invalid, Some("login")),
        ("duplicate_policy", json!("maybe"), invalid, Some("duplicate_policy")),
        ("command", json!("x"), invalid, Some("command")),
        ("status", json!("x"), invalid, Some("status")),
        ("task_handle", json!("x"), invalid, Some("task_handle")),
        ("continue_on_result", json!(true), invalid, Some("continue_on_result")),
        ("background", json!(true), invalid, Some("background")),
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
fn a_text_that_is_no_json_is_told_the_first_field_of_the_tool_that_was_called() {
    let scratch = Scratch::new();
    for (tool, example) in [
        ("ExecCommand", r#"{"cmd":"ls"}, while `legwork sh 'ls'` takes"#),
        ("execute_command", r#"{"command":"ls"}, while `legwork sh 'ls'` takes"#),
        ("run_shell_command", r#"{"command":"ls"}, while `legwork sh 'ls'` takes"#),
        ("TaskStop", r#"{"task_id":"…"}; provide input"#),
        ("TaskList", "{}; provide input"),
    ] {
        let output = scratch.legwork("call").args([tool, "ls", "--json"]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        let hint = envelope["error"]["recovery_hint"].as_str().unwrap();
        let expected = format!("the input is a JSON object such as {example}");
        assert!(hint.starts_with(&expected), "{tool}: {hint}");
    }
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
        assert_eq!(details["field"], field.unwrap(), "{error:#}");
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

/// A server with all tools.
fn serving_all(scratch: &Scratch) -> Wire {
    let mut command = scratch.legwork("mcp");
    command.args(["--tools", "all"]);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

/// The error of a call that has to fail for its input.
fn refused(wire: &mut Wire, tool: &str, input: &Value) -> Value {
    let call = json!({ "name": tool, "arguments": input });
    let answer = wire.request("tools/call", &call)["result"].clone();
    assert_eq!(answer["isError"], true, "{tool} {input}: {answer}");
    let text = answer["content"][0]["text"].as_str().unwrap();
    let error: Value =
        serde_json::from_str(text.strip_prefix("Command failed\n").unwrap()).unwrap();
    assert_eq!(error["kind"], "invalid_tool_input", "{tool} {input}: {error}");
    error
}

#[test]
fn every_tool_names_the_field_that_does_not_parse_over_mcp() {
    let scratch = Scratch::new();
    let mut wire = serving_all(&scratch);
    let tools = wire.request("tools/list", &json!({}))["result"]["tools"].clone();
    let mut seen = 0;
    for tool in tools.as_array().unwrap() {
        let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fitting = |field: &&str| match schema["properties"][*field]["type"].as_str() {
            Some("array") => ((*field).to_owned(), json!(["t_nothing"])),
            _ => ((*field).to_owned(), json!("t_nothing")),
        };
        let whole: serde_json::Map<String, Value> = required.iter().map(fitting).collect();
        let mut wrong = vec![("status_of_moon".to_owned(), Some(json!(1)))];
        wrong.extend(required.iter().map(|field| ((*field).to_owned(), None)));
        let fields = schema["properties"].as_object().unwrap().keys();
        wrong.extend(fields.map(|field| (field.clone(), Some(json!({ "moon": 1 })))));
        for (field, value) in wrong {
            let mut input = whole.clone();
            input.remove(&field);
            input.extend(value.map(|value| (field.clone(), value)));
            let error = refused(&mut wire, name, &Value::Object(input));
            seen += 1;
            let details = &error["details"];
            assert_eq!(details["tool_name"], name);
            // A condition of TaskWait is below the field that holds them.
            let named = details["field"].as_str().unwrap();
            assert!(named == field || (field, named) == ("until".into(), "until.moon"), "{error}");
            let said = details["parse_error"].as_str().unwrap();
            assert!(said.contains(&format!("`{named}`")), "{error}");
        }
    }
    assert!(seen > 40, "{seen}");
    assert!(scratch.tasks().is_empty());
}

#[test]
fn a_parse_error_says_which_field_it_is_in_the_words_of_the_tool() {
    let scratch = Scratch::new();
    let mut wire = serving_all(&scratch);
    for (tool, input, field, parse_error) in [
        (
            "ExecCommand",
            json!({ "cmd": "x", "command": "x" }),
            "command",
            "unknown field `command`",
        ),
        ("ExecCommand", json!({ "cmd": "x", "status": "x" }), "status", "unknown field `status`"),
        ("ExecCommand", json!({}), "cmd", "missing field `cmd`"),
        (
            "execute_command",
            json!({ "command": "x", "args": ["a", 1] }),
            "args[1]",
            "expected a string",
        ),
        (
            "TaskWait",
            json!({ "task_ids": ["t"], "until": { "port": "x" } }),
            "until.port",
            "expected a whole",
        ),
    ] {
        let error = refused(&mut wire, tool, &input);
        assert_eq!(error["details"]["field"], field);
        let said = error["details"]["parse_error"].as_str().unwrap();
        assert!(said.contains(parse_error), "{said}");
    }
    assert!(scratch.tasks().is_empty());
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
