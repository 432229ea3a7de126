//! The spawner: a small process with one thread that forks wardens.

use std::{
    collections::VecDeque,
    ffi::{CString, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    panic::{AssertUnwindSafe, catch_unwind},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, umask, wait},
};

use super::{
    cgroup::{self, Base, Cgroup},
    libcs::close_range,
    limits::{LimitsPlaces, Pids},
    roster::{Roster, Row},
    signals::{Signals, reset_all},
    socket, tree, warden,
};
use crate::{
    failpoint::Failpoint,
    protocol::{
        self, Decoder, FromSpawner, FromWarden, StartFailure, StartStage, ToSpawner, WardenFrame,
        encode,
    },
};

/// After a pause of this length there is time for what others have left: no command waits for that.
const SWEEP_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What wardens inherit from their spawner.
#[derive(Debug)]
pub(super) struct Setup {
    pub tasks: OwnedFd,
    pub wardens: OwnedFd,
    /// The null device.
    pub null: OwnedFd,
    /// The environment that the engine was started with: each name, and the pair as programs get
    /// it.
    pub environment: Vec<(Vec<u8>, CString)>,
    /// The file mode mask that commands get; our own files are private whatever it says.
    pub umask: u32,
    /// The limit of open files that commands get; our own is as high as may be.
    pub open_files: Rlimit,
    /// The spawner itself, for as long as it lives.
    pub spawner: Pid,
    /// Where cgroups with limits can be made.
    pub places: LimitsPlaces,
    cgroup_base: Option<Base>,
}

impl Setup {
    /// Removes what killed wardens of other spawners have left in cgroups.
    fn sweep(&self) {
        self.places.sweep();
        if let Some(base) = &self.cgroup_base {
            cgroup::sweep(&base.folder);
        }
    }
}

/// Serves one engine until it closes its end, and its wardens until the last of them is gone. One
/// that was started says hello first; who forked one knows what it is.
pub(super) fn serve(control: BorrowedFd<'_>, says_hello: bool) -> io::Result<()> {
    let mask = umask(Mode::RWXG | Mode::RWXO);
    close_inherited();
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"legwork-spawner");
    let signals = Signals::block_all()?;
    reset_all();
    // What a killed warden leaves behind becomes our child, and is ended by us.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    if says_hello {
        send_all(control, &encode(&hello()).map_err(io::Error::other)?)?;
    }
    // What needs no word of the engine is done before that comes.
    let (places, null, environment) = (LimitsPlaces::find(), open_null()?, own_environment());
    let mut requests =
        Requests { control, decoder: Decoder::default(), descriptors: VecDeque::new() };
    let Some([tasks, wardens]) = requests.setup()? else {
        return Ok(());
    };
    let setup = Setup {
        tasks,
        wardens,
        null,
        environment,
        umask: mask.bits(),
        open_files: raise_open_files(),
        spawner: rustix::process::getpid(),
        cgroup_base: places.of_wardens(),
        places,
    };
    Wardens { setup, alive: Roster::new()?, dead: Vec::new() }.serve(requests, &signals)
}

/// What an engine hears first.
fn hello() -> FromSpawner {
    if tree::is_knowable() {
        FromSpawner::Hello { version: protocol::version() }
    } else {
        FromSpawner::Unfit {
            reason: "/proc belongs to another pid namespace: mount one of this namespace".into(),
        }
    }
}

/// The wardens of this spawner.
struct Wardens {
    setup: Setup,
    alive: Roster,
    /// Those that are gone, but not all that they have left in their cgroups.
    dead: Vec<Row>,
}

impl Wardens {
    /// Forks wardens as they are asked for, and collects them, until the engine and the last of
    /// them are gone.
    fn serve(mut self, mut requests: Requests<'_>, signals: &Signals) -> io::Result<()> {
        let (mut serving, mut swept) = (true, false);
        while serving || !self.alive.rows().is_empty() || !self.dead.is_empty() {
            let mut interests = vec![PollFd::new(signals, PollFlags::IN)];
            if serving {
                interests.push(PollFd::new(&requests.control, PollFlags::IN));
            }
            let idle = if swept { None } else { Some(&SWEEP_AFTER) };
            match poll(&mut interests, idle) {
                Ok(0) => {
                    self.setup.sweep();
                    swept = true;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let requested = interests.get(1).is_some_and(|control| !control.revents().is_empty());
            let arrived = signals.take();
            if arrived.child {
                self.collect();
            }
            // Asked to end, it serves no longer, but it does not leave its wardens.
            let goes_on = !arrived.terminate && (!requested || requests.read()?);
            if serving && !goes_on {
                serving = false;
                // The engine must see the end, or its next request would wait for ever.
                rustix::stdio::dup2_stdin(&self.setup.null)?;
            }
            while let Some((warden, channel)) = requests.next_fork()? {
                self.fork(&warden, channel);
            }
        }
        if !swept {
            self.setup.sweep();
        }
        Ok(())
    }

    /// Forks one; a failure is reported on the channel, in the place of the warden's hello.
    fn fork(&mut self, name: &str, channel: OwnedFd) {
        Failpoint::SpawnerBeforeFork.pass();
        let mut row = match (Row::new(0, name, false), self.alive.reserve()) {
            (Some(row), Ok(())) => row,
            (_, room) => {
                let errno = room.err().and_then(|error| error.raw_os_error());
                return refuse(channel.as_fd(), errno.unwrap_or(libc::ENAMETOOLONG));
            }
        };
        let base = self.setup.cgroup_base.as_ref();
        let mut group = base.and_then(|base| Cgroup::create(base, name).ok());
        let mut pids = self.pids(name, group.as_ref());
        let opened = group.as_ref().and_then(|group| group.open().ok());
        let mut forked = cgroup::fork(opened.as_ref());
        if forked.is_err()
            && let Some(group) = group.take()
        {
            // A cgroup that takes no process (a container's policy) is no reason to fail.
            group.remove();
            self.setup.places.forget(name);
            pids = self.pids(name, None);
            forked = cgroup::fork(None);
        }
        match forked {
            Ok(0) => {
                let setup = &self.setup;
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    warden::run(setup, name, channel, group, pids)
                }));
                std::process::exit(i32::from(!matches!(outcome, Ok(Ok(())))));
            }
            Ok(pid) => {
                Failpoint::SpawnerAfterFork.pass();
                (row.pid, row.has_cgroup) = (pid, group.is_some());
                self.alive.add(row);
            }
            Err(error) => {
                self.setup.places.forget(name);
                refuse(channel.as_fd(), error.raw_os_error().unwrap_or(0));
            }
        }
    }

    /// The cgroup of a warden, if it has one.
    fn cgroup(&self, warden: &Row) -> Option<Cgroup> {
        let base = self.setup.cgroup_base.as_ref().filter(|_| warden.has_cgroup)?;
        Some(Cgroup::named(base, warden.name()))
    }

    /// The cgroup in which the processes of a warden are counted.
    fn pids(&self, name: &str, group: Option<&Cgroup>) -> Result<Pids, String> {
        let place = self.setup.places.pids.as_ref().map_err(Clone::clone)?;
        Pids::create(place, name, group).map_err(|error| error.to_string())
    }

    /// Collects the dead, and removes their cgroups: a process cannot remove the one that it is in,
    /// and leaving it first can take many milliseconds.
    fn collect(&mut self) {
        let childless = loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(collected)) => collected,
                Ok(None) => break false,
                Err(_) => break true,
            };
            let Some(warden) = self.alive.remove(pid.as_raw_pid()) else { continue };
            if status.exit_status() != Some(0) {
                self.clean_up_after(&warden);
            }
            self.dead.push(warden);
        };
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|warden| {
            let is_gone = self.cgroup(warden).is_none_or(|cgroup| cgroup.remove());
            let are_gone = self.setup.places.forget(warden.name());
            // What is left without a child of ours is not ours to end.
            !(childless || is_gone && are_gone)
        });
        self.dead = dead;
    }

    /// Ends what a warden left behind that did not end by itself: its processes are our children
    /// now.
    fn clean_up_after(&self, warden: &Row) {
        if let Some(cgroup) = self.cgroup(warden) {
            let _ = cgroup.kill();
        }
        let wardens = self.alive.rows().iter().map(|row| row.pid.cast_unsigned()).collect();
        tree::freeze_and_kill_but(&wardens);
        let socket = format!("{}.sock", warden.name());
        let _ = rustix::fs::unlinkat(&self.setup.wardens, socket, rustix::fs::AtFlags::empty());
    }
}

/// Says on a warden's channel, in the place of its hello, why there is none.
fn refuse(channel: BorrowedFd<'_>, errno: i32) {
    let failure = FromWarden::StartFailed(StartFailure { stage: StartStage::Process, errno });
    if let Ok(frame) = encode(&WardenFrame::about_warden(failure)) {
        let _ = send_all(channel, &frame);
    }
}

/// Frames and their descriptors, as they come from the engine.
struct Requests<'a> {
    control: BorrowedFd<'a>,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl Requests<'_> {
    /// Reads once; false is the end.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let received = match socket::receive(self.control, &mut buffer) {
            // The engine has ended before it read our hello.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            received => received?,
        };
        self.descriptors.extend(received.descriptors);
        self.decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes > 0)
    }

    /// Waits for the first frame, which brings the folders of tasks and of wardens.
    fn setup(&mut self) -> io::Result<Option<[OwnedFd; 2]>> {
        while self.read()? {
            if let Some(ToSpawner::Setup) = self.decoder.next_frame().map_err(io::Error::other)? {
                let (Some(tasks), Some(wardens)) =
                    (self.descriptors.pop_front(), self.descriptors.pop_front())
                else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                return Ok(Some([tasks, wardens]));
            }
        }
        Ok(None)
    }

    /// Takes the next whole request out of what was read.
    fn next_fork(&mut self) -> io::Result<Option<(String, OwnedFd)>> {
        match self.decoder.next_frame().map_err(io::Error::other)? {
            Some(ToSpawner::Fork { warden }) => {
                Ok(self.descriptors.pop_front().map(|channel| (warden, channel)))
            }
            Some(ToSpawner::Setup) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(None),
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

fn open_null() -> io::Result<OwnedFd> {
    Ok(open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

fn own_environment() -> Vec<(Vec<u8>, CString)> {
    let pair = |(name, value): (OsString, OsString)| {
        let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
        Some((name.into_vec(), CString::new(pair).ok()?))
    };
    std::env::vars_os().filter_map(pair).collect()
}

/// Raises the limit of open files as far as may be (a tree is known by a descriptor for each
/// process), and returns what it was.
pub(super) fn raise_open_files() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    before
}

/// Closes what the engine's own parent may have leaked into it.
fn close_inherited() {
    // SAFETY: called at the very start of the process, when nothing owns a descriptor above 2. A
    // kernel without the call (before 5.9) keeps them: they are closed in each command all the
    // same.
    unsafe { close_range(3, libc::c_uint::MAX, 0) };
}
