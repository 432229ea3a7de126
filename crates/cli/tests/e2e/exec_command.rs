//! ExecCommand, as the contract says: receipts, envelopes, outcomes.

use insta::{assert_json_snapshot, assert_snapshot};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Scratch, announced, eventually, fixture, is_alive, open, without_times};

/// The envelope without what changes from run to run.
fn masked(mut envelope: Value) -> Value {
    for name in ["task_id", "duration_ms"] {
        envelope["result"][name] = json!("…");
    }
    envelope
}

#[test]
fn the_receipt_of_a_command_with_both_streams() {
    let scratch = Scratch::new();
    let input = r#"{"cmd":"echo hi; echo oops >&2; exit 3","login":false}"#;
    let (receipt, code) = scratch.receipt("ExecCommand", input);
    assert_eq!(code, 0, "a non-zero exit is a result");
    assert_snapshot!(receipt, @r"
    Process exited with code 3

    stdout:
    hi

    stderr:
    oops
    ");
}

#[test]
fn the_envelope_of_a_command_with_both_streams() {
    let scratch = Scratch::new();
    let envelope = scratch.exec(&json!({ "cmd": "echo hi; echo oops >&2; exit 3" }));
    assert_json_snapshot!(masked(envelope));
}

#[test]
fn a_command_without_output() {
    let scratch = Scratch::new();
    let (receipt, _) = scratch.receipt("ExecCommand", r#"{"cmd":"true","login":false}"#);
    assert_eq!(receipt, "Process exited with code 0\n");
    let result = scratch.result("true");
    assert_eq!(result["stdout_preview"], Value::Null);
    assert!(result.get("artifacts").is_none());
}

#[test]
fn exit_codes_are_exact() {
    let scratch = Scratch::new();
    for code in [0, 1, 7, 126, 127, 255] {
        let result = scratch.result(&format!("exec {} exit {code}", fixture()));
        assert_eq!(result["exit_status"], code);
    }
}

#[test]
fn a_death_by_signal_names_the_signal() {
    let scratch = Scratch::new();
    let input = json!({ "cmd": format!("exec {} signal 11", fixture()), "login": false });
    let (receipt, code) = scratch.receipt("ExecCommand", &input.to_string());
    assert_eq!(code, 0);
    assert_eq!(receipt, "Process exited\nSignal: SIGSEGV (11)\n");
    let envelope = scratch.exec(&input);
    assert_eq!(envelope["summary_text"], "command was ended by SIGSEGV");
    assert_eq!(envelope["result"]["exit_status"], Value::Null);
    assert_eq!(envelope["result"]["signal"], 11);
}

#[test]
fn a_background_process_does_not_hold_up_the_answer_and_is_listed() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    // The fixture leaves a process behind that holds both pipes until the gate opens.
    let result = scratch.result(&format!("{} keep-pipe {gate} late & echo hi; wait", fixture()));
    assert_eq!(result["exit_status"], 0);
    assert_eq!(result["stdout_preview"], "hi");
    assert_eq!(result["flags"], json!(["leaked_handles"]));
    let pids = result["background_pids"].as_array().unwrap();
    assert_eq!(pids.len(), 1, "{result:#}");
    let pid = u32::try_from(pids[0].as_u64().unwrap()).unwrap();
    assert!(is_alive(pid));
    // It goes on, and what it prints later is still kept.
    open(&gate);
    eventually("the background process ends", || (!is_alive(pid)).then_some(()));
    let artifact = scratch.folder(&result["task_id"]).join("stdout");
    eventually("late output is stored", || {
        (std::fs::read_to_string(&artifact).ok()? == "hi\nlate\n").then_some(())
    });
}

#[test]
fn a_plain_background_job_is_listed_in_the_receipt() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let cmd = format!("{} ignore-term {ready} & echo hi", fixture());
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    let (receipt, _) = scratch.receipt("ExecCommand", &input);
    let pid = announced(&ready);
    let task = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    assert_eq!(
        receipt,
        format!(
            "Process exited with code 0\n\nstdout:\nhi\n\nBackground processes:\n{pid} {} ignore-term {ready}\n\
             They go on. TaskStop with the task {task} ends them.\n",
            fixture()
        )
    );
    crate::common::signal(pid, Signal::KILL);
}

#[test]
fn redirecting_to_dev_stderr_loses_nothing() {
    let scratch = Scratch::new();
    let result = scratch.result("echo a >&2; echo b > /dev/stderr; echo c > /dev/stdout");
    assert_eq!(result["stderr_preview"], "a\nb");
    assert_eq!(result["stdout_preview"], "c");
}

#[test]
fn a_command_that_closes_its_outputs_is_waited_for() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("exec {} close-outputs {gate} 5", fixture());
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    let mut child = scratch
        .legwork("call")
        .args(["ExecCommand", "--json", &input])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the task is running", || {
        scratch.tasks().iter().any(|task| task["status"] == "running").then_some(())
    });
    assert!(child.try_wait().unwrap().is_none());
    open(&gate);
    let output = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["result"]["exit_status"], 5);
}

#[test]
fn the_folder_and_the_shell_are_used() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.workspace.path().join("sub")).unwrap();
    let envelope = scratch.exec(&json!({ "cmd": "pwd; echo $0", "workdir": "sub", "shell": "sh" }));
    let expected = scratch.workspace.path().canonicalize().unwrap().join("sub");
    assert_eq!(envelope["result"]["stdout_preview"], format!("{}\nsh", expected.display()));
}

#[test]
fn a_text_that_begins_with_a_dash_is_no_option() {
    let scratch = Scratch::new();
    let result = scratch.result("-x 2>/dev/null; echo $?");
    assert_eq!(result["stdout_preview"], "127");
}

#[test]
fn null_counts_as_absent() {
    let scratch = Scratch::new();
    let envelope = scratch.exec(&json!({
        "cmd": "echo hi", "workdir": null, "shell": null, "login": false, "tty": null,
        "duplicate_policy": null, "accepts_input": null, "yield_time_ms": null,
        "max_output_tokens": null,
    }));
    assert_eq!(envelope["result"]["stdout_preview"], "hi");
}

#[test]
fn an_equal_running_command_is_not_started_twice() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("{} wait-for {gate}", fixture());
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    let first = scratch.legwork("call").args(["ExecCommand", &input]).spawn().unwrap();
    let task = eventually("the first one runs", || {
        scratch.tasks().into_iter().find(|task| task["status"] == "running")
    });
    let envelope = scratch.exec(&json!({ "cmd": cmd }));
    assert_eq!(envelope["result"]["disposition"], "already_running");
    assert_eq!(envelope["result"]["task_handle"]["task_id"], task["task_id"]);
    let (receipt, _) = scratch.receipt("ExecCommand", &input);
    let receipt = receipt
        .replace(task["task_id"].as_str().unwrap(), "TASK")
        .replace(fixture(), "fixture")
        .replace(scratch.workspace.path().canonicalize().unwrap().to_str().unwrap(), "WORKSPACE");
    let receipt = receipt.replace(scratch.workspace.path().to_str().unwrap(), "WORKSPACE");
    assert_snapshot!(without_times(&receipt));
    assert_eq!(scratch.tasks().len(), 1);
    open(&gate);
    assert!(first.wait_with_output().unwrap().status.success());
    // It has ended: an equal one starts again.
    assert_eq!(scratch.exec(&json!({ "cmd": cmd }))["result"]["disposition"], "completed");
}

#[test]
fn the_users_own_shell_by_its_name_is_the_same_command() {
    let scratch = Scratch::new();
    let bash = |more: Value| {
        let mut input = json!({ "cmd": "sleep 60", "yield_time_ms": 0, "login": false });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut call = scratch.legwork("call");
        call.env("SHELL", "/bin/bash").args(["ExecCommand", &input.to_string(), "--json"]);
        let envelope: Value = serde_json::from_slice(&call.output().unwrap().stdout).unwrap();
        envelope["result"]["disposition"].as_str().unwrap().to_owned()
    };
    assert_eq!(bash(json!({})), "promoted_to_task");
    assert_eq!(bash(json!({ "shell": "bash" })), "already_running");
    assert_eq!(bash(json!({ "shell": "sh" })), "promoted_to_task");
}
