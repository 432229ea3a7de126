//! Sandboxes: made ahead, entered by one command, thrown away.
//!
//! A sandbox is a set of namespaces with an [`init`], a view of the files ([`mounts`]), a Landlock
//! ruleset, a filter of system calls, and a process in it that waits for its command ([`sleeper`]).
//! Making one takes a millisecond or two, so a warden that knows its profile keeps one ready.
//! Nothing of a sandbox is used twice. Where the machine refuses a layer, what is left is used and
//! the lack is told.

mod capabilities;
mod closed;
mod denied;
mod elsewhere;
mod fresh;
mod init;
mod landlock;
mod making;
mod mounts;
mod proxy;
mod seccomp;
mod sleeper;
mod sockets;
mod usher;
mod view;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::process::{Pid, Signal, kill_process};

pub(super) use self::{
    closed::ClosedReader, init::keep_only, mounts::path as path_of, proxy::confine_proxy,
    seccomp::name_of,
};
use self::{
    fresh::FilesAround,
    init::{Kinds, LAST_OUT},
    seccomp::{Filter, Sockets},
    sleeper::{Confines, Sleeper},
};
use super::{command::Prepared, notices::Notices, proxy::Doorway, stack::Stack};
use crate::{
    network::{ConnectionTotal, NameRules},
    protocol::{Spec, StartFailure},
    sandbox::{CopyOnWrite, Enforcement, Profile, SandboxLayer},
};

/// How often a sandbox is made again because the files changed while it was made.
const REMAKE_MAX: usize = 3;

/// The sandboxes of one warden.
#[derive(Debug, Default)]
pub(super) struct Sandboxes {
    confined: Option<Confined>,
    /// The init of the sandbox that the command is in.
    current: Option<Init>,
    /// The way out of that sandbox, where its command may connect by name.
    pub door: Option<Doorway>,
    /// Processes of ours that are going.
    going: Vec<Going>,
}

/// A process of ours that is going: it is collected like any child.
#[derive(Debug)]
struct Going {
    pid: Pid,
    /// What it may use until then, if it was a sleeper.
    _stack: Option<Stack>,
}

impl From<Pid> for Going {
    fn from(pid: Pid) -> Self {
        Self { pid, _stack: None }
    }
}

/// What commands are confined to, and how far that goes here.
#[derive(Debug)]
struct Confined {
    surroundings: FilesAround,
    filter: Filter,
    /// The strongest set of namespaces that has not been refused.
    rung: usize,
    /// Why the stronger ones were.
    refusals: Vec<String>,
    /// Whether a sandbox of that kind has been made.
    proven: bool,
    /// How often in a row none could be.
    failures: usize,
    /// Artifacts that the last command was shown: the next will want to see them too.
    shown: Vec<String>,
    /// What all of its sandboxes are copies of.
    template: Option<Template>,
    pending: Option<Pending>,
    ready: Option<ReadySandbox>,
}

/// A user namespace and a view of the files that sandboxes are copied from. No command is ever in
/// it.
#[derive(Debug)]
struct Template {
    /// The user namespace, if there is one, and the mount namespace.
    namespaces: Vec<(OwnedFd, i32)>,
    rules: Option<OwnedFd>,
    no_rules: Option<String>,
}

/// A sandbox that its init is making.
#[derive(Debug)]
struct Pending {
    init: Init,
    /// Those that it has in all.
    kinds: Kinds,
    /// Those that were made for it, the others being the template's.
    own: Kinds,
}

/// The init of a sandbox.
#[derive(Debug)]
struct Init {
    pid: Pid,
    socket: OwnedFd,
    /// Whether it was told to end with the last process of its namespace.
    expects_last: bool,
}

/// A sandbox with a process in it that waits for its command.
#[derive(Debug)]
pub(super) struct ReadySandbox {
    init: Option<Init>,
    sleeper: Sleeper,
    made: Made,
    /// Where the command's terminal is to be made.
    pub terminals: Option<OwnedFd>,
    /// Where a proxy is reached from inside.
    listener: Option<OwnedFd>,
    shown: Vec<String>,
    enforcement: Enforcement,
    /// The folder that is `/tmp` inside.
    tmp: Option<PathBuf>,
}

/// What an init has made.
#[derive(Debug, Default)]
struct Made {
    /// In the order in which they are entered, with their flags.
    namespaces: Vec<(OwnedFd, i32)>,
    /// The Landlock ruleset.
    rules: Option<OwnedFd>,
    /// The artifacts, and where they can be shown.
    artifacts: Option<(OwnedFd, OwnedFd)>,
}

impl Made {
    fn confines<'a>(&'a self, filter: &'a Filter) -> Confines<'a> {
        Confines {
            namespaces: &self.namespaces,
            rules: self.rules.as_ref(),
            filter,
            artifacts: self.artifacts.as_ref().map(|(all, shown)| (all, shown)),
        }
    }
}

impl Template {
    /// Adds what a copy has of it: the user namespace and the rules.
    fn lend(&self, made: &mut Made) -> io::Result<()> {
        let user = self.namespaces.iter().find(|(_, kind)| *kind == libc::CLONE_NEWUSER);
        if let Some((handle, kind)) = user {
            made.namespaces.insert(0, (handle.try_clone()?, *kind));
        }
        made.rules = self.rules.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(())
    }
}

impl ReadySandbox {
    /// Whether it has all of these.
    pub(super) fn enforces(&self, layers: &[SandboxLayer]) -> bool {
        layers.iter().all(|layer| self.enforcement.enforced.contains(layer))
    }

    /// Reads what its command will have closed; none where it has no user namespace.
    pub(super) fn closed_reader(&self) -> Option<ClosedReader> {
        ClosedReader::of(&self.made.namespaces)
    }

    /// Whether the process in it can still be given a command.
    pub(super) fn is_waiting(&self) -> bool {
        self.sleeper.is_asleep()
    }

    /// Gives the process in it its command. On failure that process is ending.
    pub(super) fn enter(
        &self,
        spec: &Spec,
        prepared: &Prepared<'_>,
    ) -> Result<(Pid, Option<Notices>), StartFailure> {
        prepared.limits.enter_as(self.sleeper.pid)?;
        let notices = self.sleeper.wake(prepared, spec, self.tmp.as_deref())?;
        Ok((self.sleeper.pid, notices))
    }
}

impl Sandboxes {
    /// Makes this what commands are confined to from now on, and says how far that goes here.
    pub(super) fn confine(&mut self, profile: Profile) -> io::Result<Enforcement> {
        self.forget();
        let is_root = rustix::process::geteuid().is_root();
        let sockets = match (profile.network, profile.writable.is_empty()) {
            (true, _) => Sockets::Network,
            (false, false) => Sockets::Loopback,
            (false, true) => Sockets::OwnLoopback,
        };
        let confined = self.confined.insert(Confined {
            filter: Filter::new(sockets, is_root, seccomp::can_tell(), profile.tells_exec),
            surroundings: FilesAround::of(profile),
            rung: 0,
            refusals: Vec::new(),
            proven: false,
            failures: 0,
            shown: Vec::new(),
            template: None,
            pending: None,
            ready: None,
        });
        let ready = confined.next(&mut self.going)?;
        Ok(confined.ready.insert(ready).enforcement.clone())
    }

    /// Begins to make the next sandbox, if there is none; does not wait for it. What has copies is
    /// made for one command.
    pub(super) fn prepare(&mut self) {
        if let Some(confined) = &mut self.confined
            && confined.ready.is_none()
            && confined.pending.is_none()
            && confined.surroundings.profile.copies.is_empty()
        {
            // If that fails, the command that needs it tries again and is told.
            let _ = confined.begin(&mut self.going);
        }
    }

    /// Says when the next sandbox can be finished.
    pub(super) fn pending(&self) -> Option<BorrowedFd<'_>> {
        let pending = self.confined.as_ref()?.pending.as_ref()?;
        Some(pending.init.socket.as_fd())
    }

    /// Finishes the next sandbox; if that fails, the command that needs it tries again and is told.
    pub(super) fn finish(&mut self) {
        if let Some(confined) = &mut self.confined
            && confined.pending.is_some()
        {
            confined.ready = confined.next(&mut self.going).ok();
        }
    }

    /// Takes a sandbox that shows the files as they are now, and these artifacts. Its copies have
    /// these names by now, if it has any.
    pub(super) fn take(
        &mut self,
        artifacts: &[String],
        copies: &[CopyOnWrite],
    ) -> io::Result<ReadySandbox> {
        let Some(confined) = &mut self.confined else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !copies.is_empty() {
            confined.surroundings.profile.copies = copies.to_vec();
        }
        for _ in 0..REMAKE_MAX {
            if confined.surroundings.are_current() {
                break;
            }
            confined.throw_away(&mut self.going);
            confined.surroundings = FilesAround::of(confined.surroundings.profile.clone());
        }
        let mut ready = confined.next(&mut self.going)?;
        let on_copy = !confined.surroundings.profile.copies.is_empty();
        if on_copy && !ready.enforces(&[SandboxLayer::MountNamespace]) {
            throw_away(ready, &mut self.going);
            return Err(io::ErrorKind::Unsupported.into());
        }
        confined.show(&mut ready, artifacts);
        Ok(ready)
    }

    /// A command has entered, that may connect by these rules.
    pub(super) fn entered(&mut self, ready: ReadySandbox, rules: Option<NameRules>) {
        self.current = ready.init;
        ready.sleeper.give_back();
        let door = ready.listener.zip(rules);
        self.door = door.map(|(listener, rules)| Doorway::new(listener, rules));
    }

    /// No command has entered after all.
    pub(super) fn discard(&mut self, ready: ReadySandbox) {
        throw_away(ready, &mut self.going);
    }

    /// The init of the sandbox that the command is in.
    pub(super) fn init(&self) -> Option<Pid> {
        self.current.as_ref().map(|init| init.pid)
    }

    /// Whether a child is one of ours and not the command's.
    pub(super) fn is_ours(&self, pid: u32) -> bool {
        self.processes().any(|process| process.as_raw_pid().cast_unsigned() == pid)
    }

    /// Whether there is none of ours.
    pub(super) fn is_empty(&self) -> bool {
        self.processes().next().is_none()
    }

    fn processes(&self) -> impl Iterator<Item = Pid> {
        let confined = self.confined.as_ref();
        let pending = confined.and_then(|confined| confined.pending.as_ref()).map(|it| it.init.pid);
        let ready = confined.and_then(|confined| confined.ready.as_ref());
        let inits = self.current.iter().chain(ready.and_then(|ready| ready.init.as_ref()));
        let sleeper = ready.map(|ready| ready.sleeper.pid);
        let proxy = self.door.as_ref().and_then(Doorway::pid);
        let inits = inits.map(|init| init.pid).chain(pending);
        inits.chain(sleeper).chain(proxy).chain(self.going.iter().map(|it| it.pid))
    }

    /// A child was collected.
    pub(super) fn collected(&mut self, pid: Pid) {
        self.going.retain(|other| other.pid != pid);
        if let Some(door) = &mut self.door {
            door.collected(pid);
        }
        if self.init() == Some(pid) {
            self.current = None;
        }
        if let Some(confined) = &mut self.confined
            && let Some(ready) = confined.ready.take_if(|ready| ready.has(pid))
        {
            // Somebody has killed a part of it: the rest is of no use.
            throw_away(ready, &mut self.going);
            self.going.retain(|other| other.pid != pid);
        }
    }

    /// The command has ended, and something of it is left: its sandbox ends with the last.
    pub(super) fn expect_last(&mut self) {
        if let Some(init) = &mut self.current
            && !init.expects_last
        {
            init.expects_last = rustix::io::write(&init.socket, &[LAST_OUT]).is_ok();
        }
    }

    /// Nobody is left who could connect: ends the way out, and says what connections came to since
    /// that was told.
    pub(super) fn close_door(&mut self) -> Vec<ConnectionTotal> {
        let Some(door) = self.door.take() else { return Vec::new() };
        let later = door.later();
        self.going.extend(door.end().into_iter().map(Going::from));
        later
    }

    /// The run is over; `empty` is whether nothing of it is left.
    pub(super) fn left(&mut self, empty: bool) {
        if empty {
            if let Some(init) = self.current.take() {
                end(init.pid, &mut self.going);
            }
            self.close_door();
        } else {
            self.expect_last();
        }
    }

    fn forget(&mut self) {
        if let Some(mut confined) = self.confined.take() {
            confined.throw_away(&mut self.going);
        }
    }
}

impl ReadySandbox {
    fn has(&self, pid: Pid) -> bool {
        self.sleeper.pid == pid || self.init.as_ref().is_some_and(|init| init.pid == pid)
    }
}

/// Kills a process of ours; an init takes everything in its namespace along.
fn end(one: impl Into<Going>, going: &mut Vec<Going>) {
    let one = one.into();
    // Until it is collected, its number is nobody else's.
    let _ = kill_process(one.pid, Signal::KILL);
    going.push(one);
}

fn throw_away(ready: ReadySandbox, going: &mut Vec<Going>) {
    let pid = ready.sleeper.pid;
    end(Going { pid, _stack: Some(ready.sleeper.into_stack()) }, going);
    if let Some(init) = ready.init {
        end(init.pid, going);
    }
}
