//! Sandboxes: made ahead, entered by one command, thrown away.
//!
//! A sandbox is a set of namespaces with an [`init`], a view of the files ([`mounts`]), a Landlock ruleset and a
//! filter of system calls. Making one takes a millisecond, so a warden that knows its profile keeps one ready; the
//! command's process only enters it ([`super::command`]). Nothing of a sandbox is used twice. Where the machine
//! refuses a layer, what is left is used and the lack is told.

mod fresh;
mod init;
mod landlock;
mod mounts;
mod seccomp;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};

pub(super) use self::seccomp::{Filter, name_of};
use self::{
    fresh::Snapshot,
    init::{Kinds, LAST_OUT, MAPPED, Report},
    landlock::Rules,
    mounts::DEVICES,
};
use super::socket;
use crate::sandbox::{Enforcement, Layer, Profile};

/// How long making a sandbox may take.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How often a sandbox is made again because the files changed while it was made.
const REMAKE_MAX: usize = 3;

/// The largest report of an init.
const REPORT_BYTES: usize = 4096;

/// The sandboxes of one warden.
#[derive(Debug, Default)]
pub(super) struct Sandboxes {
    confined: Option<Confined>,
    /// The init of the sandbox that the command is in.
    current: Option<Init>,
    /// Inits that are being made or are going; each is collected like any child.
    others: Vec<Pid>,
}

/// What commands are confined to, and how far that goes here.
#[derive(Debug)]
struct Confined {
    profile: Profile,
    filter: Filter,
    /// The strongest set of namespaces that has not been refused.
    rung: usize,
    /// Why the stronger ones were.
    refusals: Vec<String>,
    pending: Option<Pending>,
    ready: Option<Ready>,
}

/// A sandbox that its init is making.
#[derive(Debug)]
struct Pending {
    init: Pid,
    socket: OwnedFd,
    kinds: Kinds,
    snapshot: Snapshot,
}

/// The init of a sandbox that is in use.
#[derive(Debug)]
struct Init {
    pid: Pid,
    socket: OwnedFd,
}

/// A sandbox that a command can enter.
#[derive(Debug)]
pub(super) struct Ready {
    init: Option<Init>,
    /// In the order in which they are entered, with their flags.
    pub namespaces: Vec<(OwnedFd, i32)>,
    /// The Landlock ruleset.
    pub rules: Option<OwnedFd>,
    /// The artifacts, and where they can be shown.
    pub artifacts: Option<(OwnedFd, OwnedFd)>,
    /// Where the command's terminal is to be made.
    pub terminals: Option<OwnedFd>,
    pub enforcement: Enforcement,
    snapshot: Snapshot,
}

impl Ready {
    /// Whether it has all of these.
    pub(super) fn enforces(&self, layers: &[Layer]) -> bool {
        layers.iter().all(|layer| self.enforcement.enforced.contains(layer))
    }
}

impl Sandboxes {
    /// Makes this what commands are confined to from now on, and says how far that goes here.
    pub(super) fn confine(&mut self, profile: Profile) -> Enforcement {
        self.forget();
        let is_root = rustix::process::geteuid().is_root();
        self.confined = Some(Confined {
            filter: Filter::new(profile.network, is_root, seccomp::can_tell()),
            profile,
            rung: 0,
            refusals: Vec::new(),
            pending: None,
            ready: None,
        });
        match self.take() {
            Some(ready) => {
                let enforcement = ready.enforcement.clone();
                if let Some(confined) = &mut self.confined {
                    confined.ready = Some(ready);
                }
                enforcement
            }
            None => Enforcement::default(),
        }
    }

    /// Begins to make the next sandbox, if there is none; does not wait for it.
    pub(super) fn prepare(&mut self) {
        if let Some(confined) = &mut self.confined
            && confined.ready.is_none()
            && confined.pending.is_none()
        {
            confined.begin(&mut self.others);
        }
    }

    /// Takes a sandbox that shows the files as they are now; none if commands are not confined.
    pub(super) fn take(&mut self) -> Option<Ready> {
        let confined = self.confined.as_mut()?;
        let mut ready = confined.next(&mut self.others);
        for _ in 0..REMAKE_MAX {
            if ready.snapshot.is_current() {
                break;
            }
            end(ready.init.take(), &mut self.others);
            ready = confined.next(&mut self.others);
        }
        Some(ready)
    }

    /// The filter for the command that enters.
    pub(super) fn filter(&self) -> Option<&Filter> {
        self.confined.as_ref().map(|confined| &confined.filter)
    }

    /// A command has entered.
    pub(super) fn entered(&mut self, ready: Ready) {
        self.current = ready.init;
    }

    /// No command has entered after all.
    pub(super) fn discard(&mut self, ready: Ready) {
        end(ready.init, &mut self.others);
    }

    /// The init of the sandbox that the command is in.
    pub(super) fn init(&self) -> Option<Pid> {
        self.current.as_ref().map(|init| init.pid)
    }

    /// Whether a child is one of ours and not the command's.
    pub(super) fn is_ours(&self, pid: u32) -> bool {
        self.inits().any(|init| init.as_raw_pid().cast_unsigned() == pid)
    }

    /// Whether there is any of ours.
    pub(super) fn is_empty(&self) -> bool {
        self.inits().next().is_none()
    }

    fn inits(&self) -> impl Iterator<Item = Pid> {
        let confined = self.confined.as_ref();
        let pending = confined.and_then(|confined| confined.pending.as_ref().map(|it| it.init));
        let ready = confined.and_then(|confined| confined.ready.as_ref()?.init.as_ref());
        let current = self.current.iter().chain(ready).map(|init| init.pid);
        current.chain(pending).chain(self.others.iter().copied())
    }

    /// A child was collected.
    pub(super) fn collected(&mut self, pid: Pid) {
        self.others.retain(|other| *other != pid);
        if self.init() == Some(pid) {
            self.current = None;
        }
        if let Some(confined) = &mut self.confined
            && confined
                .ready
                .as_ref()
                .and_then(|ready| ready.init.as_ref())
                .is_some_and(|init| init.pid == pid)
        {
            confined.ready = None;
        }
    }

    /// The command has ended; `empty` is whether nothing of it is left. Otherwise its sandbox ends with the last.
    pub(super) fn left(&mut self, empty: bool) {
        if empty {
            end(self.current.take(), &mut self.others);
        } else if let Some(init) = &self.current {
            let _ = rustix::io::write(&init.socket, &[LAST_OUT]);
        }
    }

    fn forget(&mut self) {
        if let Some(confined) = self.confined.take() {
            end(confined.ready.and_then(|ready| ready.init), &mut self.others);
            if let Some(pending) = confined.pending {
                end(Some(Init { pid: pending.init, socket: pending.socket }), &mut self.others);
            }
        }
    }
}

/// Kills an init, and with it everything in its namespace.
fn end(init: Option<Init>, others: &mut Vec<Pid>) {
    if let Some(init) = init {
        // Until it is collected, its number is nobody else's.
        let _ = kill_process(init.pid, Signal::KILL);
        if !others.contains(&init.pid) {
            others.push(init.pid);
        }
    }
}

/// Sets of namespaces, strongest first; none of them is the last resort.
fn rungs(profile: &Profile) -> Vec<Kinds> {
    let kinds = |user, pid| Kinds { user, pid, network: !profile.network };
    let mut rungs = vec![kinds(true, true), kinds(true, false)];
    if rustix::process::geteuid().is_root() {
        rungs.extend([kinds(false, true), kinds(false, false)]);
    }
    rungs
}

impl Confined {
    /// The next sandbox, made now if it has not been begun.
    fn next(&mut self, others: &mut Vec<Pid>) -> Ready {
        if let Some(ready) = self.ready.take() {
            return ready;
        }
        loop {
            if self.pending.is_none() {
                self.begin(others);
            }
            let Some(pending) = self.pending.take() else { return self.without_namespaces() };
            let init = pending.init;
            match self.finish(pending) {
                Ok(ready) => {
                    others.retain(|other| Some(*other) != ready.init.as_ref().map(|init| init.pid));
                    return ready;
                }
                Err(problem) => {
                    let _ = kill_process(init, Signal::KILL);
                    self.refuse(problem);
                }
            }
        }
    }

    fn refuse(&mut self, problem: String) {
        self.refusals.push(problem);
        self.rung += 1;
    }

    /// Begins to make a sandbox, of the strongest kind that can be begun.
    fn begin(&mut self, others: &mut Vec<Pid>) {
        while let Some(kinds) = rungs(&self.profile).get(self.rung).copied() {
            match self.fork(kinds) {
                Ok(pending) => {
                    others.push(pending.init);
                    self.pending = Some(pending);
                    return;
                }
                Err(error) => self.refuse(error.to_string()),
            }
        }
    }

    fn fork(&self, kinds: Kinds) -> io::Result<Pending> {
        let snapshot = Snapshot::take(&self.profile);
        let (socket, other) = socket::socket_pair()?;
        let pid = init::fork(kinds)?;
        if pid == 0 {
            drop(socket);
            init::live(other, kinds, &self.profile);
        }
        let init = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let pending = Pending { init, socket, kinds, snapshot };
        if kinds.user {
            let mapped = init::map_ids(pid);
            if let Err(error) =
                mapped.and_then(|()| socket::send(pending.socket.as_fd(), &[MAPPED], &[]))
            {
                let _ = kill_process(init, Signal::KILL);
                return Err(error);
            }
        }
        Ok(pending)
    }

    /// Waits for what the init has made.
    fn finish(&self, pending: Pending) -> Result<Ready, String> {
        let mut waiting = [PollFd::new(&pending.socket, PollFlags::IN)];
        match poll(&mut waiting, Some(&PATIENCE)) {
            Ok(0) => return Err("making it took too long".into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
        let mut buffer = [0; REPORT_BYTES];
        let received = socket::receive(pending.socket.as_fd(), &mut buffer)
            .map_err(|error| error.to_string())?;
        let report = postcard::from_bytes(buffer.get(..received.bytes).unwrap_or_default());
        let (with, no_rules) = match report {
            Ok(Report::Ready { with, no_rules }) => (with, no_rules),
            Ok(Report::Failed(problem)) => return Err(problem),
            Err(_) => return Err("its init ended before it was made".into()),
        };
        let mut descriptors = received.descriptors.into_iter();
        let flags = pending.kinds.flags();
        let namespaces: Vec<(OwnedFd, i32)> =
            descriptors.by_ref().zip(flags.iter().copied()).collect();
        let mut next = |there: bool| if there { descriptors.next() } else { None };
        let [rules, tasks, shown, terminals] = with.map(&mut next);
        if namespaces.len() != flags.len() {
            return Err("some of its namespaces were lost".into());
        }
        let init = Init { pid: pending.init, socket: pending.socket };
        Ok(Ready {
            init: pending.kinds.pid.then_some(init),
            namespaces,
            rules,
            artifacts: tasks.zip(shown),
            terminals,
            enforcement: self.enforcement(Some(pending.kinds), no_rules.as_deref()),
            snapshot: pending.snapshot,
        })
    }

    /// What is left where namespaces are refused: Landlock and the filter.
    fn without_namespaces(&self) -> Ready {
        let hidden =
            [&self.profile.unreadable[..], std::slice::from_ref(&self.profile.state)].concat();
        let mut hidden = mounts::real_paths(&hidden);
        hidden.push(PathBuf::from("/dev"));
        let mut writable = mounts::real_paths(&self.profile.writable);
        writable.extend(self.profile.tmp.as_deref().map(|_| PathBuf::from("/tmp")));
        let rules = Rules {
            readable: landlock::everything_but(&hidden),
            writable: writable.iter().map(PathBuf::as_path).collect(),
            devices: DEVICES
                .map(PathBuf::from)
                .into_iter()
                .chain(["/dev/pts".into(), "/dev/ptmx".into(), "/dev/shm".into()])
                .collect(),
            refuse_tcp: !self.profile.network,
        };
        let (rules, no_rules) = match rules.build() {
            Ok(rules) => (Some(rules), None),
            Err(error) => (None, Some(landlock::why(&error))),
        };
        Ready {
            init: None,
            namespaces: Vec::new(),
            rules,
            artifacts: None,
            terminals: None,
            enforcement: self.enforcement(None, no_rules.as_deref()),
            snapshot: Snapshot::take(&self.profile),
        }
    }

    /// What is in force, and what should be and is not.
    fn enforcement(&self, kinds: Option<Kinds>, no_rules: Option<&str>) -> Enforcement {
        let mut found = Enforcement::default();
        let why = |place: usize| {
            let reason = self.refusals.get(place).or(self.refusals.last());
            reason.cloned().unwrap_or_else(|| "refused".into())
        };
        let mut note = |layer, there: bool, reason: String| {
            if there { found.has(layer) } else { found.lacks(layer, reason) }
        };
        note(Layer::UserNamespace, kinds.is_some_and(|kinds| kinds.user), why(1));
        note(
            Layer::MountNamespace,
            kinds.is_some(),
            format!(
                "{}; paths inside what may be written cannot be guarded, and new neighbours of secrets cannot be read",
                why(usize::MAX)
            ),
        );
        note(Layer::PidNamespace, kinds.is_some_and(|kinds| kinds.pid), why(0));
        if !self.profile.network {
            note(Layer::NetworkNamespace, kinds.is_some(), why(usize::MAX));
        }
        note(Layer::IpcNamespace, kinds.is_some(), why(usize::MAX));
        let version = landlock::version().unwrap_or(0);
        match no_rules {
            Some(reason) => found.lacks(Layer::Landlock, reason),
            None if version < 6 => found.lacks(
                Layer::Landlock,
                format!("only files: version {version} of this kernel's Landlock knows no scopes, so abstract sockets can be reached"),
            ),
            None => found.has(Layer::Landlock),
        }
        found.has(Layer::Seccomp);
        found
    }
}

/// Gives up every capability, for good.
///
/// # Safety
///
/// System calls about the calling process alone; safe between clone and exec.
pub(super) unsafe fn drop_capabilities() {
    /// `SECBIT_NOROOT`, `SECBIT_NO_SETUID_FIXUP`, `SECBIT_NO_CAP_AMBIENT_RAISE`, each with its lock.
    const NO_ROOT: u64 = 0b1110_1111;
    const VERSION_3: u32 = 0x2008_0522;
    const CAPABILITIES: u64 = 64;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // SAFETY: plain data on this stack, of the layout that the kernel documents.
    unsafe {
        for capability in 0..CAPABILITIES {
            // The first number that the kernel does not know ends it.
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0);
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        let header = Header { version: VERSION_3, pid: 0 };
        let none = [0_u32; 6];
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr());
    }
}
