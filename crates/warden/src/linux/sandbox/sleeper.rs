//! The process that waits in a sandbox for its command: made ahead, without privileges.
//!
//! It is a child of the warden, made by an [usher](super::usher) inside the sandbox. It gives up
//! its rights, hands over where its refused system calls are told, and waits. What it is then sent,
//! it executes.

use std::{
    convert::Infallible,
    ffi::{CString, c_int},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, fstat, open},
    process::{Pid, Signal},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        command::{self, Prepared},
        libcs::LimitNumber,
        limits::PreparedLimits,
        notices::Notices,
        run::{environment, environment_set},
        socket,
        spawner::Setup,
    },
    capabilities::drop_capabilities,
    init::keep_only,
    seccomp::Filter,
    usher::{Birth, Errand, last_errno},
};
use crate::{
    exec::ExecRule,
    protocol::{Decoder, Environment, Spec, StartFailure, StartStage, encode},
};

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
}

/// A command, as a sleeper gets it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SleeperOrder {
    program: Vec<u8>,
    argv: Vec<Vec<u8>>,
    environment: Environment,
    terminal: bool,
    workdir: Vec<u8>,
    /// Device and number of the folder that it has to be; none if it may be a copy, which has
    /// others.
    folder: Option<(u64, u64)>,
    /// The limits of the process.
    rlimits: Vec<(LimitNumber, u64, u64)>,
}

/// What a sleeper answers.
#[derive(Debug, Serialize, Deserialize)]
enum SleeperAnswer {
    /// It is confined; beside this frame stands where its refused calls are told, if they are.
    Confined,
    Failed(StartFailure),
}

impl Sleeper {
    /// Makes one.
    pub(super) fn make(
        setup: &Setup,
        confines: Confines<'_>,
        shown: &[CString],
    ) -> io::Result<Self> {
        let (socket, other) = socket::socket_pair()?;
        let life = Life { setup, confines, socket: other.as_fd() };
        let until_it_executes = || -> Infallible { life.live() };
        let mut errand = Errand::new(confines.namespaces.iter());
        errand.show(confines.artifacts, shown);
        errand.birth = Some(Birth { flags: 0, live: &until_it_executes });
        Ok(Self { pid: errand.run()?, socket })
    }

    /// Gives it its command. Returns where refused calls are told, if they are; on failure the
    /// process is ending.
    pub(super) fn wake(
        &self,
        order: &SleeperOrder,
        streams: [BorrowedFd<'_>; 3],
        rules: &[ExecRule],
    ) -> Result<Option<Notices>, StartFailure> {
        let frame = encode(order).map_err(|_| failure(StartStage::Execute, libc::E2BIG))?;
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = if sent == 0 { &streams[..] } else { &[] };
            let piece = socket::send(self.socket.as_fd(), rest, with);
            sent += piece.map_err(failed(StartStage::Sandbox))?;
        }
        self.hear(rules)
    }

    /// Its socket closes when it executes. Until that is heard the command may have gone on to
    /// execute others: rules on programs hold from the first question of the kernel on.
    fn hear(&self, rules: &[ExecRule]) -> Result<Option<Notices>, StartFailure> {
        let mut decoder = Decoder::default();
        let (mut notices, mut confined): (Option<Notices>, bool) = (None, false);
        loop {
            if let Some(notices) = &mut notices {
                self.wait_answering(notices).map_err(failed(StartStage::Sandbox))?;
            }
            let mut buffer = [0; 256];
            let received = socket::receive(self.socket.as_fd(), &mut buffer)
                .map_err(failed(StartStage::Sandbox))?;
            let listener = received.descriptors.into_iter().next();
            let heard = listener.map(|listener| Notices::new(listener, rules, self.pid));
            notices = heard.or(notices);
            if received.bytes == 0 {
                let ended = failure(StartStage::Sandbox, libc::ECHILD);
                return if confined { Ok(notices) } else { Err(ended) };
            }
            decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
            while let Ok(Some(answer)) = decoder.next_frame() {
                match answer {
                    SleeperAnswer::Confined => confined = true,
                    SleeperAnswer::Failed(failure) => return Err(failure),
                }
            }
        }
    }
}

impl Sleeper {
    /// Waits until it says something, and answers what the kernel asks about it meanwhile.
    fn wait_answering(&self, notices: &mut Notices) -> io::Result<()> {
        loop {
            let listener = notices.listener();
            let mut waiting = vec![PollFd::new(&self.socket, PollFlags::IN)];
            waiting.extend(listener.iter().map(|it| PollFd::new(it, PollFlags::IN)));
            match poll(&mut waiting, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let said = waiting.first().is_some_and(|socket| !socket.revents().is_empty());
            let asked = waiting.get(1).is_some_and(|listener| !listener.revents().is_empty());
            if asked {
                notices.answer();
            }
            if said {
                return Ok(());
            }
        }
    }
}

/// Writes down what a sleeper is to become.
pub(super) fn order(
    spec: &Spec,
    workdir: BorrowedFd<'_>,
    terminal: bool,
    limits: &PreparedLimits,
) -> Result<SleeperOrder, StartFailure> {
    let lost = |errno: rustix::io::Errno| failed(StartStage::WorkingDirectory)(errno.into());
    let stat = fstat(workdir).map_err(lost)?;
    let link = format!("/proc/self/fd/{}", workdir.as_raw_fd());
    let on_copy = spec.sandbox.as_ref().is_some_and(|sandbox| sandbox.on_copy);
    Ok(SleeperOrder {
        program: spec.program.clone(),
        argv: spec.argv.clone(),
        environment: spec.environment.clone(),
        terminal,
        workdir: rustix::fs::readlink(link, Vec::new()).map_err(lost)?.into_bytes(),
        folder: (!on_copy).then_some((stat.st_dev, stat.st_ino)),
        rlimits: limits.to_numbers(),
    })
}

fn failure(stage: StartStage, errno: i32) -> StartFailure {
    StartFailure { stage, errno }
}

fn failed(stage: StartStage) -> impl Fn(io::Error) -> StartFailure {
    move |error| failure(stage, error.raw_os_error().unwrap_or(libc::EIO))
}

/// What a sleeper needs to live.
struct Life<'a> {
    setup: &'a Setup,
    confines: Confines<'a>,
    socket: BorrowedFd<'a>,
}

impl Life<'_> {
    /// The whole life of a sleeper, until it executes.
    fn live(&self) -> ! {
        // Where there is no init that would take it along, the warden's end is its end all the
        // same.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let confined = self.confine();
        // Whatever else is the warden's must not be held open by it.
        if let Ok(socket) = keep_only(self.socket)
            && let Err(failure) = confined.and_then(|()| self.obey(socket.as_fd()))
        {
            let answer = encode(&SleeperAnswer::Failed(failure)).unwrap_or_default();
            let _ = socket::send(socket.as_fd(), &answer, &[]);
        }
        // SAFETY: ends this process at once: what the warden had registered for its own end is not
        // ours to run.
        unsafe { libc::_exit(127) }
    }

    /// Gives up what can be given up: capabilities, new rights, files by Landlock, system calls by
    /// the filter.
    fn confine(&self) -> Result<(), StartFailure> {
        const SET_FILTER: c_int = 1;
        const TELL: c_int = 1 << 3;
        let refused = || failure(StartStage::Sandbox, last_errno());
        let program = self.confines.filter.program();
        let flags = if self.confines.filter.told { TELL } else { 0 };
        // SAFETY: plain numbers, a ruleset's descriptor and a program that outlives the call; all
        // of it is about this process alone. The descriptor that comes back is nobody else's.
        let listener = unsafe {
            if !drop_capabilities() || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(refused());
            }
            if let Some(rules) = self.confines.rules
                && libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
            {
                return Err(refused());
            }
            let given = libc::syscall(libc::SYS_seccomp, SET_FILTER, flags, &raw const program);
            if given < 0 {
                return Err(refused());
            }
            let told = self.confines.filter.told;
            told.then(|| BorrowedFd::borrow_raw(RawFd::try_from(given).unwrap_or_default()))
        };
        let answer = encode(&SleeperAnswer::Confined).unwrap_or_default();
        let with: Vec<BorrowedFd<'_>> = listener.into_iter().collect();
        socket::send(self.socket, &answer, &with).map_err(failed(StartStage::Sandbox))?;
        Ok(())
    }

    /// Waits for the command, and becomes it.
    fn obey(&self, socket: BorrowedFd<'_>) -> Result<(), StartFailure> {
        let mut decoder = Decoder::default();
        let (mut streams, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        let order: SleeperOrder = loop {
            let received =
                socket::receive(socket, &mut buffer).map_err(failed(StartStage::Sandbox))?;
            if received.bytes == 0 {
                // Nobody needs it.
                // SAFETY: ends this process at once.
                unsafe { libc::_exit(0) }
            }
            streams.extend(received.descriptors);
            decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
            let malformed = |_| failure(StartStage::Sandbox, libc::EPROTO);
            if let Some(order) = decoder.next_frame().map_err(malformed)? {
                break order;
            }
        };
        let [stdin, stdout, stderr] = &streams[..] else {
            return Err(failure(StartStage::Descriptors, libc::EBADF));
        };
        let workdir = enter_folder(&order).map_err(failed(StartStage::WorkingDirectory))?;
        let set = environment_set(&order.environment.set)?;
        Err(command::execute(&Prepared {
            program: command::c_string(&order.program)?,
            argv: order
                .argv
                .iter()
                .map(|text| command::c_string(text))
                .collect::<Result<_, _>>()?,
            environment: environment(self.setup, &order.environment, &set),
            workdir: workdir.as_fd(),
            streams: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            terminal: order.terminal,
            umask: self.setup.umask,
            open_files: self.setup.open_files,
            limits: &PreparedLimits::from_numbers(&order.rlimits),
        }))
    }
}

/// Opens the working directory by its path: a descriptor from outside would lead past the sandbox's
/// own mounts. It has to be the same folder, or at the same path without any link on the way.
fn enter_folder(order: &SleeperOrder) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(&order.workdir[..], flags, Mode::empty())?;
    let Some(expected) = order.folder else {
        // The filter has taken the call that follows no links: the kernel is asked where this is.
        let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let is_there = rustix::fs::readlink(link, Vec::new())?.to_bytes() == order.workdir;
        return is_there.then_some(folder).ok_or(io::Error::from_raw_os_error(libc::ESTALE));
    };
    let stat = fstat(&folder)?;
    if (stat.st_dev, stat.st_ino) == expected {
        Ok(folder)
    } else {
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}
