//! Refused system calls, as the kernel tells of them.
//!
//! The filter of a sandboxed command does not refuse by itself: it asks the warden, which says no and remembers. So
//! a denial is known, not guessed from what a program prints. Only calls that are refused come this way.

use std::{
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{sandbox::name_of, socket};
use crate::protocol::Denial;

/// Most different denials that are remembered of a run.
const DENIALS_MAX: usize = 32;

/// Most refusals that are answered in one go.
const ANSWERS_MAX: usize = 64;

/// The descriptor by which the kernel asks, and what has been refused.
#[derive(Debug)]
pub(super) struct Notices {
    /// None once nobody is left who could ask.
    listener: Option<OwnedFd>,
    denials: Vec<Denial>,
}

/// The warden's end of the way by which a new process hands over its listener.
#[derive(Debug)]
pub(super) struct Receiver(OwnedFd);

impl Receiver {
    /// The listener, which was sent before the process executed.
    pub(super) fn receive(self) -> Option<Notices> {
        let received = socket::receive(self.0.as_fd(), &mut [0]).ok()?;
        let listener = received.descriptors.into_iter().next()?;
        Some(Notices { listener: Some(listener), denials: Vec::new() })
    }
}

impl Notices {
    /// A way for a new process to hand over its listener.
    pub(super) fn channel() -> io::Result<(Receiver, OwnedFd)> {
        let (receiver, sender) = socket::socket_pair()?;
        rustix::io::ioctl_fionbio(&receiver, true)?;
        Ok((Receiver(receiver), sender))
    }

    /// Hands a listener over.
    ///
    /// # Safety
    ///
    /// System calls on plain data only; safe between clone and exec.
    pub(super) unsafe fn pass(channel: RawFd, listener: RawFd) -> Result<(), c_int> {
        const SPACE: usize = 24;
        const DESCRIPTOR_BYTES: u32 = 4;
        // SAFETY: the header and its one message are built as the macros of the C library define them, in
        // memory that is large and aligned enough for one descriptor.
        unsafe {
            let mut byte = 0_u8;
            let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let mut space = [0_u64; SPACE / 8];
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = SPACE as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_BYTES) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(listener);
            if libc::sendmsg(channel, &raw const message, libc::MSG_NOSIGNAL) == 1 {
                libc::close(listener);
                Ok(())
            } else {
                Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
            }
        }
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
            // SAFETY: the structures are plain data that the kernel fills or reads, and of the sizes that it has
            // (`can_tell`).
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
                self.denials.push(Denial { call: what });
            }
        }
    }

    /// What has been refused.
    pub(super) fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// The descriptor to wait on.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}
