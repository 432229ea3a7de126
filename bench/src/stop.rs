//! How long a stop takes, and how late a call is answered that is out of time.

use std::{path::Path, thread, time::Duration};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, percentile},
    report::Report,
};

/// An ordinary script: a shell, and what it has started.
const SCRIPT: &str = "sleep 61; echo never";

/// The time limit of the calls that are to run out of it, in seconds.
const LIMIT: f64 = 1.0;

pub fn stop(legwork: &Path, quick: bool, report: &mut Report) {
    let (stops, timeouts) = if quick { (20, 5) } else { (50, 20) };
    let workspace = TempDir::new().unwrap();
    let place = workspace.path().to_str().unwrap();
    for (mode, name) in [("open", "open"), ("guarded", "sandboxed")] {
        let arguments = ["--mode", mode, "--workspace", place, "--tools", "all"];
        let mut client = Client::start_with(legwork, &arguments);
        let taken: Vec<f64> = (0..stops).map(|_| stopped(&mut client) / 1e3).collect();
        report.note(&format!("TaskStop of a script, {name}, p50"), median(&taken), "ms", "");
        let slowest = percentile(&taken, 1.0);
        report.note(&format!("the same, slowest of {stops}"), slowest, "ms", "< 100");
        let late: Vec<f64> = (0..timeouts).map(|_| late(&mut client) / 1e3).collect();
        report.note(&format!("answer past the timeout, {name}, p50"), median(&late), "ms", "");
        let slowest = percentile(&late, 1.0);
        report.note(&format!("the same, latest of {timeouts}"), slowest, "ms", "< 300");
    }
}

/// Starts a script and stops it; how long the stop took, in microseconds.
fn stopped(client: &mut Client) -> f64 {
    let input = json!({ "cmd": SCRIPT, "login": false, "shell": "/bin/sh", "yield_time_ms": 0 });
    let told = client.tool("ExecCommand", &input);
    let task = told.lines().find_map(|line| line.strip_prefix("Task: ")).unwrap().to_owned();
    // It is a script with a child by then.
    thread::sleep(Duration::from_millis(50));
    micros(|| drop(client.tool("TaskStop", &json!({ "task_id": task }))))
}

/// How long after its time limit a call is answered, in microseconds.
fn late(client: &mut Client) -> f64 {
    let input = json!({ "command": "sh", "args": ["-c", SCRIPT], "timeout": LIMIT });
    micros(|| {
        let told = client.tool("execute_command", &input);
        assert!(told.contains("\"timed_out\":true"), "{told}");
    }) - LIMIT * 1e6
}
