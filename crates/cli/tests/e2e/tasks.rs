//! Tasks: promotion, duplicates, stopping, many of them.

use std::{fs, thread};

use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{
        Scratch, announced, announced_number, eventually, fixture, is_alive, open, parent, signal,
        text, without_times,
    },
    mcp::Wire,
};

#[test]
fn a_promoted_command_never_notices() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("echo begun; {} wait-for {gate}; echo done; exit 4", fixture());
    let result = scratch.get("ExecCommand", &json!({ "cmd": cmd, "yield_time_ms": 700 }));
    assert_eq!(result["disposition"], "promoted_to_task");
    let handle = &result["task_handle"];
    assert_eq!(
        (&handle["task_kind"], &handle["status"]),
        (&json!("command_task"), &json!("running"))
    );
    assert_eq!(result["initial_output_preview"], "begun");
    assert_eq!(result["initial_output_truncated"], false);
    let task = handle["task_id"].as_str().unwrap();
    open(&gate);
    let waited = scratch.wait(task, &json!({ "exit": true }));
    assert_eq!(waited["tasks"][0]["status"], "failed");
    assert_eq!(waited["tasks"][0]["exit_status"], 4);
    assert_eq!(text(&scratch.printed(&handle["task_id"])), "begun\ndone\n");
}

#[test]
fn output_around_the_promotion_appears_exactly_once() {
    let scratch = Scratch::new();
    for yield_ms in [0, 3, 20, 60, 110] {
        let cmd = format!("{} tick 120 1000; : {yield_ms}", fixture());
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": yield_ms });
        let result = scratch.get("ExecCommand", &input);
        assert_eq!(result["disposition"], "promoted_to_task", "{result:#}");
        let mut seen = result["initial_output_preview"].as_str().unwrap_or_default().to_owned();
        let mut cursor = result["next_cursor"].clone();
        loop {
            let input = json!({ "task_id": result["task_handle"]["task_id"], "after": cursor });
            let output = scratch.get("TaskOutput", &input);
            // The preview of the promotion is trimmed.
            if !seen.is_empty() && !seen.ends_with('\n') {
                seen.push('\n');
            }
            seen.push_str(output["output_preview"].as_str().unwrap_or_default());
            cursor = output["next_cursor"].clone();
            if output["task"]["status"] == "completed" && output["output_preview"].is_null() {
                break;
            }
        }
        let lines = seen.lines().filter(|line| !line.is_empty());
        let mut numbers: Vec<u64> = lines.map(|line| line.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..120).collect::<Vec<_>>(), "yield {yield_ms}");
    }
}

#[test]
fn who_does_not_wait_gets_a_task_however_short_the_command() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    for _ in 0..50 {
        let input = json!({ "cmd": "echo short", "login": false, "yield_time_ms": 0,
                            "duplicate_policy": "start_new" });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
        let answer = wire.read();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("Command promoted to background task\nTask: t_"), "{text}");
    }
}

#[test]
fn a_command_that_cannot_start_is_an_error_whatever_the_window() {
    let scratch = Scratch::new();
    let input = json!({ "cmd": "true", "shell": "/etc/passwd", "yield_time_ms": 0 });
    let envelope = scratch.call("ExecCommand", &input);
    assert_eq!(envelope["error"]["kind"], "command_spawn_failed", "{envelope:#}");
}

#[test]
fn a_hundred_equal_calls_of_four_processes_start_one() {
    let scratch = Scratch::new();
    let (gate, starts) = (scratch.file("gate"), scratch.file("starts"));
    let cmd = format!("echo $$ >> {starts}; {} wait-for {gate}", fixture());
    let call = json!({ "name": "ExecCommand",
                       "arguments": { "cmd": cmd, "login": false, "yield_time_ms": 100 } });
    let mut wires: Vec<Wire> = (0..4).map(|_| Wire::initialized(&scratch)).collect();
    for _ in 0..25 {
        for wire in &mut wires {
            wire.send("tools/call", &call);
        }
    }
    let texts: Vec<String> = wires
        .iter()
        .flat_map(|wire| (0..25).map(|_| wire.read()))
        .map(|answer| answer["result"]["content"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    let with = |start: &str| texts.iter().filter(|text| text.starts_with(start)).count();
    assert_eq!(with("Command promoted to background task"), 1, "{texts:#?}");
    assert_eq!(with("Command is already running"), 99);
    assert_eq!(fs::read_to_string(starts).unwrap().lines().count(), 1);
    open(&gate);
}

#[test]
fn a_second_copy_is_started_when_asked_for() {
    let scratch = Scratch::new();
    let first = scratch.promote("sleep 1000", &json!({}));
    let second = scratch.promote("sleep 1000", &json!({ "duplicate_policy": "start_new" }));
    assert_ne!(first, second);
    assert_eq!(scratch.get("TaskList", &json!({}))["total"], 2);
    // With another terminal, shell or folder it is not the same command.
    scratch.promote("sleep 1000", &json!({ "tty": true }));
}

#[test]
fn a_task_that_is_being_stopped_is_not_joined() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("exec {} ignore-term {ready}", fixture());
    let first = scratch.promote(&cmd, &json!({}));
    let pid = announced(&ready);
    thread::scope(|scope| {
        let stop = scope
            .spawn(|| scratch.get("TaskStop", &json!({ "task_id": first, "grace_ms": 60_000 })));
        eventually("it is being stopped", || {
            (scratch.status(&first)["status"] == "cancelling").then_some(())
        });
        let second = scratch.promote(&cmd, &json!({}));
        assert_ne!(first, second);
        signal(pid, Signal::KILL);
        assert_eq!(stop.join().unwrap()["stop_requested"], true);
    });
    assert_eq!(scratch.status(&first)["status"], "cancelled");
}

#[test]
fn a_task_whose_warden_is_gone_is_settled_and_not_joined() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("exec {} ignore-term {ready}", fixture());
    let first = scratch.promote(&cmd, &json!({}));
    let warden = parent(announced(&ready));
    fs::remove_file(&ready).unwrap();
    signal(warden, Signal::KILL);
    eventually("the warden is gone", || (!is_alive(warden)).then_some(()));
    let second = scratch.promote(&cmd, &json!({}));
    assert_ne!(first, second);
    let task = scratch.status(&first);
    assert_eq!((&task["status"], &task["reason"]), (&json!("interrupted"), &json!("warden_lost")));
    assert_eq!(task["exit_status"], Value::Null);
}

#[test]
fn stopping_a_task_leaves_nothing_and_says_how_it_ended() {
    let scratch = Scratch::new();
    let cmd = format!("exec {} detached-tree {}", fixture(), scratch.workspace.path().display());
    let task = scratch.promote(&cmd, &json!({}));
    let pids: Vec<u32> =
        ["child", "daemon", "self"].iter().map(|name| announced(&scratch.file(name))).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 50 }));
    assert_eq!(stopped["stop_requested"], true);
    assert_eq!(stopped["survivors"], json!([]));
    assert_eq!(stopped["outcome"]["signal"], 9);
    assert_eq!(stopped["task"]["status"], "cancelled");
    assert!(!pids.into_iter().any(is_alive));
    let again = scratch.get("TaskStop", &json!({ "task_id": task }));
    assert_eq!(again["stop_requested"], false);
    assert_eq!(again["outcome"]["signal"], 9);
}

#[test]
fn what_a_command_prints_as_it_is_stopped_is_part_of_its_outcome() {
    let scratch = Scratch::new();
    for tty in [false, true] {
        for _ in 0..8 {
            let cmd = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done";
            let task = scratch.promote(cmd, &json!({ "tty": tty }));
            scratch.wait(&task, &json!({ "output_matches": "up" }));
            let stopped = scratch.get("TaskStop", &json!({ "task_id": task }));
            assert_eq!(stopped["task"]["status"], "cancelled", "{stopped:#}");
            assert_eq!(stopped["outcome"]["exit_status"], 3);
            assert!(text(&scratch.printed(&json!(task))).contains("bye"));
        }
    }
}

#[test]
fn tasks_that_end_while_they_are_asked_about_are_never_in_doubt() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    // Short tasks, whose wardens have others soon after.
    for round in 0..40 {
        let mut tasks = Vec::new();
        for number in 0..4 {
            let cmd = format!("sleep 0.0{number}; exit {number}; : {round}");
            let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
            let told = wire.tool("ExecCommand", &input);
            if let Some(task) = told.lines().nth(1).and_then(|line| line.strip_prefix("Task: ")) {
                tasks.push(task.to_owned());
            }
        }
        wire.exec(&json!({ "cmd": "true", "login": false }));
        let waited = wire.tool("TaskWait", &json!({ "task_ids": tasks, "timeout_ms": 1000 }));
        assert!(waited.starts_with("Condition met: the command has ended"), "{waited}");
        for task in tasks {
            wire.tool("TaskOutput", &json!({ "task_id": task }));
        }
    }
}

#[test]
fn a_stopped_warden_is_let_go_on_when_somebody_asks() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let task = scratch.promote(&format!("exec {} ignore-term {ready}", fixture()), &json!({}));
    let pid = announced(&ready);
    signal(parent(pid), Signal::STOP);
    assert_eq!(scratch.status(&task)["status"], "running");
    signal(parent(pid), Signal::STOP);
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 10 }));
    assert_eq!(stopped["task"]["status"], "cancelled");
    assert!(!is_alive(pid));
}

#[test]
fn what_a_finished_task_left_behind_is_listed_and_stopped() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("{} ignore-term {ready} & while [ ! -e {ready} ]; do :; done", fixture());
    let result = scratch.result(&cmd);
    let pid = announced(&ready);
    let task = result["task_id"].as_str().unwrap();
    assert_eq!(result["background_pids"], json!([pid]));
    assert_eq!(scratch.status(task)["background_pids"], json!([pid]));
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 10 }));
    assert_eq!(stopped["stop_requested"], true);
    assert!(!is_alive(pid));
    // The first outcome stays.
    assert_eq!(scratch.status(task)["status"], "completed");
    assert_eq!(scratch.status(task)["background_pids"], json!([]));
}

#[test]
fn a_task_of_another_workspace_is_as_unknown_as_one_that_never_was() {
    let scratch = Scratch::new();
    let task = scratch.promote("sleep 1000", &json!({}));
    let elsewhere = tempfile::TempDir::new().unwrap();
    let ask = |id: &str| {
        let output = scratch
            .legwork("call")
            .args(["TaskStatus", "--json", &json!({ "task_id": id }).to_string()])
            .arg("--workspace")
            .arg(elsewhere.path())
            .output()
            .unwrap();
        text(&output.stdout).replace(id, "ID")
    };
    assert!(ask(&task).contains("unknown_task"));
    assert_eq!(ask(&task), ask("t_aaaaaaaaaaaaaaaaaaaaaaaaaa"));
    // The command line of the same user sees all.
    let shown = scratch.legwork("show").arg(&task).current_dir(elsewhere.path()).output().unwrap();
    assert!(text(&shown.stdout).contains("sleep 1000"));
}

#[test]
fn a_killed_server_loses_neither_a_promoted_task_nor_its_exit_code() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = Wire::initialized(&scratch);
    let cmd = format!("echo one; {} wait-for {gate}; echo two; exit 7", fixture());
    let told = wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 }));
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    assert_eq!(scratch.status(&task)["status"], "running");
    let mut next = Wire::initialized(&scratch);
    open(&gate);
    let waited = next.tool("TaskWait", &json!({ "task_ids": [task] }));
    assert!(waited.contains("Exit status: 7"), "{waited}");
    assert_eq!(text(&scratch.printed(&json!(task))), "one\ntwo\n");
}

#[test]
fn five_hundred_tasks_come_and_go() {
    const TASKS: usize = 500;
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let server = wire.child.id();
    wire.assert_lives();
    let descriptors = || fs::read_dir(format!("/proc/{server}/fd")).unwrap().count();
    let before = descriptors();
    for number in 0..TASKS {
        let input = json!({ "cmd": format!("exec sleep 100{number}"), "login": false,
                            "yield_time_ms": 0 });
        wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
    }
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let answer = wire.read();
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        tasks.push(told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned());
    }
    let listed = wire.tool("TaskList", &json!({ "limit": 100 }));
    assert!(listed.starts_with("500 tasks, the newest 100 are listed"), "{listed}");
    let pids: Vec<u64> = ["0", "499"]
        .iter()
        .map(|place| &tasks[place.parse::<usize>().unwrap()])
        .map(|task| scratch.status(task)["pid"].as_u64().unwrap())
        .collect();
    for task in &tasks {
        let input = json!({ "task_id": task });
        wire.send("tools/call", &json!({ "name": "TaskStop", "arguments": input }));
    }
    for _ in 0..TASKS {
        let answer = wire.read();
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(told.starts_with("Task stopped"), "{told}");
    }
    assert_eq!(wire.tool("TaskList", &json!({})), "No tasks");
    assert!(!pids.into_iter().any(|pid| is_alive(u32::try_from(pid).unwrap())));
    eventually("the wardens are gone", || {
        let sockets = fs::read_dir(scratch.state.path().join("wardens")).unwrap().count();
        (sockets <= 4).then_some(())
    });
    eventually("the descriptors are closed", || (descriptors() <= before + 4).then_some(()));
    assert_eq!(scratch.folders().len(), TASKS);
}

#[test]
fn a_server_pattern_takes_three_calls() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let port_file = scratch.file("port");
    let cmd = format!("{} serve {port_file}", fixture());
    let told = wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 }));
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    let port = announced_number(&port_file);
    let waited = wire.tool("TaskWait", &json!({ "task_ids": [task], "until": { "port": port } }));
    assert!(waited.starts_with(&format!("Condition met: port {port} is open")), "{waited}");
    let stopped = wire.tool("TaskStop", &json!({ "task_id": task }));
    assert!(stopped.starts_with("Task stopped"), "{stopped}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).is_err());
}

#[test]
fn a_promoted_task_goes_on_when_the_client_goes_away_or_cancels() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = Wire::initialized(&scratch);
    let cmd = format!("{} wait-then-exit {gate} 5", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
    let id = wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
    let told = wire.read()["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    wire.write(
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": id } })
        .to_string(),
    );
    wire.assert_lives();
    drop(wire.stdin.take());
    assert!(wire.child.wait().unwrap().success());
    assert_eq!(scratch.status(&task)["status"], "running");
    open(&gate);
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 5);
}

#[test]
fn progress_is_told_when_the_client_asks_for_it() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = Wire::initialized(&scratch);
    let cmd = format!("echo first; echo second; {} wait-for {gate}", fixture());
    let id = wire.send(
        "tools/call",
        &json!({ "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false },
                 "_meta": { "progressToken": "token" } }),
    );
    loop {
        let told = wire.read();
        assert_eq!(told["method"], "notifications/progress", "{told}");
        assert_eq!(told["params"]["progressToken"], "token");
        if told["params"]["message"] == "second" {
            break;
        }
        assert_eq!(told["params"]["message"], "first", "the first look may come early");
    }
    open(&gate);
    loop {
        let answer = wire.read();
        if answer["id"] == id {
            assert_eq!(answer["result"]["isError"], false);
            return;
        }
    }
}

/// A receipt without what differs from run to run.
fn plain(scratch: &Scratch, task: &str, receipt: &str) -> String {
    let receipt = receipt
        .replace(task, "TASK")
        .replace(fixture(), "fixture")
        .replace(scratch.state.path().to_str().unwrap(), "STATE")
        .replace(scratch.workspace.path().to_str().unwrap(), "WORKSPACE");
    let plain_line = |line: &str| {
        let changing = ["Pid: ", "Duration: ", "Cursor: ", "Status: running (running for "];
        match changing.into_iter().find(|label| line.starts_with(label)) {
            Some(label) => format!("{label}...\n"),
            None => format!("{line}\n"),
        }
    };
    receipt.lines().map(plain_line).collect()
}

#[test]
fn receipts_of_the_task_tools() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("echo hello; {} wait-for {gate}; echo bye; exit 3", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 600 });
    let (promoted, _) = scratch.receipt("ExecCommand", &input.to_string());
    let task = promoted.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    let mut told = format!("{}\n---\n", plain(&scratch, &task, &promoted));
    let mut add = |tool: &str, more: Value| {
        let mut input = json!({ "task_id": task });
        if tool == "TaskWait" || tool == "TaskList" {
            input = json!({});
        }
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (receipt, code) = scratch.receipt(tool, &input.to_string());
        assert_eq!(code, 0, "{receipt}");
        told.push_str(&format!("{}\n---\n", plain(&scratch, &task, &receipt)));
    };
    let id = json!([task]);
    add("TaskList", json!({}));
    add("TaskStatus", json!({}));
    add("TaskOutput", json!({ "block": false }));
    add("TaskOutput", json!({ "timeout_ms": 1 }));
    add("TaskInput", json!({ "input": "x" }));
    add("TaskWait", json!({ "task_ids": id, "timeout_ms": 1 }));
    add("TaskWait", json!({ "task_ids": id, "until": { "output_matches": "hel+o" } }));
    open(&gate);
    eventually("it has ended", || (scratch.status(&task)["status"] == "failed").then_some(()));
    add("TaskWait", json!({ "task_ids": id }));
    add("TaskWait", json!({ "task_ids": id, "until": { "port": 1 } }));
    add("TaskOutput", json!({}));
    add("TaskInput", json!({ "input": "x" }));
    add("TaskStop", json!({}));
    add("TaskList", json!({}));
    assert_snapshot!(without_times(&told));
}
