//! The engine's side of the spawner: starts it, asks it for wardens, and lets go of it.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    panic::catch_unwind,
    process::{Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open, stat},
    io::{Errno, ioctl_fionbio},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, chdir, kill_process, pidfd_open,
        prlimit, waitpid,
    },
};

use super::{
    proxy::be_connector_if_asked,
    socket,
    spawner::{raise_open_files, serve},
    tree,
};
use crate::protocol::{self, Decoder, FromSpawner, ToSpawner, encode};

/// The private argument that turns a second start of the program into a spawner.
const SPAWNER_ARGUMENT: &str = "__legwork-spawner";

/// How long a new spawner may take to say hello.
const HELLO: Duration = Duration::from_secs(5);

/// How long an engine waits for its spawner when it lets go of it.
const FAREWELL: Duration = Duration::from_millis(20);

/// The stack of a thread that does nothing but wait for a process.
const WAITER_STACK_BYTES: usize = 64 * 1024;

/// Whether [`take_over_if_spawner`] has been called in this process.
static READY: AtomicBool = AtomicBool::new(false);

/// A spawner that was forked before anybody asked for one.
static AHEAD: Mutex<Option<Spawner>> = Mutex::new(None);

/// The limit of open files that this process had before it was raised.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files of an engine that runs many commands: each takes a descriptor.
/// Commands get what it was before.
pub fn raise_own_open_files() {
    OPEN_FILES.get_or_init(raise_open_files);
}

/// Becomes the spawner, and never returns, if this process was started as one.
///
/// Call it first thing in `main`: before threads, arguments, logging.
pub fn take_over_if_spawner() {
    READY.store(true, Ordering::Relaxed);
    be_connector_if_asked();
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(SPAWNER_ARGUMENT)) {
        be_spawner(true);
    }
}

/// Serves on standard input.
fn be_spawner(says_hello: bool) -> ! {
    let served = catch_unwind(|| serve(rustix::stdio::stdin(), says_hello));
    std::process::exit(i32::from(!matches!(served, Ok(Ok(())))))
}

/// Forks the first spawner right here, for a program that is about to start a command: that saves
/// the second start of the program, which takes longer than most commands. Its wardens have more
/// memory than those of a spawner that was started: it is not for a program that runs many.
///
/// Call it in `main` while the process has one thread and has opened nothing yet. It does nothing
/// where there are more threads or the fork fails: then the first spawner is started like any
/// other.
pub fn fork_spawner_ahead() {
    // The folder has two links of its own, and one for each thread.
    let is_alone = stat("/proc/self/task").is_ok_and(|threads| threads.st_nlink == 3);
    // One that is started says why it is unfit, and nobody waits for the word of this one.
    if !is_alone || !tree::is_knowable() {
        return;
    }
    // Finds out what the processor can do, which takes long in a virtual machine, before there are
    // several processes that would each ask for themselves.
    crc32fast::hash(&[]);
    if let Ok(spawner) = Spawner::forked() {
        *AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(spawner);
    }
}

/// An engine's hold on its spawner; dropping it ends the spawner, never its wardens.
#[derive(Debug)]
pub struct Spawner {
    control: OwnedFd,
    /// Our child.
    pid: Pid,
    /// Whether it has been collected, or somebody else will do that: then the number is no longer
    /// ours to use.
    is_left: bool,
    /// Whether this program ends with its one command, and need not wait for it.
    is_fork: bool,
}

impl Spawner {
    /// The spawner that was forked ahead, if there is one and nobody has it yet. Waits for nothing:
    /// a fork of this very process speaks the same version.
    pub fn ahead(tasks: BorrowedFd<'_>, wardens: BorrowedFd<'_>) -> Option<Self> {
        let spawner = AHEAD.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        spawner.set_up(tasks, wardens).is_ok().then_some(spawner)
    }

    /// Starts this program again as a spawner. Waits for its hello, a few seconds at most.
    ///
    /// Fails when [`take_over_if_spawner`] was not called: the second start would run the host
    /// program's own `main` instead.
    pub fn launch(tasks: BorrowedFd<'_>, wardens: BorrowedFd<'_>) -> io::Result<Self> {
        let mut spawner = Self::started()?;
        match spawner.expect_hello().and_then(|()| spawner.set_up(tasks, wardens)) {
            Ok(()) => Ok(spawner),
            Err(error) => {
                // It has no wardens yet: nobody needs it, whatever it is held up by.
                if spawner.is_running() {
                    let _ = kill_process(spawner.pid, Signal::KILL);
                }
                Err(error)
            }
        }
    }

    /// A second start of this program.
    fn started() -> io::Result<Self> {
        if !READY.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "call legwork::init() as the first statement of main: commands are started by a \
                 second start of this program, which only that call can recognise",
            ));
        }
        let (control, other) = socket::socket_pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("legwork")
            .arg(SPAWNER_ARGUMENT)
            .current_dir("/")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Self::of(control, child.id().cast_signed(), false)
    }

    /// A fork of this process, which has one thread and owns no descriptor but the first three.
    fn forked() -> io::Result<Self> {
        let (control, other) = socket::socket_pair()?;
        // SAFETY: there is one thread, so that the child may do whatever this process may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let prepared = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                    .and_then(|null| {
                        rustix::stdio::dup2_stdin(&other)?;
                        rustix::stdio::dup2_stdout(&null)?;
                        rustix::stdio::dup2_stderr(&null)?;
                        chdir("/")
                    });
                // The spawner closes whatever is open beside the first three, these among them.
                let _ = (control.into_raw_fd(), other.into_raw_fd());
                if prepared.is_err() {
                    std::process::exit(1);
                }
                be_spawner(false)
            }
            child => Self::of(control, child, true),
        }
    }

    fn of(control: OwnedFd, child: i32, is_fork: bool) -> io::Result<Self> {
        let pid = Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?;
        ioctl_fionbio(&control, true)?;
        Ok(Self { control, pid, is_left: false, is_fork })
    }

    /// Whether it has not ended; collects it if it has. While it is true, the number is its own.
    fn is_running(&mut self) -> bool {
        self.is_left =
            self.is_left || !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        !self.is_left
    }

    /// Asks for a warden that speaks on the other end of `channel`. Never waits: a spawner that has
    /// no room for a request has not read any for long.
    pub fn fork(&self, warden: &str, channel: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(&ToSpawner::Fork { warden: warden.to_owned() }, &[channel])
    }

    /// Process id of the spawner.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Lets go of a spawner that does not answer, without waiting for it. If it was only stopped by
    /// a signal, it goes on, finds that nobody asks it any more, and ends with the last of its
    /// wardens.
    pub fn give_up(mut self) {
        if self.is_running() {
            let _ = kill_process(self.pid, Signal::CONT);
            self.collect_later();
        }
    }

    /// Leaves it to a thread to collect it, whenever it ends. Where no thread can be had, that is
    /// when this process ends.
    fn collect_later(&mut self) {
        let waiter = std::thread::Builder::new().stack_size(WAITER_STACK_BYTES);
        let pid = self.pid;
        let _ = waiter.spawn(move || waitpid(Some(pid), WaitOptions::empty()));
        self.is_left = true;
    }

    fn ask(&self, message: &ToSpawner, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        let mut sent = socket::send(self.control.as_fd(), &frame, with)?;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            sent += socket::send(self.control.as_fd(), rest, &[])?;
        }
        Ok(())
    }

    /// Gives it what its wardens need.
    fn set_up(&self, tasks: BorrowedFd<'_>, wardens: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(before) = OPEN_FILES.get() {
            // It is our child and has just spoken, so that the number is its own.
            prlimit(Some(self.pid), Resource::Nofile, *before)?;
        }
        self.ask(&ToSpawner::Setup, &[tasks, wardens])
    }

    fn expect_hello(&self) -> io::Result<()> {
        let deadline = Instant::now() + HELLO;
        let mut decoder = Decoder::default();
        let mut buffer = [0; 64];
        loop {
            match decoder.next_frame().map_err(io::Error::other)? {
                Some(FromSpawner::Hello { version }) if version == protocol::version() => {
                    return Ok(());
                }
                Some(FromSpawner::Hello { version }) => {
                    return Err(io::Error::other(format!("the spawner speaks version {version}")));
                }
                Some(FromSpawner::Unfit { reason }) => {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
                }
                None => self.wait_until(deadline)?,
            }
            let received = match socket::receive(self.control.as_fd(), &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            if received.bytes == 0 {
                let problem = "the spawner ended before it said hello";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
            }
            decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
        }
    }

    /// Waits until there is something to read.
    fn wait_until(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        match wait_for(&self.control, left) {
            Ok(0) => {
                let problem = "the spawner did not say hello";
                Err(io::Error::new(io::ErrorKind::TimedOut, problem))
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Waits until a descriptor can be read; 0 is that it took too long.
fn wait_for(descriptor: &OwnedFd, time: Duration) -> Result<usize, Errno> {
    let time =
        Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&time))
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Closing our end is what ends it, as soon as its wardens are gone.
        if self.is_fork {
            return;
        }
        // Also where somebody has inherited that end. In the common case it ends at once, and then
        // it is collected here.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        if self.is_running()
            && let Ok(its_end) = pidfd_open(self.pid, PidfdFlags::empty())
        {
            let _ = wait_for(&its_end, FAREWELL);
            if self.is_running() {
                self.collect_later();
            }
        }
    }
}
