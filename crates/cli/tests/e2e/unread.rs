//! A client that asks and does not read: memory is bounded, nobody else waits, and nothing is lost.

use std::{
    collections::HashSet,
    fmt::Write,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, announced, eventually, fixture, is_alive},
    mcp::Wire,
};

/// How many calls; with fewer than this the test would see nothing.
const CALLS: usize = 600;
const ANSWER_BYTES: usize = 30_000;

/// What the server may take beyond one that has nothing to do, with as many calls as run at a time
/// and their answers: 30 to 41 MB were seen. Without a bound, two thousand unread answers take 290.
const MEMORY_KB_MAX: usize = 60_000;

fn calls() -> usize {
    std::env::var("LEGWORK_UNREAD_CALLS").map_or(CALLS, |calls| calls.parse().unwrap())
}

fn call(id: usize, cmd: &str) -> Value {
    let input = json!({ "cmd": cmd, "login": false, "duplicate_policy": "start_new",
        "yield_time_ms": 600_000, "max_output_tokens": 30_000 });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "ExecCommand", "arguments": input } })
}

/// A command with a long answer.
fn flood() -> String {
    // In one line: of many, not all would be shown.
    format!("{} flood {ANSWER_BYTES} | tr '\\n' ' '", fixture())
}

/// A server that has been asked for much by a client that reads nothing.
struct Deaf {
    server: Child,
    /// Writes the questions, as far as they are taken, and then holds the server's stdin open.
    writer: Child,
}

impl Deaf {
    fn new(scratch: &Scratch, questions: impl Iterator<Item = Value>) -> Self {
        let hello = json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "deaf", "version": "1" } } });
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let mut text = format!("{hello}\n{done}\n");
        for question in questions {
            writeln!(text, "{question}").unwrap();
        }
        let file = scratch.file("questions");
        fs::write(&file, text).unwrap();
        let mut writer = Command::new("cat");
        writer.args([&file, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        let mut server = scratch.legwork("mcp");
        server.stdin(writer.stdout.take().unwrap()).stdout(Stdio::piped());
        Self { server: server.spawn().unwrap(), writer }
    }
}

/// Most memory that a server has had.
fn memory_kb(server: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Waits until all that was begun has ended and nothing more begins, and returns how many that
/// were.
fn at_rest(scratch: &Scratch) -> usize {
    let mut before = 0;
    for _ in 0..300 {
        let listed = scratch.legwork("ps").args(["--json", "-n", "10000"]).output().unwrap();
        let listed: Value =
            serde_json::from_slice(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
        let tasks = listed["tasks"].as_array().unwrap();
        let is_open = |task: &Value| matches!(task["status"].as_str(), Some("queued" | "running"));
        if tasks.len() == before && before > 0 && !tasks.iter().any(is_open) {
            return before;
        }
        before = tasks.len();
        thread::sleep(Duration::from_millis(300));
    }
    panic!("the server never comes to rest");
}

/// Waits until nobody takes what the writer writes.
fn is_ignored(writer: &Child) {
    eventually("the server reads no more", || {
        let place = fs::read_to_string(format!("/proc/{}/wchan", writer.id())).unwrap();
        // Some kernels do not tell where a process waits.
        (place.contains("pipe_write") || place == "0").then_some(())
    });
}

#[test]
fn answers_that_are_not_read_take_bounded_memory_and_all_arrive_when_they_are() {
    let scratch = Scratch::new();
    let mut deaf = Deaf::new(&scratch, (0..calls()).map(|id| call(id, &flood())));
    let begun = at_rest(&scratch);
    assert!(begun < calls(), "the rest is not begun while nobody reads");
    // Somebody else is served meanwhile.
    let mut other = Wire::initialized(&scratch);
    for _ in 0..20 {
        other.assert_lives();
    }
    let mut missing: HashSet<u64> = (0..calls() as u64).collect();
    let lines = BufReader::new(deaf.server.stdout.take().unwrap()).lines();
    for line in lines.skip(1).take(calls()) {
        let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        let printed = told.strip_prefix("Process exited with code 0\n\nstdout:\n").unwrap();
        assert_eq!(printed.trim_end().len(), ANSWER_BYTES - 1, "{printed}");
        assert!(missing.remove(&answer["id"].as_u64().unwrap()), "answered twice");
    }
    assert!(missing.is_empty(), "{missing:?}");
    let memory_kb = memory_kb(&deaf.server) - memory_kb(&other.child);
    eprintln!("{begun} of {} were begun unread, {memory_kb} kB", calls());
    assert!(memory_kb < MEMORY_KB_MAX, "{memory_kb} kB");
    // The end of its stdin.
    drop(deaf.writer.stdin.take());
    deaf.writer.wait().unwrap();
    assert!(deaf.server.wait().unwrap().success());
}

#[test]
fn a_client_that_does_not_read_is_missed_when_it_leaves() {
    for leaves_stdout_open in [true, false] {
        let scratch = Scratch::new();
        let ready = scratch.file("ready");
        let stays = call(0, &format!("exec {} ignore-term {ready}", fixture()));
        // Long answers to questions that cost nothing.
        let list = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        let questions = [stays].into_iter().chain((1..5000).map(list));
        let mut deaf = Deaf::new(&scratch, questions);
        let pid = announced(&ready);
        is_ignored(&deaf.writer);
        let stdout = deaf.server.stdout.take().filter(|_| leaves_stdout_open);
        if leaves_stdout_open {
            deaf.writer.kill().unwrap();
        }
        let ended = eventually("the server ends", || deaf.server.try_wait().unwrap());
        assert!(ended.success(), "{ended:?}");
        assert!(!is_alive(pid), "its command has ended with it");
        drop((stdout, deaf.writer.stdin.take()));
        deaf.writer.wait().unwrap();
    }
}

#[test]
fn what_looks_and_stops_is_answered_while_every_place_is_taken() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let gate = scratch.file("gate");
    let waiting = format!("{} wait-then-exit {gate} 0", fixture());
    // More than are worked on at once.
    for number in 0..260 {
        let input = json!({ "cmd": format!("{waiting}; : {number}"), "login": false,
            "yield_time_ms": 600_000 });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
    }
    let task = eventually("a task runs", || {
        let listed = wire.tool("TaskList", &json!({ "limit": 1 }));
        listed.lines().find_map(|line| line.strip_prefix("Task: ")).map(str::to_owned)
    });
    let id =
        wire.send("tools/call", &json!({ "name": "TaskStop", "arguments": { "task_id": task } }));
    // The call of the command that is stopped is answered, too.
    let answers = [wire.read(), wire.read()];
    assert!(answers.iter().any(|answer| answer["id"] == id), "{answers:?}");
    fs::write(&gate, "").unwrap();
    for _ in 0..259 {
        assert_eq!(wire.read()["result"]["isError"], false);
    }
}
