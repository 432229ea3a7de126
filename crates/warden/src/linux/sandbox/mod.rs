//! Sandboxes: made ahead, entered by one command, thrown away.
//!
//! A sandbox is a set of namespaces with an [`init`], a view of the files ([`mounts`]), a Landlock ruleset, a filter
//! of system calls, and a process in it that waits for its command ([`sleeper`]). Making one takes a millisecond or
//! two, so a warden that knows its profile keeps one ready. Nothing of a sandbox is used twice. Where the machine
//! refuses a layer, what is left is used and the lack is told.

mod capabilities;
mod elsewhere;
mod fresh;
mod init;
mod landlock;
mod mounts;
mod seccomp;
mod sleeper;
mod sockets;

use std::{
    convert::Infallible,
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};

pub(super) use self::seccomp::name_of;
use self::{
    fresh::Surroundings,
    init::{Kinds, LAST_OUT, MAPPED, Part, Report},
    landlock::Rules,
    mounts::DEVICES,
    seccomp::{Filter, Sockets},
    sleeper::{Confines, Sleeper},
};
use super::{limits::PreparedLimits, notices::Notices, socket, spawner::Setup};
use crate::{
    protocol::{Spec, StartFailure},
    sandbox::{Enforcement, Layer, Profile},
};

/// How long making a sandbox may take.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How often a sandbox is made again because the files changed while it was made.
const REMAKE_MAX: usize = 3;

/// How often in a row making a sandbox may fail before it is taken to be impossible.
const TRIES: usize = 2;

/// The largest report of an init.
const REPORT_BYTES: usize = 4096;

/// The sandboxes of one warden.
#[derive(Debug, Default)]
pub(super) struct Sandboxes {
    confined: Option<Confined>,
    /// The init of the sandbox that the command is in.
    current: Option<Init>,
    /// Processes of ours that are going; each is collected like any child.
    going: Vec<Pid>,
}

/// What commands are confined to, and how far that goes here.
#[derive(Debug)]
struct Confined {
    surroundings: Surroundings,
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
    ready: Option<Ready>,
}

/// A user namespace and a view of the files that sandboxes are copied from. No command is ever in it.
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
}

/// A sandbox with a process in it that waits for its command.
#[derive(Debug)]
pub(super) struct Ready {
    init: Option<Init>,
    sleeper: Sleeper,
    made: Made,
    /// Where the command's terminal is to be made.
    pub terminals: Option<OwnedFd>,
    shown: Vec<String>,
    enforcement: Enforcement,
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

impl Ready {
    /// Whether it has all of these.
    pub(super) fn enforces(&self, layers: &[Layer]) -> bool {
        layers.iter().all(|layer| self.enforcement.enforced.contains(layer))
    }

    /// Gives the process in it its command. On failure that process is ending.
    pub(super) fn enter(
        &self,
        spec: &Spec,
        workdir: BorrowedFd<'_>,
        streams: [BorrowedFd<'_>; 3],
        terminal: bool,
        limits: &PreparedLimits,
    ) -> Result<(Pid, Option<Notices>), StartFailure> {
        limits.enter_as(self.sleeper.pid)?;
        let order = sleeper::order(spec, workdir, terminal, limits)?;
        let notices = self.sleeper.wake(&order, streams)?;
        Ok((self.sleeper.pid, notices))
    }
}

impl Sandboxes {
    /// Makes this what commands are confined to from now on, and says how far that goes here.
    pub(super) fn confine(&mut self, setup: &Setup, profile: Profile) -> io::Result<Enforcement> {
        self.forget();
        let is_root = rustix::process::geteuid().is_root();
        let sockets = if profile.network { Sockets::Network } else { Sockets::Loopback };
        let confined = self.confined.insert(Confined {
            filter: Filter::new(sockets, is_root, seccomp::can_tell()),
            surroundings: Surroundings::of(profile),
            rung: 0,
            refusals: Vec::new(),
            proven: false,
            failures: 0,
            shown: Vec::new(),
            template: None,
            pending: None,
            ready: None,
        });
        let ready = confined.next(setup, &mut self.going)?;
        Ok(confined.ready.insert(ready).enforcement.clone())
    }

    /// Begins to make the next sandbox, if there is none; does not wait for it.
    pub(super) fn prepare(&mut self) {
        if let Some(confined) = &mut self.confined
            && confined.ready.is_none()
            && confined.pending.is_none()
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
    pub(super) fn finish(&mut self, setup: &Setup) {
        if let Some(confined) = &mut self.confined
            && confined.pending.is_some()
        {
            confined.ready = confined.next(setup, &mut self.going).ok();
        }
    }

    /// Takes a sandbox that shows the files as they are now, and these artifacts.
    pub(super) fn take(&mut self, setup: &Setup, artifacts: &[String]) -> io::Result<Ready> {
        let Some(confined) = &mut self.confined else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        for _ in 0..REMAKE_MAX {
            if confined.surroundings.are_current() {
                break;
            }
            confined.throw_away(&mut self.going);
            confined.surroundings = Surroundings::of(confined.surroundings.profile.clone());
        }
        let mut ready = confined.next(setup, &mut self.going)?;
        confined.show(&mut ready, artifacts);
        Ok(ready)
    }

    /// A command has entered.
    pub(super) fn entered(&mut self, ready: Ready) {
        self.current = ready.init;
    }

    /// No command has entered after all.
    pub(super) fn discard(&mut self, ready: Ready) {
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
        inits.map(|init| init.pid).chain(pending).chain(sleeper).chain(self.going.iter().copied())
    }

    /// A child was collected.
    pub(super) fn collected(&mut self, pid: Pid) {
        self.going.retain(|other| *other != pid);
        if self.init() == Some(pid) {
            self.current = None;
        }
        if let Some(confined) = &mut self.confined
            && let Some(ready) = confined.ready.take_if(|ready| ready.has(pid))
        {
            // Somebody has killed a part of it: the rest is of no use.
            throw_away(ready, &mut self.going);
            self.going.retain(|other| *other != pid);
        }
    }

    /// The command has ended; `empty` is whether nothing of it is left. Otherwise its sandbox ends with the last.
    pub(super) fn left(&mut self, empty: bool) {
        if empty {
            if let Some(init) = self.current.take() {
                end(init.pid, &mut self.going);
            }
        } else if let Some(init) = &self.current {
            let _ = rustix::io::write(&init.socket, &[LAST_OUT]);
        }
    }

    fn forget(&mut self) {
        if let Some(mut confined) = self.confined.take() {
            confined.throw_away(&mut self.going);
        }
    }
}

impl Ready {
    fn has(&self, pid: Pid) -> bool {
        self.sleeper.pid == pid || self.init.as_ref().is_some_and(|init| init.pid == pid)
    }
}

/// Kills a process of ours; an init takes everything in its namespace along.
fn end(pid: Pid, going: &mut Vec<Pid>) {
    // Until it is collected, its number is nobody else's.
    let _ = kill_process(pid, Signal::KILL);
    going.push(pid);
}

fn throw_away(ready: Ready, going: &mut Vec<Pid>) {
    end(ready.sleeper.pid, going);
    if let Some(init) = ready.init {
        end(init.pid, going);
    }
}

/// Sets of namespaces, strongest first; none of them is the last resort.
fn rungs(profile: &Profile) -> Vec<Kinds> {
    let kinds = |user, pid| Kinds { user, pid, network: !profile.network, small: true };
    let mut rungs = vec![kinds(true, true), kinds(true, false)];
    if rustix::process::geteuid().is_root() {
        rungs.extend([kinds(false, true), kinds(false, false)]);
    }
    rungs
}

impl Confined {
    /// The next sandbox, made now if it has not been begun.
    fn next(&mut self, setup: &Setup, going: &mut Vec<Pid>) -> io::Result<Ready> {
        if let Some(ready) = self.ready.take() {
            return Ok(ready);
        }
        loop {
            if self.pending.is_none() {
                self.begin(going)?;
            }
            let Some(pending) = self.pending.take() else {
                return self.without_namespaces(setup);
            };
            let init = pending.init.pid;
            match self.complete(setup, pending, going) {
                Ok(ready) => {
                    (self.proven, self.failures) = (true, 0);
                    return Ok(ready);
                }
                Err(problem) => {
                    end(init, going);
                    self.refuse(problem)?;
                }
            }
        }
    }

    /// A sandbox could not be made. Files may have changed under it: it is tried again. If it is never made, the
    /// machine refuses this kind, and the next weaker one is tried; but what has worked once is not given up.
    fn refuse(&mut self, problem: String) -> io::Result<()> {
        self.template = None;
        self.surroundings = Surroundings::of(self.surroundings.profile.clone());
        self.failures += 1;
        if self.failures < TRIES {
            return Ok(());
        }
        self.failures = 0;
        if self.proven {
            return Err(io::Error::other(problem));
        }
        self.refusals.push(problem);
        self.rung += 1;
        Ok(())
    }

    fn throw_away(&mut self, going: &mut Vec<Pid>) {
        if let Some(pending) = self.pending.take() {
            end(pending.init.pid, going);
        }
        if let Some(ready) = self.ready.take() {
            throw_away(ready, going);
        }
        self.template = None;
    }

    /// Begins to make a sandbox, of the strongest kind that can be begun.
    fn begin(&mut self, going: &mut Vec<Pid>) -> io::Result<()> {
        while let Some(kinds) = rungs(&self.surroundings.profile).get(self.rung).copied() {
            // A temporary folder in memory is a part of the view, and each command's own: that view is not copied.
            let begun = match self.surroundings.profile.tmp {
                Some(_) => self.copy(kinds, going),
                None => self.fork(kinds, Part::Whole, going),
            };
            match begun {
                Ok(pending) => {
                    self.pending = Some(pending);
                    return Ok(());
                }
                Err(problem) => self.refuse(problem)?,
            }
        }
        Ok(())
    }

    /// Begins a copy of the template, which is made first where there is none.
    fn copy(&mut self, kinds: Kinds, going: &mut Vec<Pid>) -> Result<Pending, String> {
        if self.template.is_none() {
            let outer = Kinds { user: kinds.user, pid: false, network: false, small: false };
            let pending = self.fork(outer, Part::Template, going)?;
            going.push(pending.init.pid);
            let (made, _, no_rules) = receive(&pending)?;
            let Made { namespaces, rules, .. } = made;
            self.template = Some(Template { namespaces, rules, no_rules });
        }
        let namespaces = self.template.iter().flat_map(|template| &template.namespaces);
        let (socket, other) = socket::socket_pair().map_err(|error| error.to_string())?;
        let own = Kinds { user: false, ..kinds };
        let live =
            || -> Infallible { init::live(other.as_fd(), own, Part::Copy, &self.surroundings) };
        let flags = own.flags().into_iter().fold(0, |all, flag| all | flag);
        let pid = sleeper::bear(namespaces, flags, &live).map_err(|error| error.to_string())?;
        Ok(Pending { init: Init { pid, socket }, kinds, own })
    }

    fn fork(&self, kinds: Kinds, part: Part, going: &mut Vec<Pid>) -> Result<Pending, String> {
        self.try_fork(kinds, part, going).map_err(|error| error.to_string())
    }

    fn try_fork(&self, kinds: Kinds, part: Part, going: &mut Vec<Pid>) -> io::Result<Pending> {
        let (socket, other) = socket::socket_pair()?;
        let number = init::fork(kinds)?;
        if number == 0 {
            init::live(other.as_fd(), kinds, part, &self.surroundings);
        }
        let pid = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
        if kinds.user {
            let mapped = init::map_ids(number);
            if let Err(error) = mapped.and_then(|()| socket::send(socket.as_fd(), &[MAPPED], &[])) {
                end(pid, going);
                return Err(error);
            }
        }
        Ok(Pending { init: Init { pid, socket }, kinds, own: kinds })
    }

    /// Waits for what the init has made, and puts a sleeper into it.
    fn complete(
        &mut self,
        setup: &Setup,
        pending: Pending,
        going: &mut Vec<Pid>,
    ) -> Result<Ready, String> {
        let (mut made, terminals, mut no_rules) = receive(&pending)?;
        if let Some(template) = &self.template {
            template.lend(&mut made).map_err(|error| error.to_string())?;
            no_rules.clone_from(&template.no_rules);
        }
        let enforcement = self.enforcement(Some(pending.kinds), no_rules.as_deref());
        let sleeper = self.sleeper(setup, &made).map_err(|error| error.to_string())?;
        let init = if pending.kinds.pid {
            Some(pending.init)
        } else {
            // It has gone by itself.
            going.push(pending.init.pid);
            None
        };
        Ok(Ready { init, sleeper, made, terminals, shown: self.shown.clone(), enforcement })
    }

    fn sleeper(&self, setup: &Setup, made: &Made) -> io::Result<Sleeper> {
        Sleeper::make(setup, made.confines(&self.filter), &names(&self.shown))
    }

    /// Shows artifacts that a sandbox does not show yet.
    fn show(&mut self, ready: &mut Ready, artifacts: &[String]) {
        let more: Vec<String> =
            artifacts.iter().filter(|name| !ready.shown.contains(name)).cloned().collect();
        if !more.is_empty() {
            // What cannot be shown is not seen: no reason to refuse the command.
            let _ = sleeper::show_more(ready.made.confines(&self.filter), &names(&more));
            ready.shown.extend(more);
        }
        self.shown.clear();
        self.shown.extend_from_slice(artifacts);
    }

    /// What is left where namespaces are refused: Landlock and the filter.
    fn without_namespaces(&mut self, setup: &Setup) -> io::Result<Ready> {
        let Surroundings { profile, writable, unreadable, state, .. } = &self.surroundings;
        if !profile.network {
            // There is no other way to keep it from sending datagrams.
            self.filter = self.filter.with(Sockets::Local);
        }
        let devices = PathBuf::from("/dev");
        let hidden: Vec<PathBuf> = unreadable.iter().chain([state, &devices]).cloned().collect();
        // They are everybody's: whoever may only read gets none.
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let temporary = temporary.into_iter().filter(|_| profile.tmp.is_some());
        let (shared, temporary): (Vec<_>, Vec<_>) =
            temporary.partition(|place| place.starts_with(&devices));
        let inside = writable.iter().cloned().chain(temporary).collect();
        let writable = [landlock::everything_in(inside, &hidden), shared].concat();
        let terminals = ["/dev/pts", "/dev/ptmx", "/dev/shm"].map(PathBuf::from);
        let rules = Rules {
            readable: landlock::everything_in(vec![PathBuf::from("/")], &hidden),
            writable: writable.iter().map(PathBuf::as_path).collect(),
            devices: DEVICES.map(PathBuf::from).into_iter().chain(terminals).collect(),
            refuse_tcp: !profile.network,
        };
        let (rules, no_rules) = match rules.build() {
            Ok(rules) => (Some(rules), None),
            Err(error) => (None, Some(landlock::why(&error))),
        };
        let made = Made { rules, ..Made::default() };
        Ok(Ready {
            init: None,
            sleeper: self.sleeper(setup, &made)?,
            made,
            terminals: None,
            shown: Vec::new(),
            enforcement: self.enforcement(None, no_rules.as_deref()),
        })
    }

    /// What is in force, and what should be and is not.
    fn enforcement(&self, kinds: Option<Kinds>, no_rules: Option<&str>) -> Enforcement {
        let mut found = Enforcement::default();
        let refusal = |place: usize| {
            let reason = self.refusals.get(place).or(self.refusals.last());
            reason.cloned().unwrap_or_else(|| "refused".into())
        };
        let at_all = refusal(usize::MAX);
        let (user, pid) = (kinds.is_some_and(|it| it.user), kinds.is_some_and(|it| it.pid));
        let files = format!("{at_all}{UNGUARDED}");
        found.note(Layer::UserNamespace, user, || refusal(1));
        found.note(Layer::MountNamespace, kinds.is_some(), || files);
        found.note(Layer::PidNamespace, pid, || refusal(0));
        if !self.surroundings.profile.network {
            found.note(Layer::NetworkNamespace, kinds.is_some(), || at_all.clone());
        }
        found.note(Layer::IpcNamespace, kinds.is_some(), || at_all.clone());
        let lacking = no_rules.map(str::to_owned).or_else(landlock::without_scopes);
        found.note(Layer::Landlock, lacking.is_none(), || lacking.unwrap_or_default());
        found.note(Layer::Seccomp, true, String::new);
        found
    }
}

/// What a missing view of the files means.
const UNGUARDED: &str = "; /tmp is everybody's, what is guarded inside the workspace can be written, sockets and the modes of files \
     outside can be reached, and what comes to be beside a secret cannot be read";

fn names(tasks: &[String]) -> Vec<CString> {
    tasks.iter().filter_map(|task| CString::new(task.as_str()).ok()).collect()
}

/// What an init reports: what it has made, where terminals are, and why there are no rules.
fn receive(pending: &Pending) -> Result<(Made, Option<OwnedFd>, Option<String>), String> {
    let socket = &pending.init.socket;
    let mut waiting = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut waiting, Some(&PATIENCE)) {
        Ok(0) => return Err("making it took too long".into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.to_string()),
    }
    let mut buffer = [0; REPORT_BYTES];
    let received =
        socket::receive(socket.as_fd(), &mut buffer).map_err(|error| error.to_string())?;
    let report = postcard::from_bytes(buffer.get(..received.bytes).unwrap_or_default());
    let (with, no_rules) = match report {
        Ok(Report::Ready { with, no_rules }) => (with, no_rules),
        Ok(Report::Failed(problem)) => return Err(problem),
        Err(_) => return Err("its init ended before it was made".into()),
    };
    let mut descriptors = received.descriptors.into_iter();
    let flags = pending.own.flags();
    let namespaces: Vec<(OwnedFd, i32)> =
        flags.iter().filter_map(|flag| Some((descriptors.next()?, *flag))).collect();
    if namespaces.len() != flags.len() {
        return Err("some of its namespaces were lost".into());
    }
    let [rules, tasks, shown, terminals] =
        with.map(|there| if there { descriptors.next() } else { None });
    Ok((Made { namespaces, rules, artifacts: tasks.zip(shown) }, terminals, no_rules))
}
