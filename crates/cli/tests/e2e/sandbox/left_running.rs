//! What a command leaves running in a sandbox: who can end it, and when it ends by itself.

use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, is_alive},
    mcp::Wire,
    rights::{CONFINED, INTEGRATION, OPERATOR, by},
};

/// A server with these tools.
fn server(scratch: &Scratch, trust: &str, tools: &str) -> (Wire, String) {
    let rules = [&CONFINED[..], &["--mode", "open", "--tools", tools]].concat();
    let mut wire = Wire::spawn(by(scratch, "mcp", trust, &rules));
    let hello = wire.initialize();
    let instructions = hello["result"]["instructions"].as_str().unwrap().to_owned();
    (wire, instructions)
}

/// Leaves a process running, and returns its pid and its task.
fn leave(wire: &mut Wire) -> (u32, String) {
    let text = wire.tool("run_shell_command", &json!({ "command": "sleep 300 &" }));
    let left: Value = serde_json::from_str(&text).unwrap();
    let pids: Vec<u32> = serde_json::from_value(left["backgroundPids"].clone()).unwrap();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{text}");
    (pids[0], left["taskId"].as_str().unwrap().to_owned())
}

#[test]
fn who_signals_what_another_command_left_running_is_told_of_its_task() {
    let scratch = Scratch::new();
    let (mut wire, _) = server(&scratch, OPERATOR, "all");
    let (pid, task) = leave(&mut wire);
    let fact = format!("{pid} belongs to task {task}; TaskStop ends it");
    let denials = json!([{ "layer": "processes", "what": fact, "by": "sandbox" }]);
    let script = format!("kill {pid}; kill 4194303; echo done");
    let killed = wire.tool("run_shell_command", &json!({ "command": script }));
    let killed: Value = serde_json::from_str(&killed).unwrap();
    if killed["stderr"] == "" {
        skips::skip("this machine has no pid namespaces: kill works");
        return;
    }
    assert_eq!(killed["denials"], denials, "{killed:#}");
    let input = json!({ "command": "bash", "args": ["-c", script] });
    let killed: Value = serde_json::from_str(&wire.tool("execute_command", &input)).unwrap();
    assert_eq!(killed["denials"], denials, "{killed:#}");
    let input = json!({ "cmd": script, "shell": "bash", "login": false });
    let killed = wire.tool("ExecCommand", &input);
    assert!(killed.contains(&format!("\nSandbox:\n{fact}")), "{killed}");
    // One who may not stop it is told nothing.
    let (mut less, _) = server(&scratch, INTEGRATION, "all");
    let killed = less.tool("ExecCommand", &input);
    assert!(killed.contains("such process") && !killed.contains(&task), "{killed}");
    assert!(wire.tool("TaskStop", &json!({ "task_id": task })).starts_with("Task stopped"));
    assert!(!is_alive(pid));
}

#[test]
fn where_no_tool_stops_tasks_what_is_left_running_ends_with_its_session() {
    let scratch = Scratch::new();
    let (mut other, _) = server(&scratch, OPERATOR, "run_shell_command,TaskStop");
    let (kept, task) = leave(&mut other);
    let (mut wire, instructions) = server(&scratch, OPERATOR, "ExecCommand,run_shell_command");
    assert!(instructions.contains("go on until this session ends"), "{instructions}");
    assert!(!instructions.contains("TaskStop"), "{instructions}");
    let (pid, _) = leave(&mut wire);
    let input = json!({ "cmd": "sleep 300 &", "login": false });
    let left = wire.tool("ExecCommand", &input);
    assert!(left.ends_with("They go on until this session ends."), "{left}");
    let killed = wire.tool("run_shell_command", &json!({ "command": format!("kill {pid}") }));
    assert!(!killed.contains("TaskStop"), "{killed}");
    drop(wire);
    eventually("it has ended with its session", || (!is_alive(pid)).then_some(()));
    drop(other);
    assert!(is_alive(kept), "what can be stopped goes on");
    let (mut later, _) = server(&scratch, OPERATOR, "TaskStop");
    assert!(later.tool("TaskStop", &json!({ "task_id": task })).starts_with("Task stopped"));
}
