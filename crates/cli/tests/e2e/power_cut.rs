//! The power is cut at a random moment: newest rows may be missing, synced exit records survive,
//! nothing is wrong.
//!
//! The state folder is on a filesystem in a file, and that file on another one, which is frozen
//! while it is copied: the copy is what the disk had at that moment. What was not yet written to it
//! is lost, as with a power cut.
//! `LEGWORK_POWER_CUTS` says how many moments, `LEGWORK_TORTURE_SEED` repeats which were chosen.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    common::{Scratch, fixture, program},
    disk::{Disk, run, text},
    harness::watch::Times,
    mcp::Wire,
    torture::{Dice, number, seed},
};

/// What a big command prints: too much to be kept anywhere but in a folder.
const BIG_BYTES: usize = 100_000;

/// Calls under way at a time.
const AT_ONCE: usize = 6;

/// The command of a number.
fn command_of(number: usize) -> String {
    let prints = if is_big(number) {
        format!("{} flood {BIG_BYTES}", fixture())
    } else {
        format!("echo {number}")
    };
    format!("{prints}; : {number}; exit {}", code(number))
}

fn is_big(number: usize) -> bool {
    number % 4 == 3
}

fn code(number: usize) -> usize {
    number % 100
}

fn printed(number: usize) -> Vec<u8> {
    if is_big(number) {
        (0..BIG_BYTES / 16).flat_map(|line| format!("{line:015}\n").into_bytes()).collect()
    } else {
        format!("{number}\n").into_bytes()
    }
}

/// Commands one after the other, until it is told to end.
struct Load {
    /// The tasks that were answered, by their numbers.
    answered: Arc<Mutex<HashMap<usize, String>>>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn begin(state: &Path, scratch: &Scratch) -> Self {
        let (answered, over) =
            (Arc::new(Mutex::new(HashMap::new())), Arc::new(AtomicBool::new(false)));
        let mut command = legwork("mcp", state);
        command.args(["--mode", "open", "--structured"]).current_dir(scratch.workspace.path());
        let mut wire = Wire::spawn(command);
        wire.initialize();
        let (told, end) = (answered.clone(), over.clone());
        let thread = thread::spawn(move || {
            let mut asked = HashMap::new();
            for number in 0.. {
                if end.load(Relaxed) {
                    break;
                }
                let input = json!({ "cmd": command_of(number), "login": false });
                let params = json!({ "name": "ExecCommand", "arguments": input });
                asked.insert(wire.send("tools/call", &params), number);
                if asked.len() == AT_ONCE {
                    hear(&wire, &mut asked, &told);
                }
            }
            while !asked.is_empty() {
                hear(&wire, &mut asked, &told);
            }
            drop(wire.stdin.take());
            wire.child.wait().unwrap();
        });
        Self { answered, over, thread }
    }

    fn answered(&self) -> HashMap<usize, String> {
        self.answered.lock().unwrap().clone()
    }

    fn end(self) {
        self.over.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

fn hear(wire: &Wire, asked: &mut HashMap<u64, usize>, told: &Mutex<HashMap<usize, String>>) {
    let answer = wire.read();
    let number = asked.remove(&answer["id"].as_u64().unwrap()).unwrap();
    let result = &answer["result"]["structuredContent"]["result"];
    assert_eq!(result["exit_status"], code(number), "{answer}");
    told.lock().unwrap().insert(number, result["task_id"].as_str().unwrap().to_owned());
}

fn legwork(verb: &str, state: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg(verb).arg("--state").arg(state).stdin(Stdio::null());
    command.env("SHELL", "/bin/sh").env("XDG_CONFIG_HOME", state);
    command
}

/// Copies the file of a filesystem at one moment.
fn cut(outer: &Disk, inner: &Path, copy: &Path) {
    run("fsfreeze", &["--freeze", text(&outer.mount)]);
    let copied = Command::new("cp").args(["--sparse=always", text(inner), text(copy)]).output();
    run("fsfreeze", &["--unfreeze", text(&outer.mount)]);
    assert!(copied.unwrap().status.success());
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn tasks(state: &Path) -> Vec<Value> {
    let listed = json_of(&legwork("ps", state).args(["--json", "-n", "100000"]).output().unwrap());
    listed["tasks"].as_array().unwrap().clone()
}

/// How many tasks are looked at one by one, the newest first: what has been on the disk for long is
/// in no danger.
const LOOKED_AT: usize = 150;

/// What must hold of a state folder after a power cut, given what had been answered before.
fn check(state: &Path, answered: &HashMap<usize, String>) {
    let found = tasks(state).len();
    // What is in a folder was synced before it was answered.
    for (number, id) in answered.iter().filter(|(number, _)| is_big(**number)) {
        let shown = json_of(&legwork("show", state).args([id, "--json"]).output().unwrap());
        let status = &shown["outcome"]["exit_status"];
        assert_eq!(*status, code(*number), "an exit record is lost: {number} {shown:#}");
    }
    // A clean-up puts the rest back that has a folder; every server does one.
    run(program(), &["gc", "--state", text(state)]);
    let all = tasks(state);
    eprintln!("{} answered, {found} found, {} with the folders", answered.len(), all.len());
    for task in all.into_iter().take(LOOKED_AT) {
        let (id, command) = (task["task_id"].as_str().unwrap(), task["command"].as_str().unwrap());
        let by_command = command.split_once("; : ").and_then(|(_, rest)| rest.split_once(';'));
        // The note of what it was may not have been written yet; that is said.
        let is_said = command.starts_with("(not known");
        let by_answer = answered.iter().find(|(_, answered)| *answered == id).filter(|_| is_said);
        let number = by_command.map(|(number, _)| number.parse().unwrap());
        match number.or(by_answer.map(|(number, _)| *number)) {
            Some(number) => check_task(state, &task, number),
            None => assert!(is_said, "{task:#}"),
        }
    }
    let mut call = legwork("call", state);
    call.args(["--mode", "open", "ExecCommand", "--json", r#"{"cmd":"echo on","login":false}"#]);
    assert_eq!(json_of(&call.output().unwrap())["result"]["stdout_preview"], "on");
    // A line that was torn is noted by the next one. The ledger may have reached the disk before
    // the last lines of the log did: then it is said that they are missing, and the chain is whole.
    let verify = ["audit", "verify", "--state", text(state)];
    let verified = Command::new(program()).args(verify).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stderr);
    let is_known = told.contains("after a power cut its end can be");
    assert!(verified.status.success() || is_known, "{verified:?}");
}

/// Its outcome is the true one, or none; its output is what it printed, or the beginning of that.
fn check_task(state: &Path, task: &Value, number: usize) {
    let outcome = &task["outcome"];
    match outcome["exit_status"].as_u64() {
        Some(status) => assert_eq!(status, code(number) as u64, "a wrong code: {task:#}"),
        None => assert_eq!(task["status"], "interrupted", "{task:#}"),
    }
    let mut logs = legwork("logs", state);
    let output = logs.arg(task["task_id"].as_str().unwrap()).output().unwrap();
    let expected = printed(number);
    assert!(expected.starts_with(&output.stdout), "not what was printed: {task:#}");
    let is_whole = expected == output.stdout;
    let is_said = task["status"] == "interrupted" || !output.stderr.is_empty();
    assert!(is_whole || is_said, "a loss that is not told: {task:#} {output:?}");
}

#[test]
fn after_a_power_cut_newest_rows_may_be_missing_and_nothing_is_wrong() {
    let cuts = number("LEGWORK_POWER_CUTS").unwrap_or(3);
    // Each copy of the disk is looked at.
    let scratch = Scratch::with(Times::at_most(Duration::from_secs(300 + 20 * cuts)));
    let Some(outer) = Disk::new(&PathBuf::from(scratch.file("outer")), 400) else { return };
    let Some(inner) = Disk::new(&outer.path("inner"), 256) else { return };
    let seed = seed();
    eprintln!("LEGWORK_TORTURE_SEED={seed} LEGWORK_POWER_CUTS={cuts}");
    let mut dice = Dice::new(seed);
    let load = Load::begin(&inner.path("state"), &scratch);
    let mut copies = Vec::new();
    for number in 0..cuts {
        if dice.percent(50) {
            // As the kernel does from time to time.
            run("sync", &["--file-system", text(&inner.mount)]);
        }
        dice.pause(1500);
        let copy = PathBuf::from(scratch.file(&format!("copy-{number}")));
        let answered = load.answered();
        cut(&outer, &inner.image, &copy);
        copies.push((copy, answered));
    }
    load.end();
    for (copy, answered) in copies {
        let disk = Disk::open(&copy).unwrap();
        if disk.path("state/ledger.db").exists() || !answered.is_empty() {
            check(&disk.path("state"), &answered);
        }
        drop(disk);
        fs::remove_file(copy).unwrap();
    }
}
