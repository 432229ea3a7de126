//! The stream of events, read in this process while others work; and that nobody looks while
//! nothing happens.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use legwork::{Engine, Event, EventKind, Events, Interest, Options, Reply, Status};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    common::{Scratch, announced_line, eventually, open, program, shown, signal},
    mcp::Wire,
};

/// Reads the stream of a state folder, as any program with the library can.
struct Reader {
    runtime: Runtime,
    // Before the engine, as its last reader.
    events: Events,
    _engine: Engine,
}

impl Reader {
    fn new(scratch: &Scratch, interest: Interest) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut options = Options::new(scratch.workspace.path());
        options.state = Some(scratch.state.path().to_owned());
        let engine = Engine::open(options).unwrap();
        let events = runtime.block_on(engine.events(None, interest)).unwrap();
        Self { runtime, events, _engine: engine }
    }

    /// The next event about tasks and questions that this is so of; none may be missed.
    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Event {
        let mut others = Vec::new();
        loop {
            let next = async { timeout(Duration::from_secs(30), self.events.next()).await };
            match self.runtime.block_on(next) {
                Ok(event) if wanted(&event.as_ref().unwrap().what) => {
                    return (*event.unwrap()).clone();
                }
                Ok(event) => others.push(event.unwrap()),
                Err(late) => panic!("nobody told of it ({late}), but of {others:#?}"),
            }
        }
    }

    #[track_caller]
    fn ended(&mut self, id: &str) -> (Status, Event) {
        let event = self.until(
            |what| matches!(what, EventKind::TaskEnded { task_id, .. } if task_id.as_str() == id),
        );
        match event.what {
            EventKind::TaskEnded { status, .. } => (status, event),
            _ => unreachable!(),
        }
    }
}

fn is_of(what: &EventKind, id: &str) -> bool {
    what.task_id().is_some_and(|task| task.as_str() == id)
}

#[test]
fn whatever_other_processes_do_is_told() {
    let scratch = Scratch::new();
    let mut reader = Reader::new(&scratch, Interest::Live);
    scratch.result("echo hi");
    let started = reader.until(|what| matches!(what, EventKind::TaskStarted { tty: false, .. }));
    let workspace = shown(scratch.workspace.path().canonicalize().unwrap());
    assert_eq!(started.workspace.as_deref(), Some(&*workspace));
    let id = started.what.task_id().unwrap().to_string();
    assert_eq!(reader.ended(&id).0, Status::Completed);
    // Output, in totals.
    let gate = scratch.file("gate");
    let command = format!("printf 12345; while [ ! -e {gate} ]; do sleep 0.01; done; printf 678");
    let id = scratch.promote(&command, &json!({}));
    let printed = |total: u64| {
        let id = id.clone();
        move |what: &EventKind| {
            is_of(what, &id)
                && matches!(what, EventKind::OutputGrew { stdout_bytes, .. } if *stdout_bytes == total)
        }
    };
    let grew = reader.until(printed(5));
    assert_eq!(grew.workspace.as_deref(), Some(&*workspace));
    open(&gate);
    assert_eq!(reader.ended(&id).0, Status::Completed);
    // A stop.
    let id = scratch.promote("sleep 60", &json!({}));
    assert!(scratch.legwork("stop").arg(&id).output().unwrap().status.success());
    reader.until(|what| matches!(what, EventKind::TaskCancelling { .. }) && is_of(what, &id));
    assert_eq!(reader.ended(&id).0, Status::Cancelled);
    // A wait for input, once.
    let id = scratch.promote("read line; echo got $line", &json!({ "tty": true }));
    reader
        .until(|what| matches!(what, EventKind::TaskStarted { tty: true, .. }) && is_of(what, &id));
    reader.until(|what| matches!(what, EventKind::WaitingForInput { .. }) && is_of(what, &id));
    scratch.send(&id, &json!({ "input": "it\n" }));
    assert_eq!(reader.ended(&id).0, Status::Completed);
    // A question, and its answer.
    let asked = ask(&scratch);
    let is_it = |what: &EventKind| what.approval_id() == Some(&asked);
    let opened = reader.until(is_it);
    assert!(matches!(opened.what, EventKind::QuestionOpened { .. }), "{opened:?}");
    assert_eq!(opened.workspace.as_deref(), Some(&*workspace));
    assert!(scratch.legwork("deny").arg(&asked).output().unwrap().status.success());
    let answered = reader.until(is_it);
    let EventKind::QuestionAnswered { decision, .. } = answered.what else {
        panic!("{answered:?}")
    };
    assert_eq!(decision, Reply::Deny);
}

/// A call that nobody is there to be asked about; returns the question.
fn ask(scratch: &Scratch) -> String {
    let input = json!({ "command": "touch asked" }).to_string();
    let mut call = scratch.guarded("call", "guarded", None);
    let output = call.args(["run_shell_command", &input, "--json"]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    envelope["error"]["details"]["approval_id"].as_str().unwrap().to_owned()
}

/// How often the threads of a process have gone to sleep: each look of a poll is one more.
fn sleeps(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |folder: PathBuf| -> Option<u64> {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    threads.filter_map(|thread| count(thread.unwrap().path())).sum()
}

/// Waits until a process has come to rest, and asserts that it stays so.
fn assert_rests(pid: u32, who: &str) {
    let second = Duration::from_secs(1);
    eventually("it comes to rest", || {
        let before = sleeps(pid);
        thread::sleep(second);
        (sleeps(pid) <= before + 1).then_some(())
    });
    let before = sleeps(pid);
    thread::sleep(3 * second);
    // A thread that has ended takes its count along.
    let woken = sleeps(pid).saturating_sub(before);
    // A poll each second would be three.
    assert!(woken <= 2, "{who}: woken {woken} times in 3 s");
}

#[test]
fn servers_watchers_and_questions_wait_without_looking() {
    let scratch = Scratch::new();
    let patient = "[approval]\nwait_ms = 600000\n";
    let mut servers = [(); 2].map(|()| {
        let mut command = scratch.guarded("mcp", "guarded", Some(patient));
        command.args(["--tools", "all"]);
        let mut wire = Wire::spawn(command);
        wire.initialize();
        wire
    });
    for wire in &servers {
        assert_rests(wire.child.id(), "an idle server");
    }
    // One waits for an answer.
    let call = json!({ "name": "run_shell_command", "arguments": { "command": "touch x" } });
    servers[0].send("tools/call", &call);
    let question = eventually("the question is there", || {
        let output = scratch.legwork("approvals").arg("--json").output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        Some(listed["approvals"].as_array()?.first()?["approval_id"].as_str()?.to_owned())
    });
    assert_rests(servers[0].child.id(), "a question");
    assert!(scratch.legwork("approve").arg(&question).output().unwrap().status.success());
    assert_eq!(servers[0].read()["result"]["isError"], false);
    assert!(fs::exists(scratch.file("x")).unwrap());
    // A person waits for questions.
    let person = Scratch::new();
    let announced = person.file("watcher");
    let command = format!(
        "echo $$ > {announced}; exec {} approvals --watch --state {}",
        program(),
        scratch.state.path().display()
    );
    let watcher = person.promote(&command, &json!({ "tty": true }));
    person.screen_with(&watcher, "Waiting for questions");
    assert_rests(announced_line(&announced), "a watcher");
    ask_while_watched(&scratch);
    person.screen_with(&watcher, "touch watched");
    assert!(person.legwork("stop").arg(&watcher).output().unwrap().status.success());
}

/// A call in the background, which waits because somebody is there.
fn ask_while_watched(scratch: &Scratch) {
    let input = json!({ "command": "touch watched" }).to_string();
    let short = "[approval]\nexpires_ms = 5000\n";
    let mut call = scratch.guarded("call", "guarded", Some(short));
    let mut asking = call.args(["run_shell_command", &input]).spawn().unwrap();
    thread::spawn(move || asking.wait());
}

#[test]
fn where_the_kernel_tells_nothing_everything_is_heard_of_all_the_same() {
    let scratch = Scratch::new();
    let mut command = scratch.guarded("mcp", "guarded", Some("[approval]\nwait_ms = 600000\n"));
    command.args(["--tools", "all"]).env("LEGWORK_NO_INOTIFY", "1");
    let mut deaf = Wire::spawn(command);
    deaf.initialize();
    let call = json!({ "name": "run_shell_command", "arguments": { "command": "echo ran" } });
    deaf.send("tools/call", &call);
    let question = eventually("the question is there", || {
        let output = scratch.legwork("approvals").arg("--json").output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        Some(listed["approvals"].as_array()?.first()?["approval_id"].as_str()?.to_owned())
    });
    let asked = Instant::now();
    assert!(scratch.legwork("approve").arg(&question).output().unwrap().status.success());
    assert_eq!(deaf.read()["result"]["isError"], false);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    // The end of an engine, too.
    let (mut lost, mark) = server_with_a_task(&scratch, "sleep 60");
    lost.child.kill().unwrap();
    lost.child.wait().unwrap();
    eventually("it is adopted", || (holder(&mark)? == deaf.child.id()).then_some(()));
}

/// A server that runs a command, and the file of its mark.
fn server_with_a_task(scratch: &Scratch, command: &str) -> (Wire, PathBuf) {
    let engines = scratch.state.path().join("engines");
    let marks = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&engines).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let before = marks();
    let mut wire = Wire::initialized(scratch);
    wire.exec(&json!({ "cmd": command, "yield_time_ms": 0, "login": false }));
    let mark = marks().into_iter().find(|mark| !before.contains(mark)).unwrap();
    (wire, mark)
}

/// The process that holds the lock of a file.
fn holder(file: &Path) -> Option<u32> {
    let opened = File::open(file).ok()?;
    if !matches!(opened.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let inode = format!(":{}", opened.metadata().unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let mut fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = fields.find(|line| line.get(5).is_some_and(|file| file.ends_with(&inode)))?;
    line[4].parse().ok()
}

#[test]
fn a_lost_engine_has_one_heir_at_once_and_so_has_that_one() {
    let scratch = Scratch::new();
    let gate = scratch.file("gate");
    let command = format!("while [ ! -e {gate} ]; do sleep 0.01; done; exit 3");
    let (mut first, mark) = server_with_a_task(&scratch, &command);
    let mut heirs = [(); 2].map(|()| Wire::initialized(&scratch));
    let mut reader = Reader::new(&scratch, Interest::Changes);
    assert_eq!(holder(&mark), Some(first.child.id()));
    let lost = Instant::now();
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();
    let heir = eventually("it has an heir", || holder(&mark));
    let place = heirs.iter().position(|wire| wire.child.id() == heir).unwrap();
    signal(heir, Signal::KILL);
    heirs[place].child.wait().unwrap();
    let second = eventually("the heir has one, too", || holder(&mark));
    assert_eq!(second, heirs[1 - place].child.id());
    // Nobody looks every few seconds.
    assert!(lost.elapsed() < Duration::from_secs(5), "{:?}", lost.elapsed());
    // Its end is recorded by whoever owns it, though nobody asks.
    open(&gate);
    let ended = reader.until(|what| matches!(what, EventKind::TaskEnded { .. }));
    assert!(matches!(ended.what, EventKind::TaskEnded { status: Status::Failed, .. }), "{ended:?}");
    eventually("the estate is closed", || (!mark.exists()).then_some(()));
}
