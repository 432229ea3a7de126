//! `/mcp` on the wire: sessions are their token's, and so is what they may do.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Reply, Serving, bearer, client::Wire, token, token_verb};
use crate::common::{Scratch, announced_line, eventually, is_alive, open, signal};

/// A client of the older era, with a session.
struct Session<'a> {
    serving: &'a Serving,
    secret: String,
    id: String,
}

impl<'a> Session<'a> {
    fn open(serving: &'a Serving, secret: &str) -> Self {
        let mut session = Self { serving, secret: secret.to_owned(), id: String::new() };
        let elicitation = json!({ "elicitation": {} });
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": elicitation,
            "clientInfo": { "name": "wire", "version": "1" },
        });
        let (reply, answer) = session.request("initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "legwork", "{reply:?}");
        reply.header("mcp-session-id").unwrap().clone_into(&mut session.id);
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.send("POST", &told.to_string()).read().status, 202);
        session
    }

    /// Sends something, and leaves the answer to be read.
    fn send(&self, method: &str, body: &str) -> Wire {
        self.send_after(None, method, body)
    }

    /// The same of a client that has seen an event.
    fn send_after(&self, event_id: Option<&str>, method: &str, body: &str) -> Wire {
        let mut headers = vec![
            bearer(&self.secret),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        if !self.id.is_empty() {
            headers.push(("Mcp-Session-Id", self.id.clone()));
            headers.push(("MCP-Protocol-Version", "2025-06-18".into()));
        }
        headers.extend(event_id.map(|id| ("Last-Event-ID", id.to_owned())));
        let mut wire = self.serving.connect();
        wire.request(method, "/mcp", &headers, body);
        wire
    }

    fn request(&self, method: &str, params: &Value) -> (Reply, Value) {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let reply = self.send("POST", &message.to_string()).read();
        let answer = last_message(&reply.body);
        (reply, answer)
    }

    /// The text of a tool's answer.
    fn call(&self, tool: &str, arguments: &Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments });
        let (reply, answer) = self.request("tools/call", &params);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{reply:?}")).to_owned()
    }
}

/// The last message of a stream.
fn last_message(body: &str) -> Value {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    messages.next_back().unwrap_or_default()
}

#[test]
fn a_session_is_its_tokens_and_ends_with_it() {
    let scratch = Scratch::new();
    let one = token(&scratch, "one", &["--role", "agent"]);
    let other = token(&scratch, "other", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let session = Session::open(&serving, &one);
    let hello = json!({ "cmd": "echo hello", "login": false });
    assert_eq!(session.call("ExecCommand", &hello), "Process exited with code 0\n\nstdout:\nhello");
    // The caller is the client by the token, with the token's trust.
    let task = &scratch.tasks()[0];
    assert_eq!(task["asked_by"], "wire (token one)");
    assert_eq!(task["trust"], "trusted_integration");
    // Whoever has another token does not know the session.
    let stolen = Session { serving: &serving, secret: other.clone(), id: session.id.clone() };
    assert_eq!(stolen.request("tools/list", &json!({})).0.status, 404);
    assert_eq!(stolen.send("GET", "").read().status, 404);
    // A call under way ends with the token, and its command too.
    let pid = scratch.file("pid");
    let cmd = format!("echo $$ > {pid}; exec sleep 600");
    let long = json!({ "cmd": cmd, "login": false, "yield_time_ms": 600_000 });
    let long = json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "ExecCommand", "arguments": long },
    });
    let _under_way = session.send("POST", &long.to_string());
    let pid = announced_line(&pid);
    assert!(token_verb(&scratch, &["revoke", "one"]).status.success());
    eventually("its command is stopped", || (!is_alive(pid)).then_some(()));
    assert_eq!(session.request("tools/list", &json!({})).0.status, 401);
    // Others are not touched.
    let session = Session::open(&serving, &other);
    assert_eq!(session.send("DELETE", "").read().status, 202);
    assert_eq!(session.request("tools/list", &json!({})).0.status, 404, "it was ended");
}

#[test]
fn what_is_left_running_ends_with_a_token_that_stops_no_task() {
    let scratch = Scratch::new();
    let tools = ["--role", "agent", "--tools", "ExecCommand"];
    let revoked = token(&scratch, "revoked", &tools);
    let (served, other) = (token(&scratch, "served", &tools), ["--role", "agent"]);
    let other = token(&scratch, "other", &other);
    let serving = Serving::start(&scratch, &[]);
    let leave = |secret: &str, name: &str, last: &str| {
        let session = Session::open(&serving, secret);
        let pid = scratch.file(name);
        let cmd = format!("sh -c 'echo $$ > {pid}; exec sleep 600' &");
        let text = session.call("ExecCommand", &json!({ "cmd": cmd, "login": false }));
        assert!(text.ends_with(last), "{text}");
        assert_eq!(session.send("DELETE", "").read().status, 202);
        announced_line(&pid)
    };
    let until = "They go on until this session ends.";
    let [revoked, served] = [(revoked, "a"), (served, "b")].map(|(it, to)| leave(&it, to, until));
    let other = leave(&other, "c", " ends them.");
    assert!(token_verb(&scratch, &["revoke", "revoked"]).status.success());
    eventually("it ends with its token", || (!is_alive(revoked)).then_some(()));
    assert!(is_alive(served) && is_alive(other));
    assert!(serving.end(Signal::TERM).success());
    eventually("it ends with the server", || (!is_alive(served)).then_some(()));
    assert!(is_alive(other), "what can be stopped goes on");
    signal(other, Signal::KILL);
}

#[test]
fn a_cancelled_call_stops_its_command() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let session = Session::open(&serving, &agent);
    let pid = scratch.file("pid");
    let cmd = format!("echo $$ > {pid}; exec sleep 600");
    let long = json!({ "cmd": cmd, "login": false, "yield_time_ms": 600_000 });
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "ExecCommand", "arguments": long },
    });
    let _under_way = session.send("POST", &message.to_string());
    let pid = announced_line(&pid);
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
    });
    assert_eq!(session.send("POST", &cancel.to_string()).read().status, 202);
    eventually("it is stopped", || (!is_alive(pid)).then_some(()));
}

#[test]
fn the_tools_are_the_tokens() {
    let scratch = Scratch::new();
    let few = ["--role", "agent", "--tools", "TaskList,execute_command"];
    let few = token(&scratch, "few", &few);
    let viewer = token(&scratch, "viewer", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let session = Session::open(&serving, &few);
    let (_, listed) = session.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["TaskList", "execute_command"]);
    let (_, refused) = session.request("tools/call", &json!({ "name": "ExecCommand" }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(serving.post("/mcp", &viewer, &json!({})).status, 403);
}

#[test]
fn whoever_holds_an_agents_token_is_not_asked_for_its_own_approval() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let mut command = scratch.guarded("serve", "strict", None);
    command.args(["--listen", "127.0.0.1:0"]);
    let serving = Serving::spawn(command);
    // It says that it can show questions.
    let session = Session::open(&serving, &agent);
    let refused = session.call("ExecCommand", &json!({ "cmd": "touch made", "login": false }));
    assert!(refused.contains("approval_unavailable"), "{refused}");
    assert!(!scratch.workspace.path().join("made").exists());
}

/// A call whose command waits for a file, and the id of its stream's first event.
fn waiting_call<'a>(session: &'a Session<'a>, gate: &str) -> (Wire, String) {
    let cmd = format!("until [ -e {gate} ]; do sleep 0.01; done; echo through");
    let message = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false } },
    });
    let mut wire = session.send("POST", &message.to_string());
    wire.head().unwrap();
    let first = wire.chunk().unwrap();
    let id = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    (wire, id.to_owned())
}

#[test]
fn a_resumed_stream_ends_with_its_session() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let session = Session::open(&serving, &agent);
    let (wire, event_id) = waiting_call(&session, &scratch.file("gate"));
    drop(wire);
    let mut resumed = session.send_after(Some(&event_id), "GET", "");
    assert_eq!(resumed.head().unwrap().status, 200);
    assert_eq!(session.send("DELETE", "").read().status, 202);
    while resumed.chunk().is_some() {}
    // Its connection is free for more.
    assert_eq!(resumed.send("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn an_answer_that_nobody_was_there_to_receive_is_told_on_return() {
    let scratch = Scratch::new();
    let agent = token(&scratch, "agent", &["--role", "agent"]);
    let serving = Serving::start(&scratch, &[]);
    let session = Session::open(&serving, &agent);
    let gate = scratch.file("gate");
    let (wire, event_id) = waiting_call(&session, &gate);
    drop(wire);
    open(&gate);
    eventually("it has ended", || {
        (scratch.tasks().first()?["status"] == "completed").then_some(())
    });
    // Twice: the connection may break again.
    for _ in 0..2 {
        let told = session.send_after(Some(&event_id), "GET", "").read();
        let answer = last_message(&told.body);
        assert_eq!(answer["id"], 7, "{told:?}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.ends_with("through"), "{text}");
    }
    // What is not known any more is no error, and tells nothing.
    let unknown = session.send_after(Some("3/nothing"), "GET", "").read();
    assert_eq!((unknown.status, last_message(&unknown.body)), (200, Value::Null));
}
