//! Many commands at once: every call is answered, limits hold, nothing leaks, and a shortage
//! passes.

use std::{
    collections::{HashMap, HashSet},
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, children, eventually, is_alive, parent, program, signal, text},
    mcp::Wire,
};

/// Descriptors of a process.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Memory of a process.
fn memory_kb(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let own = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    own.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Processes below a process.
fn below(pid: u32) -> usize {
    children(pid).iter().map(|child| 1 + below(*child)).sum()
}

/// `legwork mcp` under limits of the shell's `ulimit`.
fn under(scratch: &Scratch, limits: &str) -> Wire {
    let server = scratch.legwork("mcp");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(server.get_program());
    command.args(server.get_args()).current_dir(scratch.workspace.path());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

fn start(wire: &mut Wire, cmd: &str) -> Value {
    let input =
        json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "duplicate_policy": "start_new" });
    wire.exec(&input)["result"].clone()
}

fn answer_text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The id of a task that was promoted.
fn task_of(result: &Value) -> String {
    let text = answer_text(result);
    text.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned()
}

/// The typed error of a call that must fail.
fn error_of(result: &Value) -> Value {
    assert_eq!(result["isError"], true, "{result:#}");
    serde_json::from_str(answer_text(result).strip_prefix("Command failed\n").unwrap()).unwrap()
}

#[test]
fn beyond_tasks_max_a_start_is_refused_until_a_task_ends() {
    let scratch = Scratch::new();
    let policy = "[limits]\ntasks_max = 2\n";
    let call = |input: &Value| -> Value {
        let mut command = scratch.guarded("call", "open", Some(policy));
        let output = command.args(["ExecCommand", "--json", &input.to_string()]).output().unwrap();
        assert_eq!(text(&output.stderr), "", "the limit is in force");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let sleep = |seconds: u32| {
        call(&json!({ "cmd": format!("exec sleep {seconds}"), "login": false, "yield_time_ms": 0 }))
    };
    let first = sleep(1001)["result"]["task_handle"]["task_id"].clone();
    assert_eq!(sleep(1002)["status"], "success");
    let refused = sleep(1003);
    let error = &refused["error"];
    assert_eq!((&error["kind"], &error["retryable"]), (&json!("limit_exceeded"), &json!(true)));
    assert_eq!(error["message"], "2 tasks are running, and no more than 2 may");
    assert_eq!(error["details"], json!({ "running": 2, "tasks_max": 2 }));
    // An equal one needs no room, and nothing is left of the refused one.
    assert_eq!(sleep(1002)["result"]["disposition"], "already_running");
    assert_eq!(scratch.tasks().len(), 2);
    scratch.get("TaskStop", &json!({ "task_id": first }));
    assert_eq!(sleep(1003)["status"], "success");
}

#[test]
fn tasks_max_holds_for_many_processes_at_once_and_counts_only_what_runs() {
    let scratch = Scratch::new();
    let policy = scratch.file("policy.toml");
    fs::write(&policy, "[limits]\ntasks_max = 3\n").unwrap();
    let start = |number: usize| {
        let cmd = format!("exec sleep 10{number}");
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
        let mut command = scratch.legwork("call");
        command.args(["--policy", &policy, "ExecCommand", "--json", &input.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let all: Vec<_> = (0..12).map(start).collect();
    let mut count = 0;
    for child in all {
        let output = child.wait_with_output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ok = envelope["status"] == "success";
        assert!(ok || envelope["error"]["kind"] == "limit_exceeded", "{envelope:#}");
        count += usize::from(ok);
    }
    assert_eq!(count, 3);
    // What only seems to run takes no room.
    for task in scratch.tasks() {
        let id = task["task_id"].as_str().unwrap();
        let pid = u32::try_from(scratch.status(id)["pid"].as_u64().unwrap()).unwrap();
        signal(parent(pid), Signal::KILL);
        eventually("it is gone", || (!is_alive(pid)).then_some(()));
    }
    let output = start(99).wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["status"], "success", "{envelope:#}");
}

#[test]
fn a_thousand_starts_at_once_are_all_answered_in_turn_and_leave_nothing() {
    const CALLS: usize = 1000;
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    wire.assert_lives();
    let server = wire.child.id();
    let before = eventually("only the reserve is left", || {
        (below(server) <= 3).then(|| descriptors(server))
    });
    let mut asked = HashMap::new();
    let begin = Instant::now();
    for number in 0..CALLS {
        let cmd = if number % 2 == 0 {
            format!("true {number}")
        } else {
            format!("sleep 1; true {number}")
        };
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 60_000 });
        let id = wire.send("tools/call", &json!({ "name": "ExecCommand", "arguments": input }));
        asked.insert(id, number);
    }
    let mut short = Vec::new();
    let mut answered = HashSet::new();
    for _ in 0..CALLS {
        let answer = wire.read();
        let number = asked[&answer["id"].as_u64().unwrap()];
        let text = &answer["result"]["content"][0]["text"];
        assert_eq!(text, "Process exited with code 0", "{answer}");
        assert!(answered.insert(number));
        if number % 2 == 0 {
            short.push(number);
        }
    }
    eprintln!("{CALLS} calls in {:?}", begin.elapsed());
    // Fair: nobody is overtaken by those who came much later.
    for (place, number) in short.iter().enumerate() {
        assert!(
            (number / 2).abs_diff(place) < CALLS / 5,
            "{number} was answered as number {place}"
        );
    }
    // The reserve may be larger by a warden or two than it was.
    eventually("no descriptor is left", || {
        (below(server) <= 3 && descriptors(server) <= before + 2).then_some(())
    });
    let sockets = fs::read_dir(scratch.state.path().join("wardens")).unwrap().count();
    assert!(sockets <= 3, "{sockets} sockets");
    assert!(scratch.folders().len() <= CALLS / 2 + 50, "short ones have no folder");
    wire.assert_lives();
}

/// How many calls are enough to see a leak; the whole ten thousand take a while.
fn many() -> usize {
    std::env::var("LEGWORK_MANY_CALLS").ok().and_then(|count| count.parse().ok()).unwrap_or(1500)
}

#[test]
fn many_trivial_calls_leave_nothing_but_their_rows() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let server = wire.child.id();
    let mut calls = |count: usize| {
        let input = json!({ "cmd": "true", "login": false, "duplicate_policy": "start_new" });
        let params = json!({ "name": "ExecCommand", "arguments": input });
        for _ in 0..8 {
            wire.send("tools/call", &params);
        }
        for number in 0..count {
            let answer = wire.read();
            assert_eq!(answer["result"]["isError"], false, "{answer}");
            if number + 8 < count {
                wire.send("tools/call", &params);
            }
        }
    };
    calls(100);
    let (processes, open, memory) = (below(server), descriptors(server), memory_kb(server));
    calls(many());
    assert!(below(server) <= processes + 4, "{} processes, {processes} before", below(server));
    assert!(descriptors(server) <= open + 4, "{} descriptors, {open} before", descriptors(server));
    // A machine that is busy with other things makes one in a hundred a long run, which has a
    // folder.
    let folders = scratch.folders().len();
    assert!(folders * 100 <= many(), "{folders} folders");
    let log = fs::metadata(scratch.state.path().join("ledger.db-wal")).unwrap().len();
    let (now, open_now) = (below(server), descriptors(server));
    eprintln!(
        "{} calls: processes {processes} -> {now}, descriptors {open} -> {open_now}, memory {memory} -> {} kB, log {log} bytes",
        many(),
        memory_kb(server)
    );
    assert!(log < 64 << 20, "the log has {log} bytes");
}

#[test]
fn without_descriptors_a_start_is_refused_tasks_go_on_and_the_shortage_passes() {
    let scratch = Scratch::new();
    let mut wire = under(&scratch, "ulimit -n 48");
    let mut tasks = Vec::new();
    let error = loop {
        let result = start(&mut wire, &format!("echo on; exec sleep 10{}", tasks.len()));
        if result["isError"] == true {
            break error_of(&result);
        }
        tasks.push(task_of(&result));
        assert!(tasks.len() < 48, "never refused");
    };
    assert!(!tasks.is_empty());
    assert_eq!(
        (&error["kind"], &error["retryable"]),
        (&json!("limit_exceeded"), &json!(true)),
        "{error:#}"
    );
    // Those that run can be looked at and stopped, and the refused one is no task.
    for some in tasks.chunks(4) {
        for task in some {
            let params = json!({ "name": "TaskStatus", "arguments": { "task_id": task } });
            wire.send("tools/call", &params);
        }
        for _ in some {
            let told = answer_text(&wire.read()["result"]);
            assert!(told.contains("Status: running"), "{told}");
        }
    }
    let all = json!({ "task_id": tasks[0], "block": false, "after": "start" });
    let told = wire.tool("TaskOutput", &all);
    assert!(told.contains("\non"), "{told}");
    let listed = wire.tool("TaskList", &json!({ "limit": 100 }));
    assert!(listed.starts_with(&format!("{} task", tasks.len())), "{listed}");
    wire.tool("TaskStop", &json!({ "task_id": tasks[0], "grace_ms": 1000 }));
    eventually("there is room again", || {
        (start(&mut wire, "exec sleep 1099")["isError"] == false).then_some(())
    });
}

#[test]
fn a_server_has_as_many_descriptors_as_may_be_and_commands_what_they_had() {
    let scratch = Scratch::new();
    let mut wire = under(&scratch, "ulimit -Sn 300; ulimit -Hn 3000");
    let told = wire.tool("ExecCommand", &json!({ "cmd": "ulimit -n; ulimit -Hn", "login": false }));
    assert!(told.ends_with("stdout:\n300\n3000"), "{told}");
    let limits = fs::read_to_string(format!("/proc/{}/limits", wire.child.id())).unwrap();
    let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(open.split_whitespace().nth(3) == Some("3000"), "{open}");
}

#[test]
fn without_processes_a_start_is_refused_and_no_half_task_is_left() {
    let scratch = Scratch::new();
    if !rustix::process::getuid().is_root() {
        skips::skip("only root can become a user without other processes");
        return;
    }
    // A user of its own, whose processes are these alone; the limit does not bind root.
    let script = "chown -R 54321 \"$STATE\" \"$WORK\"; cd \"$WORK\"; exec setpriv --reuid 54321 --regid 54321 \
        --clear-groups prlimit --nproc=12 sh -c 'for i in 1 2 3 4 5 6; do \"$0\" call ExecCommand --json --mode open \
        --state \"$STATE\" \"{\\\"cmd\\\":\\\"exec sleep 100$i\\\",\\\"login\\\":false,\\\"yield_time_ms\\\":0}\" \
        | tr -d \"\\n\"; echo; done' \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, program()]);
    command.env("STATE", scratch.state.path()).env("WORK", scratch.workspace.path());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    let output = command.output().unwrap();
    let answers: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 6, "{output:?}");
    let (started, refused): (Vec<Value>, Vec<Value>) =
        answers.into_iter().partition(|answer| answer["status"] == "success");
    assert!(!started.is_empty() && !refused.is_empty(), "{started:#?} {refused:#?}");
    for answer in &refused {
        let error = &answer["error"];
        assert_eq!(error["kind"], "limit_exceeded", "{answer:#}");
        assert_eq!(error["retryable"], true);
    }
    let running = scratch.tasks().into_iter().filter(|task| task["status"] == "running").count();
    assert_eq!(running, started.len());
}
