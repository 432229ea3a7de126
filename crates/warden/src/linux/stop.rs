//! Stops a whole process tree: a polite signal, a grace period, then SIGKILL until nothing is left.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    cgroup::Cgroup,
    tree::{self, Told},
};

/// How long a program on a terminal may take to heed the polite signal before its terminal goes.
const HANG_UP: Duration = Duration::from_millis(300);

/// How long killed processes may take to disappear before they are called survivors.
const DEATH: Duration = Duration::from_secs(2);

/// How often the killing is repeated until then.
const AGAIN: Duration = Duration::from_millis(50);

/// A stop that is under way.
#[derive(Debug)]
pub(super) struct Stop {
    phase: Phase,
    /// The polite signal.
    signal: Signal,
    /// Who has been sent it.
    told: Told,
    /// When to hang up: an interactive shell ignores the polite signal, but not that its terminal
    /// goes.
    hang_up_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The polite signal is out.
    Grace { until: Instant },
    /// Everything was killed; some may not be gone yet.
    Killed { again: Instant, until: Instant },
}

/// How far a stop is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StopProgress {
    Waiting,
    /// Through, with the pids that could not be ended.
    Through(Vec<u32>),
}

impl Stop {
    /// Sends the polite signal to the whole tree.
    pub(super) fn begin(signal: Signal, grace: Duration, hangs_up: bool) -> Self {
        let told = tree::signal_all(&with_resumption(signal));
        let now = Instant::now();
        let hang_up_at = hangs_up.then(|| now + HANG_UP.min(grace / 2));
        let until = now + bounded_grace(signal, grace);
        Self { phase: Phase::Grace { until }, signal, told, hang_up_at }
    }

    /// A second stop: its signal is sent as well, and the shorter grace counts.
    pub(super) fn hurry(&mut self, signal: Signal, grace: Duration) {
        if let Phase::Grace { until } = &mut self.phase {
            self.told = tree::signal_all(&[signal]);
            self.signal = signal;
            *until = (*until).min(Instant::now() + bounded_grace(signal, grace));
        }
    }

    /// Something has ended: what it forked before it got the signal has to be told too.
    pub(super) fn one_ended(&mut self, init: Option<Pid>) {
        if matches!(self.phase, Phase::Grace { .. }) {
            self.told.signal_orphans(&with_resumption(self.signal), init);
        }
    }

    /// Becomes readable when one of those has ended that were told to.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        self.told.ends()
    }

    /// When to look again at the latest.
    pub(super) fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Grace { until } => self.hang_up_at.map_or(until, |at| at.min(until)),
            Phase::Killed { again, until } => again.min(until),
        }
    }

    /// Takes the next step; `childless` is the kernel's word that nothing is left.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        childless: bool,
        ends: Ends<'_>,
    ) -> StopProgress {
        if childless {
            return StopProgress::Through(Vec::new());
        }
        if self.hang_up_at.is_some_and(|at| now >= at) {
            self.hang_up_at = None;
            tree::signal_all(&[Signal::HUP]);
        }
        match self.phase {
            Phase::Grace { until } if now < until => StopProgress::Waiting,
            Phase::Grace { .. } => {
                self.told = Told::default();
                kill(ends);
                self.phase = Phase::Killed { again: now + AGAIN, until: now + DEATH };
                StopProgress::Waiting
            }
            Phase::Killed { until, .. } if now >= until => {
                StopProgress::Through(tree::descendants())
            }
            Phase::Killed { again, until } if now >= again => {
                kill(ends);
                self.phase = Phase::Killed { again: now + AGAIN, until };
                StopProgress::Waiting
            }
            Phase::Killed { .. } => StopProgress::Waiting,
        }
    }
}

/// The signal, and what lets a stopped process act on it.
fn with_resumption(signal: Signal) -> [Signal; 2] {
    [signal, Signal::CONT]
}

/// What does not heed the signal that nobody can refuse was forked meanwhile: there is nothing to
/// be patient for.
fn bounded_grace(signal: Signal, grace: Duration) -> Duration {
    if signal == Signal::KILL { grace.min(AGAIN) } else { grace }
}

/// What ends a whole tree at once, where there is such a thing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a> {
    pub cgroup: Option<&'a Cgroup>,
    /// The init of the tree's pid namespace, which is our own child.
    pub init: Option<Pid>,
}

/// Kills by init and cgroup where there are, then whatever is (still) below us.
fn kill(ends: Ends<'_>) {
    if let Some(init) = ends.init {
        let _ = kill_process(init, Signal::KILL);
    }
    if let Some(cgroup) = ends.cgroup
        && cgroup.leave().is_ok()
    {
        let _ = cgroup.kill();
    }
    tree::freeze_and_kill();
}
