//! The filesystem of the state folder becomes read-only while commands run, as after an error of
//! the disk.

use std::{fs, path::PathBuf, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{
        Scratch, announced_line, children, eventually, fixture, is_alive, open, program, signal,
    },
    disk::Disk,
    mcp::Wire,
};

/// Starts `legwork mcp` on a state folder of its own, with answers for programs.
fn serve(scratch: &Scratch, disk: &Disk) -> Wire {
    let mut command = Command::new(program());
    command.args(["mcp", "--mode", "open", "--structured", "--state"]).arg(disk.path("state"));
    command.current_dir(scratch.workspace.path()).env("SHELL", "/bin/sh");
    command.env("XDG_CONFIG_HOME", scratch.state.path());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

fn ask(wire: &mut Wire, tool: &str, input: &Value) -> u64 {
    wire.send("tools/call", &json!({ "name": tool, "arguments": input }))
}

fn envelope(answer: &Value) -> Value {
    answer["result"]["structuredContent"].clone()
}

#[test]
fn a_disk_that_becomes_read_only_refuses_starts_and_takes_no_truth_from_what_runs() {
    let scratch = Scratch::new();
    let Some(disk) = Disk::new(&PathBuf::from(scratch.file("image")), 64) else { return };
    let mut wire = serve(&scratch, &disk);
    let gate = scratch.file("gate");
    let waits = |name: &str| {
        format!("echo before {name}; {} wait-for {gate}; echo after; exit 7", fixture())
    };
    // One that is waited for, and one that is not.
    let input = json!({ "cmd": waits("task"), "login": false, "yield_time_ms": 0 });
    ask(&mut wire, "ExecCommand", &input);
    let task = envelope(&wire.read())["result"]["task_handle"]["task_id"].clone();
    let input = json!({ "cmd": waits("call"), "login": false, "yield_time_ms": 60_000 });
    let foreground = ask(&mut wire, "ExecCommand", &input);
    eventually("both are in their folders", || {
        let folders = fs::read_dir(disk.path("state/tasks")).ok()?;
        let printed = folders.filter_map(|folder| {
            fs::read(folder.ok()?.path().join("stdout")).ok().filter(|text| !text.is_empty())
        });
        (printed.count() == 2).then_some(())
    });
    if !disk.make_read_only() {
        return;
    }
    let started = scratch.file("started");
    let input = json!({ "cmd": format!("touch {started}"), "login": false });
    ask(&mut wire, "ExecCommand", &input);
    let refused = envelope(&wire.read());
    assert_eq!(refused["error"]["kind"], "state_unavailable", "{refused:#}");
    assert_eq!(refused["error"]["retryable"], true);
    assert!(!fs::exists(&started).unwrap(), "refused before it started");
    open(&gate);
    let answer = wire.read();
    assert_eq!(answer["id"], foreground);
    let told = envelope(&answer)["result"].clone();
    assert_eq!(told["exit_status"], 7, "{told:#}");
    assert_eq!(told["stdout_preview"], "before call", "{told:#}");
    assert_eq!(told["dropped_bytes"], "after\n".len(), "{told:#}");
    assert_eq!(told["flags"], json!(["output_dropped", "write_failed"]), "{told:#}");
    ask(&mut wire, "TaskWait", &json!({ "task_ids": [task] }));
    assert_eq!(envelope(&wire.read())["result"]["met"], true);
    // A busy machine may keep its warden from answering in time: then it says so, and is asked
    // again.
    let answer = eventually("its warden answers", || {
        ask(&mut wire, "TaskStatus", &json!({ "task_id": task }));
        let answer = envelope(&wire.read());
        (answer["status"] == "success").then_some(answer)
    });
    let told = answer["result"]["task"].clone();
    assert_eq!(
        (&told["status"], &told["exit_status"]),
        (&json!("failed"), &json!(7)),
        "{answer:#}"
    );
    assert_eq!(told["flags"], json!(["output_dropped", "write_failed"]), "{told:#}");
    end(wire);
}

/// Wardens keep what they cannot write for as long as somebody may come; here nobody will.
fn end(mut wire: Wire) {
    for spawner in children(wire.child.id()) {
        for warden in children(spawner) {
            signal(warden, Signal::KILL);
        }
    }
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
}

#[test]
fn a_task_is_stopped_though_nothing_can_be_noted() {
    let scratch = Scratch::new();
    let Some(disk) = Disk::new(&PathBuf::from(scratch.file("image")), 64) else { return };
    let mut wire = serve(&scratch, &disk);
    let ready = scratch.file("ready");
    let cmd = format!("echo $$ > {ready}; exec sleep 1000");
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    ask(&mut wire, "ExecCommand", &input);
    let task = envelope(&wire.read())["result"]["task_handle"]["task_id"].clone();
    let pid = announced_line(&ready);
    // The task is in the ledger by then: nothing has to be written to find it.
    ask(&mut wire, "TaskStatus", &json!({ "task_id": task }));
    assert_eq!(envelope(&wire.read())["status"], "success");
    if !disk.make_read_only() {
        return;
    }
    ask(&mut wire, "TaskStop", &json!({ "task_id": task }));
    wire.read();
    assert!(!is_alive(pid), "whatever the ledger says, it is stopped");
    end(wire);
}
