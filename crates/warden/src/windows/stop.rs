//! Stops everything in a job: Ctrl-C, a grace period, then its end.

use std::time::{Duration, Instant};

use super::{job::Job, signal::Signal};

/// The number of the signal that nobody can refuse.
pub(super) const KILL: i32 = Signal::KILL.as_raw();

/// That of Ctrl-C.
pub(super) const INTERRUPT: i32 = Signal::INT.as_raw();

/// How long ended processes may take to disappear before they are called survivors.
const DEATH: Duration = Duration::from_secs(2);

/// How often the end is repeated until then.
const AGAIN: Duration = Duration::from_millis(50);

/// The exit code of what is ended, as the task manager gives it.
const ENDED: u32 = 1;

/// A stop that is under way.
#[derive(Debug)]
pub(super) struct Stop {
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Ctrl-C was pressed.
    Grace { until: Instant },
    /// Everything was ended; some may not be gone yet.
    Ended { again: Instant, until: Instant },
}

/// How far a stop is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StopProgress {
    Waiting,
    /// Through, with the processes that could not be ended.
    Through(Vec<u32>),
}

impl Stop {
    /// After Ctrl-C was pressed, whatever the polite signal is: there is no other here.
    pub(super) fn begin(signal: i32, grace: Duration) -> Self {
        Self { phase: Phase::Grace { until: until_when(signal, grace) } }
    }

    /// A second stop: it is asked again, and the shorter grace counts.
    pub(super) fn hurry(&mut self, signal: i32, grace: Duration) {
        if let Phase::Grace { until } = &mut self.phase {
            *until = (*until).min(until_when(signal, grace));
        }
    }

    /// When to look again at the latest.
    pub(super) fn wake_at(&self) -> Instant {
        match self.phase {
            Phase::Grace { until } => until,
            Phase::Ended { again, until } => again.min(until),
        }
    }

    /// Takes the next step.
    pub(super) fn advance(&mut self, now: Instant, job: &Job) -> StopProgress {
        let left = job.living();
        if left.is_empty() {
            return StopProgress::Through(left);
        }
        match self.phase {
            Phase::Grace { until } if now < until => {}
            Phase::Grace { .. } => {
                job.terminate(ENDED);
                self.phase = Phase::Ended { again: now + AGAIN, until: now + DEATH };
            }
            Phase::Ended { until, .. } if now >= until => return StopProgress::Through(left),
            Phase::Ended { again, until } if now >= again => {
                job.terminate(ENDED);
                self.phase = Phase::Ended { again: now + AGAIN, until };
            }
            Phase::Ended { .. } => {}
        }
        StopProgress::Waiting
    }
}

/// Until when an end that was asked for is waited for.
fn until_when(signal: i32, grace: Duration) -> Instant {
    let now = Instant::now();
    if signal == KILL { now } else { now + grace }
}
