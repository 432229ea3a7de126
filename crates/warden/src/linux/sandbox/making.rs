//! Makes sandboxes: from a template, from a copy of it, or with the layers that are left where
//! namespaces are refused.

use std::{
    convert::Infallible,
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use super::{
    Confined, Going, Init, Made, Pending, ReadySandbox, Template, end,
    fresh::FilesAround,
    init::{self, InitReport, Kinds, MAPPED, SandboxPart},
    landlock::{self, FileRules},
    mounts::path,
    seccomp::Sockets,
    sleeper::Sleeper,
    throw_away, usher,
    view::DEVICES,
};
use crate::{
    linux::socket,
    sandbox::{Enforcement, Profile, SandboxLayer},
};

/// The largest report of an init.
const REPORT_BYTES: usize = 4096;

/// How often in a row making a sandbox may fail before it is taken to be impossible.
const TRIES: usize = 2;

/// How long making a sandbox may take.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

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
    pub(super) fn next(&mut self, going: &mut Vec<Going>) -> io::Result<ReadySandbox> {
        if let Some(ready) = self.ready.take() {
            return Ok(ready);
        }
        loop {
            if self.pending.is_none() {
                self.begin(going)?;
            }
            let Some(pending) = self.pending.take() else {
                return self.without_namespaces();
            };
            let init = pending.init.pid;
            match self.complete(pending, going) {
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

    /// A sandbox could not be made. Files may have changed under it: it is tried again. If it is
    /// never made, the machine refuses this kind, and the next weaker one is tried; but what has
    /// worked once is not given up.
    fn refuse(&mut self, problem: String) -> io::Result<()> {
        self.template = None;
        self.surroundings = FilesAround::of(self.surroundings.profile.clone());
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

    pub(super) fn throw_away(&mut self, going: &mut Vec<Going>) {
        if let Some(pending) = self.pending.take() {
            end(pending.init.pid, going);
        }
        if let Some(ready) = self.ready.take() {
            throw_away(ready, going);
        }
        self.template = None;
    }

    /// Begins to make a sandbox, of the strongest kind that can be begun.
    pub(super) fn begin(&mut self, going: &mut Vec<Going>) -> io::Result<()> {
        while let Some(kinds) = rungs(&self.surroundings.profile).get(self.rung).copied() {
            // A temporary folder in memory is a part of the view, and each command's own: that view
            // is not copied.
            let begun = match self.surroundings.profile.tmp {
                Some(_) => self.copy(kinds, going),
                None => self.fork(kinds, SandboxPart::Whole, going),
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
    fn copy(&mut self, kinds: Kinds, going: &mut Vec<Going>) -> Result<Pending, String> {
        if self.template.is_none() {
            let outer = Kinds { user: kinds.user, pid: false, network: false, small: false };
            let pending = self.fork(outer, SandboxPart::Template, going)?;
            going.push(pending.init.pid.into());
            let InitMade { made, no_rules, .. } = receive(&pending)?;
            let Made { namespaces, rules, .. } = made;
            self.template = Some(Template { namespaces, rules, no_rules });
        }
        let namespaces = self.template.iter().flat_map(|template| &template.namespaces);
        let (socket, other) = socket::socket_pair().map_err(|error| error.to_string())?;
        let own = Kinds { user: false, ..kinds };
        let live = || -> Infallible {
            init::live(other.as_fd(), own, SandboxPart::Copy, &self.surroundings)
        };
        let flags = own.flags().into_iter().fold(0, |all, flag| all | flag);
        let pid = usher::bear(namespaces, flags, &live).map_err(|error| error.to_string())?;
        Ok(Pending { init: Init { pid, socket, expects_last: false }, kinds, own })
    }

    fn fork(
        &self,
        kinds: Kinds,
        part: SandboxPart,
        going: &mut Vec<Going>,
    ) -> Result<Pending, String> {
        self.try_fork(kinds, part, going).map_err(|error| error.to_string())
    }

    fn try_fork(
        &self,
        kinds: Kinds,
        part: SandboxPart,
        going: &mut Vec<Going>,
    ) -> io::Result<Pending> {
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
        Ok(Pending { init: Init { pid, socket, expects_last: false }, kinds, own: kinds })
    }

    /// Waits for what the init has made, and puts a sleeper into it.
    fn complete(
        &mut self,
        pending: Pending,
        going: &mut Vec<Going>,
    ) -> Result<ReadySandbox, String> {
        let InitMade { mut made, terminals, listener, mut no_rules } = receive(&pending)?;
        if let Some(template) = &self.template {
            template.lend(&mut made).map_err(|error| error.to_string())?;
            no_rules.clone_from(&template.no_rules);
        }
        let enforcement = self.enforcement(Some(pending.kinds), no_rules.as_deref());
        let sleeper = self.sleeper(&made).map_err(|error| error.to_string())?;
        let init = if pending.kinds.pid {
            Some(pending.init)
        } else {
            // It has gone by itself.
            going.push(pending.init.pid.into());
            None
        };
        let shown = self.shown.clone();
        let tmp = self.surroundings.profile.tmp.as_deref().map(path);
        let tmp = tmp.and_then(|tmp| tmp.canonicalize().ok());
        Ok(ReadySandbox { init, sleeper, made, terminals, listener, shown, enforcement, tmp })
    }

    fn sleeper(&self, made: &Made) -> io::Result<Sleeper> {
        let has_pids = made.namespaces.iter().any(|(_, kind)| *kind == libc::CLONE_NEWPID);
        if !has_pids && rustix::process::geteuid().is_root() {
            close_memory();
        }
        Sleeper::make(made.confines(&self.filter), &names(&self.shown))
    }

    /// Shows artifacts that a sandbox does not show yet.
    pub(super) fn show(&mut self, ready: &mut ReadySandbox, artifacts: &[String]) {
        let more: Vec<String> =
            artifacts.iter().filter(|name| !ready.shown.contains(name)).cloned().collect();
        if !more.is_empty() {
            // What cannot be shown is not seen: no reason to refuse the command.
            let _ = usher::show_more(ready.made.confines(&self.filter), &names(&more));
            ready.shown.extend(more);
        }
        self.shown.clear();
        self.shown.extend_from_slice(artifacts);
    }

    /// What is left where namespaces are refused: Landlock and the filter.
    fn without_namespaces(&mut self) -> io::Result<ReadySandbox> {
        let FilesAround { profile, writable, unreadable, state, .. } = &self.surroundings;
        if !profile.network {
            // There is no other way to keep it from sending datagrams.
            let reads_only = profile.writable.is_empty();
            let sockets = if reads_only { Sockets::Nothing } else { Sockets::Local };
            self.filter = self.filter.with(sockets);
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
        let rules = FileRules {
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
        Ok(ReadySandbox {
            init: None,
            sleeper: self.sleeper(&made)?,
            made,
            terminals: None,
            // Without a network of its own there is nothing that a proxy would be the way out of.
            listener: None,
            shown: Vec::new(),
            enforcement: self.enforcement(None, no_rules.as_deref()),
            tmp: None,
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
        found.note(SandboxLayer::UserNamespace, user, || refusal(1));
        found.note(SandboxLayer::MountNamespace, kinds.is_some(), || files);
        found.note(SandboxLayer::PidNamespace, pid, || refusal(0));
        if !self.surroundings.profile.network {
            found.note(SandboxLayer::NetworkNamespace, kinds.is_some(), || at_all.clone());
        }
        found.note(SandboxLayer::IpcNamespace, kinds.is_some(), || at_all.clone());
        let lacking = no_rules.map(str::to_owned).or_else(landlock::without_scopes);
        found.note(SandboxLayer::Landlock, lacking.is_none(), || lacking.unwrap_or_default());
        found.note(SandboxLayer::Seccomp, true, String::new);
        found.tells_exec = self.filter.asks_about_exec();
        if kinds.is_some() {
            let rules = self.surroundings.covered.iter().map(|file| file.rule.clone());
            found.covered = rules.collect();
            found.covered.dedup();
        }
        found
    }
}

/// Keeps the memory of this process, which its sleepers use, from commands of other sandboxes. They
/// see those where there is no pid namespace, and root's have their user, without the rights that
/// would keep them off.
fn close_memory() {
    // SAFETY: plain numbers, about this process alone.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// What a missing view of the files means.
const UNGUARDED: &str = "; /tmp is everybody's, what is guarded inside the workspace can be written, sockets and the modes of files \
     outside can be reached, and what comes to be beside a secret cannot be read";

fn names(tasks: &[String]) -> Vec<CString> {
    tasks.iter().filter_map(|task| CString::new(task.as_str()).ok()).collect()
}

/// What an init reports.
struct InitMade {
    made: Made,
    terminals: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    /// Why there is no ruleset.
    no_rules: Option<String>,
}

/// Waits for the report of an init.
fn receive(pending: &Pending) -> Result<InitMade, String> {
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
        Ok(InitReport::Ready { with, no_rules }) => (with, no_rules),
        Ok(InitReport::Failed(problem)) => return Err(problem),
        Err(_) => return Err("its init ended before it was made".into()),
    };
    let mut descriptors = received.descriptors.into_iter();
    let flags = pending.own.flags();
    let namespaces: Vec<(OwnedFd, i32)> =
        flags.iter().filter_map(|flag| Some((descriptors.next()?, *flag))).collect();
    if namespaces.len() != flags.len() {
        return Err("some of its namespaces were lost".into());
    }
    let [rules, tasks, shown, terminals, listener] =
        with.map(|there| if there { descriptors.next() } else { None });
    let made = Made { namespaces, rules, artifacts: tasks.zip(shown) };
    Ok(InitMade { made, terminals, listener, no_rules })
}
