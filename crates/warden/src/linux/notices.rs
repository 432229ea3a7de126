//! Refused system calls, as the kernel tells of them.
//!
//! The filter of a sandboxed command does not refuse by itself: it asks the warden, which says no
//! and remembers. So a denial is known, not guessed from what a program prints. Only calls that are
//! refused come this way, and what is executed, where a rule of the policy speaks of a program
//! ([`execs`](super::execs)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use super::{execs::ExecCall, sandbox::name_of};
use crate::{
    exec::ExecRule,
    protocol::{RefusedCall, RefusedProgram},
};

/// Most different denials that are remembered of a run.
const DENIALS_MAX: usize = 32;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`: the kernel carries the call out.
const GO_ON: u32 = 1;

/// Most refusals that are answered in one go.
const ANSWERS_MAX: usize = 64;

/// The descriptor by which the kernel asks, and what has been refused.
#[derive(Debug)]
pub(super) struct Notices {
    /// None once nobody is left who could ask.
    listener: Option<OwnedFd>,
    /// What may not be executed.
    rules: Vec<ExecRule>,
    /// Whose next program was judged before: the process that becomes the command.
    judged: Option<u32>,
    denials: Vec<RefusedCall>,
    programs: Vec<RefusedProgram>,
}

/// What the kernel is told to do about a call.
enum NoticeAnswer {
    GoOn,
    Refuse(i32),
}

impl Notices {
    /// The kernel asks by this descriptor. Nothing that these rules speak of is executed, but for
    /// the first program of the process `command`: the command itself, which was judged before.
    pub(super) fn new(listener: OwnedFd, rules: &[ExecRule], command: Pid) -> Self {
        Self {
            listener: Some(listener),
            rules: rules.to_vec(),
            judged: Some(command.as_raw_pid().cast_unsigned()),
            denials: Vec::new(),
            programs: Vec::new(),
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

    /// Lets a program be executed, or notes that it is not.
    fn judge_exec(&mut self, call: &ExecCall, id: u64) -> NoticeAnswer {
        if self.rules.is_empty() || self.judged.take_if(|it| *it == call.thread).is_some() {
            return NoticeAnswer::GoOn;
        }
        let refused = call.refused(&self.rules);
        // The process may have ended meanwhile, and its number be another's.
        if !self.listener.as_ref().is_some_and(|listener| is_waiting(listener.as_fd(), id)) {
            return NoticeAnswer::Refuse(libc::EACCES);
        }
        match refused {
            Ok(None) => NoticeAnswer::GoOn,
            Ok(Some(program)) => {
                // What covers it says which rule denies it: that is told better than an error.
                let answer = if program.covered {
                    NoticeAnswer::GoOn
                } else {
                    NoticeAnswer::Refuse(libc::EACCES)
                };
                if self.programs.len() < DENIALS_MAX && !self.programs.contains(&program) {
                    self.programs.push(program);
                }
                answer
            }
            // What cannot be read is not run.
            Err(_) => NoticeAnswer::Refuse(libc::EACCES),
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
