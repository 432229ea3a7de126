//! The spawner: a small process with one thread that forks wardens.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::{fs::Mode, process::umask};

use super::{cgroup, socket, warden};
use crate::protocol::{
    Decoder, FromSpawner, FromWarden, StartFailure, StartStage, ToSpawner, VERSION, encode,
};

/// The private argument that turns a second start of the program into a spawner.
pub const SPAWNER_ARGUMENT: &str = "__legwork-spawner";

/// How long an engine waits for its spawner when it lets go of it.
const FAREWELL: Duration = Duration::from_millis(20);

/// Whether [`take_over_if_spawner`] has been called in this process.
static READY: AtomicBool = AtomicBool::new(false);

/// What wardens inherit from their spawner.
#[derive(Debug)]
pub(super) struct Setup {
    pub tasks: OwnedFd,
    pub wardens: OwnedFd,
    /// The file mode mask that commands get; our own files are private whatever it says.
    pub umask: u32,
    cgroup_base: Option<PathBuf>,
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
    child: Child,
}

impl Spawner {
    /// Starts this program again as a spawner.
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
        let child = Command::new("/proc/self/exe")
            .arg0("legwork")
            .arg(SPAWNER_ARGUMENT)
            .current_dir("/")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let spawner = Self { control, child };
        spawner.expect_hello()?;
        spawner.ask(&ToSpawner::Setup, &[tasks, wardens])?;
        Ok(spawner)
    }

    /// Asks for a warden that speaks on the other end of `channel`.
    pub fn fork(&self, warden: &str, channel: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(
            &ToSpawner::Fork {
                warden: warden.to_owned(),
            },
            &[channel],
        )
    }

    /// Process id of the spawner.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&self, message: &ToSpawner, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        let mut sent = socket::send(self.control.as_fd(), &frame, with)?;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            sent += socket::send(self.control.as_fd(), rest, &[])?;
        }
        Ok(())
    }

    fn expect_hello(&self) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut buffer = [0; 64];
        loop {
            if let Some(FromSpawner::Hello { version }) =
                decoder.next_frame().map_err(io::Error::other)?
            {
                return if version == VERSION {
                    Ok(())
                } else {
                    Err(io::Error::other(format!(
                        "the spawner speaks version {version}"
                    )))
                };
            }
            let received = socket::receive(self.control.as_fd(), &mut buffer)?;
            if received.bytes == 0 {
                return Err(io::Error::other("the spawner ended before it said hello"));
            }
            decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Closing our end is what ends it, as soon as its wardens are gone. In the common case that is
        // at once, and then it is collected here; otherwise it is left to them.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        let patience = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Serves one engine until it closes its end.
fn serve(control: BorrowedFd<'_>) -> io::Result<()> {
    let mask = umask(Mode::RWXG | Mode::RWXO);
    close_inherited();
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"legwork-spawner");
    ignore_children();
    send_all(
        control,
        &encode(&FromSpawner::Hello { version: VERSION }).map_err(io::Error::other)?,
    )?;
    let mut requests = Requests {
        control,
        decoder: Decoder::default(),
        descriptors: VecDeque::new(),
    };
    let setup = loop {
        match requests.next()? {
            Some((ToSpawner::Setup, mut with)) => {
                let (Some(tasks), Some(wardens)) = (with.pop_front(), with.pop_front()) else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                break Setup {
                    tasks,
                    wardens,
                    umask: mask.bits(),
                    cgroup_base: cgroup::base().ok(),
                };
            }
            Some(_) => {}
            None => return Ok(()),
        }
    };
    while let Some((message, mut with)) = requests.next()? {
        if let ToSpawner::Fork { warden } = message
            && let Some(channel) = with.pop_front()
        {
            fork_warden(&setup, &warden, channel);
        }
    }
    // Stay until the last warden is gone: not every machine has an init that collects orphans. As their
    // ends are ignored, this wait returns only when there is no child left.
    let _ = rustix::process::wait(rustix::process::WaitOptions::empty());
    Ok(())
}

/// Forks one warden; a failure is reported on the channel, in the place of the warden's hello.
fn fork_warden(setup: &Setup, name: &str, channel: OwnedFd) {
    let group = setup
        .cgroup_base
        .as_deref()
        .and_then(|base| cgroup::Cgroup::create(base, name).ok());
    let opened = group.as_ref().and_then(|group| group.open().ok());
    let forked = match cgroup::fork(opened.as_ref()) {
        // A cgroup that takes no process (a namespace, a container's policy) is no reason to fail.
        Err(_) if opened.is_some() => {
            if let Some(group) = &group {
                group.remove();
            }
            cgroup::fork(None)
        }
        forked => forked,
    };
    match forked {
        Ok(0) => {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                warden::run(setup, name, channel, group)
            }));
            std::process::exit(i32::from(!matches!(outcome, Ok(Ok(())))));
        }
        Ok(_) => {}
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let failure = FromWarden::StartFailed(StartFailure {
                stage: StartStage::Process,
                errno,
            });
            if let Ok(frame) = encode(&failure) {
                let _ = send_all(channel.as_fd(), &frame);
            }
        }
    }
}

/// Frames and their descriptors, as they come from the engine.
struct Requests<'a> {
    control: BorrowedFd<'a>,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl Requests<'_> {
    fn next(&mut self) -> io::Result<Option<(ToSpawner, VecDeque<OwnedFd>)>> {
        loop {
            if let Some(message) = self.decoder.next_frame().map_err(io::Error::other)? {
                let wanted = match message {
                    ToSpawner::Setup => 2,
                    ToSpawner::Fork { .. } => 1,
                };
                let wanted = wanted.min(self.descriptors.len());
                return Ok(Some((message, self.descriptors.drain(..wanted).collect())));
            }
            let mut buffer = [0; 4096];
            let received = socket::receive(self.control, &mut buffer)?;
            if received.bytes == 0 {
                return Ok(None);
            }
            self.descriptors.extend(received.descriptors);
            self.decoder
                .feed(buffer.get(..received.bytes).unwrap_or_default());
        }
    }
}

fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = socket::send(socket, bytes, &[])?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Closes what the engine's own parent may have leaked into it.
fn close_inherited() {
    // SAFETY: called at the very start of the process, when nothing owns a descriptor above 2.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Lets the kernel collect dead wardens: whoever cares sees the channel close.
fn ignore_children() {
    // SAFETY: sets a disposition, no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}
