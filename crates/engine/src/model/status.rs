//! The state machine of a task: which status may follow which, in one place.

use serde::{Deserialize, Serialize};

use crate::model::{EndedBy, Outcome};

/// The status of a task. It only moves forward, and the first final one stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for its turn: a scheduler has not started it yet.
    Queued,
    /// Its command runs.
    Running,
    /// It is being stopped.
    Cancelling,
    /// Exit code 0.
    Completed,
    /// Another exit code, a signal, a timeout, or it never started.
    Failed,
    /// Stopped on request, or because no client was connected to it.
    Cancelled,
    /// The outcome is unknown, or the scheduler of its place has stopped it.
    Interrupted,
}

/// Where a task stands that was registered to wait in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskStanding {
    /// Queued or running.
    pub status: Status,
    /// Why it waits, in the word of the scheduler.
    pub reason: Option<String>,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// The name in JSON and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The status of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// The final status and its reason, for an outcome.
    pub fn of(outcome: &Outcome) -> (Self, Option<&str>) {
        match (&outcome.ended_by, outcome.exit_status) {
            _ if outcome.lost.is_some() => (Self::Interrupted, outcome.lost.as_deref()),
            (Some(by @ (EndedBy::Stopped | EndedBy::Abandoned)), _) => {
                (Self::Cancelled, Some(by.as_str()))
            }
            // Neither by itself nor because somebody asked us.
            (Some(by @ EndedBy::StoppedByScheduler), _) => (Self::Interrupted, Some(by.as_str())),
            (Some(by), _) => (Self::Failed, Some(by.as_str())),
            (None, Some(0)) => (Self::Completed, None),
            (None, _) => (Self::Failed, None),
        }
    }

    /// Whether a task of this status may get that one: forward only, and a final one stays.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => next != Self::Queued,
            Self::Running => !matches!(next, Self::Queued | Self::Running),
            Self::Cancelling => next.is_final(),
            Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted => false,
        }
    }

    /// Whether an equal call may be answered with a task of this status: one that is being stopped
    /// is not joined.
    pub fn may_be_joined(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status() -> impl Strategy<Value = Status> {
        proptest::sample::select(Status::ALL.to_vec())
    }

    /// How far along a status is.
    fn rank(status: Status) -> u8 {
        match status {
            Status::Queued => 0,
            Status::Running => 1,
            Status::Cancelling => 2,
            _ => 3,
        }
    }

    proptest! {
        #[test]
        fn whatever_is_tried_it_moves_forward_and_the_first_final_one_stays(
            tried in proptest::collection::vec(status(), 0..30),
        ) {
            let mut now = Status::Queued;
            let mut first_final = None;
            for next in tried {
                if now.may_become(next) {
                    prop_assert!(rank(next) > rank(now), "{now:?} -> {next:?}");
                    now = next;
                }
                if now.is_final() {
                    prop_assert_eq!(*first_final.get_or_insert(now), now);
                }
            }
        }
    }

    #[test]
    fn every_status_that_is_not_final_can_end_in_every_final_one() {
        for from in Status::ALL.into_iter().filter(|status| !status.is_final()) {
            for to in Status::ALL.into_iter().filter(|status| status.is_final()) {
                assert!(from.may_become(to), "{from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn names_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::from_name(status.as_str()), Some(status));
        }
    }
}
