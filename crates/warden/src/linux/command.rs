//! Starts the command: the one place in the whole program where a command's process is made.
//!
//! The child is made with `clone(CLONE_VM | CLONE_VFORK)`: no page table is copied, the warden
//! sleeps until the child executes or exits, and the child reports a failure by writing it into the
//! memory they share. It is a child of the warden, which alone collects it: until then its number
//! is nobody else's, so no pidfd is needed for it. It dies with the warden, whoever kills that.
//! `posix_spawn` was rejected because it can neither change to an opened folder nor be told the
//! rest of what happens here. A sandboxed command has a process already ([`super::sandbox`]), which
//! lives in the warden's memory, too: it takes the same last steps.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
};

use rustix::process::{Pid, Rlimit};

use super::{
    libcs::close_range,
    limits::{self, PreparedLimits},
    stack::Stack,
};
use crate::protocol::{StartFailure, StartStage};

/// Stack of the child until it executes; the deepest call below it is `execve`.
const STACK_BYTES: usize = 64 * 1024;

/// What the child needs, prepared so that it allocates nothing.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub program: CString,
    pub argv: Vec<CString>,
    pub environment: Vec<&'a CStr>,
    pub workdir: BorrowedFd<'a>,
    /// Stdin, stdout and stderr.
    pub streams: [BorrowedFd<'a>; 3],
    /// Whether stdout is to be the controlling terminal.
    pub terminal: bool,
    /// The file mode mask that the engine was started with.
    pub umask: u32,
    /// The limit of open files that the engine was started with.
    pub open_files: Rlimit,
    /// What it may use.
    pub limits: &'a PreparedLimits,
}

/// What the child reads, and where it writes why it failed.
#[derive(Clone, Copy)]
pub(super) struct Handover {
    /// The warden, as the child sees it.
    pub parent: libc::pid_t,
    program: *const c_char,
    argv: *const *const c_char,
    environment: *const *const c_char,
    pub workdir: RawFd,
    pub streams: [RawFd; 3],
    terminal: bool,
    umask: u32,
    open_files: libc::rlimit,
    pub limits: *const PreparedLimits,
    pub failure: Option<(StartStage, c_int)>,
}

impl Handover {
    /// Valid for as long as what it is made of.
    pub(super) fn new(
        prepared: &Prepared<'_>,
        parent: libc::pid_t,
        argv: &[*const c_char],
        environment: &[*const c_char],
    ) -> Self {
        Self {
            parent,
            program: prepared.program.as_ptr(),
            argv: argv.as_ptr(),
            environment: environment.as_ptr(),
            workdir: prepared.workdir.as_raw_fd(),
            streams: prepared.streams.map(|stream| stream.as_raw_fd()),
            terminal: prepared.terminal,
            umask: prepared.umask,
            open_files: libc::rlimit {
                rlim_cur: prepared.open_files.current.unwrap_or(libc::RLIM_INFINITY),
                rlim_max: prepared.open_files.maximum.unwrap_or(libc::RLIM_INFINITY),
            },
            limits: prepared.limits,
            failure: None,
        }
    }
}

/// Starts the command and returns its pid, or says at which step that failed; then no process is
/// left.
pub(super) fn start(prepared: &Prepared<'_>) -> Result<Pid, StartFailure> {
    let argv = pointers(&prepared.argv);
    let environment = pointers(&prepared.environment);
    let own = rustix::process::getpid().as_raw_pid();
    let mut shared = Handover::new(prepared, own, &argv, &environment);
    let mut stack = Stack::new(STACK_BYTES);
    // SAFETY: `shared` and everything `shared` points to outlive the call, as the stack does, and
    // the child uses them only while this thread is suspended by CLONE_VFORK, so there is no
    // concurrent access. All signals are blocked, so no handler runs in the child.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child, stack.top(), flags, (&raw mut shared).cast::<c_void>())
    };
    let failed = |stage, errno| Err(StartFailure { stage, errno });
    // In this order: it is no number of a process when the call has failed.
    let Some(pid) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return failed(StartStage::Process, last_errno());
    };
    // SAFETY: a plain read of what the child wrote before it ended; the compiler must not assume
    // that the value is still the one it saw stored above.
    if let Some((stage, errno)) = unsafe { ptr::read_volatile(&raw const shared.failure) } {
        // It is a zombie of ours: collect it, so that nothing is left of the attempt.
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        return failed(stage, errno);
    }
    Ok(pid)
}

/// A text as programs get it.
pub(super) fn c_string(bytes: &[u8]) -> Result<CString, StartFailure> {
    CString::new(bytes)
        .map_err(|_| StartFailure { stage: StartStage::Execute, errno: libc::EINVAL })
}

/// Texts as system calls get a list of them; valid for as long as they are.
pub(super) fn pointers(strings: &[impl AsRef<CStr>]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ref().as_ptr()).chain([ptr::null()]).collect()
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs in the child, on its own stack but in the warden's memory: system calls only.
extern "C" fn child(argument: *mut c_void) -> c_int {
    let shared = argument.cast::<Handover>();
    // SAFETY: `argument` is the `Handover` of `start`, which sleeps until this function is through.
    unsafe {
        let failure = prepare_and_execute(&*shared);
        ptr::write_volatile(&raw mut (*shared).failure, Some(failure));
        libc::_exit(127)
    }
}

/// Takes the last steps in the process that is to become the command; returns only when one failed.
///
/// # Safety
///
/// Everything that `shared` points to is valid until this process executes or ends. The process may
/// live in the warden's memory: only system calls are made.
pub(super) unsafe fn prepare_and_execute(shared: &Handover) -> (StartStage, c_int) {
    // SAFETY: every pointer is valid until this process executes, as the caller says; the calls
    // are async-signal-safe and touch only this process, not the warden (CLONE_FILES, CLONE_FS and
    // CLONE_SIGHAND are not set).
    unsafe {
        // Without the warden nobody would know of the command, nor end it. Looked at afterwards: it
        // may be gone already.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != shared.parent {
            return (StartStage::Process, libc::ESRCH);
        }
        if libc::setsid() < 0 {
            return (StartStage::Process, last_errno());
        }
        libc::umask(shared.umask);
        if libc::fchdir(shared.workdir) != 0 {
            return (StartStage::WorkingDirectory, last_errno());
        }
        for (target, source) in (0..).zip(shared.streams) {
            if libc::dup2(source, target) < 0 {
                return (StartStage::Descriptors, last_errno());
            }
        }
        if shared.terminal && libc::ioctl(libc::STDOUT_FILENO, libc::TIOCSCTTY, 0) != 0 {
            return (StartStage::Descriptors, last_errno());
        }
        // All of ours are closed on exec by themselves; what else there may be is too, where the
        // kernel has this call (5.11).
        close_range(3, c_int::MAX.cast_unsigned(), libc::CLOSE_RANGE_CLOEXEC);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const shared.open_files);
        if let Err(errno) = limits::apply(&*shared.limits) {
            return (StartStage::Limits, errno);
        }
        unblock_signals();
        libc::execve(shared.program, shared.argv, shared.environment);
        (StartStage::Execute, last_errno())
    }
}

/// Lets all signals through. Their dispositions are the spawner's, which are the default ones.
unsafe fn unblock_signals() {
    // SAFETY: plain data on this stack.
    unsafe {
        let mut none: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}
