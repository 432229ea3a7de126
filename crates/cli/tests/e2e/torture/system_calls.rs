//! Every system call of some kinds fails in turn, by strace: for each one a typed error or the
//! truth, and in time.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    load::{BIG, Load, SHORT},
    oracle::Round,
    processes::{Family, Killed},
    server::Server,
    settle,
};
use crate::common::{Scratch, has_program, text};

/// How long a call may take that meets a fault.
const PATIENCE: Duration = Duration::from_secs(30);

/// A fault of one system call.
struct Fault {
    call: &'static str,
    error: &'static str,
    /// In all processes, or in the engine alone.
    everywhere: bool,
    /// The first invocation of the call that is ours, not that of the loader of programs.
    from: usize,
    /// Only about this file of the state folder.
    about: Option<&'static str>,
    /// A lock that cannot be had is waited for: too slow for every day.
    seldom: bool,
}

const fn engine(call: &'static str, error: &'static str) -> Fault {
    Fault { call, error, everywhere: false, from: 1, about: None, seldom: false }
}

const fn everywhere(call: &'static str, error: &'static str) -> Fault {
    Fault { call, error, everywhere: true, from: 1, about: None, seldom: false }
}

/// What the ledger, the audit log and the start of processes rest on.
const FAULTS: &[Fault] = &[
    engine("fsync", "EIO"),
    engine("pwrite64", "ENOSPC"),
    engine("pwrite64", "EIO"),
    Fault { from: 3, ..engine("pread64", "EIO") },
    engine("ftruncate", "EIO"),
    Fault { seldom: true, ..engine("fcntl", "ENOLCK") },
    engine("flock", "EIO"),
    Fault { about: Some("audit.jsonl"), ..engine("write", "ENOSPC") },
    Fault { from: 5, ..engine("openat", "EMFILE") },
    // The second one is the runtime's own, which panics without it.
    Fault { from: 3, ..engine("socketpair", "EMFILE") },
    engine("clone3", "EAGAIN"),
    engine("sendmsg", "ENOBUFS"),
    everywhere("clone", "EAGAIN"),
    everywhere("fdatasync", "EIO"),
    everywhere("fallocate", "ENOSPC"),
    everywhere("mkdirat", "ENOSPC"),
    everywhere("pipe2", "EMFILE"),
    everywhere("bind", "EADDRINUSE"),
    everywhere("signalfd4", "EMFILE"),
    everywhere("prctl", "EPERM"),
];

/// Whether every call is to meet its fault, or only some.
fn is_thorough() -> bool {
    std::env::var_os("LEGWORK_TORTURE_ROUNDS").is_some()
}

struct Injection<'a> {
    scratch: &'a Scratch,
    family: &'a Family,
    fault: &'a Fault,
}

impl Injection<'_> {
    /// A call of which the n-th system call of the kind fails; its answer, and whether one did.
    fn call(&self, load: &mut Load, kind: usize, n: usize) -> (Vec<Value>, bool) {
        let Fault { call, error, everywhere, .. } = self.fault;
        let trace = self.scratch.file("trace");
        let ordinary = self.scratch.legwork("call");
        let mut command = Command::new("timeout");
        command.args([
            "--signal=KILL",
            "40",
            "strace",
            "-qq",
            "-o",
            &trace,
            "-e",
            &format!("trace={call}"),
        ]);
        command.args(["-e", &format!("inject={call}:error={error}:when={n}")]);
        if *everywhere {
            command.arg("-f");
        }
        if let Some(file) = self.fault.about {
            command.arg("-P").arg(self.scratch.state.path().join(file));
        }
        command.arg(ordinary.get_program()).args(ordinary.get_args());
        command.current_dir(self.scratch.workspace.path()).env("SHELL", "/bin/sh");
        command.env("XDG_CONFIG_HOME", self.scratch.state.path());
        self.family.mark(&mut command);
        let begin = Instant::now();
        let output = load.call_alone(kind, command);
        let place = format!("{error} of {call} number {n}, kind {kind}");
        assert!(begin.elapsed() < PATIENCE, "P8: {place}");
        let trace = fs::read_to_string(trace).unwrap();
        let injected = trace.contains("(INJECTED)");
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        if let Some(answer) = &answer {
            assert!(injected || answer["status"] == "success", "{place}: {answer}");
        } else {
            // Before there is anything that could answer, at least it says so.
            let complaint = text(&output.stderr);
            let said = complaint.starts_with("legwork: ") && !complaint.contains("panicked");
            assert!(said && output.status.code() == Some(125), "{place}: {output:?}\n{trace}");
        }
        (answer.into_iter().collect(), injected)
    }

    /// One after the other, until there are no more; then everything is settled and looked at.
    fn all(&self, number: u64) -> usize {
        let mut load = Load::new(self.scratch, number);
        let mut answers = Vec::new();
        for kind in [SHORT, BIG] {
            for n in (self.fault.from..).step_by(if is_thorough() { 1 } else { 5 }) {
                let (answered, injected) = self.call(&mut load, kind, n);
                answers.extend(answered);
                if !injected {
                    break;
                }
            }
        }
        let mut server = Server::start(self.scratch, self.family);
        settle(&mut server, &load).unwrap();
        let left = self.family.wait_for_commands();
        let mut round = Round::look(self.scratch, &load, &Killed::default());
        server.close();
        round.left = [left, self.family.wait_for_all()].concat();
        let calls = answers.len();
        round.hear(answers);
        round.ledger_failed = true;
        let place = format!("{} of {}", self.fault.error, self.fault.call);
        assert_eq!(round.check(), Ok(()), "{place}");
        calls
    }
}

#[test]
fn whichever_system_call_fails_the_answer_is_typed_and_what_is_recorded_is_true() {
    if !has_program("strace", &["-qq", "-o", "/dev/null", "true"]) {
        return;
    }
    let scratch = Scratch::new();
    let family = Family::new(&scratch);
    scratch.result("true");
    let faults = FAULTS.iter().filter(|fault| is_thorough() || !fault.seldom);
    for (number, fault) in faults.enumerate() {
        let begin = Instant::now();
        let injection = Injection { scratch: &scratch, family: &family, fault };
        let calls = injection.all(number as u64);
        eprintln!("{} of {}: {calls} calls in {:?}", fault.error, fault.call, begin.elapsed());
    }
    family.end();
}
