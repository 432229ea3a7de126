//! Receives the kernel's notices (seccomp) of system calls that a sandboxed command is refused, and
//! of programs that it executes.
//!
//! The filter of a sandboxed command does not refuse by itself: it asks the warden, which says no
//! and remembers. So a denial is known, not guessed from what a program prints. Only calls that are
//! refused come this way, and what is executed, where a rule of the policy speaks of a program
//! ([`execs`](super::execs)). Where that rule asks, the process waits in the kernel until the owner
//! of the run has an answer.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use super::{
    execs::{ExecCall, MatchedProgram},
    sandbox::name_of,
};
use crate::{
    exec::ExecRule,
    protocol::{HeldProgram, RefusedCall, RefusedProgram},
};

/// Most different denials that are remembered of a run.
const DENIALS_MAX: usize = 32;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`: the kernel carries the call out.
const GO_ON: u32 = 1;

/// Most programs that wait for an answer at a time; what comes beyond is refused.
const HELD_MAX: usize = 16;

/// For this long the same program of the same process is not asked about again.
const AGAIN: Duration = Duration::from_secs(2);

/// Longest arguments that are asked about: a person could not read more, and a frame not hold it.
const ASKED_BYTES_MAX: usize = 32 * 1024;

/// Most refusals that are answered in one go.
const ANSWERS_MAX: usize = 64;

/// The descriptor by which the kernel asks, and what has been refused.
#[derive(Debug)]
pub(super) struct Notices {
    /// None once nobody is left who could ask.
    listener: Option<OwnedFd>,
    /// What may not be executed.
    rules: Vec<ExecRule>,
    /// The process that becomes the command.
    command: u32,
    /// Whether its first program, which was judged before, has been executed.
    has_begun: bool,
    denials: Vec<RefusedCall>,
    programs: Vec<RefusedProgram>,
    /// What waits for an answer.
    held: Vec<Held>,
    /// What was refused last: a shell tries the next folder of `PATH`, which is no other question.
    refused: VecDeque<JustRefused>,
    /// The number of the next one.
    next: u64,
}

/// A program that was refused just now.
#[derive(Debug)]
struct JustRefused {
    thread: u32,
    argv: Vec<Vec<u8>>,
    at: Instant,
}

/// A program that waits for an answer.
#[derive(Debug)]
struct Held {
    /// What the kernel calls the wait.
    id: u64,
    thread: u32,
    refused: RefusedProgram,
    told: HeldProgram,
    is_new: bool,
}

/// What the kernel is told to do about a call.
enum NoticeAnswer {
    GoOn,
    Refuse(i32),
    /// Nothing yet.
    Wait,
}

impl Notices {
    /// The kernel asks by this descriptor. Nothing that these rules speak of is executed, but for
    /// the first program of the process `command`: the command itself, which was judged before.
    pub(super) fn new(listener: OwnedFd, rules: &[ExecRule], command: Pid) -> Self {
        Self {
            listener: Some(listener),
            rules: rules.to_vec(),
            command: command.as_raw_pid().cast_unsigned(),
            has_begun: false,
            denials: Vec::new(),
            programs: Vec::new(),
            held: Vec::new(),
            refused: VecDeque::new(),
            next: 0,
        }
    }

    /// Answers what is asked, and remembers what was refused.
    pub(super) fn answer(&mut self) {
        for _ in 0..ANSWERS_MAX {
            let Some(listener) = &self.listener else { return };
            let mut asked = [PollFd::new(listener, PollFlags::IN)];
            // Receiving would wait, whatever the descriptor's flags say.
            let any = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(0);
            let [asked] = asked;
            if any == 0 {
                return;
            }
            if !asked.revents().contains(PollFlags::IN) {
                self.listener = None;
                self.held.clear();
                return;
            }
            let Some(asked) = receive(listener.as_fd()) else { return };
            let exec = ExecCall::of(asked.data.nr.into(), asked.pid, asked.data.args);
            let answer = if let Some(call) = exec {
                self.judge_exec(&call, asked.id)
            } else {
                self.note_call(&asked.data);
                NoticeAnswer::Refuse(libc::EPERM)
            };
            if let Some(listener) = &self.listener {
                send(listener.as_fd(), asked.id, &answer);
            }
        }
    }

    /// Lets a program be executed, holds it, or notes that it is not.
    fn judge_exec(&mut self, call: &ExecCall, id: u64) -> NoticeAnswer {
        let is_command = !self.has_begun && call.thread == self.command;
        self.has_begun |= is_command;
        if self.rules.is_empty() || is_command {
            return NoticeAnswer::GoOn;
        }
        let matched = call.matched(&self.rules);
        let asks = |it: &MatchedProgram| it.refused.asks;
        let lineage = match &matched {
            Ok(Some(matched)) if asks(matched) => call.lineage(self.command),
            _ => Vec::new(),
        };
        // The process may have ended meanwhile, and its number be another's.
        if !self.is_waiting(id) {
            return NoticeAnswer::Refuse(libc::EACCES);
        }
        match matched {
            Ok(None) => NoticeAnswer::GoOn,
            Ok(Some(matched)) if asks(&matched) => self.hold(call.thread, id, matched, lineage),
            // What covers it says which rule denies it: that is told better than an error.
            Ok(Some(matched)) if matched.refused.covered => {
                self.note_program(matched.refused);
                NoticeAnswer::GoOn
            }
            Ok(Some(matched)) => {
                self.note_program(matched.refused);
                NoticeAnswer::Refuse(libc::EACCES)
            }
            // What cannot be read is not run.
            Err(_) => NoticeAnswer::Refuse(libc::EACCES),
        }
    }

    /// Lets a program wait until somebody has answered.
    fn hold(
        &mut self,
        thread: u32,
        id: u64,
        matched: MatchedProgram,
        lineage: Vec<String>,
    ) -> NoticeAnswer {
        let MatchedProgram { refused, path, file, argv } = matched;
        // A signal makes the kernel ask anew: that is the same question.
        let again = self
            .held
            .iter_mut()
            .find(|held| held.thread == thread && held.told.path == path && held.told.argv == argv);
        if let Some(held) = again {
            held.id = id;
            return NoticeAnswer::Wait;
        }
        let is_again =
            |it: &JustRefused| it.thread == thread && it.argv == argv && it.at.elapsed() < AGAIN;
        if self.refused.iter().any(is_again) {
            return NoticeAnswer::Refuse(libc::EACCES);
        }
        self.forget_ended();
        let bytes: usize = argv.iter().map(Vec::len).sum();
        if self.held.len() >= HELD_MAX || bytes > ASKED_BYTES_MAX {
            self.note_program(refused);
            return NoticeAnswer::Refuse(libc::EACCES);
        }
        self.next += 1;
        let told = HeldProgram {
            number: self.next,
            rule: refused.rule.clone(),
            path,
            file,
            argv,
            lineage,
        };
        self.held.push(Held { id, thread, refused, told, is_new: true });
        NoticeAnswer::Wait
    }

    /// What has begun to wait since the last time; all that waits, for somebody who knows nothing.
    pub(super) fn held(&mut self, all: bool) -> Vec<HeldProgram> {
        if self.held.is_empty() {
            return Vec::new();
        }
        self.forget_ended();
        let new = self.held.iter_mut().filter(|held| all || held.is_new);
        new.map(|held| {
            held.is_new = false;
            held.told.clone()
        })
        .collect()
    }

    /// Lets a program that waits be executed, or not.
    pub(super) fn answer_held(&mut self, number: u64, allowed: bool) {
        let Some(place) = self.held.iter().position(|held| held.told.number == number) else {
            return;
        };
        let held = self.held.swap_remove(place);
        let answer = if allowed {
            NoticeAnswer::GoOn
        } else {
            self.refused.truncate(HELD_MAX);
            let (thread, argv, at) = (held.thread, held.told.argv, Instant::now());
            self.refused.push_front(JustRefused { thread, argv, at });
            self.note_program(held.refused);
            NoticeAnswer::Refuse(libc::EACCES)
        };
        if let Some(listener) = &self.listener {
            send(listener.as_fd(), held.id, &answer);
        }
    }

    /// Whoever has ended waits no longer.
    fn forget_ended(&mut self) {
        let Some(listener) = &self.listener else { return };
        self.held.retain(|held| is_waiting(listener.as_fd(), held.id));
    }

    fn is_waiting(&self, id: u64) -> bool {
        self.listener.as_ref().is_some_and(|listener| is_waiting(listener.as_fd(), id))
    }

    fn note_program(&mut self, program: RefusedProgram) {
        if self.programs.len() < DENIALS_MAX && !self.programs.contains(&program) {
            self.programs.push(program);
        }
    }

    fn note_call(&mut self, data: &libc::seccomp_data) {
        let [first, second, ..] = data.args;
        let call = name_of(data.nr.into()).unwrap_or("another system call");
        let what = match call {
            "socket" => format!("{call} of family {first}"),
            "ioctl" => format!("{call} {second:#x}"),
            _ => call.to_owned(),
        };
        if self.denials.len() < DENIALS_MAX && !self.denials.iter().any(|known| known.call == what)
        {
            self.denials.push(RefusedCall { call: what });
        }
    }

    /// What has been refused.
    pub(super) fn denials(&self) -> &[RefusedCall] {
        &self.denials
    }

    /// Programs that were not executed.
    pub(super) fn programs(&self) -> &[RefusedProgram] {
        &self.programs
    }

    /// The descriptor to wait on.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

/// Takes what is asked next.
fn receive(listener: BorrowedFd<'_>) -> Option<libc::seccomp_notif> {
    // SAFETY: the structure is plain data that the kernel fills, and of the size that it has
    // (`can_tell`).
    unsafe {
        let mut asked: libc::seccomp_notif = std::mem::zeroed();
        let call = libc::SECCOMP_IOCTL_NOTIF_RECV;
        (libc::ioctl(listener.as_raw_fd(), call, &raw mut asked) == 0).then_some(asked)
    }
}

fn send(listener: BorrowedFd<'_>, id: u64, answer: &NoticeAnswer) {
    // SAFETY: the structure is plain data that the kernel reads, and of the size that it has.
    unsafe {
        let mut told: libc::seccomp_notif_resp = std::mem::zeroed();
        told.id = id;
        match answer {
            NoticeAnswer::GoOn => told.flags = GO_ON,
            NoticeAnswer::Refuse(errno) => told.error = -errno,
            NoticeAnswer::Wait => return,
        }
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const told);
    }
}

/// Whether the one who asks still waits.
fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    let call = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
    // SAFETY: the kernel reads the number.
    unsafe { libc::ioctl(listener.as_raw_fd(), call, &raw const id) == 0 }
}
