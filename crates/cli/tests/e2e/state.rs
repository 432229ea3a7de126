//! A state folder that cannot be used: a typed error, no panic, no half task.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{Scratch, on_small_disk, program, text};

fn envelope(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_state_folder_that_is_a_file() {
    let scratch = Scratch::new();
    let file = scratch.file("file");
    fs::write(&file, "").unwrap();
    let legwork = |arguments: &[&str]| Command::new(program()).args(arguments).output().unwrap();
    let output = legwork(&["call", "ExecCommand", r#"{"cmd":"true"}"#, "--json", "--state", &file]);
    assert_eq!(output.status.code(), Some(125));
    let error = &envelope(&output)["error"];
    assert_eq!((&error["kind"], &error["retryable"]), (&"state_unavailable".into(), &true.into()));
    let output = legwork(&["mcp", "--state", &file]);
    assert_eq!(output.status.code(), Some(125));
    let complaint = text(&output.stderr);
    assert!(complaint.starts_with("legwork: the state folder cannot be used: "), "{complaint}");
    assert!(complaint.contains(&file), "{complaint}");
}

#[test]
fn a_disk_without_room_for_the_ledger() {
    let scratch = Scratch::new();
    let script = "dd if=/dev/zero of=$DISK/fill bs=4k 2>/dev/null || true; \
        $LW call ExecCommand '{\"cmd\":\"touch started\",\"login\":false}' --json --state $DISK/state";
    let Some(output) = on_small_disk(&scratch, "size=256k", script) else {
        return;
    };
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(envelope(&output)["error"]["kind"], "state_unavailable");
    assert!(!scratch.workspace.path().join("started").exists());
}

#[test]
fn a_disk_that_fills_up_between_two_calls() {
    let scratch = Scratch::new();
    let script = "$LW call ExecCommand '{\"cmd\":\"true\",\"login\":false}' --state $DISK/state >/dev/null; \
        dd if=/dev/zero of=$DISK/fill bs=1k 2>/dev/null || true; \
        $LW call ExecCommand '{\"cmd\":\"touch started\",\"login\":false}' --json --state $DISK/state || true; \
        rm $DISK/fill; \
        $LW ps --json --state $DISK/state >&2; ls $DISK/state/tasks | wc -l >&2";
    let Some(output) = on_small_disk(&scratch, "size=512k", script) else {
        return;
    };
    assert_eq!(envelope(&output)["error"]["kind"], "state_unavailable", "{output:?}");
    assert!(!scratch.workspace.path().join("started").exists());
    let after = text(&output.stderr);
    let (tasks, folders) = after.trim().rsplit_once('\n').unwrap();
    let tasks: Value = serde_json::from_str(tasks).unwrap();
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 1, "no half task: {after}");
    assert_eq!(folders.trim(), "0", "no half folder: {after}");
}

#[test]
fn a_disk_without_inodes() {
    let scratch = Scratch::new();
    let script = "$LW call ExecCommand '{\"cmd\":\"true\",\"login\":false}' --state $DISK/state >/dev/null; \
        i=0; while touch $DISK/f$i 2>/dev/null; do i=$((i+1)); done; \
        $LW call ExecCommand '{\"cmd\":\"touch started\",\"login\":false}' --json --state $DISK/state || true";
    let Some(output) = on_small_disk(&scratch, "size=4m,nr_inodes=40", script) else {
        return;
    };
    assert_eq!(envelope(&output)["error"]["kind"], "state_unavailable", "{output:?}");
    assert!(!scratch.workspace.path().join("started").exists());
}

#[test]
fn a_disk_that_fills_up_while_the_command_prints() {
    let scratch = Scratch::new();
    let script = "echo '[limits]' > $DISK/p; echo 'disk_free_bytes_min = 0' >> $DISK/p; \
        $LW call ExecCommand '{\"cmd\":\"head -c 3000000 /dev/zero | tr \\\\\\\\0 x; exit 7\",\"login\":false}' \
        --json --policy $DISK/p --state $DISK/state";
    let Some(output) = on_small_disk(&scratch, "size=1m", script) else {
        return;
    };
    let result = &envelope(&output)["result"];
    assert_eq!(result["exit_status"], 7, "the exit code is exact: {output:?}");
    // A look at the space just before that finds too little for what comes next.
    let flags = result["flags"].as_array().unwrap().iter();
    let flags: Vec<_> = flags.filter(|it| *it != "low_disk").collect();
    assert_eq!(flags, ["output_dropped", "disk_full"]);
    let stored = result["artifacts"][0]["bytes"].as_u64().unwrap();
    assert_eq!(
        result["dropped_bytes"].as_u64().unwrap() + stored,
        3_000_000,
        "all is accounted for"
    );
    let preview = result["stdout_preview"].as_str().unwrap();
    assert!(preview.starts_with('x') && preview.ends_with('x'), "head and tail are there");
}

#[test]
fn a_folder_deeper_than_a_socket_address_holds() {
    let scratch = Scratch::new();
    let deep = scratch.state.path().join("d".repeat(100)).join("e".repeat(100));
    let output = Command::new(program())
        .args(["run", "--state", deep.to_str().unwrap(), "--", "echo", "deep"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "deep\n", "{output:?}");
}

#[test]
fn a_ledger_of_a_newer_version_is_refused() {
    let scratch = Scratch::new();
    scratch.result("true");
    let ledger = rusqlite::Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    ledger.pragma_update(None, "user_version", 99).unwrap();
    let output = scratch.legwork("ps").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("use the newer program"), "{output:?}");
}

#[test]
fn a_run_that_cannot_keep_its_output_says_so_and_fails() {
    let scratch = Scratch::new();
    // Nobody reads before the command has ended, so that what is dropped cannot have been passed
    // on.
    let script = "$LW run --mode open --state $DISK/state -- sh -c 'head -c 3000000 /dev/zero; : > done' | \
        { until [ -e done ]; do :; done; wc -c; }; exit 0";
    let Some(output) = on_small_disk(&scratch, "size=1m", script) else { return };
    let complaint = text(&output.stderr);
    assert!(complaint.contains("bytes of output could not be stored"), "{output:?}");
}
