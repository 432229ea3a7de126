//! Refused system calls, as the kernel tells of them.
//!
//! The filter of a sandboxed command does not refuse by itself: it asks the warden, which says no
//! and remembers. So a denial is known, not guessed from what a program prints. Only calls that are
//! refused come this way.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::sandbox::name_of;
use crate::protocol::RefusedCall;

/// Most different denials that are remembered of a run.
const DENIALS_MAX: usize = 32;

/// Most refusals that are answered in one go.
const ANSWERS_MAX: usize = 64;

/// The descriptor by which the kernel asks, and what has been refused.
#[derive(Debug)]
pub(super) struct Notices {
    /// None once nobody is left who could ask.
    listener: Option<OwnedFd>,
    denials: Vec<RefusedCall>,
}

impl Notices {
    /// The kernel asks by this descriptor.
    pub(super) fn new(listener: OwnedFd) -> Self {
        Self { listener: Some(listener), denials: Vec::new() }
    }

    /// Refuses what is asked for, and remembers it.
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
            // SAFETY: the structures are plain data that the kernel fills or reads, and of the
            // sizes that it has (`can_tell`).
            let asked = unsafe {
                let mut asked: libc::seccomp_notif = std::mem::zeroed();
                let got = libc::ioctl(
                    listener.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_RECV,
                    &raw mut asked,
                );
                if got != 0 {
                    return;
                }
                let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
                answer.id = asked.id;
                answer.error = -libc::EPERM;
                libc::ioctl(
                    listener.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_SEND,
                    &raw const answer,
                );
                asked
            };
            let [first, second, ..] = asked.data.args;
            let call = name_of(asked.data.nr.into()).unwrap_or("another system call");
            let what = match call {
                "socket" => format!("{call} of family {first}"),
                "ioctl" => format!("{call} {second:#x}"),
                _ => call.to_owned(),
            };
            if self.denials.len() < DENIALS_MAX
                && !self.denials.iter().any(|known| known.call == what)
            {
                self.denials.push(RefusedCall { call: what });
            }
        }
    }

    /// What has been refused.
    pub(super) fn denials(&self) -> &[RefusedCall] {
        &self.denials
    }

    /// The descriptor to wait on.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}
