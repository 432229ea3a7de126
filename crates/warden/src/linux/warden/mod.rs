//! The warden: one thread around one `poll`.
//!
//! It [sleeps](turn) until something happens, [hears](hearing) its engine and observers,
//! [starts](starting) a command, sees to it that it [ends](ending), and ends itself when there is
//! nothing left to do.

mod alone;
mod ending;
mod hearing;
mod starting;
mod turn;

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use super::{
    cgroup::Cgroup,
    limits::{Limiter, Pids},
    peer::Peer,
    run::CommandRun,
    sandbox::Sandboxes,
    signals::Signals,
    socket,
    spawner::Setup,
    stop::Stop,
};
use crate::protocol::{FromWarden, StartFailure, StartStage, WardenFrame};

/// What wardens are called in a list of processes.
pub(super) const NAME: &CStr = c"legwork-warden";

/// The grace of a stop that no caller chose.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// Runs a warden until there is nothing left for it to do.
pub(super) fn run(
    setup: &Setup,
    name: &str,
    channel: OwnedFd,
    cgroup: Option<Cgroup>,
    pids: Result<Pids, String>,
) -> io::Result<()> {
    let mut owner = Peer::new(channel)?;
    let limiter = Limiter::new(setup, name, pids, cgroup.as_ref());
    let warden = match WardenProcess::prepare(setup, name, cgroup, limiter) {
        Ok(warden) => warden,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let failure = StartFailure { stage: StartStage::Folder, errno };
            owner.send(&WardenFrame::about_warden(FromWarden::StartFailed(failure)));
            return Err(error);
        }
    };
    warden.serve(owner)
}

struct WardenProcess<'a> {
    setup: &'a Setup,
    name: &'a str,
    signals: Signals,
    listener: OwnedFd,
    cgroup: Option<Cgroup>,
    sandboxes: Sandboxes,
    limiter: Limiter<'a>,
    run: Option<CommandRun>,
    stop: Option<Stop>,
    /// A stop is through with these survivors, which is told once the outcome is known.
    stopped: Option<Vec<u32>>,
    /// The kernel said that no child is left.
    childless: bool,
    /// The engine has the outcome in the ledger.
    committed: bool,
    /// A stop has been through here: it may have taken the warden out of its cgroup.
    was_stopped: bool,
    /// The run is over and left nothing behind, so the warden can take another.
    reusable: bool,
    /// Since when there is no engine.
    alone_since: Option<Instant>,
    /// It was alone for too long: whatever could not be saved by now is lost.
    given_up: bool,
    /// Connections; the first is the owner for as long as it lives.
    peers: Vec<Peer>,
    has_owner: bool,
    /// Accepting failed: no new connection before this.
    deaf_until: Option<Instant>,
}

impl<'a> WardenProcess<'a> {
    fn prepare(
        setup: &'a Setup,
        name: &'a str,
        cgroup: Option<Cgroup>,
        limiter: Limiter<'a>,
    ) -> io::Result<Self> {
        // The spawner's control socket is our stdin: let go of it.
        rustix::stdio::dup2_stdin(&setup.null)?;
        let signals = Signals::block_all()?;
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(NAME);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let listener = socket::listen_for_adoption(setup.wardens.as_fd(), name)?;
        Ok(Self {
            setup,
            name,
            signals,
            listener,
            cgroup,
            sandboxes: Sandboxes::default(),
            limiter,
            run: None,
            stop: None,
            stopped: None,
            childless: true,
            committed: false,
            was_stopped: false,
            reusable: false,
            alone_since: None,
            given_up: false,
            peers: Vec::new(),
            has_owner: true,
            deaf_until: None,
        })
    }

    fn serve(mut self, owner: Peer) -> io::Result<()> {
        self.greet(owner);
        let mut buffer = Vec::new();
        let outcome = loop {
            match self.wait() {
                Ok(ready) => self.turn(&ready, &mut buffer),
                Err(error) => break Err(error),
            }
            if self.is_done() {
                break Ok(());
            }
        };
        if let Some(run) = &mut self.run {
            run.drain(self.setup.tasks.as_fd(), &mut buffer);
        }
        let _ = rustix::fs::unlinkat(
            &self.setup.wardens,
            format!("{}.sock", self.name),
            rustix::fs::AtFlags::empty(),
        );
        // Nothing of a command runs any more, and whoever waits for that hears it now: the kernel
        // takes its time to take a view of the files apart.
        drop(self.listener);
        drop(self.peers);
        // The task's own cgroup goes first, then the spawner removes ours, unless it died before
        // us.
        self.run = None;
        if rustix::process::getppid() != Some(self.setup.spawner) {
            self.limiter.leave();
            if let Some(cgroup) = &self.cgroup {
                let _ = cgroup.leave();
                cgroup.remove();
            }
        }
        outcome
    }

    /// Whether there is nothing left to run, to keep or to tell.
    fn is_done(&self) -> bool {
        let ended = match &self.run {
            None => !self.has_owner,
            Some(run) if !run.is_over() || !self.childless || self.sandboxes.door.is_some() => {
                false
            }
            Some(_) if self.has_owner => self.committed,
            Some(run) => self.committed || run.spill_at.is_none() || self.given_up,
        };
        ended && self.stop.is_none() && self.stopped.is_none()
    }
}
