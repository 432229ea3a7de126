//! A stop takes as long as its processes do: nobody waits for the rest of a grace when everything
//! is dead.
//!
//! Bounds leave a loaded machine room: the grace that must not be waited for is far longer.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, announced_line, children, eventually, fixture, is_alive, open, signal},
    mcp::Wire,
};

/// The grace of the stops, in milliseconds.
const GRACE_MS: u64 = 25_000;

/// What a stop may take.
const PROMPT: Duration = Duration::from_secs(10);

/// What a call may take that is out of time after a second; the grace of a timeout is three
/// seconds.
const TIMED_OUT: Duration = Duration::from_millis(3500);

/// Servers with and without a sandbox around their commands.
fn servers(scratch: &Scratch) -> [(&'static str, Wire); 2] {
    let all = |mut command: Command| {
        command.args(["--tools", "all"]);
        let mut wire = Wire::spawn(command);
        wire.initialize();
        wire
    };
    let sandboxed = scratch.guarded("mcp", "guarded", None);
    [("open", all(scratch.legwork("mcp"))), ("guarded", all(sandboxed))]
}

/// Starts a command as a task, and returns its id.
fn begin(wire: &mut Wire, cmd: &str) -> String {
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0,
                        "duplicate_policy": "start_new" });
    let told = wire.tool("ExecCommand", &input);
    told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned()
}

/// How long it takes to stop a task.
fn stop(wire: &mut Wire, task: &str) -> Duration {
    let begin = Instant::now();
    wire.tool("TaskStop", &json!({ "task_id": task, "grace_ms": GRACE_MS }));
    begin.elapsed()
}

#[test]
fn a_script_is_stopped_as_soon_as_all_of_it_is_dead() {
    let scratch = Scratch::new();
    // Each shell dies of the signal at once, and leaves its child to another parent.
    let nested = (0..8).fold("sleep 61; :".to_owned(), |inner, _| {
        format!("sh -c '{}'; :", inner.replace('\'', "'\\''"))
    });
    for (mode, mut wire) in servers(&scratch) {
        for (name, cmd) in [("a script", "sleep 61; echo never"), ("nested shells", &nested)] {
            for round in 0..6 {
                let ready = scratch.file(&format!("{mode}-{round}-{}", cmd.len()));
                let task = begin(&mut wire, &format!("echo $$ > {ready}; {cmd}"));
                announced_line(&ready);
                let took = stop(&mut wire, &task);
                assert!(took < PROMPT, "{mode}, round {round}: {took:?} for {name}");
            }
        }
    }
}

#[test]
fn a_stop_is_over_when_the_last_child_has_cleaned_up() {
    let scratch = Scratch::new();
    for (mode, mut wire) in servers(&scratch) {
        let ready = scratch.file(mode);
        // The command itself dies of the signal; what it has started ends a little later, by
        // itself.
        let child = format!(
            "trap 'sleep 0.1; echo cleaned; exit' TERM; sh -c 'echo $PPID' > {ready}; \
             while :; do sleep 0.01; done"
        );
        let task = begin(&mut wire, &format!("({child}) & wait"));
        announced_line(&ready);
        let took = stop(&mut wire, &task);
        assert!(took < PROMPT, "{mode}: {took:?}");
        let printed = wire.tool("TaskOutput", &json!({ "task_id": task, "block": false }));
        assert!(printed.contains("cleaned"), "{mode}: it was given its time\n{printed}");
    }
}

#[test]
fn what_is_forked_while_the_others_are_told_is_told_too() {
    let scratch = Scratch::new();
    for (mode, mut wire) in servers(&scratch) {
        for round in 0..6 {
            let ready = scratch.file(&format!("{mode}-{round}"));
            let forks = "while :; do (sleep 60) & sleep 0.002; done";
            let task = begin(&mut wire, &format!("echo $$ > {ready}; {forks}"));
            announced_line(&ready);
            let took = stop(&mut wire, &task);
            assert!(took < PROMPT, "{mode}, round {round}: {took:?}");
        }
    }
}

#[test]
fn a_call_that_is_out_of_time_is_answered_when_all_of_it_is_dead() {
    let scratch = Scratch::new();
    for (mode, mut wire) in servers(&scratch) {
        let input =
            json!({ "command": "sh", "args": ["-c", "sleep 61; echo never"], "timeout": 1 });
        // Side by side: each is one more chance to be late.
        let params = json!({ "name": "execute_command", "arguments": input });
        let begin = Instant::now();
        let calls = 4;
        for _ in 0..calls {
            wire.send("tools/call", &params);
        }
        for _ in 0..calls {
            let answer = wire.read();
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            let result: Value = serde_json::from_str(text).unwrap();
            assert_eq!(result["timed_out"], true, "{result}");
        }
        let took = begin.elapsed();
        assert!(took < TIMED_OUT, "{mode}: {took:?}");
    }
}

#[test]
fn a_wait_for_what_cannot_come_any_more_ends_with_the_command() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let gate = scratch.file("gate");
    let task = begin(&mut wire, &format!("{} wait-for {gate}", fixture()));
    let input = json!({ "task_ids": [task], "until": { "output_matches": "never printed" },
                        "timeout_ms": 25_000 });
    let wait = wire.send("tools/call", &json!({ "name": "TaskWait", "arguments": input }));
    let begin = Instant::now();
    open(&gate);
    let answer = wire.read();
    assert_eq!(answer["id"], wait);
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("ended before the condition was met"), "{told}");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_kill_needs_no_grace() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let ready = scratch.file("ready");
    let task = begin(&mut wire, &format!("trap '' TERM; echo $$ > {ready}; sleep 61; sleep 62"));
    let pid = announced_line(&ready);
    let begin = Instant::now();
    let stop = [&task, "--signal", "KILL", "--grace-ms", &GRACE_MS.to_string()];
    let stopped = scratch.legwork("stop").args(stop).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
    eventually("it is dead", || (!is_alive(pid)).then_some(()));
}

/// How many sockets a process has: its spawner's, and a channel for each warden.
fn sockets(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Wardens whose adoption sockets are there.
fn wardens(scratch: &Scratch) -> usize {
    fs::read_dir(scratch.state.path().join("wardens")).unwrap().count()
}

#[test]
fn nothing_stays_of_adopted_tasks_that_have_ended() {
    const TASKS: usize = 40;
    // What a server has without any task: its spawner, a few idle wardens, the runtime's own.
    const OWN_MAX: usize = 10;
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut first = Wire::initialized(&scratch);
    first.assert_lives();
    let spawner = children(first.child.id())[0];
    let tasks: Vec<String> = (0..TASKS)
        .map(|_| begin(&mut first, &format!("exec {} wait-then-exit {gate} 7", fixture())))
        .collect();
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();

    let mut second = Wire::initialized(&scratch);
    let server = second.child.id();
    eventually("all are adopted", || (sockets(server) >= TASKS).then_some(()));
    open(&gate);
    eventually("their wardens are gone", || (wardens(&scratch) <= OWN_MAX).then_some(()));
    eventually("the channels are closed", || (sockets(server) <= OWN_MAX).then_some(()));
    eventually("their spawner is gone", || (!is_alive(spawner)).then_some(()));
    for task in tasks {
        let told = second.tool("TaskStatus", &json!({ "task_id": task }));
        assert!(told.contains("Exit status: 7"), "{told}");
    }
    second.assert_lives();
}
