//! The MCP server on the wire: every line gets its answer, and the server lives on.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Scratch, announced, children, eventually, fixture, is_alive};

/// A client that speaks raw lines.
pub struct Wire {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next_id: u64,
}

impl Wire {
    pub fn start(scratch: &Scratch) -> Self {
        Self::spawn(scratch.legwork("mcp"))
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, next_id: 1 }
    }

    pub fn initialized(scratch: &Scratch) -> Self {
        let mut wire = Self::start(scratch);
        wire.initialize();
        wire
    }

    pub fn initialize(&mut self) -> Value {
        let answer = self.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "wire", "version": "1" },
            }),
        );
        self.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        answer
    }

    pub fn write(&mut self, line: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_ref()).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }

    pub fn read(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(request.to_string());
        id
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.read();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub fn exec(&mut self, input: &Value) -> Value {
        self.request("tools/call", &json!({ "name": "ExecCommand", "arguments": input }))
    }

    /// Calls a tool and returns its text, which must be no error.
    pub fn tool(&mut self, name: &str, input: &Value) -> String {
        let answer = self.request("tools/call", &json!({ "name": name, "arguments": input }));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    pub fn assert_lives(&mut self) {
        let answer = self.exec(&json!({ "cmd": "echo alive", "login": false }));
        let text = &answer["result"]["content"][0]["text"];
        assert_eq!(text, "Process exited with code 0\n\nstdout:\nalive", "{answer}");
    }
}

#[test]
fn text_comes_first_and_alone() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let answer = wire.exec(&json!({ "cmd": "echo hi; exit 3", "login": false }));
    let result = &answer["result"];
    assert_eq!(result["content"][0]["text"], "Process exited with code 3\n\nstdout:\nhi");
    assert_eq!(result["isError"], false);
    assert!(result.get("structuredContent").is_none());
    assert_eq!(scratch.tasks()[0]["asked_by"], "wire");
}

#[test]
fn a_wait_that_the_client_cannot_make_says_so() {
    let scratch = Scratch::new();
    let policy = scratch.file("policy.toml");
    std::fs::write(&policy, "[mcp]\nanswer_within_ms = 50\n").unwrap();
    let mut command = scratch.legwork("mcp");
    command.args(["--policy", &policy]);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let long = json!({ "cmd": "sleep 60", "login": false, "yield_time_ms": 120_000 });
    let told = wire.tool("ExecCommand", &long);
    assert!(told.contains("\nWaited: 50 ms, no longer: this client may give up"), "{told}");
    let short = json!({ "cmd": "sleep 61", "login": false, "yield_time_ms": 1 });
    assert!(!wire.tool("ExecCommand", &short).contains("Waited"));
}

#[test]
fn structured_content_is_the_envelope_when_asked_for() {
    let scratch = Scratch::new();
    let mut command = scratch.legwork("mcp");
    command.arg("--structured");
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let answer = wire.exec(&json!({ "cmd": "true", "login": false }));
    assert_eq!(answer["result"]["structuredContent"]["tool_name"], "ExecCommand");
    assert_eq!(answer["result"]["structuredContent"]["result"]["exit_status"], 0);
}

#[test]
fn errors_are_typed_and_the_server_lives_on() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    for input in [
        json!({ "cmd": "" }),
        json!({ "cmd": "a\u{0}b" }),
        json!({ "cmd": "true", "nonsense": 1 }),
        json!({ "cmd": 7 }),
        json!({ "cmd": "true", "workdir": "nowhere" }),
        json!({ "cmd": "true", "shell": "no-such-shell" }),
        json!({ "cmd": "x".repeat(10_000_000) }),
    ] {
        let answer = wire.exec(&input);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        let body = text.strip_prefix("Command failed\n").unwrap();
        let error: Value = serde_json::from_str(body).unwrap();
        assert!(error["kind"].is_string() && error["message"].is_string());
        assert!(text.ends_with("}\n"));
    }
    assert!(scratch.tasks().is_empty());
    wire.assert_lives();
}

#[test]
fn malformed_lines_are_answered_and_the_server_lives_on() {
    let scratch = Scratch::new();
    let mut wire = Wire::start(&scratch);
    // Before the first request, too.
    wire.write("{ not json");
    assert_eq!(wire.read()["error"]["code"], -32700);
    wire.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    wire.initialize();
    for (line, code) in [
        ("garbage", -32700),
        ("\u{1}\u{2}", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":", -32700),
        ("[]", -32600),
        ("5", -32600),
        ("{}", -32600),
    ] {
        wire.write(line);
        let answer = wire.read();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    for id in ["1.5", "null", "true", "{\"a\":1}", "9223372036854775808"] {
        wire.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}"));
        assert_eq!(wire.read()["error"]["code"], -32600, "{id}");
    }
    wire.write(b"\xff\xfe\x00");
    assert_eq!(wire.read()["error"]["code"], -32700);
    let answer = wire.request("tools/call", &json!({ "name": "ExecCommand", "arguments": "text" }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let answer = wire.request("tools/call", &json!({ "name": "Nothing", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let answer = wire.request("no/such/method", &json!({}));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    wire.write("");
    wire.assert_lives();
}

#[test]
fn a_line_over_the_limit_is_refused_without_being_held() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let piece = vec![b'x'; 1024 * 1024];
    for _ in 0..40 {
        wire.stdin.as_mut().unwrap().write_all(&piece).unwrap();
    }
    wire.write("");
    let answer = wire.read();
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", wire.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak_kb < 90_000, "{peak_kb} kB");
    wire.assert_lives();
}

#[test]
fn a_line_that_cannot_be_read_is_answered_with_its_id() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    // Half an emoji, as a client sends that cuts strings without looking.
    wire.write(r#"{"jsonrpc":"2.0","id":500,"method":"tools/call","params":{"name":"ExecCommand","arguments":{"cmd":"echo \ud83d"}}}"#);
    let answer = wire.read();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(500), &json!(-32700)));
    wire.write(format!(
        r#"{{"jsonrpc":"2.0","id":"a","method":"x","params":"{}"}}"#,
        "y".repeat(20_000_000)
    ));
    let answer = wire.read();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("a"), &json!(-32600)));
    // Where there is none to be found it is null, as JSON-RPC wants it.
    wire.write("{ not json");
    let answer = wire.read();
    assert!(answer.get("id").is_some_and(Value::is_null), "{answer}");
    wire.assert_lives();
}

#[test]
fn what_is_not_declared_is_refused() {
    let scratch = Scratch::new();
    let mut wire = Wire::start(&scratch);
    let info = wire.initialize();
    assert_eq!(info["result"]["capabilities"], json!({ "tools": {} }));
    assert_eq!(info["result"]["protocolVersion"], "2025-06-18");
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        assert_eq!(wire.request(method, &json!({}))["error"]["code"], -32601, "{method}");
    }
}

#[test]
fn calls_run_side_by_side() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let gate = scratch.file("gate");
    let slow = wire.send(
        "tools/call",
        &json!({ "name": "ExecCommand",
                "arguments": { "cmd": format!("{} wait-for {gate}", fixture()), "login": false } }),
    );
    // This one is answered while the first one waits; it opens the gate.
    let quick = wire.send(
        "tools/call",
        &json!({ "name": "ExecCommand",
                "arguments": { "cmd": format!("touch {gate}"), "login": false } }),
    );
    let mut answered = vec![wire.read()["id"].clone(), wire.read()["id"].clone()];
    answered.sort_by_key(Value::as_u64);
    assert_eq!(answered, [json!(slow), json!(quick)]);
}

/// Calls a command that no polite signal ends; returns the call's id and the command's pid, alive.
fn start_stubborn(wire: &mut Wire, scratch: &Scratch) -> (u64, u32) {
    let ready = scratch.file("ready");
    let cmd = format!("{} ignore-term {ready}", fixture());
    let arguments = json!({ "cmd": cmd, "login": false });
    let id = wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": arguments }));
    let pid = announced(&ready);
    assert!(is_alive(pid));
    (id, pid)
}

#[test]
fn a_client_that_goes_away_leaves_nothing_running() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let (_, pid) = start_stubborn(&mut wire, &scratch);
    let start = Instant::now();
    drop(wire.stdin.take());
    assert!(wire.child.wait().unwrap().success());
    assert!(!is_alive(pid));
    // rmcp alone would have waited five seconds.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(scratch.tasks()[0]["reason"], "stopped");
}

#[test]
fn a_server_that_is_asked_to_end_leaves_nothing_running() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let (_, pid) = start_stubborn(&mut wire, &scratch);
    crate::common::signal(wire.child.id(), Signal::TERM);
    assert!(wire.child.wait().unwrap().success());
    // The server leaves at once; the command has its grace, and its warden sees to the rest.
    eventually("its warden ends it", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_cancelled_call_stops_its_command() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let (id, pid) = start_stubborn(&mut wire, &scratch);
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                         "params": { "requestId": id, "reason": "enough" } });
    wire.write(cancel.to_string());
    eventually("the command is stopped", || (!is_alive(pid)).then_some(()));
    eventually("the task is settled", || {
        (scratch.tasks()[0]["status"] == "cancelled").then_some(())
    });
    wire.assert_lives();
}

#[test]
fn the_spawner_may_die_and_is_replaced() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    wire.assert_lives();
    let spawner = eventually("a spawner", || children(wire.child.id()).first().copied());
    crate::common::signal(spawner, Signal::KILL);
    eventually("it is dead", || (!is_alive(spawner)).then_some(()));
    wire.assert_lives();
}

#[test]
fn the_modern_revision_needs_no_initialize() {
    let scratch = Scratch::new();
    let mut wire = Wire::start(&scratch);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "modern", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = wire.request("server/discover", &json!({ "_meta": meta }));
    assert!(
        discovered["result"]["supportedVersions"].to_string().contains("2026-07-28"),
        "{discovered}"
    );
    let answer = wire.request(
        "tools/call",
        &json!({ "name": "ExecCommand", "arguments": { "cmd": "echo hi", "login": false }, "_meta": meta }),
    );
    assert_eq!(
        answer["result"]["content"][0]["text"], "Process exited with code 0\n\nstdout:\nhi",
        "{answer}"
    );
    assert_eq!(answer["result"]["resultType"], "complete");
}

/// The warden that runs a command, by its process id.
fn warden_of(wire: &mut Wire, rest: &str) -> u32 {
    let answer = wire.exec(&json!({ "cmd": format!("echo $PPID; {rest}"), "login": false,
                                    "shell": "/bin/sh", "duplicate_policy": "start_new" }));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    text.lines().nth(3).unwrap().parse().unwrap()
}

/// The wardens that serve twenty calls, one after the other.
fn wardens_of_twenty(wire: &mut Wire) -> std::collections::HashSet<u32> {
    (0..20).map(|code| warden_of(wire, &format!("exit {code}"))).collect()
}

#[test]
fn a_clean_warden_is_used_again_and_another_one_is_not() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let used = wardens_of_twenty(&mut wire);
    assert!(used.len() <= 4, "twenty commands by {used:?}");
    let gate = scratch.file("gate");
    let leave = format!("{} wait-for {gate} >/dev/null 2>&1 &", fixture());
    let watching = warden_of(&mut wire, &leave);
    let used = wardens_of_twenty(&mut wire);
    assert!(!used.contains(&watching), "it still watches over what was left behind");
    assert!(is_alive(watching));
    crate::common::open(&gate);
    eventually("it ends with what it watched over", || (!is_alive(watching)).then_some(()));
}

#[test]
fn a_burst_of_256_calls_is_served_by_few_wardens() {
    // On a busy machine a command can take longer than a fork: then that burst needs more of them.
    let counts: Vec<usize> = (0..5).map(|_| wardens_of_a_burst()).collect();
    assert!(counts.iter().any(|count| *count < 128), "{counts:?} wardens");
    assert!(counts.iter().all(|count| *count < 256), "{counts:?} wardens");
}

/// How many wardens have served 256 calls that came at once.
fn wardens_of_a_burst() -> usize {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    for number in 0..256 {
        let input = json!({ "cmd": format!("echo {number} $PPID"), "login": false,
                            "shell": "/bin/sh" });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
    }
    let mut wardens = std::collections::HashSet::new();
    for _ in 0..256 {
        let answer = wire.read();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        wardens.insert(text.rsplit_once(' ').unwrap().1.to_owned());
    }
    wardens.len()
}

#[test]
fn a_thousand_calls_leave_nothing() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let server = wire.child.id();
    let descriptors = || std::fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
    for _ in 0..100 {
        wire.assert_lives();
    }
    let before = descriptors();
    for _ in 0..1000 {
        wire.assert_lives();
    }
    assert!(descriptors() <= before + 2, "{} after {before}", descriptors());
    assert!(scratch.folders().is_empty());
    let sockets = std::fs::read_dir(scratch.state.path().join("wardens")).unwrap().count();
    assert!(sockets <= 8, "{sockets} wardens");
    // 2200 commits: the log of the ledger begins anew after each thousand.
    let log = std::fs::metadata(scratch.state.path().join("ledger.db-wal")).unwrap().len();
    assert!(log < 18_000_000, "{log} bytes");
}

#[test]
fn a_spawner_that_is_asked_to_end_is_replaced() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let gate = scratch.file("gate");
    // A warden that has to stay keeps the spawner as well.
    let leave = format!("{} wait-for {gate} >/dev/null 2>&1 &", fixture());
    let warden = warden_of(&mut wire, &leave);
    crate::common::signal(crate::common::parent(warden), Signal::TERM);
    for _ in 0..70 {
        wire.send(
            "tools/call",
            &json!({ "name": "ExecCommand",
                     "arguments": { "cmd": "sleep 0.1", "login": false, "shell": "/bin/sh",
                                    "duplicate_policy": "start_new" } }),
        );
    }
    for _ in 0..70 {
        assert_eq!(wire.read()["result"]["isError"], false);
    }
    crate::common::open(&gate);
    eventually("what was left behind ends", || (!is_alive(warden)).then_some(()));
}

#[test]
fn two_requests_in_flight_with_one_id_are_both_answered() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let gate = scratch.file("gate");
    let call = |cmd: &str, id: &Value| {
        let params = json!({ "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    for id in [json!(77), json!("seventy-seven")] {
        let _ = std::fs::remove_file(&gate);
        wire.write(call(&format!("until [ -e {gate} ]; do sleep 0.01; done; echo first"), &id));
        wire.write(call("echo second", &id));
        let early = wire.read();
        crate::common::open(&gate);
        let late = wire.read();
        for (answer, text) in [(&early, "second"), (&late, "first")] {
            assert_eq!(answer["id"], id, "{answer}");
            assert!(answer["result"].to_string().contains(text), "{answer}");
        }
    }
    wire.assert_lives();
}

#[test]
fn a_long_argument_does_not_come_back_as_a_longer_error() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let long = "x".repeat(100_000);
    for (name, arguments) in [
        ("ExecCommand", json!({ "cmd": "true", "workdir": long })),
        ("ExecCommand", json!({ "cmd": "true", "shell": long })),
        ("ExecCommand", json!({ "cmd": "true", "duplicate_policy": long })),
        ("ExecCommand", json!({ long.as_str(): "true" })),
        ("TaskStatus", json!({ "task_id": long })),
        ("TaskInput", json!({ "task_id": "x", "key": long })),
        (long.as_str(), json!({})),
    ] {
        let answer = wire.request("tools/call", &json!({ "name": name, "arguments": arguments }));
        let size = answer.to_string().len();
        assert!(size < 20_000, "{size} bytes for {:.60}", answer.to_string());
    }
    let answer = wire.request(&long, &json!({}));
    assert!(answer.to_string().len() < 20_000);
    wire.assert_lives();
}
