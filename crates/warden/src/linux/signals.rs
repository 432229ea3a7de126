//! Signals of spawner and warden: all are blocked, and the few that matter are read from a
//! signalfd.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

#[cfg(debug_assertions)]
use rustix::process::{Signal, getpid, kill_process};

/// A process's signals as a descriptor.
#[derive(Debug)]
pub(super) struct Signals(OwnedFd);

/// Ends this process as by `kill -9`.
#[cfg(debug_assertions)]
pub(crate) fn end_self() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// Gives every signal its default disposition, for this process and all that it starts.
///
/// Only ignored signals survive an execution, so doing this once is enough for every command. It is
/// done by the bare system call: the C library refuses to touch two signals that it keeps for
/// itself, but an ignored one would be inherited all the same.
pub(super) fn reset_all() {
    /// The kernel's `struct sigaction`, all zero: the default action, no flags, an empty mask.
    const DEFAULT_ACTION: [u64; 4] = [0; 4];
    const SIGNALS: i32 = 64;
    const MASK_BYTES: usize = 8;
    for signal in 1..=SIGNALS {
        // SAFETY: plain data and a valid signal number; the two signals that cannot be changed
        // (KILL, STOP) answer with an error that does not matter.
        unsafe {
            let action = DEFAULT_ACTION.as_ptr();
            let old = ptr::null_mut::<libc::c_void>();
            libc::syscall(libc::SYS_rt_sigaction, signal, action, old, MASK_BYTES);
        }
    }
}

/// What arrived.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Arrived {
    /// A child changed its state.
    pub child: bool,
    /// Somebody asked the process to end.
    pub terminate: bool,
}

impl Signals {
    /// Blocks every signal and opens the descriptor.
    pub(super) fn block_all() -> io::Result<Self> {
        // SAFETY: `sigset_t` is plain data that `sigfillset` and `sigemptyset` initialise; the
        // calls get valid pointers to locals; the new descriptor is owned by nobody else.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            if libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut wanted: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut wanted);
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut wanted, signal);
            }
            let descriptor =
                libc::signalfd(-1, &raw const wanted, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(descriptor)))
        }
    }

    /// Reads what is pending.
    pub(super) fn take(&self) -> Arrived {
        let mut arrived = Arrived::default();
        // One more than there are signals that matter, so that one read is enough.
        let mut infos: [libc::signalfd_siginfo; 5] = [EMPTY; 5];
        // SAFETY: the buffer is an array of plain data, and its size is passed.
        let read = unsafe {
            let (start, size) = (infos.as_mut_ptr().cast(), mem::size_of_val(&infos));
            libc::read(self.0.as_raw_fd(), start, size)
        };
        let count = usize::try_from(read).unwrap_or(0) / mem::size_of::<libc::signalfd_siginfo>();
        for info in infos.iter().take(count) {
            if info.ssi_signo.cast_signed() == libc::SIGCHLD {
                arrived.child = true;
            } else {
                arrived.terminate = true;
            }
        }
        arrived
    }
}

/// No signal.
// SAFETY: it is made of numbers only.
const EMPTY: libc::signalfd_siginfo = unsafe { mem::zeroed() };

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
