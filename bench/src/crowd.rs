//! Many tasks that run at the same time: what each costs, and how long it takes to list them.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::json;

use crate::{
    client::Client,
    measure::{median, memory_kb, micros, tree, until},
    report::Report,
};

/// Starts sleepers as tasks, looks at them, and ends them.
pub fn running(legwork: &Path, quick: bool, report: &mut Report) {
    let tasks = if quick { 100 } else { 2000 };
    let mut client = Client::start(legwork);
    client.run("true");
    let started: Vec<String> = (0..tasks).map(|number| start(&mut client, number)).collect();
    until("all tasks run", || named(&client, "sleep").len() == tasks);
    // As they are while they run on, not in their first quarter of a second.
    thread::sleep(Duration::from_millis(500));
    let wardens = named(&client, "legwork-warden");
    let pss: f64 = wardens.iter().map(|pid| memory_kb(*pid, "smaps_rollup", "Pss:")).sum();
    let what = format!("PSS of a warden, {tasks} running");
    report.note(&what, pss / wardens.len() as f64, "kB", "< 80");
    let list = json!({ "limit": 100 });
    let lists: Vec<f64> =
        (0..50).map(|_| micros(|| drop(client.tool("TaskList", &list))) / 1e3).collect();
    report.note(&format!("TaskList, {tasks} running, p50"), median(&lists), "ms", "< 5");
    for task in &started {
        client.tool("TaskStop", &json!({ "task_id": task, "signal": "KILL", "grace_ms": 0 }));
    }
    until("nothing runs any more", || named(&client, "sleep").is_empty());
}

/// Starts one that goes on as a task at once, and returns its id.
fn start(client: &mut Client, number: usize) -> String {
    let cmd = format!("exec sleep 600.{number}");
    let input = json!({ "cmd": cmd, "login": false, "shell": "/bin/sh", "yield_time_ms": 0 });
    let receipt = client.tool("ExecCommand", &input);
    receipt.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap().to_owned()
}

/// The processes below the server that have this name.
fn named(client: &Client, name: &str) -> Vec<u32> {
    let is_named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    tree(client.pid()).into_iter().filter(is_named).collect()
}
