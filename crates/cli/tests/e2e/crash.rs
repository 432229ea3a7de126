//! Whichever of our processes is killed: a recorded outcome, never an invented one.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Scratch, announced, eventually, fixture, in_namespace, is_alive, open, parent, program, signal,
    without_cgroups_here,
};
use crate::harness::stage;

/// The newest task, once it has a final status.
fn settled(scratch: &Scratch) -> Value {
    eventually("the task is settled", || {
        scratch.tasks().into_iter().next().filter(|task| task["status"] != "running")
    })
}

/// A killed warden's command is ended by the spawner, and its socket is removed.
fn nothing_is_left(scratch: &Scratch, pid: u32) {
    eventually("the command is ended", || (!is_alive(pid)).then_some(()));
    eventually("the socket is removed", || {
        let sockets = std::fs::read_dir(scratch.state.path().join("wardens")).unwrap();
        (sockets.count() == 0).then_some(())
    });
}

fn start(scratch: &Scratch, words: &[&str]) -> std::process::Child {
    let mut command = scratch.legwork("run");
    command.arg("--").args(words).stdout(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_new_server_adopts_what_a_killed_one_left() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    // A second alone, and it would be stopped.
    let policy = Some("orphan_ttl_ms = 1000\n");
    let start = |name: &str| {
        let mut command = scratch.guarded("mcp", "open", policy);
        command.env("WHOSE", name);
        let mut wire = crate::mcp::Wire::spawn(command);
        wire.initialize();
        wire
    };
    let mut first = start("first");
    let cmd = format!("echo on; {} wait-then-exit {gate} 7", fixture());
    let told =
        first.tool("ExecCommand", &json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 }));
    let task = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();
    let mut second = start("second");
    // Nobody asks about it for longer than it could be alone.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    open(&gate);
    let waited = second.tool("TaskWait", &json!({ "task_ids": [task] }));
    assert!(waited.contains("Exit status: 7"), "{waited}");
    // Its warden has the environment of the dead server: it is not used again.
    for _ in 0..4 {
        let told = second.tool("ExecCommand", &json!({ "cmd": "echo $WHOSE", "login": false }));
        assert!(told.ends_with("\nsecond"), "{told}");
    }
    // Its end was recorded by whoever owns it, without anybody looking.
    let told = second.tool(
        "ExecCommand",
        &json!({ "cmd": "exec sleep 1000", "login": false, "yield_time_ms": 0 }),
    );
    let left = told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned();
    signal(second.child.id(), Signal::KILL);
    second.child.wait().unwrap();
    eventually("what nobody adopts is stopped", || {
        let found = scratch.tasks().into_iter().find(|task| task["task_id"] == json!(left))?;
        (found["reason"] == "abandoned").then_some(())
    });
}

#[test]
fn the_engine_killed_the_command_goes_on_and_its_code_is_kept() {
    let scratch = Scratch::new();
    let (ready, gate) = (scratch.file("ready"), scratch.file("gate"));
    let script = format!(
        "echo before; echo $$ > {ready}.half; mv {ready}.half {ready}; {} wait-for {gate}; echo after; exit 7",
        fixture()
    );
    let mut engine = start(&scratch, &["sh", "-c", &script]);
    let pid = eventually("it runs", || std::fs::read_to_string(&ready).ok()?.trim().parse().ok());
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    assert!(is_alive(pid), "the command did not notice");
    assert_eq!(scratch.tasks()[0]["status"], "running");
    open(&gate);
    let task = settled(&scratch);
    assert_eq!(task["outcome"]["exit_status"], 7);
    assert_eq!(task["status"], "failed");
    let logs = scratch.legwork("logs").arg("@").output().unwrap();
    assert_eq!(logs.stdout, b"before\nafter\n");
}

#[test]
fn the_warden_killed_the_outcome_is_not_invented() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut engine = start(&scratch, &[fixture(), "ignore-term", &ready]);
    let pid = announced(&ready);
    signal(parent(pid), Signal::KILL);
    assert_eq!(engine.wait().unwrap().code(), Some(125));
    let task = settled(&scratch);
    assert_eq!((&task["status"], &task["reason"]), (&json!("interrupted"), &json!("warden_lost")));
    assert_eq!(task["outcome"]["exit_status"], Value::Null);
    nothing_is_left(&scratch, pid);
}

#[test]
fn engine_and_warden_killed_is_settled_by_the_next_one() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut engine = start(&scratch, &[fixture(), "ignore-term", &ready]);
    let pid = announced(&ready);
    let warden = parent(pid);
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    signal(warden, Signal::KILL);
    let task = settled(&scratch);
    assert_eq!((&task["status"], &task["reason"]), (&json!("interrupted"), &json!("warden_lost")));
    nothing_is_left(&scratch, pid);
}

/// Whether this machine has this means of protection.
fn has_layer(scratch: &Scratch, name: &str) -> bool {
    let output = scratch.legwork("doctor").arg("--json").output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let layers = told["layers"].as_array().unwrap();
    layers.iter().any(|layer| layer["name"] == name && layer["available"] == true)
}

/// Starts a command that has started another process, and kills all of ours; returns the pids of
/// both.
fn all_of_ours_killed(scratch: &Scratch, mut command: Command) -> (u32, u32) {
    let (ready, other) = (scratch.file("ready"), scratch.file("other"));
    let script =
        format!("setsid {0} ignore-term {other} & exec {0} ignore-term {ready}", fixture());
    let mut engine =
        command.args(["--", "sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    announced(&other);
    announced(&ready);
    // In a sandbox they see other numbers.
    let find = |path: &str| {
        let words = format!("ignore-term\0{path}\0");
        let pids = std::fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&words)
        };
        pids.into_iter().find(is_it).unwrap()
    };
    let (pid, other) = (find(&ready), find(&other));
    let warden = parent(pid);
    for killed in [engine.id(), parent(warden), warden] {
        signal(killed, Signal::KILL);
    }
    engine.wait().unwrap();
    (pid, other)
}

#[test]
fn all_of_ours_killed_the_command_dies_too_and_what_it_started_is_ended() {
    let scratch = Scratch::new();
    let (pid, other) = all_of_ours_killed(&scratch, scratch.legwork("run"));
    eventually("the command dies with its warden", || (!is_alive(pid)).then_some(()));
    assert!(is_alive(other), "nobody has looked yet");
    let task = settled(&scratch);
    assert_eq!((&task["status"], &task["reason"]), (&json!("interrupted"), &json!("warden_lost")));
    if !has_layer(&scratch, "cgroup_kill") {
        skips::skip(without_cgroups_here());
        signal(other, Signal::KILL);
        return;
    }
    assert!(!is_alive(other), "ended by its cgroup before the end was recorded");
    assert_eq!(task["outcome"]["background_pids"], Value::Null);
}

#[test]
fn all_of_ours_killed_what_cannot_be_ended_is_named() {
    let scratch = Scratch::new();
    // Processes are counted, but there is no tree with `cgroup.kill`.
    let script = "mount -t tmpfs none /sys/fs/cgroup/unified && exec \"$0\" \"$@\"";
    let Some(mut command) = in_namespace(script) else {
        return;
    };
    let is_apart = std::path::Path::new("/sys/fs/cgroup/unified").exists();
    if !is_apart || !has_layer(&scratch, "cgroup_limits") {
        skips::skip(if is_apart {
            without_cgroups_here()
        } else {
            "processes are counted where they can be ended"
        });
        return;
    }
    command.args([program(), "run", "--mode", "open", "--state"]);
    command.arg(scratch.state.path());
    let (pid, other) = all_of_ours_killed(&scratch, command);
    eventually("the command dies with its warden", || (!is_alive(pid)).then_some(()));
    let task = settled(&scratch);
    assert_eq!(task["outcome"]["background_pids"], json!([other]), "{task:#}");
    assert!(is_alive(other), "nothing is signalled by its number");
    signal(other, Signal::KILL);
}

#[test]
fn all_of_ours_killed_nothing_of_a_sandbox_is_left() {
    let scratch = Scratch::new();
    if !has_layer(&scratch, "pid_namespace") {
        skips::skip("no sandbox with processes of its own here");
        return;
    }
    if !stage::is_seen_in_sandboxes() {
        return;
    }
    let (pid, other) = all_of_ours_killed(&scratch, scratch.guarded("run", "guarded", None));
    eventually("everything in it dies", || (!is_alive(pid) && !is_alive(other)).then_some(()));
    assert_eq!(settled(&scratch)["reason"], "warden_lost");
}

#[test]
fn a_torn_exit_record_is_no_outcome() {
    let scratch = Scratch::new();
    let (ready, gate) = (scratch.file("ready"), scratch.file("gate"));
    let script = format!("echo > {ready}; {} wait-for {gate}; exit 7", fixture());
    let mut engine = start(&scratch, &["sh", "-c", &script]);
    eventually("it runs", || std::path::Path::new(&ready).exists().then_some(()));
    let folder = scratch.folder(&scratch.tasks()[0]["task_id"]);
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    open(&gate);
    // The record is there as soon as its first byte is; then one byte of it is altered.
    let record = eventually("the exit record", || {
        let bytes = std::fs::read(folder.join("exit")).ok()?;
        (bytes[0] != 0).then_some(bytes)
    });
    eventually("the warden ends", || {
        let sockets = std::fs::read_dir(scratch.state.path().join("wardens")).unwrap();
        (sockets.count() == 0).then_some(())
    });
    // The code itself is altered, to one that would read as well: variant 0, then 7 as 14.
    let mut torn = record;
    let code = torn.windows(2).rposition(|pair| pair == [0, 14]).unwrap() + 1;
    torn[code] = 16;
    std::fs::write(folder.join("exit"), torn).unwrap();
    let task = settled(&scratch);
    assert_eq!(
        (&task["status"], &task["reason"]),
        (&json!("interrupted"), &json!("exit_record_damaged"))
    );
}

#[test]
fn a_command_killed_from_outside_is_signalled() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut engine = start(&scratch, &[fixture(), "ignore-term", &ready]);
    signal(announced(&ready), Signal::KILL);
    assert_eq!(engine.wait().unwrap().code(), Some(137));
    assert_eq!(settled(&scratch)["outcome"]["signal"], 9);
}

#[test]
fn another_boot_means_interrupted() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut engine = start(&scratch, &[fixture(), "ignore-term", &ready]);
    let pid = announced(&ready);
    assert_eq!(scratch.tasks().len(), 1);
    let ledger = rusqlite::Connection::open(scratch.state.path().join("ledger.db")).unwrap();
    assert_eq!(ledger.execute("UPDATE task SET boot_id = 'another'", []).unwrap(), 1);
    // As long as the warden answers, it is of this boot, whatever the row says.
    assert_eq!(scratch.tasks()[0]["status"], "running");
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    signal(parent(pid), Signal::KILL);
    let task = settled(&scratch);
    assert_eq!((&task["status"], &task["reason"]), (&json!("interrupted"), &json!("reboot")));
}

#[test]
fn the_engine_killed_between_result_and_commit_loses_nothing() {
    let scratch = Scratch::new();
    let pid_file = scratch.file("pid");
    // The command itself stops the engine, so that the result is sent and cannot be committed.
    let mut engine = scratch
        .legwork("sh")
        .args(["--shell", "sh"])
        .arg(format!(
            "echo $$ > {pid_file}.half; echo printed; {} stop-engine {pid_file}; exit 7",
            fixture()
        ))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::fs::write(scratch.file("engine.half"), engine.id().to_string()).unwrap();
    std::fs::rename(scratch.file("engine.half"), &pid_file).unwrap();
    let pid: u32 = eventually("it has begun", || {
        let pid = std::fs::read_to_string(format!("{pid_file}.half")).ok()?;
        pid.trim().parse().ok()
    });
    eventually("it has ended", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    let task = settled(&scratch);
    assert_eq!(task["outcome"]["exit_status"], 7);
    assert_eq!(scratch.printed(&task["task_id"]), b"printed\n");
    assert!(scratch.folder(&task["task_id"]).join("exit").exists(), "the warden spilled it");
}

#[test]
fn without_a_state_folder_nobody_waits_for_one() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut engine = start(&scratch, &[fixture(), "ignore-term", &ready]);
    let pid = announced(&ready);
    let warden = parent(pid);
    std::fs::remove_dir_all(scratch.state.path()).unwrap();
    signal(engine.id(), Signal::KILL);
    engine.wait().unwrap();
    signal(pid, Signal::KILL);
    eventually("the warden ends", || (!is_alive(warden)).then_some(()));
}
