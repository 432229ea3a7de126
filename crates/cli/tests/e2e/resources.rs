//! What a command used is recorded and shown, and of one that runs what it uses now.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, fixture, open, signal, text},
    mcp::Wire,
};

/// Holds 40 MB in one process that is no child of the shell's own, and turns in the shell for a
/// while.
const BUSY: &str = "head -c 40000000 /dev/zero | tail -c 40000000 >/dev/null
    i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

const MEBIBYTE: u64 = 1 << 20;

/// What `show` prints of a task, for people.
fn shown(scratch: &Scratch, task: &str) -> String {
    text(&scratch.legwork("show").arg(task).output().unwrap().stdout)
}

/// What is recorded of the resources of a task.
fn recorded(scratch: &Scratch, task: &str) -> Value {
    let output = scratch.legwork("show").args([task, "--json"]).output().unwrap();
    let task: Value = serde_json::from_slice(&output.stdout).unwrap();
    task["outcome"]["resources"].clone()
}

fn number(resources: &Value, name: &str) -> u64 {
    resources[name].as_u64().unwrap_or_else(|| panic!("{name}: {resources}"))
}

#[test]
fn what_a_command_used_is_recorded_with_all_that_it_started() {
    let scratch = Scratch::new();
    for mode in ["open", "guarded"] {
        let mut wire = Wire::spawn(scratch.guarded("mcp", mode, None));
        wire.initialize();
        wire.tool("ExecCommand", &json!({ "cmd": BUSY, "login": false }));
        let used = recorded(&scratch, "@");
        assert!(number(&used, "cpu_user_us") > 20_000, "{mode}: {used}");
        assert!(number(&used, "cpu_system_us") > 0, "{mode}: {used}");
        let peak = number(&used, "memory_peak_bytes");
        assert!((38 * MEBIBYTE..200 * MEBIBYTE).contains(&peak), "{mode}: {used}");
        let told = shown(&scratch, "@");
        assert!(told.contains("Used:") && told.contains(" at most in one process\n"), "{told}");
        // The next command of the same warden has its own account.
        wire.tool("ExecCommand", &json!({ "cmd": "true", "login": false }));
        let used = recorded(&scratch, "@");
        assert!(number(&used, "memory_peak_bytes") < 20 * MEBIBYTE, "{mode}: {used}");
        assert!(number(&used, "cpu_user_us") < 20_000_000, "{mode}: {used}");
    }
}

#[test]
fn what_a_command_used_outlives_the_engine_that_started_it() {
    let scratch = Scratch::new();
    let (gate, ready) = (scratch.file("gate"), scratch.file("ready"));
    let mut wire = Wire::initialized(&scratch);
    let cmd = format!("{BUSY}\ntouch {ready}; {} wait-for {gate}", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let told = wire.tool("ExecCommand", &input);
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    eventually("it has been busy", || fs::exists(&ready).unwrap().then_some(()));
    let told = shown(&scratch, &task);
    let now = told.lines().find(|line| line.starts_with("Uses:")).unwrap();
    assert!(now.contains("CPU ") && now.contains(", memory "), "{told}");
    assert!(now.ends_with(" 2 processes"), "the shell and what it waits for: {told}");
    assert!(!now.contains("CPU 0 ms"), "{told}");
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    open(&gate);
    let used = eventually("its end is recorded", || {
        Some(recorded(&scratch, &task)).filter(|used| !used.is_null())
    });
    assert!(number(&used, "cpu_user_us") > 20_000, "{used}");
    assert!(number(&used, "memory_peak_bytes") > 38 * MEBIBYTE, "{used}");
}

#[test]
fn a_limit_of_memory_tells_what_the_whole_tree_had() {
    let scratch = Scratch::new();
    let policy = "[limits]\nmemory_bytes_max = 209715200";
    let mut wire = Wire::spawn(scratch.guarded("mcp", "open", Some(policy)));
    wire.initialize();
    wire.tool("ExecCommand", &json!({ "cmd": BUSY, "login": false }));
    let used = recorded(&scratch, "@");
    if legwork_warden::cgroup_limits().is_err() {
        eprintln!("skipped: no cgroup counts memory here");
        assert_eq!(used.get("tree_memory_peak_bytes"), None, "{used}");
        return;
    }
    assert!(number(&used, "tree_memory_peak_bytes") > 38 * MEBIBYTE, "{used}");
    assert!(shown(&scratch, "@").contains(" at most\n"), "{}", shown(&scratch, "@"));
}
