//! A command's deadline, counted in time since boot: time in which the machine was suspended
//! counts, as it does for whoever waits. All else is counted in time awake.
//!
//! A `poll` sleeps in time awake. So the clock is looked at now and then, and a deadline that
//! passed in the machine's sleep is found soon after it. A `timerfd` would find it at once, for a
//! descriptor and two system calls per command.
//!
//! With debug assertions, `LEGWORK_SLEPT` names a file with the milliseconds that the machine is to
//! have slept.

use std::time::{Duration, Instant};

use crate::system;

/// How often the clock is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The moment at which a command has to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    since_boot: Duration,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn after(limit: Duration) -> Self {
        Self { since_boot: since_boot() + limit }
    }

    pub(crate) fn is_over(self) -> bool {
        since_boot() >= self.since_boot
    }

    /// When to look next.
    pub(crate) fn look_at(self) -> Instant {
        Instant::now() + self.since_boot.saturating_sub(since_boot()).min(LOOK_EVERY)
    }
}

fn since_boot() -> Duration {
    system::since_boot() + slept()
}

/// How long a test says that the machine has slept.
fn slept() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(file) = std::env::var_os("LEGWORK_SLEPT") {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        return Duration::from_millis(text.trim().parse().unwrap_or_default());
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_deadline_is_looked_at_now_and_then_and_a_near_one_in_time() {
        let far = Deadline::after(Duration::from_secs(3600));
        assert!(!far.is_over());
        assert!(far.look_at() <= Instant::now() + LOOK_EVERY);
        let near = Deadline::after(Duration::from_secs(1));
        assert!(near.look_at() <= Instant::now() + Duration::from_secs(1));
        assert!(Deadline::after(Duration::ZERO).is_over());
    }
}
