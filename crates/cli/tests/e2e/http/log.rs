//! `--log-format json`: every line is JSON, requests can be followed by their ids, and nothing of a
//! secret or a token is in it.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Reply, Serving, bearer, client::Wire, token};
use crate::{
    common::{Scratch, eventually, signal},
    mcp,
};

/// Calls a tool over MCP in a session of its own.
pub fn call_over_mcp(
    serving: &Serving,
    secret: &str,
    more: &[(&str, String)],
    params: &Value,
) -> Reply {
    let accept = ("Accept", "application/json, text/event-stream".to_owned());
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "wire", "version": "1" },
        },
    });
    let headers = [bearer(secret), accept];
    let begun = serving.connect().send("POST", "/mcp", &headers, &hello.to_string());
    let session = ("Mcp-Session-Id", begun.header("mcp-session-id").unwrap().to_owned());
    let headers = [&headers[..], &[session], more].concat();
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    serving.connect().send("POST", "/mcp", &headers, &told.to_string());
    let call = json!({ "jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params });
    serving.connect().send("POST", "/mcp", &headers, &call.to_string())
}

/// The lines of a log, each of which must be an object with the fields that all have.
fn lines(said: &str) -> Vec<Value> {
    let parsed = said.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        for field in ["time", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        let time: &str = line["time"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        line
    });
    parsed.collect()
}

/// The lines with this message that have these fields.
fn with<'a>(lines: &'a [Value], message: &str, fields: &[(&str, Value)]) -> Vec<&'a Value> {
    let fits = |line: &&Value| {
        line["message"] == message && fields.iter().all(|(name, value)| line[name] == *value)
    };
    lines.iter().filter(fits).collect()
}

#[test]
fn every_line_is_json_with_ids_to_follow_and_without_secrets_or_tokens() {
    const SECRET: &str = "hunter2-is-long-enough";
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let mut command = scratch.legwork("serve");
    command.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
    let serving = {
        command.env("DEPLOY_TOKEN", SECRET);
        Serving::spawn(command)
    };
    let given = |id: &str| [bearer(&operator), ("X-Request-Id", id.to_owned())];
    // A sane id comes back; another one is replaced.
    let start = json!({ "cmd": format!("echo {SECRET}"), "login": false }).to_string();
    let reply = serving.connect().send("POST", "/api/v1/tasks", &given("my-id.1"), &start);
    assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("my-id.1")));
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 }).to_string();
    let kept = serving.connect().send("POST", "/api/v1/tasks", &given("my-id.2"), &kept).good();
    let task = &kept["task_handle"]["task_id"];
    for other in [&operator, "a\"} b", SECRET] {
        let path = format!("/nowhere/{SECRET}?token={operator}");
        let reply = serving.connect().send("GET", &path, &given(other), "");
        let id = reply.header("x-request-id").unwrap();
        assert!(other == SECRET || id != other, "{reply:?}");
    }
    serving.connect().send("GET", &format!("/{operator}"), &[bearer(&operator)], "");
    serving.get("/api/v1/tasks", "lwt_wrong");
    let params = json!({ "name": "ExecCommand", "arguments": { "cmd": "true", "login": false } });
    let told = [("X-Request-Id", "over-mcp".to_owned())];
    assert_eq!(call_over_mcp(&serving, &operator, &told, &params).status, 200);
    // One who leaves before the answer.
    let slow = json!({ "cmd": "sleep 601", "login": false }).to_string();
    let mut wire = serving.connect();
    wire.request("POST", "/api/v1/tasks", &given("left"), &slow);
    eventually("it runs", || {
        (serving.said().matches("\"task started\"").count() == 4).then_some(())
    });
    drop(wire);
    let said = eventually("the log has the end of the call", || {
        Some(serving.said()).filter(|said| {
            let ended = said.matches("\"task ended\"").count();
            said.ends_with('\n') && ended == 3 && said.contains("over-mcp")
        })
    });
    assert!(!said.contains(SECRET), "{said}");
    assert!(!said.contains(&operator) && !said.contains("lwt_"), "{said}");
    let lines = lines(&said);
    assert_eq!(with(&lines, "serving", &[]).len(), 1);
    let asked = [
        ("request_id", json!("my-id.1")),
        ("method", json!("POST")),
        ("path", json!("/api/v1/tasks")),
        ("status", json!(200)),
        ("token", json!("me")),
        ("peer", json!("127.0.0.1")),
    ];
    assert_eq!(with(&lines, "request", &asked).len(), 1, "{said}");
    // A call has the id of its request, and leads to its task.
    let called = [("request_id", json!("my-id.2")), ("tool", json!("ExecCommand"))];
    let called = with(&lines, "call", &called);
    assert_eq!((called[0]["result"].as_str(), &called[0]["task_id"]), (Some("success"), task));
    assert_eq!(with(&lines, "task started", &[("task_id", task.clone())]).len(), 1);
    let over_mcp = [("request_id", json!("over-mcp")), ("caller", json!("wire (token me)"))];
    assert_eq!(with(&lines, "call", &over_mcp).len(), 1, "{said}");
    assert_eq!(with(&lines, "request given up", &[("request_id", json!("left"))]).len(), 1);
    // What is said to people is a line, too.
    let warned = lines.iter().filter(|line| {
        line["level"] == "warn" && line["message"].as_str().unwrap().starts_with("wrong token from")
    });
    assert_eq!(warned.count(), 1, "{said}");
}

#[test]
fn a_server_over_stdin_logs_its_calls_in_the_chosen_format() {
    for format in ["json", "text"] {
        let scratch = Scratch::new();
        let mut command = scratch.legwork("mcp");
        command.args(["--log-format", format]).env("DEPLOY_TOKEN", "hunter2-is-long-enough");
        command.stderr(Stdio::piped());
        let mut wire = mcp::Wire::spawn(command);
        wire.initialize();
        wire.tool("ExecCommand", &json!({ "cmd": "echo $DEPLOY_TOKEN", "login": false }));
        wire.exec(&json!({ "cmd": 7 }));
        wire.stdin.take();
        wire.child.wait().unwrap();
        let mut said = String::new();
        wire.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("hunter2"), "{said}");
        if format == "json" {
            let lines = lines(&said);
            let first = [("request_id", json!("2")), ("result", json!("success"))];
            assert_eq!(with(&lines, "call", &first).len(), 1, "{said}");
            let second = [("request_id", json!("3")), ("result", json!("invalid_tool_input"))];
            assert_eq!(with(&lines, "call", &second).len(), 1, "{said}");
        } else {
            let calls = said.lines().filter(|line| line.contains("call request_id="));
            assert_eq!(calls.count(), 2, "{said}");
        }
    }
}

/// A server that ends with the test, also if it does not answer.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let scratch = Scratch::new();
    let mut command = scratch.legwork("serve");
    command.args(["--listen", "127.0.0.1:0", "--log-format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut unread = Unread(child);
    let child = &mut unread.0;
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let mut wire = Wire::connect(address.trim());
    // Several times what a pipe holds, and what waits to be written.
    for _ in 0..6000 {
        assert_eq!(wire.send("GET", "/healthz", &[], "").status, 200);
    }
    // Whoever reads again is told how much is lost.
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let lost = said.find(|line| line.contains("lines of the log were lost")).unwrap();
    assert!(serde_json::from_str::<Value>(&lost).is_ok(), "{lost}");
    signal(child.id(), Signal::TERM);
    said.for_each(drop);
    assert!(child.wait().unwrap().success());
}
