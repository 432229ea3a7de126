//! Stopping leaves nothing; each test shows the tree alive first.

use std::{fs, process::Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::common::{
    Scratch, announced, eventually, fixture, in_namespace, is_alive, open, parts, program, signal,
};

/// Starts a tree under `legwork run` that is hard to end, and returns its pids.
fn hostile(scratch: &Scratch) -> Vec<u32> {
    ["child", "daemon", "self"].iter().map(|name| announced(&scratch.file(name))).collect()
}

#[test]
fn a_tree_of_daemons_deaf_to_term_leaves_no_survivor() {
    let scratch = Scratch::new();
    let mut child = scratch
        .legwork("run")
        .args(["--timeout", "5", "--", fixture(), "detached-tree"])
        .arg(scratch.workspace.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pids = hostile(&scratch);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "the tree is not alive");
    assert_eq!(child.wait().unwrap().code(), Some(124));
    let survivors: Vec<_> = pids.into_iter().filter(|pid| is_alive(*pid)).collect();
    assert_eq!(survivors, Vec::<u32>::new());
    let task = &scratch.tasks()[0];
    assert_eq!((&task["status"], &task["reason"]), (&json!("failed"), &json!("timeout")));
    assert!(task["outcome"].get("background_pids").is_none());
}

#[test]
fn a_tree_without_cgroup_leaves_no_survivor_either() {
    let scratch = Scratch::new();
    // A private, empty /sys/fs/cgroup: what an ordinary user or a container has.
    let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" \"$@\"";
    let Some(mut command) = in_namespace(script) else {
        return;
    };
    let mut child = command
        .args([program(), "run", "--mode", "open", "--state"])
        .arg(scratch.state.path())
        .args(["--timeout", "5", "--", fixture(), "detached-tree"])
        .arg(scratch.workspace.path())
        .spawn()
        .unwrap();
    let pids = hostile(&scratch);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "the tree is not alive");
    assert_eq!(child.wait().unwrap().code(), Some(124));
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn a_tree_of_many_generations_is_ended() {
    let scratch = Scratch::new();
    let mut child = scratch
        .legwork("run")
        .args(["--", fixture(), "refork"])
        .arg(scratch.workspace.path())
        .arg("30")
        .spawn()
        .unwrap();
    let pids: Vec<u32> = (0..=30).map(|n| announced(&scratch.file(&n.to_string()))).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    // TERM to the warden means: end your command. It is the parent of the first generation.
    let warden = crate::common::parent(pids[30]);
    signal(warden, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert!(!pids.into_iter().any(is_alive));
    assert_eq!(scratch.tasks()[0]["reason"], "stopped");
}

#[test]
fn a_stopped_process_is_ended_too() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut child = scratch
        .legwork("run")
        .args(["--timeout", "3", "--", fixture(), "ignore-term", &ready])
        .spawn()
        .unwrap();
    let pid = announced(&ready);
    signal(pid, Signal::STOP);
    assert_eq!(child.wait().unwrap().code(), Some(124));
    assert!(!is_alive(pid));
}

#[test]
fn a_polite_command_ends_by_the_polite_signal() {
    let scratch = Scratch::new();
    let script = "trap 'echo bye; exit 9' TERM; echo ready; while :; do read x < fifo; done";
    assert!(
        std::process::Command::new("mkfifo").arg(scratch.file("fifo")).status().unwrap().success()
    );
    let output =
        scratch.legwork("sh").args(["--timeout", "2", "--shell", "sh", script]).output().unwrap();
    let (code, stdout, _) = parts(&output);
    assert_eq!((code, stdout.as_str()), (Some(124), "ready\nbye\n"));
    assert_eq!(scratch.tasks()[0]["outcome"]["exit_status"], 9);
}

#[test]
fn a_background_process_that_nobody_comes_back_for_outlives_the_call() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let output = scratch
        .legwork("sh")
        .arg(format!("{} wait-for {gate} >/dev/null 2>&1 & echo $!", fixture()))
        .output()
        .unwrap();
    let pid: u32 = parts(&output).1.trim().parse().unwrap();
    assert!(is_alive(pid));
    let warden = crate::common::parent(pid);
    assert_eq!(
        fs::read_to_string(format!("/proc/{warden}/comm")).unwrap().trim(),
        "legwork-warden"
    );
    open(&gate);
    eventually("process and warden end", || (!is_alive(pid) && !is_alive(warden)).then_some(()));
    let sockets = fs::read_dir(scratch.state.path().join("wardens")).unwrap().count();
    assert_eq!(sockets, 0, "the adoption socket is removed");
}

#[test]
fn an_interrupted_call_leaves_nothing_running() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let input = json!({ "cmd": format!("{} ignore-term {ready}", fixture()), "login": false });
    let mut child =
        scratch.legwork("call").args(["ExecCommand", &input.to_string()]).spawn().unwrap();
    let pid = announced(&ready);
    assert!(is_alive(pid));
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!is_alive(pid));
}

#[test]
fn a_time_limit_past_the_end_of_time_is_no_limit() {
    let scratch = Scratch::new();
    let limit = u64::MAX.to_string();
    let output =
        scratch.legwork("run").args(["--timeout", &limit, "--", "echo", "hi"]).output().unwrap();
    assert_eq!(parts(&output), (Some(0), "hi\n".into(), String::new()));
}

#[test]
fn what_a_background_process_prints_last_is_kept() {
    const BYTES: u64 = 5_000_000;
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let cmd = format!("({0} wait-for {gate}; exec {0} flood {BYTES}) & echo $!", fixture());
    let result = scratch.result(&cmd);
    let artifact = scratch.folder(&result["task_id"]).join("stdout");
    let first = fs::metadata(&artifact).unwrap().len();
    open(&gate);
    eventually("its warden ends", || {
        let sockets = fs::read_dir(scratch.state.path().join("wardens")).unwrap().count();
        (sockets == 0).then_some(())
    });
    assert_eq!(fs::metadata(&artifact).unwrap().len(), first + BYTES);
}
