//! A server that is told to end leaves at once, with its last answers and without its commands.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    common::{Scratch, announced, eventually, fixture, is_alive, signal},
    mcp::Wire,
};

/// A well-known client kills after half a second. What is aimed at is a tenth of one; the rest is
/// for a loaded machine.
const PROMPT: Duration = Duration::from_millis(450);

fn leaves(mut wire: Wire, with: Signal) -> Duration {
    let begin = Instant::now();
    signal(wire.child.id(), with);
    let status = wire.child.wait().unwrap();
    assert!(status.success(), "{status:?}");
    begin.elapsed()
}

#[test]
fn a_signal_is_obeyed_at_once() {
    let scratch = Scratch::new();
    for with in [Signal::TERM, Signal::INT, Signal::HUP] {
        // A machine that is busy with other things delays one of them, a wait of ours every one.
        let took = (0..3).map(|_| {
            let mut wire = Wire::initialized(&scratch);
            wire.exec(&json!({ "cmd": "true", "login": false }));
            leaves(wire, with)
        });
        let quickest = took.min().unwrap();
        assert!(quickest < PROMPT, "{with:?}: {quickest:?}");
    }
}

#[test]
fn a_command_that_ignores_its_end_does_not_hold_the_server_and_dies_all_the_same() {
    let took = (0..3).map(|_| {
        let scratch = Scratch::new();
        let ready = scratch.file("ready");
        let mut wire = Wire::initialized(&scratch);
        let cmd = format!("{} ignore-term {ready}", fixture());
        wire.send(
            "tools/call",
            &json!({ "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false } }),
        );
        let pid = announced(&ready);
        let took = leaves(wire, Signal::TERM);
        eventually("its warden ends it", || (!is_alive(pid)).then_some(()));
        eventually("its end is recorded", || {
            let tasks = scratch.tasks();
            let [task] = tasks.as_slice() else { panic!("{tasks:#?}") };
            (task["status"] == "cancelled").then_some(())
        });
        took
    });
    let quickest = took.min().unwrap();
    assert!(quickest < PROMPT, "{quickest:?}");
}

#[test]
fn an_answer_that_is_due_leaves_before_the_server() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut wire = Wire::initialized(&scratch);
    // It dies of the signal at once, and that is its answer.
    let cmd = format!("echo $$ > {ready}; exec sleep 61");
    let id = wire.send(
        "tools/call",
        &json!({ "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false } }),
    );
    crate::common::announced_line(&ready);
    signal(wire.child.id(), Signal::TERM);
    let answer = wire.read();
    assert_eq!(answer["id"], id, "{answer:#}");
    assert!(
        answer["result"]["content"][0]["text"].as_str().unwrap().contains("SIGTERM"),
        "{answer:#}"
    );
    assert!(wire.child.wait().unwrap().success());
}
