//! The program is replaced while tasks run by one that speaks another version of the protocol.

use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, fixture, open, signal},
    mcp::Wire,
};

/// A server that speaks the protocol of this version with its wardens.
fn server(scratch: &Scratch, version: u32) -> Wire {
    let mut command = scratch.legwork("mcp");
    command.env("LEGWORK_PROTOCOL_VERSION", version.to_string());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

/// Starts a command that exits with 7 when its gate is opened, on a server that is then killed.
fn left_by(scratch: &Scratch, version: u32, gate: &str) -> String {
    let mut wire = server(scratch, version);
    let cmd = format!("echo before; exec {} wait-then-exit {gate} 7", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let told = wire.tool("ExecCommand", &input);
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned()
}

/// The status in the ledger, without asking any program.
fn status(scratch: &Scratch, task: &str) -> String {
    let path = scratch.state.path().join("ledger.db");
    let ledger = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    ledger.query_row("SELECT status FROM task WHERE id = ?", [task], |row| row.get(0)).unwrap()
}

#[test]
fn a_program_of_another_version_leaves_running_tasks_alone_and_learns_how_they_end() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let task = left_by(&scratch, legwork_warden::protocol::VERSION + 1, &gate);
    let mut other = server(&scratch, legwork_warden::protocol::VERSION);
    let params = json!({ "name": "TaskStop", "arguments": { "task_id": task } });
    let refused = other.request("tools/call", &params);
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    let error: Value =
        serde_json::from_str(text.strip_prefix("Command failed\n").unwrap()).unwrap();
    assert_eq!(error["recovery_hint"], "use the program that started the task", "{error:#}");
    assert_eq!(status(&scratch, &task), "running");
    open(&gate);
    // Its warden leaves what an engine of any version reads: the exit record.
    eventually("it is settled", || {
        let told = other.tool("TaskList", &json!({ "include_finished": true }));
        (!told.contains("running")).then_some(())
    });
    let told = other.tool("TaskStatus", &json!({ "task_id": task }));
    assert!(told.contains("Exit status: 7"), "{told}");
}
