//! Something of ours or below us is stopped, slow, or never answers: nobody else has to wait for
//! it.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{
        Scratch, announced, announced_line, children, eventually, fixture, has_program,
        in_namespace, is_alive, open, signal,
    },
    harness::clock::MovableClock,
    mcp::Wire,
};

/// `legwork mcp` behind another program, which is given these words before it.
fn behind(scratch: &Scratch, words: &[&str], tools: &str) -> Command {
    let server = scratch.legwork("mcp");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(server.get_program()).args(server.get_args());
    command.args(["--tools", tools]).current_dir(scratch.workspace.path());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    // What it leaves behind must not hold what the test itself prints to.
    command.stderr(Stdio::null());
    command
}

fn ask(wire: &mut Wire, tool: &str, input: &Value) -> u64 {
    wire.send("tools/call", &json!({ "name": tool, "arguments": input }))
}

#[test]
fn a_stopped_engine_holds_up_no_deadline_and_doubles_none() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let mut wire = Wire::spawn(behind(&scratch, &["env"], "execute_command"));
    wire.initialize();
    let input = json!({ "command": fixture(), "args": ["ignore-term", ready], "timeout": 1 });
    ask(&mut wire, "execute_command", &input);
    let pid = announced(&ready);
    signal(wire.child.id(), Signal::STOP);
    eventually("it is ended while the engine is stopped", || (!is_alive(pid)).then_some(()));
    signal(wire.child.id(), Signal::CONT);
    let answer = wire.read();
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    let result: Value = serde_json::from_str(told).unwrap();
    assert_eq!(result["timed_out"], true, "{result}");
    assert_eq!(scratch.tasks()[0]["outcome"]["ended_by"], "timeout");
}

#[test]
fn a_slow_disk_holds_up_only_what_waits_for_it() {
    let scratch = Scratch::new();
    if !has_program("strace", &["-qq", "-o", "/dev/null", "true"]) {
        return;
    }
    let slow = "inject=fsync,fdatasync:delay_enter=3000000";
    let words =
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", slow];
    let mut command = behind(&scratch, &words, "all");
    command.arg("--structured");
    let mut wire = Wire::spawn(command);
    // The ledger is made, which is synced.
    wire.initialize();
    let begin = Instant::now();
    let big = format!("{} flood 200000", fixture());
    let mut last = Vec::new();
    for _ in 0..3 {
        let input = json!({ "cmd": big, "login": false, "duplicate_policy": "start_new" });
        last.push(ask(&mut wire, "ExecCommand", &input));
    }
    // Its window is over long before the disk is done.
    let input =
        json!({ "cmd": format!("{big}; exec sleep 1000"), "login": false, "yield_time_ms": 100 });
    let mut first = vec![ask(&mut wire, "ExecCommand", &input)];
    for number in 0..5 {
        let input = json!({ "cmd": format!("echo {number}"), "login": false });
        first.push(ask(&mut wire, "ExecCommand", &input));
    }
    let answers: Vec<Value> = (0..first.len() + last.len()).map(|_| wire.read()).collect();
    let place = |id: &u64| answers.iter().position(|answer| answer["id"] == *id).unwrap();
    let slow = last.iter().map(place).min().unwrap();
    for place in first.iter().map(place).filter(|place| *place > slow) {
        // Where the machine has so much to do that it ran for long, it is in a folder, and waits
        // too.
        let result = &answers[place]["result"]["structuredContent"]["result"];
        assert!(scratch.folder(&result["task_id"]).exists(), "{place} after {slow}: {answers:#?}");
    }
    assert!(begin.elapsed() > Duration::from_secs(3), "the disk was slow");
    // The server's own farewell is slow as well, and nobody else gets at the ledger meanwhile.
    let promoted = &answers[place(&first[0])]["result"]["structuredContent"]["result"];
    wire.tool("TaskStop", &json!({ "task_id": promoted["task_handle"]["task_id"] }));
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
}

#[test]
fn an_output_that_cannot_be_read_is_a_typed_error_for_that_read_only() {
    let scratch = Scratch::new();
    if !has_program("strace", &["-qq", "-o", "/dev/null", "true"]) {
        return;
    }
    let result = scratch.result(&format!("{} flood 200000", fixture()));
    let task = result["task_id"].as_str().unwrap();
    let artifact = scratch.folder(&result["task_id"]).join("stdout");
    let read = |fault: bool| {
        let ordinary = scratch.legwork("call");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(&artifact);
        command.args(["-e", "trace=read,pread64,preadv"]);
        if fault {
            command.args(["-e", "inject=read,pread64,preadv:error=EIO"]);
        }
        command.arg(ordinary.get_program()).args(ordinary.get_args());
        command.current_dir(scratch.workspace.path()).env("XDG_CONFIG_HOME", scratch.state.path());
        let input = json!({ "task_id": task }).to_string();
        let output = command.args(["TaskOutput", "--json", &input]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let failed = read(true);
    assert_eq!(failed["error"]["kind"], "state_unavailable", "{failed:#}");
    assert_eq!(failed["error"]["retryable"], true);
    let fine = read(false);
    assert_eq!(fine["result"]["task"]["status"], "completed", "{fine:#}");
    assert!(fine["result"]["output_preview"].as_str().unwrap().starts_with("000000000000000"));
}

#[test]
fn a_clock_that_jumps_changes_neither_limits_nor_order() {
    let scratch = Scratch::new();
    let Some(clock) = MovableClock::new(&scratch) else { return };
    let mut command = behind(&scratch, &["env"], "all");
    clock.give_to(&mut command);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let mut started = Vec::new();
    let mut start = |wire: &mut Wire, number: u32| {
        let cmd = format!("exec sleep 10{number}");
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 });
        let told = wire.tool("ExecCommand", &input);
        started.push(told.lines().nth(1).unwrap().strip_prefix("Task: ").unwrap().to_owned());
    };
    start(&mut wire, 1);
    for (number, jump) in ["+1d", "-1y", "+0"].into_iter().enumerate() {
        let ready = scratch.file(&format!("ready-{number}"));
        let input = json!({ "command": fixture(), "args": ["ignore-term", ready], "timeout": 1 });
        let begin = Instant::now();
        ask(&mut wire, "execute_command", &input);
        announced(&ready);
        clock.set(jump);
        let answer = wire.read();
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("\"timed_out\":true"), "{told}");
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(20), "{took:?}");
        start(&mut wire, u32::try_from(number).unwrap() + 2);
    }
    let listed = wire.tool("TaskList", &json!({}));
    let places: Vec<usize> = started.iter().rev().map(|id| listed.find(id).unwrap()).collect();
    assert!(places.is_sorted(), "newest first, whatever the clock said: {listed}");
    // The clock really jumped.
    let created: Vec<u64> =
        scratch.tasks().iter().map(|task| task["created_at_ms"].as_u64().unwrap()).collect();
    assert!(!created.is_sorted() && !created.iter().rev().is_sorted(), "{created:?}");
}

#[test]
fn the_time_in_which_the_machine_slept_counts() {
    let scratch = Scratch::new();
    if !cfg!(debug_assertions) {
        skips::skip("only a program with debug assertions can be told that it has slept");
        return;
    }
    let (ready, slept) = (scratch.file("ready"), scratch.file("slept"));
    let mut command = behind(&scratch, &["env"], "all");
    command.env("LEGWORK_SLEPT", &slept);
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let input = json!({ "command": fixture(), "args": ["ignore-term", ready], "timeout": 120 });
    let call = ask(&mut wire, "execute_command", &input);
    let pid = announced(&ready);
    let task = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    assert_eq!(scratch.status(&task)["status"], "running");
    let half = format!("{slept}.half");
    fs::write(&half, "119000000").unwrap();
    fs::rename(half, &slept).unwrap();
    // The warden looks at the clock whenever something happens.
    scratch.status(&task);
    let answer = wire.read();
    assert_eq!(answer["id"], call);
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("\"timed_out\":true"), "{told}");
    assert!(!is_alive(pid));
}

#[test]
fn a_process_that_the_kernel_does_not_let_die_is_named_and_not_said_to_be_gone() {
    if !rustix::process::getuid().is_root() {
        skips::skip("only root can freeze a filesystem");
        return;
    }
    let scratch = Scratch::new();
    let (disk, gate) = (scratch.file("disk"), scratch.file("gate"));
    fs::create_dir(&disk).unwrap();
    // A filesystem of its own, which is frozen until the gate opens: a write to it waits and cannot
    // be ended.
    let script = format!(
        "truncate -s 16M {disk}.image && mkfs.ext4 -q {disk}.image && mount -o loop {disk}.image {disk} \
         && touch {disk}/file && fsfreeze --freeze {disk} && touch {disk}.frozen || exit 9
         while [ ! -e {gate} ]; do sleep 0.02; done; fsfreeze --unfreeze {disk}; umount -l {disk}"
    );
    let mut keeper = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let frozen = format!("{disk}.frozen");
    let made = eventually("it is frozen, or cannot be", || match keeper.try_wait().unwrap() {
        Some(_) => Some(false),
        None => fs::exists(&frozen).unwrap().then_some(true),
    });
    if !made {
        skips::skip("no filesystem can be made and frozen here");
        return;
    }
    let task = scratch.promote(&format!("echo $$ > {gate}.pid; echo x > {disk}/file"), &json!({}));
    let pid: u32 = announced_line(&format!("{gate}.pid"));
    eventually("it waits for the disk", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") D ").then_some(())
    });
    let stopped = scratch.get("TaskStop", &json!({ "task_id": task, "grace_ms": 100 }));
    open(&gate);
    keeper.wait().unwrap();
    assert_eq!(stopped["survivors"], json!([pid]), "{stopped:#}");
    // Once the kernel lets it, it dies, and that is recorded.
    eventually("its end is recorded", || {
        (scratch.status(&task)["status"] == "cancelled").then_some(())
    });
    assert!(!is_alive(pid));
}

/// What an answer that needs no new warden may take, while another call waits for one.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Asks for more commands than there are wardens in reserve; each waits for the gate.
fn crowd(wire: &mut Wire, gate: &str) -> Vec<u64> {
    let cmd = format!("exec {} wait-for {gate}", fixture());
    let input = json!({ "cmd": cmd, "login": false, "duplicate_policy": "start_new",
                        "yield_time_ms": 100_000 });
    (0..6).map(|_| ask(wire, "ExecCommand", &input)).collect()
}

/// Other calls are answered at once, and those of the crowd when somebody has made wardens for
/// them.
fn nobody_else_waits(wire: &mut Wire, crowd: &[u64], gate: &str) {
    for _ in 0..5 {
        let begin = Instant::now();
        wire.tool("TaskList", &json!({}));
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    }
    open(gate);
    for _ in crowd {
        let answer = wire.read();
        assert!(crowd.contains(&answer["id"].as_u64().unwrap()), "{answer}");
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").unwrap().1.chars().next()
}

#[test]
fn a_spawner_that_hangs_before_its_hello_is_replaced_and_holds_up_nobody_else() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = Wire::initialized(&scratch);
    wire.assert_lives();
    let server = wire.child.id();
    let first = children(server)[0];
    signal(first, Signal::KILL);
    eventually("it is dead", || (!is_alive(first)).then_some(()));
    let calls = crowd(&mut wire, &gate);
    // A new one is started for them. It takes milliseconds until it can speak, and is stopped
    // before.
    let hung = eventually("a new spawner", || children(server).into_iter().find(|it| *it != first));
    signal(hung, Signal::STOP);
    nobody_else_waits(&mut wire, &calls, &gate);
    wire.assert_lives();
    // On a busy machine it may have been stopped too late, after all that it was started for: then
    // nobody needs it, and nobody gives it up.
    let begin = Instant::now();
    while state(hung) == Some('T') && begin.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(50));
    }
    if state(hung) == Some('T') {
        skips::skip("the spawner had spoken before it was stopped");
        signal(hung, Signal::CONT);
    }
    gone_with_its_engine(wire, hung);
}

/// A spawner that was given up does not stay stopped, and is gone with its engine at the latest.
fn nothing_hangs(wire: Wire, spawner: u32) {
    eventually("it is not stopped", || (state(spawner) != Some('T')).then_some(()));
    gone_with_its_engine(wire, spawner);
}

fn gone_with_its_engine(mut wire: Wire, spawner: u32) {
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
    eventually("it is gone", || (!is_alive(spawner)).then_some(()));
}

#[test]
fn a_spawner_that_hangs_is_replaced_and_holds_up_nobody_else() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let mut wire = Wire::initialized(&scratch);
    wire.assert_lives();
    let hung = children(wire.child.id())[0];
    signal(hung, Signal::STOP);
    let calls = crowd(&mut wire, &gate);
    nobody_else_waits(&mut wire, &calls, &gate);
    nothing_hangs(wire, hung);
}

/// What never answers: a disk whose other side is held open and read by nobody.
const DEAF: &str = "exec 9<>/dev/fuse; \
    mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 deaf .git/worktrees/deaf; exec \"$@\"";

#[test]
fn a_repository_that_never_answers_holds_up_nobody_else_and_that_is_said() {
    let scratch = Scratch::new();
    for folder in [".git/objects", ".git/worktrees/deaf"] {
        fs::create_dir_all(scratch.workspace.path().join(folder)).unwrap();
    }
    fs::write(scratch.workspace.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let Some(mut command) = in_namespace(DEAF) else { return };
    let mut tried = in_namespace(DEAF).unwrap();
    tried.args(["sh", "true"]).current_dir(scratch.workspace.path());
    let tried = tried.output().unwrap();
    if !tried.status.success() {
        skips::skip(&format!("this machine has no filesystem that never answers: {tried:?}"));
        return;
    }
    let server = scratch.guarded("mcp", "guarded", None);
    command.arg("sh").arg(server.get_program()).args(server.get_args());
    command.current_dir(scratch.workspace.path()).stderr(Stdio::null());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", scratch.state.path());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let begin = Instant::now();
    let slow = ask(&mut wire, "ExecCommand", &json!({ "cmd": "echo on", "login": false }));
    // Whoever asks for something else is answered at once, while that is looked at.
    for _ in 0..5 {
        let quick = ask(&mut wire, "TaskList", &json!({}));
        let answer = wire.read();
        assert_eq!(answer["id"], quick, "{answer}");
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(1500), "{took:?}");
    let answer = wire.read();
    assert_eq!(answer["id"], slow, "{answer}");
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.starts_with("Process exited with code 0\n\nstdout:\non"), "{told}");
    assert!(told.contains("could not be read in time"), "{told}");
    // And it does not get slower with every command.
    for number in 0..6 {
        let input = json!({ "cmd": format!("echo {number}"), "login": false });
        assert!(wire.tool("ExecCommand", &input).contains("could not be read in time"));
    }
    let begin = Instant::now();
    wire.tool("ExecCommand", &json!({ "cmd": "echo at once", "login": false }));
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
}
