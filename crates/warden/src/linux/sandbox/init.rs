//! The process that makes a sandbox and then is its init: the first process of a pid namespace.
//!
//! It is forked from the warden into new namespaces, builds the view of the files, hands everything
//! to the warden and waits. The command enters later, as a child of the warden. What the command
//! leaves behind becomes a child of the init, which collects it; when the init ends, the kernel
//! ends everything in its namespace. It ends when the warden does, when it is told to, or is
//! killed.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    ptr,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, open},
    process::{Signal, WaitOptions, wait},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{libcs::close_range, proxy::listen_inside, signals::Signals, socket},
    capabilities::drop_capabilities,
    fresh::FilesAround,
    landlock::{self, FileRules},
    view::{self, ViewHandles},
};

/// The request that sets the flags of an interface; the C libraries give it different types.
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;

/// Where the socket to the warden stands in the init.
const SOCKET: i32 = 3;

/// What the warden sends when the user namespace has its ids.
pub(super) const MAPPED: u8 = b'm';

/// What the warden sends when the command has ended: the init goes when the last process has.
pub(super) const LAST_OUT: u8 = b'l';

/// Which namespaces a sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    pub user: bool,
    pub pid: bool,
    pub network: bool,
    /// The small ones: queues and memory, names of the machine, the view of cgroups.
    pub small: bool,
}

/// What part of a sandbox is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SandboxPart {
    /// All of it.
    Whole,
    /// What all commands see, for later ones to be copies of.
    Template,
    /// The rest, in a copy of that.
    Copy,
}

impl Kinds {
    /// Name, flag and whether it is there, in the order in which they have to be entered.
    fn all(self) -> [(&'static str, i32, bool); 7] {
        [
            ("user", libc::CLONE_NEWUSER, self.user),
            ("mnt", libc::CLONE_NEWNS, true),
            ("net", libc::CLONE_NEWNET, self.network),
            ("ipc", libc::CLONE_NEWIPC, self.small),
            ("uts", libc::CLONE_NEWUTS, self.small),
            ("cgroup", libc::CLONE_NEWCGROUP, self.small),
            ("pid", libc::CLONE_NEWPID, self.pid),
        ]
    }

    /// The flags of those that are there.
    pub(super) fn flags(self) -> Vec<i32> {
        self.all().into_iter().filter(|(_, _, there)| *there).map(|(_, flag, _)| flag).collect()
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        self.all().into_iter().filter(|(_, _, there)| *there).map(|(name, _, _)| name)
    }
}

/// What the init reports; its descriptors stand beside it: the namespaces in order, then what is
/// named here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum InitReport {
    /// Everything is there.
    Ready {
        /// Which of ruleset, artifacts, where they are shown, terminals, and the proxy's listener
        /// came along.
        with: [bool; 5],
        /// Why there is no ruleset.
        no_rules: Option<String>,
    },
    /// This step failed.
    Failed(String),
}

/// Forks into new namespaces. Returns the child's pid, or 0 in the child. Call it with a single
/// thread only.
pub(super) fn fork(kinds: Kinds) -> io::Result<i32> {
    let flags = kinds.flags().into_iter().fold(0, |all, flag| all | flag);
    // SAFETY: `clone_args` is plain data for which zero means absent; without CLONE_VM and with a
    // zero stack the call acts like fork; the warden has one thread, so the child's memory is in no
    // half-done state.
    let pid = unsafe {
        let mut arguments: libc::clone_args = std::mem::zeroed();
        arguments.flags = u64::from(flags.cast_unsigned());
        arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>())
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(pid).unwrap_or(0)) }
}

/// The whole life of the init.
pub(super) fn live(
    socket: BorrowedFd<'_>,
    kinds: Kinds,
    part: SandboxPart,
    surroundings: &FilesAround,
) -> ! {
    let code = match keep_only(socket) {
        Ok(socket) => serve(socket.as_fd(), kinds, part, surroundings),
        Err(_) => 1,
    };
    // SAFETY: ends this process at once: what the warden had registered for its own end is not ours
    // to run.
    unsafe { libc::_exit(code) }
}

/// Lets go of everything that is the warden's but the socket.
pub(in crate::linux) fn keep_only(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: from here on nothing of this process uses a descriptor that it had before, but the
    // three standard ones and the socket, which now has this number; whoever owned the others never
    // runs again.
    unsafe {
        if socket.as_raw_fd() != SOCKET
            && libc::dup3(socket.as_raw_fd(), SOCKET, libc::O_CLOEXEC) < 0
        {
            return Err(io::Error::last_os_error());
        }
        close_range(SOCKET.cast_unsigned() + 1, libc::c_uint::MAX, 0);
        Ok(OwnedFd::from_raw_fd(SOCKET))
    }
}

fn serve(
    socket: BorrowedFd<'_>,
    kinds: Kinds,
    part: SandboxPart,
    surroundings: &FilesAround,
) -> i32 {
    let _ = rustix::thread::set_name(c"legwork-init");
    // The warden's end is the end of everything in here, whoever kills it.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if kinds.user && heard(socket) != Some(MAPPED) {
        return 1;
    }
    let made = make(socket, kinds, part, surroundings);
    if let Err(problem) = &made {
        let _ = send(socket, &InitReport::Failed(problem.clone()), &[]);
    }
    if made.is_err() || !kinds.pid {
        // Without processes of its own to care for there is nothing to stay for: descriptors keep
        // namespaces.
        return i32::from(made.is_err());
    }
    let _ = rustix::process::setsid();
    harden();
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    wait_for_the_last(socket)
}

/// One byte from the warden; none if it is gone.
fn heard(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0];
    loop {
        match rustix::io::read(socket, &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

fn send(socket: BorrowedFd<'_>, report: &InitReport, with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(report).map_err(io::Error::other)?;
    socket::send(socket, &bytes, with).map(drop)
}

/// Builds everything and hands it to the warden.
fn make(
    socket: BorrowedFd<'_>,
    kinds: Kinds,
    part: SandboxPart,
    surroundings: &FilesAround,
) -> Result<(), String> {
    if kinds.network {
        raise_loopback().map_err(|error| format!("its own loopback: {error}"))?;
    }
    let listener = if kinds.network && surroundings.profile.names {
        Some(listen_inside().map_err(|error| format!("its proxy's listener: {error}"))?)
    } else {
        None
    };
    if part != SandboxPart::Copy {
        view::prepare(surroundings).map_err(|failed| failed.to_string())?;
    }
    let view = match part {
        SandboxPart::Template => ViewHandles::default(),
        _ => view::finish(surroundings, kinds.pid).map_err(|failed| failed.to_string())?,
    };
    let (rules, no_rules) = match part {
        SandboxPart::Copy => (None, None),
        _ => rules(surroundings),
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut all = Vec::new();
    for name in kinds.names() {
        let place = format!("/proc/self/ns/{name}");
        all.push(open(&place, flags, Mode::empty()).map_err(|errno| format!("{place}: {errno}"))?);
    }
    let rest = [rules, view.tasks, view.shown, view.terminals, listener];
    let with = [0, 1, 2, 3, 4].map(|place| rest.get(place).is_some_and(Option::is_some));
    all.extend(rest.into_iter().flatten());
    let handles: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    send(socket, &InitReport::Ready { with, no_rules }, &handles).map_err(|error| error.to_string())
}

/// The Landlock rules, or why there are none. They hold for every copy of the view: what is mounted
/// below a folder that may be written may be written too, and in `/dev` there is nothing but what
/// may.
fn rules(surroundings: &FilesAround) -> (Option<OwnedFd>, Option<String>) {
    let own = ["/tmp", "/var/tmp", "/dev"].map(PathBuf::from);
    let rules = FileRules {
        readable: vec!["/".into()],
        writable: surroundings.writable.iter().chain(&own).map(PathBuf::as_path).collect(),
        devices: Vec::new(),
        refuse_tcp: false,
    };
    match rules.build() {
        Ok(rules) => (Some(rules), None),
        Err(error) => (None, Some(landlock::why(&error))),
    }
}

/// Lets local connections work in a network namespace of its own.
fn raise_loopback() -> io::Result<()> {
    // SAFETY: `ifreq` is plain data; its name is filled with a text that fits; the socket is closed
    // below by its owner.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        let name = c"lo";
        ptr::copy_nonoverlapping(name.as_ptr(), request.ifr_name.as_mut_ptr(), name.count_bytes());
        request.ifr_ifru.ifru_flags =
            i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
        if libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS, &raw const request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives up every right, and shows nothing of its memory, which is a copy of the warden's.
fn harden() {
    // SAFETY: plain numbers, and system calls about this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        drop_capabilities();
    }
}

/// Collects whatever becomes its child, until it is told to go with the last of them.
fn wait_for_the_last(socket: BorrowedFd<'_>) -> i32 {
    let Ok(signals) = Signals::block_all() else { return 1 };
    let mut told = false;
    loop {
        let mut interests =
            [PollFd::new(&signals, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
        let waiting = if told { &mut interests[..1] } else { &mut interests[..] };
        if poll(waiting, None).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            return 1;
        }
        let [_, orders] = &interests;
        if !told && !orders.revents().is_empty() {
            match heard(socket) {
                Some(LAST_OUT) => told = true,
                _ => return 1,
            }
        }
        let _ = signals.take();
        let childless = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        if told && childless {
            return 0;
        }
    }
}

/// Gives a new user namespace its ids: all that the warden has, if it may, or its own alone.
pub(super) fn map_ids(pid: i32) -> io::Result<()> {
    let own = |file: &str| format!("/proc/{pid}/{file}");
    let identity = |file: &str| {
        let text = fs::read_to_string(Path::new("/proc/self").join(file))?;
        let ranges = text.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace();
            let (inside, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some(format!("{inside} {inside} {count}\n"))
        });
        Ok::<String, io::Error>(ranges.collect())
    };
    // SAFETY: these calls only ask.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if user == 0
        && fs::write(own("uid_map"), identity("uid_map")?).is_ok()
        && fs::write(own("gid_map"), identity("gid_map")?).is_ok()
    {
        return Ok(());
    }
    fs::write(own("setgroups"), "deny")?;
    fs::write(own("uid_map"), format!("{user} {user} 1\n"))?;
    fs::write(own("gid_map"), format!("{group} {group} 1\n"))
}
