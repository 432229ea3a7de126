//! Starts the command: the one place in the whole program where a command's process is made.
//!
//! The child is made with `clone(CLONE_VM | CLONE_VFORK)`: no page table is copied, the warden sleeps
//! until the child executes or exits, and the child reports a failure by writing it into the memory they
//! share. It is a child of the warden, which alone collects it: until then its number is nobody else's,
//! so no pidfd is needed for it. `posix_spawn` was rejected because it can neither change to an opened folder
//! nor enter a sandbox in between.
//!
//! Into a sandbox with namespaces it goes in two steps. A first child, the usher, enters them; only a child of its
//! own is then in the pid namespace, and that one is made as the warden's child (`CLONE_PARENT`). The usher ends.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    ptr,
};

use rustix::process::{Pid, Rlimit};

use super::{
    notices::Notices,
    sandbox::{Filter, Ready, drop_capabilities},
};
use crate::protocol::{StartFailure, StartStage};

/// Stack of a child until it executes; the deepest call below it is `execve`.
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
    /// The sandbox that it enters.
    pub sandbox: Option<Entry<'a>>,
}

/// A sandbox, and what is to be seen in it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub ready: &'a Ready,
    pub filter: &'a Filter,
    /// Names of the tasks whose artifacts are shown.
    pub artifacts: Vec<CString>,
}

/// A command that was started.
#[derive(Debug)]
pub(super) struct Started {
    pub pid: Pid,
    /// Where its refused system calls are told.
    pub notices: Option<Notices>,
}

/// What the children read, and where they write what came of it.
struct Shared {
    program: *const c_char,
    argv: *const *const c_char,
    environment: *const *const c_char,
    workdir: RawFd,
    streams: [RawFd; 3],
    terminal: bool,
    umask: u32,
    open_files: libc::rlimit,
    sandbox: Option<Confines>,
    failure: Option<(StartStage, c_int)>,
}

/// The sandbox, as the children read it.
struct Confines {
    namespaces: Vec<(RawFd, c_int)>,
    rules: Option<RawFd>,
    filter: libc::sock_fprog,
    /// Where the descriptor goes by which refusals are told.
    notices: Option<RawFd>,
    /// The working directory by its path, to be opened again inside.
    workdir: CString,
    artifacts: Option<(RawFd, RawFd)>,
    shown: Vec<*const c_char>,
    /// End of the stack of the command's process.
    stack: *mut c_void,
    /// The command's process, as the warden sees it.
    command: c_int,
}

/// Starts the command, or says at which step that failed; then no process is left.
pub(super) fn start(prepared: &Prepared<'_>) -> Result<Started, StartFailure> {
    let argv = pointers(&prepared.argv);
    let environment = pointers(&prepared.environment);
    let mut stack = Stack::default();
    let mut inner_stack = Stack::default();
    let told = prepared.sandbox.as_ref().is_some_and(|entry| entry.filter.told);
    let notices = if told {
        Some(
            Notices::channel()
                .map_err(|e| failed(StartStage::Sandbox, e.raw_os_error().unwrap_or(0)))?,
        )
    } else {
        None
    };
    let confines = prepared.sandbox.as_ref().map(|entry| {
        confines(
            entry,
            prepared.workdir,
            notices.as_ref().map(|(_, sender)| sender),
            inner_stack.top(),
        )
    });
    let mut shared = Shared {
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
        sandbox: confines.transpose()?,
        failure: None,
    };
    let enters = shared.sandbox.as_ref().is_some_and(|confines| !confines.namespaces.is_empty());
    // SAFETY: the stack is a live allocation; `shared` and everything `shared` points to outlive the call, and
    // the children use them only while this thread is suspended by CLONE_VFORK, so there is no concurrent access.
    // All signals are blocked, so no handler runs in a child.
    let first = unsafe {
        libc::clone(
            if enters { usher } else { child },
            stack.top(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut shared).cast::<c_void>(),
        )
    };
    let Some(first) = process(first) else {
        return Err(failed(StartStage::Process, last_errno()));
    };
    // SAFETY: plain reads of what the children wrote before they were through; the compiler must not assume that
    // the values are still those it saw stored above.
    let failure = unsafe { ptr::read_volatile(&raw const shared.failure) };
    if enters || failure.is_some() {
        // The usher, or a child that failed: it is through, and nothing must be left of it.
        collect(first);
    }
    let pid = match &shared.sandbox {
        Some(confines) if enters => {
            // SAFETY: as above.
            process(unsafe { ptr::read_volatile(&raw const confines.command) })
        }
        _ => Some(first),
    };
    match (pid, failure) {
        (Some(pid), None) => {
            Ok(Started { pid, notices: notices.and_then(|(receiver, _)| receiver.receive()) })
        }
        (pid, failure) => {
            if let Some(pid) = pid.filter(|_| enters) {
                collect(pid);
            }
            let (stage, errno) = failure.unwrap_or((StartStage::Sandbox, libc::EIO));
            Err(failed(stage, errno))
        }
    }
}

fn failed(stage: StartStage, errno: i32) -> StartFailure {
    StartFailure { stage, errno }
}

fn process(pid: c_int) -> Option<Pid> {
    Pid::from_raw(pid).filter(|pid| pid.as_raw_pid() > 0)
}

fn collect(pid: Pid) {
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
}

fn confines(
    entry: &Entry<'_>,
    workdir: BorrowedFd<'_>,
    notices: Option<&OwnedFd>,
    stack: *mut c_void,
) -> Result<Confines, StartFailure> {
    let ready = entry.ready;
    let link = format!("/proc/self/fd/{}", workdir.as_raw_fd());
    let workdir = rustix::fs::readlink(link, Vec::new())
        .map_err(|errno| failed(StartStage::WorkingDirectory, errno.raw_os_error()))?;
    Ok(Confines {
        namespaces: ready
            .namespaces
            .iter()
            .map(|(handle, kind)| (handle.as_raw_fd(), *kind))
            .collect(),
        rules: ready.rules.as_ref().map(AsRawFd::as_raw_fd),
        filter: entry.filter.program(),
        notices: notices.map(AsRawFd::as_raw_fd),
        workdir,
        artifacts: ready
            .artifacts
            .as_ref()
            .map(|(all, shown)| (all.as_raw_fd(), shown.as_raw_fd())),
        shown: entry.artifacts.iter().map(|name| name.as_ptr()).collect(),
        stack,
        command: 0,
    })
}

/// Room for a child's calls, in the warden's memory.
#[derive(Default)]
struct Stack(Vec<MaybeUninit<u8>>);

impl Stack {
    /// Its end, aligned; allocates it the first time.
    fn top(&mut self) -> *mut c_void {
        self.0.reserve(STACK_BYTES);
        // SAFETY: the end of the reserved space, then down to a multiple of 16 inside it.
        unsafe {
            let top = self.0.as_mut_ptr().add(STACK_BYTES);
            top.sub(top.addr() & 15).cast::<c_void>()
        }
    }
}

fn pointers(strings: &[impl AsRef<CStr>]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ref().as_ptr()).chain([ptr::null()]).collect()
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs in the first child of a sandboxed start: enters the namespaces and makes the command's process in them.
extern "C" fn usher(argument: *mut c_void) -> c_int {
    let shared = argument.cast::<Shared>();
    // SAFETY: `argument` is the `Shared` of `start`, which sleeps until this function is through; while the
    // command's process uses it, this one sleeps in turn.
    unsafe {
        if let Some(confines) = &mut (*shared).sandbox {
            let entered = enter(confines);
            if let Err(errno) = entered {
                ptr::write_volatile(&raw mut (*shared).failure, Some((StartStage::Sandbox, errno)));
                libc::_exit(127);
            }
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
            let command = libc::clone(child, confines.stack, flags, argument);
            if command < 0 {
                let failure = Some((StartStage::Process, last_errno()));
                ptr::write_volatile(&raw mut (*shared).failure, failure);
            }
            ptr::write_volatile(&raw mut confines.command, command);
        }
        libc::_exit(0)
    }
}

/// Enters the namespaces, and shows the artifacts there.
unsafe fn enter(confines: &Confines) -> Result<(), c_int> {
    // SAFETY: the descriptors and texts are the warden's, which sleeps; no pointer is kept.
    unsafe {
        for (namespace, kind) in &confines.namespaces {
            if libc::setns(*namespace, *kind) != 0 {
                return Err(last_errno());
            }
        }
        if let Some((all, shown)) = confines.artifacts {
            for name in &confines.shown {
                show(all, shown, *name);
            }
        }
        Ok(())
    }
}

/// Shows one task's artifacts; what is not there any more is not shown.
unsafe fn show(all: RawFd, shown: RawFd, name: *const c_char) {
    const CLONE: c_int = 1;
    const FROM_EMPTY: c_int = 4;
    // SAFETY: descriptors and a text of the warden's; the new descriptor is closed again here.
    unsafe {
        let flags = CLONE | libc::O_CLOEXEC | libc::AT_NO_AUTOMOUNT;
        let tree = libc::syscall(libc::SYS_open_tree, all, name, flags);
        let Ok(tree) = RawFd::try_from(tree) else { return };
        if tree < 0 {
            return;
        }
        if libc::mkdirat(shown, name, 0o700) == 0 {
            let still = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            let attributes =
                libc::mount_attr { attr_set: still, attr_clr: 0, propagation: 0, userns_fd: 0 };
            let size = size_of::<libc::mount_attr>();
            let empty = c"".as_ptr();
            if libc::syscall(
                libc::SYS_mount_setattr,
                tree,
                empty,
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size,
            ) == 0
            {
                libc::syscall(libc::SYS_move_mount, tree, empty, shown, name, FROM_EMPTY);
            }
        }
        libc::close(tree);
    }
}

/// Runs in the command's process, on its own stack but in the warden's memory: system calls only.
extern "C" fn child(argument: *mut c_void) -> c_int {
    let shared = argument.cast::<Shared>();
    // SAFETY: `argument` is the `Shared` of `start`, which sleeps until this function is through.
    unsafe {
        let failure = prepare_and_execute(&*shared);
        ptr::write_volatile(&raw mut (*shared).failure, Some(failure));
        libc::_exit(127)
    }
}

/// Returns only when a step failed.
unsafe fn prepare_and_execute(shared: &Shared) -> (StartStage, c_int) {
    // SAFETY: every pointer comes from `start` and is valid until this process executes; the calls
    // are async-signal-safe and touch only this process, not the warden (CLONE_FILES, CLONE_FS and
    // CLONE_SIGHAND are not set).
    unsafe {
        if libc::setsid() < 0 {
            return (StartStage::Process, last_errno());
        }
        libc::umask(shared.umask);
        if let Err(errno) = change_folder(shared) {
            return (StartStage::WorkingDirectory, errno);
        }
        for (target, source) in (0..).zip(shared.streams) {
            if libc::dup2(source, target) < 0 {
                return (StartStage::Descriptors, last_errno());
            }
        }
        if shared.terminal && libc::ioctl(libc::STDOUT_FILENO, libc::TIOCSCTTY, 0) != 0 {
            return (StartStage::Descriptors, last_errno());
        }
        // All of ours are closed on exec by themselves; what else there may be is too, where the kernel
        // has this call (5.11).
        libc::close_range(3, c_int::MAX.cast_unsigned(), libc::CLOSE_RANGE_CLOEXEC.cast_signed());
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const shared.open_files);
        if let Some(confines) = &shared.sandbox
            && let Err(errno) = confine(confines)
        {
            return (StartStage::Sandbox, errno);
        }
        unblock_signals();
        libc::execve(shared.program, shared.argv, shared.environment);
        (StartStage::Execute, last_errno())
    }
}

/// Changes to the working directory. In a sandbox it is opened again, by its path: a descriptor from outside would
/// lead past the sandbox's own mounts. It has to be the same folder.
unsafe fn change_folder(shared: &Shared) -> Result<(), c_int> {
    // SAFETY: valid descriptors and texts; `stat` is plain data that the calls fill.
    unsafe {
        let Some(confines) =
            shared.sandbox.as_ref().filter(|confines| !confines.namespaces.is_empty())
        else {
            return if libc::fchdir(shared.workdir) == 0 { Ok(()) } else { Err(last_errno()) };
        };
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let inside = libc::open(confines.workdir.as_ptr(), flags);
        let mut stats: [libc::stat; 2] = MaybeUninit::zeroed().assume_init();
        let [outer, inner] = &mut stats;
        if inside < 0 || libc::fstat(shared.workdir, outer) != 0 || libc::fstat(inside, inner) != 0
        {
            return Err(last_errno());
        }
        if (outer.st_dev, outer.st_ino) != (inner.st_dev, inner.st_ino) {
            return Err(libc::ESTALE);
        }
        if libc::fchdir(inside) == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

/// Gives up what can be given up: capabilities, new rights, files by Landlock, system calls by the filter.
unsafe fn confine(confines: &Confines) -> Result<(), c_int> {
    const SET_FILTER: c_int = 1;
    const TELL: c_int = 1 << 3;
    // SAFETY: plain numbers, a ruleset's descriptor, and a program that the warden holds.
    unsafe {
        drop_capabilities();
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(last_errno());
        }
        if let Some(rules) = confines.rules
            && libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) != 0
        {
            return Err(last_errno());
        }
        let flags = if confines.notices.is_some() { TELL } else { 0 };
        let listener =
            libc::syscall(libc::SYS_seccomp, SET_FILTER, flags, &raw const confines.filter);
        if listener < 0 {
            return Err(last_errno());
        }
        if let Some(channel) = confines.notices {
            Notices::pass(channel, RawFd::try_from(listener).unwrap_or(-1))?;
        }
        Ok(())
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
