//! The engine's side of the spawner: starts it, asks it for wardens, and lets go of it.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit},
};

use super::{
    socket,
    spawner::{raise_open_files, serve},
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
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(SPAWNER_ARGUMENT)) {
        let code = i32::from(serve(rustix::stdio::stdin()).is_err());
        std::process::exit(code);
    }
}

/// An engine's hold on its spawner; dropping it ends the spawner, never its wardens.
#[derive(Debug)]
pub struct Spawner {
    control: OwnedFd,
    pid: u32,
    /// There until it is given up.
    child: Option<Child>,
}

impl Spawner {
    /// Starts this program again as a spawner. Waits for its hello, a few seconds at most.
    ///
    /// Fails when [`take_over_if_spawner`] was not called: the second start would run the host
    /// program's own `main` instead.
    pub fn launch(tasks: BorrowedFd<'_>, wardens: BorrowedFd<'_>) -> io::Result<Self> {
        if !READY.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "call legwork::init() as the first statement of main: commands are started by a \
                 second start of this program, which only that call can recognise",
            ));
        }
        let (control, other) = socket::socket_pair()?;
        ioctl_fionbio(&control, true)?;
        let child = Command::new("/proc/self/exe")
            .arg0("legwork")
            .arg(SPAWNER_ARGUMENT)
            .current_dir("/")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut spawner = Self { control, pid: child.id(), child: Some(child) };
        match spawner.expect_hello().and_then(|()| spawner.set_up(tasks, wardens)) {
            Ok(()) => Ok(spawner),
            Err(error) => {
                // It has no wardens yet: nobody needs it, whatever it is held up by.
                let _ = spawner.child.as_mut().map(Child::kill);
                Err(error)
            }
        }
    }

    /// Asks for a warden that speaks on the other end of `channel`. Never waits: a spawner that has
    /// no room for a request has not read any for long.
    pub fn fork(&self, warden: &str, channel: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(&ToSpawner::Fork { warden: warden.to_owned() }, &[channel])
    }

    /// Process id of the spawner.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets go of a spawner that does not answer, without waiting for it. If it was only stopped by
    /// a signal, it goes on, finds that nobody asks it any more, and ends with the last of its
    /// wardens.
    pub fn give_up(mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed())
            && matches!(child.try_wait(), Ok(None))
        {
            // It is our child and has not been collected, so that the number is its own.
            let _ = kill_process(pid, Signal::CONT);
            // Where no thread can be had, it is collected when this process ends.
            let waiter = std::thread::Builder::new().stack_size(WAITER_STACK_BYTES);
            let _ = waiter.spawn(move || child.wait());
        }
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
        if let Some(before) = OPEN_FILES.get()
            && let Some(pid) = Pid::from_raw(self.pid.cast_signed())
        {
            // It is our child and has just spoken, so that the number is its own.
            prlimit(Some(pid), Resource::Nofile, *before)?;
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
        let left =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let problem = "the spawner did not say hello";
                Err(io::Error::new(io::ErrorKind::TimedOut, problem))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Closing our end is what ends it, as soon as its wardens are gone. In the common case that
        // is at once, and then it is collected here; otherwise it is left to them.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        let Some(child) = &mut self.child else { return };
        let patience = Instant::now() + FAREWELL;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Lets this process keep the memory that it frees: giving it back and asking for it again with
/// every command costs more than the command's own bookkeeping. For a program that serves many;
/// wardens do the opposite.
pub fn keep_heap() {
    #[cfg(target_env = "gnu")]
    {
        const KEPT_BYTES: libc::c_int = 4 * 1024 * 1024;
        // SAFETY: sets a number of the allocator, before anything depends on it.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) };
    }
}
