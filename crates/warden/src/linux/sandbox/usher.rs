//! The usher: a short-lived process that enters a sandbox to make a process there, to show
//! artifacts in it, or to read what only somebody inside may.
//!
//! A process that is a child of the warden and a member of the sandbox's pid namespace takes two
//! steps: an [`usher`] enters the namespaces, in the warden's memory while the warden sleeps, and
//! makes the process as a sibling of itself (`CLONE_PARENT`).

use std::{
    convert::Infallible,
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr,
};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::{super::stack::Stack, sleeper::Confines};

/// Stack of the usher, and of what it makes until that executes.
const STACK_BYTES: usize = 256 * 1024;

/// Shows more artifacts in a sandbox that has been made.
pub(super) fn show_more(confines: Confines<'_>, shown: &[CString]) -> io::Result<()> {
    let mut errand = Errand::new(confines.namespaces.iter());
    errand.show(confines.artifacts, shown);
    errand.run().map(drop)
}

/// Makes a child of the warden that is born in these namespaces, and in new ones by the flags;
/// `live` is its life.
pub(super) fn bear<'a>(
    namespaces: impl Iterator<Item = &'a (OwnedFd, i32)>,
    flags: c_int,
    live: &dyn Fn() -> Infallible,
) -> io::Result<Pid> {
    let mut errand = Errand::new(namespaces);
    errand.birth = Some(Birth::Copy { flags, live });
    errand.run()
}

/// Does something in these namespaces. It may make system calls, and write into memory of the
/// warden that is there already; descriptors that it opens are gone afterwards.
pub(super) fn inside<'a>(
    namespaces: impl Iterator<Item = &'a (OwnedFd, i32)>,
    work: &dyn Fn() -> Result<(), c_int>,
) -> io::Result<()> {
    let mut errand = Errand::new(namespaces);
    errand.work = Some(work);
    errand.run().map(drop)
}

/// What an usher does; read by it in the warden's memory.
pub(super) struct Errand<'a> {
    namespaces: Vec<(RawFd, c_int)>,
    work: Option<&'a dyn Fn() -> Result<(), c_int>>,
    artifacts: Option<(RawFd, RawFd)>,
    shown: Vec<*const c_char>,
    pub birth: Option<Birth<'a>>,
    /// The process that was made, as the warden sees it; the usher's own if none was.
    made: c_int,
    errno: c_int,
}

/// A child to be made.
pub(super) enum Birth<'a> {
    /// One with a copy of the warden's memory, and with namespaces of its own by the flags.
    Copy { flags: c_int, live: &'a dyn Fn() -> Infallible },
    /// One that lives in the warden's memory, on a stack that ends here: what it runs, and with
    /// what.
    Sharing { stack: *mut c_void, live: extern "C" fn(*mut c_void) -> c_int, with: *mut c_void },
}

impl Birth<'_> {
    /// # Safety
    ///
    /// In an usher. What lives in the warden's memory makes system calls only, or is waited for.
    unsafe fn make(&self) -> Result<c_int, c_int> {
        const SIBLING: c_int = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: a copy of the memory in which nothing is half-done, and which never returns into
        // the warden's code; or a stack that nobody else uses, for a function that does not return.
        unsafe {
            match self {
                Self::Copy { flags, live } => {
                    match libc::syscall(libc::SYS_clone, SIBLING | flags, 0, 0, 0, 0) {
                        0 => lead(live),
                        pid if pid < 0 => Err(last_errno()),
                        pid => Ok(c_int::try_from(pid).unwrap_or(0)),
                    }
                }
                Self::Sharing { stack, live, with } => {
                    match libc::clone(*live, *stack, SIBLING | libc::CLONE_VM, *with) {
                        pid if pid < 0 => Err(last_errno()),
                        pid => Ok(pid),
                    }
                }
            }
        }
    }
}

impl Errand<'_> {
    pub(super) fn new<'n>(namespaces: impl Iterator<Item = &'n (OwnedFd, i32)>) -> Self {
        Self {
            namespaces: namespaces.map(|(handle, kind)| (handle.as_raw_fd(), *kind)).collect(),
            work: None,
            artifacts: None,
            shown: Vec::new(),
            birth: None,
            made: 0,
            errno: 0,
        }
    }

    /// Artifacts are shown on the way; their names have to live as long as this.
    pub(super) fn show(&mut self, artifacts: Option<(&OwnedFd, &OwnedFd)>, names: &[CString]) {
        self.artifacts = artifacts.map(|(all, shown)| (all.as_raw_fd(), shown.as_raw_fd()));
        self.shown = names.iter().map(|name| name.as_ptr()).collect();
    }

    /// Sends an usher, and waits until it is through.
    pub(super) fn run(&mut self) -> io::Result<Pid> {
        let mut stack = Stack::new(STACK_BYTES);
        // SAFETY: this errand and everything it points to outlive the call, as the stack does; the
        // usher uses them only while this thread is suspended by CLONE_VFORK; all signals are
        // blocked, so no handler runs in it.
        let usher = unsafe {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(usher, stack.top(), flags, ptr::from_mut(self).cast::<c_void>())
        };
        let Some(usher) = Some(usher).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Err(io::Error::last_os_error());
        };
        let _ = waitpid(Some(usher), WaitOptions::empty());
        // SAFETY: a plain read of what the usher wrote before it was through, whatever the compiler
        // remembers.
        let (errno, made) = unsafe {
            (ptr::read_volatile(&raw const self.errno), ptr::read_volatile(&raw const self.made))
        };
        let made = Some(made).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        match (errno, made) {
            (0, Some(made)) => Ok(made),
            (0, None) if self.birth.is_none() => Ok(usher),
            // It was killed on its way.
            (0, None) => Err(io::Error::from_raw_os_error(libc::ECHILD)),
            (errno, _) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Leads a life to its end.
fn lead(live: &dyn Fn() -> Infallible) -> ! {
    match live() {}
}

/// Enters the namespaces, shows what is to be seen there, and makes the sleeper.
extern "C" fn usher(argument: *mut c_void) -> c_int {
    let errand = argument.cast::<Errand<'_>>();
    // SAFETY: `argument` is the errand of `run`, which sleeps until this process ends. Between the
    // clone and the end only system calls are made here.
    unsafe {
        let done = enter(&*errand)
            .and_then(|()| (*errand).birth.as_ref().map_or(Ok(0), |birth| birth.make()));
        match done {
            Ok(pid) => ptr::write_volatile(&raw mut (*errand).made, pid),
            Err(errno) => ptr::write_volatile(&raw mut (*errand).errno, errno),
        }
        libc::_exit(0)
    }
}

unsafe fn enter(errand: &Errand<'_>) -> Result<(), c_int> {
    // SAFETY: descriptors and texts of the warden, which sleeps.
    unsafe {
        for (namespace, kind) in &errand.namespaces {
            if libc::setns(*namespace, *kind) != 0 {
                return Err(last_errno());
            }
        }
        if let Some(work) = errand.work {
            work()?;
        }
        if let Some((all, shown)) = errand.artifacts {
            for name in &errand.shown {
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
    const EMPTY: *const c_char = c"".as_ptr();
    // SAFETY: descriptors and a text of the warden's; the new descriptor is closed again here.
    unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, all, name, CLONE | libc::O_CLOEXEC);
        let Ok(tree @ 0..) = RawFd::try_from(tree) else { return };
        if libc::mkdirat(shown, name, 0o700) == 0 {
            let still = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            let attributes =
                libc::mount_attr { attr_set: still, attr_clr: 0, propagation: 0, userns_fd: 0 };
            let (flags, size) = (libc::AT_EMPTY_PATH, size_of::<libc::mount_attr>());
            let call = libc::SYS_mount_setattr;
            if libc::syscall(call, tree, EMPTY, flags, &raw const attributes, size) == 0 {
                libc::syscall(libc::SYS_move_mount, tree, EMPTY, shown, name, FROM_EMPTY);
            }
        }
        libc::close(tree);
    }
}

pub(super) fn last_errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
