//! Input for tasks, and knowing when one waits for it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Scratch, announced, eventually, fixture, is_alive, parent, signal, text};

#[test]
fn cat_gets_text_then_the_end() {
    let scratch = Scratch::new();
    let task = scratch.promote("cat", &json!({ "accepts_input": true }));
    let sent = scratch.send(&task, &json!({ "input": "grüße\nhalf" }));
    assert_eq!((&sent["bytes_written"], &sent["input_target"]), (&json!(12), &json!("stdin")));
    scratch.wait(&task, &json!({ "output_matches": "half" }));
    scratch.send(&task, &json!({ "input": " line\n", "eof": true }));
    let waited = scratch.wait(&task, &json!({}));
    assert_eq!(waited["tasks"][0]["exit_status"], 0);
    assert_eq!(text(&scratch.printed(&json!(task))), "grüße\nhalf line\n");
    let late = scratch.get("TaskInput", &json!({ "task_id": task, "input": "x" }));
    assert_eq!((&late["accepted_input"], &late["input_target"]), (&json!(false), &json!("none")));
    assert_eq!(late["reason"], "the task has ended");
}

#[test]
fn a_task_without_stdin_refuses_input_with_the_reason() {
    let scratch = Scratch::new();
    let task = scratch.promote("sleep 1000", &json!({}));
    let sent = scratch.get("TaskInput", &json!({ "task_id": task, "input": "x" }));
    assert_eq!(sent["accepted_input"], false);
    assert!(sent["reason"].as_str().unwrap().contains("without `accepts_input`"));
}

#[test]
fn a_closed_stdin_is_said_to_be_closed() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("exec 0<&-; exec {} ignore-term {ready}", fixture());
    let task = scratch.promote(&cmd, &json!({ "accepts_input": true }));
    announced(&ready);
    let sent = scratch.get("TaskInput", &json!({ "task_id": task, "input": "x" }));
    assert_eq!(sent["accepted_input"], false);
    assert!(sent["reason"].as_str().unwrap().starts_with("stdin_closed"), "{sent}");
}

#[test]
fn input_that_nobody_reads_is_counted_and_not_held() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("exec {} ignore-term {ready}", fixture());
    let task = scratch.promote(&cmd, &json!({ "accepts_input": true }));
    let warden = parent(announced(&ready));
    let input = json!({ "task_id": task, "input": "x".repeat(1_000_000) });
    // Too long for an argument.
    let mut call = scratch.legwork("call");
    let mut child = call
        .args(["TaskInput", "-", "--json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sent = &envelope["result"];
    assert_eq!(sent["accepted_input"], false, "{envelope:#}");
    assert_eq!(sent["bytes_written"], 65536, "what a pipe holds");
    let status = std::fs::read_to_string(format!("/proc/{warden}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kb: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
    assert!(resident_kb < 10_000, "{resident_kb} kB");
}

#[test]
fn a_key_or_an_end_that_did_not_arrive_is_not_said_to_be_accepted() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("exec {} ignore-term {ready}", fixture());
    let task = scratch.promote(&cmd, &json!({ "accepts_input": true }));
    announced(&ready);
    // As much as a pipe holds, so that the key does not fit any more.
    let full = "x".repeat(65_536);
    scratch.send(&task, &json!({ "input": full }));
    let sent = scratch.get("TaskInput", &json!({ "task_id": task, "key": "enter", "eof": true }));
    assert_eq!(sent["accepted_input"], false, "{sent:#}");
}

#[test]
fn the_death_of_the_engine_is_no_end_of_input() {
    let scratch = Scratch::new();
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    let told = wire.tool(
        "ExecCommand",
        &json!({ "cmd": "cat", "login": false, "accepts_input": true, "yield_time_ms": 0 }),
    );
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    signal(wire.child.id(), Signal::KILL);
    wire.child.wait().unwrap();
    scratch.send(&task, &json!({ "input": "still here\n", "eof": true }));
    assert_eq!(scratch.wait(&task, &json!({}))["tasks"][0]["exit_status"], 0);
    assert_eq!(text(&scratch.printed(&json!(task))), "still here\n");
}

#[test]
fn a_read_waits_for_input_and_others_do_not() {
    let scratch = Scratch::new();
    let open = json!({ "accepts_input": true });
    let reader = scratch.promote("echo before; read answer; echo got $answer", &open);
    scratch.wait(&reader, &json!({ "waiting_for_input": true }));
    assert_eq!(scratch.status(&reader)["waiting_for_input"], true);
    let result = scratch.get(
        "ExecCommand",
        &json!({ "cmd": "echo me; read answer", "login": false, "accepts_input": true,
                 "yield_time_ms": 700 }),
    );
    assert_eq!(result["waiting_for_input"], true, "{result:#}");

    let (port, ready) = (scratch.file("port"), scratch.file("ready"));
    for cmd in [
        "sleep 1000".to_owned(),
        format!("{} serve {port}", fixture()),
        format!("{} spin {ready}", fixture()),
        "while :; do /bin/true; done".to_owned(),
    ] {
        let task = scratch.promote(&cmd, &open);
        let input = json!({ "task_ids": [task], "until": { "waiting_for_input": true },
                            "timeout_ms": 400 });
        assert_eq!(scratch.get("TaskWait", &input)["met"], false, "{cmd}");
        assert_ne!(scratch.status(&task)["waiting_for_input"], true, "{cmd}");
        scratch.get("TaskStop", &json!({ "task_id": task, "signal": "KILL" }));
    }
    scratch.send(&reader, &json!({ "input": "yes", "key": "enter" }));
    scratch.wait(&reader, &json!({}));
    assert_eq!(text(&scratch.printed(&json!(reader))), "before\ngot yes\n");
}

#[test]
fn programs_that_wait_with_poll_or_select_are_seen() {
    let scratch = Scratch::new();
    let open = json!({ "accepts_input": true });
    for wait in ["select.select([0], [], [])", "p = select.poll(); p.register(0, 1); p.poll()"] {
        let cmd = format!("python3 -c 'import select; {wait}'");
        let task = scratch.promote(&cmd, &open);
        scratch.wait(&task, &json!({ "waiting_for_input": true }));
        scratch.get("TaskStop", &json!({ "task_id": task }));
    }
    // With a time limit it goes on by itself.
    let cmd = "python3 -c 'import select\nprint(1, flush=True)\nwhile 1: select.select([0], [], [], 0.05)'";
    let task = scratch.promote(cmd, &open);
    scratch.wait(&task, &json!({ "output_matches": "1" }));
    assert_eq!(scratch.status(&task)["waiting_for_input"], false);
}

#[test]
fn a_control_key_needs_a_terminal() {
    let scratch = Scratch::new();
    let task = scratch.promote("cat", &json!({ "accepts_input": true }));
    let envelope = scratch.call("TaskInput", &json!({ "task_id": task, "key": "ctrl-c" }));
    assert_eq!(envelope["error"]["details"]["field"], "key", "{envelope:#}");
    let pid = u32::try_from(scratch.status(&task)["pid"].as_u64().unwrap()).unwrap();
    assert!(is_alive(pid));
    scratch.send(&task, &json!({ "key": "ctrl-d" }));
    eventually("the end of the input ends it", || (!is_alive(pid)).then_some(()));
}
