//! The process that waits in a sandbox for its command: made ahead, without privileges.
//!
//! It is a child of the warden, made by an [usher](super::usher) inside the sandbox. It gives up
//! its rights, hands over where its refused system calls are told, and waits. What it is then
//! shown, it executes.
//!
//! It lives in the warden's memory, on a stack of its own: so no memory is copied for it, and none
//! is taken down when it executes. The warden waits while it runs: after its birth until it sleeps,
//! and after it was woken until it has executed or ended. It makes system calls only and allocates
//! nothing, so that whoever kills it at whatever moment leaves the warden's memory whole.

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, CString, OsStr, c_char, c_int, c_void},
    io::{self, IoSliceMut, Write},
    mem::{ManuallyDrop, MaybeUninit},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    ptr,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, fstat, open},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};

use super::{
    super::{
        command::{self, Handover, Prepared, pointers},
        notices::Notices,
        socket,
        stack::Stack,
    },
    capabilities::drop_capabilities,
    init::keep_only,
    seccomp::Filter,
    usher::{Birth, Errand, last_errno},
};
use crate::protocol::{Spec, StartFailure, StartStage};

/// Stack of a sleeper; the deepest calls are `execve` and the look at its working directory.
const STACK_BYTES: usize = 64 * 1024;

/// What a sleeper says when it is confined, with where its refused calls are told beside it.
const CONFINED: u8 = b'c';

/// What it says last before it sleeps.
const ASLEEP: u8 = b's';

/// What a sleeper is confined by, besides the namespaces that it is born in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confines<'a> {
    pub namespaces: &'a [(OwnedFd, i32)],
    pub rules: Option<&'a OwnedFd>,
    pub filter: &'a Filter,
    /// All artifacts, and where they can be shown.
    pub artifacts: Option<(&'a OwnedFd, &'a OwnedFd)>,
}

/// A process that waits for its command.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub pid: Pid,
    socket: OwnedFd,
    /// Where its refused calls are told, if they are.
    listener: RefCell<Option<OwnedFd>>,
    was_woken: Cell<bool>,
    /// Never given back by itself: the process may use it still.
    stack: ManuallyDrop<Stack>,
}

impl Sleeper {
    /// Makes one, and waits until it sleeps.
    pub(super) fn make(confines: Confines<'_>, shown: &[CString]) -> io::Result<Self> {
        let (socket, other) = socket::socket_pair()?;
        let mut life = Life { confines, socket: other.as_raw_fd(), failure: 0 };
        let mut stack = ManuallyDrop::new(Stack::new(STACK_BYTES));
        let mut errand = Errand::new(confines.namespaces.iter());
        errand.show(confines.artifacts, shown);
        let with = (&raw mut life).cast::<c_void>();
        errand.birth = Some(Birth::Sharing { stack: stack.top(), live, with });
        let made = errand.run();
        // Its end is seen, too: only it has the other end from here on.
        drop(other);
        let heard = hear_confined(socket.as_fd());
        let pid = match made {
            Ok(pid) => pid,
            Err(error) => {
                // An usher that was killed may have made one all the same, who sleeps by now: it
                // goes with the socket, and nobody knows when, so that its stack is given up.
                if heard.is_err() {
                    // SAFETY: whoever had the other end of the socket is gone.
                    unsafe { ManuallyDrop::drop(&mut stack) };
                }
                return Err(error);
            }
        };
        match heard {
            Ok(listener) => {
                let (listener, was_woken) = (RefCell::new(listener), Cell::new(false));
                Ok(Self { pid, socket, listener, was_woken, stack })
            }
            Err(error) => {
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                // SAFETY: its process is gone, and nobody uses it again.
                unsafe { ManuallyDrop::drop(&mut stack) };
                // SAFETY: a plain read of what the sleeper may have written before it ended.
                match unsafe { ptr::read_volatile(&raw const life.failure) } {
                    0 => Err(error),
                    errno => Err(io::Error::from_raw_os_error(errno)),
                }
            }
        }
    }

    /// Gives it its command. Returns where refused calls are told, if they are; on failure the
    /// process is ending.
    pub(super) fn wake(
        &self,
        prepared: &Prepared<'_>,
        spec: &Spec,
        tmp: Option<&Path>,
    ) -> Result<Option<Notices>, StartFailure> {
        let (argv, environment) = (pointers(&prepared.argv), pointers(&prepared.environment));
        let limits = prepared.limits.once_entered();
        let (workdir, folder) = folder_of(prepared.workdir, tmp)?;
        let mut handover = Handover::new(prepared, 0, &argv, &environment);
        handover.limits = &raw const limits;
        // Whoever ends before it has read this has not started anything.
        handover.failure = Some((StartStage::Sandbox, libc::ECHILD));
        let on_copy = spec.sandbox.as_ref().is_some_and(|sandbox| sandbox.on_copy);
        let by_path = on_copy || has_its_own(&workdir);
        let mut order = SleeperOrder { handover, workdir: workdir.as_ptr(), folder, by_path };
        self.was_woken.set(true);
        let place = (&raw mut order).expose_provenance().to_ne_bytes();
        let rules = spec.sandbox.as_ref().map_or(&[][..], |sandbox| &sandbox.exec_rules[..]);
        let listener = self.listener.borrow_mut().take();
        let mut notices = listener.map(|listener| Notices::new(listener, rules, self.pid));
        socket::send(self.socket.as_fd(), &place, &prepared.streams)
            .map_err(failed(StartStage::Sandbox))?;
        self.wait_answering(notices.as_mut());
        // SAFETY: a plain read of what the sleeper wrote before it ended, whatever the compiler
        // remembers.
        match unsafe { ptr::read_volatile(&raw const order.handover.failure) } {
            Some((stage, errno)) => Err(failure(stage, errno)),
            None => Ok(notices),
        }
    }

    /// Waits until it has executed or ended: its socket closes with either, once it has let go of
    /// the warden's memory. Until then the command may have gone on to execute others: rules on
    /// programs hold from the first question of the kernel on.
    fn wait_answering(&self, mut notices: Option<&mut Notices>) {
        loop {
            let listener = notices.as_ref().and_then(|notices| notices.listener());
            let mut waiting = vec![PollFd::new(&self.socket, PollFlags::IN)];
            waiting.extend(listener.iter().map(|it| PollFd::new(it, PollFlags::IN)));
            if poll(&mut waiting, None).is_err() {
                // Whatever the reason: it still uses this memory.
                std::thread::yield_now();
                continue;
            }
            let is_over = waiting.first().is_some_and(|socket| !socket.revents().is_empty());
            let asked = waiting.get(1).is_some_and(|listener| !listener.revents().is_empty());
            if asked && let Some(notices) = &mut notices {
                notices.answer();
            }
            if is_over {
                return;
            }
        }
    }

    /// Whether it can still be given a command.
    pub(super) fn is_asleep(&self) -> bool {
        !self.was_woken.get()
    }

    /// Gives its stack back: it has executed.
    pub(super) fn give_back(mut self) {
        // SAFETY: taken once, from what is dropped here; the process has let go of this memory.
        drop(unsafe { ManuallyDrop::take(&mut self.stack) });
    }

    /// Its stack, which is to be kept until the process is collected.
    pub(super) fn into_stack(mut self) -> Stack {
        // SAFETY: taken once, from what is dropped here.
        unsafe { ManuallyDrop::take(&mut self.stack) }
    }
}

/// Waits until a sleeper sleeps; returns where its refused calls are told, if they are.
fn hear_confined(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut listener = None;
    loop {
        let mut heard = [0; 2];
        let received = socket::receive(socket, &mut heard)?;
        listener = received.descriptors.into_iter().next().or(listener);
        match heard.get(..received.bytes) {
            Some([.., ASLEEP]) => return Ok(listener),
            Some([CONFINED]) => {}
            _ => return Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }
}

/// Whether the sandbox has a folder of its own at a path.
fn has_its_own(folder: &CStr) -> bool {
    const OWN: [&str; 6] = ["/tmp", "/var/tmp", "/proc", "/run", "/dev", "/sys"];
    let folder = Path::new(OsStr::from_bytes(folder.to_bytes()));
    OWN.iter().any(|own| folder.starts_with(own))
}

/// The working directory by its path inside, and what it is outside: a device and a number. `tmp`
/// is
/// `/tmp` inside.
fn folder_of(
    workdir: BorrowedFd<'_>,
    tmp: Option<&Path>,
) -> Result<(CString, (u64, u64)), StartFailure> {
    let lost = |errno: Errno| failed(StartStage::WorkingDirectory)(errno.into());
    let stat = fstat(workdir).map_err(lost)?;
    let link = format!("/proc/self/fd/{}", workdir.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).map_err(lost)?;
    let outside = Path::new(OsStr::from_bytes(path.as_bytes()));
    let inside = tmp.and_then(|tmp| outside.strip_prefix(tmp).ok());
    let inside = inside.map(|rest| Path::new("/tmp").join(rest).into_os_string().into_vec());
    let path = match inside.map(CString::new) {
        Some(inside) => inside.map_err(|_| lost(Errno::INVAL))?,
        None => path,
    };
    Ok((path, (stat.st_dev, stat.st_ino)))
}

fn failure(stage: StartStage, errno: i32) -> StartFailure {
    StartFailure { stage, errno }
}

fn failed(stage: StartStage) -> impl Fn(io::Error) -> StartFailure {
    move |error| failure(stage, error.raw_os_error().unwrap_or(libc::EIO))
}

/// A command, as a sleeper reads it in the warden's memory.
struct SleeperOrder {
    handover: Handover,
    workdir: *const c_char,
    folder: (u64, u64),
    /// Whether the sandbox has another folder at that path.
    by_path: bool,
}

/// What a sleeper needs until it sleeps, and where it writes why it does not.
struct Life<'a> {
    confines: Confines<'a>,
    /// In its own descriptors, which are a copy of the warden's.
    socket: RawFd,
    failure: c_int,
}

/// The whole life of a sleeper, until it executes.
extern "C" fn live(life: *mut c_void) -> c_int {
    let life = life.cast::<Life<'_>>();
    // Where there is no init that would take it along, the warden's end is its end all the same.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // SAFETY: `life` is that of `Sleeper::make`, which waits until it is told that this process
    // sleeps. After that nothing of it is used.
    let asleep = unsafe {
        let asleep = (*life).confine().and_then(|()| (*life).fall_asleep());
        if let Err(errno) = asleep {
            ptr::write_volatile(&raw mut (*life).failure, errno);
        }
        asleep
    };
    if let Ok(socket) = asleep {
        // It closes with this process: until then the warden waits, whose memory this is.
        obey(ManuallyDrop::new(socket).as_fd());
    }
    // SAFETY: ends this process at once: what the warden had registered for its own end is not ours
    // to run.
    unsafe { libc::_exit(127) }
}

impl Life<'_> {
    /// Gives up what can be given up: capabilities, new rights, files by Landlock, system calls by
    /// the filter.
    fn confine(&self) -> Result<(), c_int> {
        const SET_FILTER: c_int = 1;
        const TELL: c_int = 1 << 3;
        let program = self.confines.filter.program();
        let flags = if self.confines.filter.told { TELL } else { 0 };
        // SAFETY: plain numbers, a ruleset's descriptor and a program that outlives the call; all
        // of it is about this process alone. The descriptor that comes back is nobody else's.
        let listener = unsafe {
            if !drop_capabilities() || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(last_errno());
            }
            if let Some(rules) = self.confines.rules
                && libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
            {
                return Err(last_errno());
            }
            let given = libc::syscall(libc::SYS_seccomp, SET_FILTER, flags, &raw const program);
            if given < 0 {
                return Err(last_errno());
            }
            let told = self.confines.filter.told;
            told.then(|| BorrowedFd::borrow_raw(RawFd::try_from(given).unwrap_or_default()))
        };
        socket::send(self.socket(), &[CONFINED], listener.as_slice()).map_err(errno_of)?;
        Ok(())
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: nobody closes it in this process before it is used the last time.
        unsafe { BorrowedFd::borrow_raw(self.socket) }
    }

    /// Lets go of whatever is the warden's, and says last that it sleeps.
    fn fall_asleep(&self) -> Result<OwnedFd, c_int> {
        let socket = keep_only(self.socket()).map_err(errno_of)?;
        socket::send(socket.as_fd(), &[ASLEEP], &[]).map_err(errno_of)?;
        Ok(socket)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it maps an error")]
fn errno_of(error: io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Waits for the command, and becomes it; returns if it could not, or nobody needs it.
fn obey(socket: BorrowedFd<'_>) {
    let Some((order, streams)) = receive_order(socket) else { return };
    // SAFETY: it is that of `Sleeper::wake`, which waits until this process has executed or ended.
    unsafe {
        ptr::write_volatile(&raw mut (*order).handover.failure, None);
        let (stage, errno) = execute(&*order, &streams);
        ptr::write_volatile(&raw mut (*order).handover.failure, Some((stage, errno)));
    }
}

/// Where the order is, and the command's streams.
fn receive_order(socket: BorrowedFd<'_>) -> Option<(*mut SleeperOrder, [OwnedFd; 3])> {
    let mut place = [0; size_of::<usize>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut buffer = [IoSliceMut::new(&mut place)];
        match recvmsg(socket, &mut buffer, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    let rights = beside.drain().find_map(|item| match item {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let mut rights = rights?;
    let streams = [rights.next()?, rights.next()?, rights.next()?];
    if received.bytes != place.len() {
        return None;
    }
    Some((ptr::with_exposed_provenance_mut(usize::from_ne_bytes(place)), streams))
}

/// Takes the last steps; returns when one failed.
///
/// # Safety
///
/// The order is valid until this process executes or ends.
unsafe fn execute(order: &SleeperOrder, streams: &[OwnedFd; 3]) -> (StartStage, c_int) {
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(order.workdir) };
    let workdir = match enter_folder(path, order.folder, order.by_path) {
        Ok(workdir) => workdir,
        Err(errno) => return (StartStage::WorkingDirectory, errno.raw_os_error()),
    };
    let mut handover = order.handover;
    // Zero if it is outside of our pid namespace. If it were gone, so would we be.
    handover.parent = rustix::process::getppid().map_or(0, Pid::as_raw_pid);
    handover.workdir = workdir.as_raw_fd();
    handover.streams = streams.each_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: as the caller says; the descriptors are this process's own.
    unsafe { command::prepare_and_execute(&handover) }
}

/// Opens the working directory by its path: a descriptor from outside would lead past the sandbox's
/// own mounts. It has to be the same folder. Where the sandbox has another one in its place, it has
/// to be at the same path without any link on the way.
fn enter_folder(path: &CStr, expected: (u64, u64), by_path: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    let stat = fstat(&folder)?;
    let is_it = (stat.st_dev, stat.st_ino) == expected || (by_path && is_straight(&folder, path)?);
    if is_it { Ok(folder) } else { Err(Errno::STALE) }
}

/// Whether a folder is at this path without any link on the way. The filter has taken the call that
/// follows no links: the kernel is asked where the folder is.
fn is_straight(folder: &OwnedFd, path: &CStr) -> Result<bool, Errno> {
    const PATH_BYTES_MAX: usize = 4096;
    let mut link = [0; 32];
    write!(&mut link[..], "/proc/self/fd/{}\0", folder.as_raw_fd()).map_err(|_| Errno::INVAL)?;
    let link = CStr::from_bytes_until_nul(&link).map_err(|_| Errno::INVAL)?;
    let mut place = [MaybeUninit::<u8>::uninit(); PATH_BYTES_MAX];
    let (there, _) = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut place[..])?;
    Ok(*there == *path.to_bytes())
}
