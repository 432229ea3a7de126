//! How far the wall clock is believed when it says that something is old.
//!
//! A clock that is set wrong for a while must not cost anybody a history. So a clean-up that nobody
//! asked for believes no more than an earlier one saw as well, hours of running time before: what
//! it removes is old by both. A clock that went back or ahead, more than time has passed, begins
//! the wait anew.

use serde::{Deserialize, Serialize};

use crate::{
    clock::{awake_ms, now_ms, since_boot_ms},
    store::ledger::Newest,
};

/// How long a machine has to run between two clean-ups that agree.
pub(super) const APART_MS: u64 = 6 * 3600 * 1000;

/// A difference between the clocks that is none: the wall clock is corrected a little now and then.
const TOLERANCE_MS: i64 = 5 * 60 * 1000;

/// A clock that went ahead by more than this is not believed for a person, either, who does not say
/// that it is right: less than this hardly matters for what is kept for days.
const DOUBTED_MS: i64 = 24 * 3600 * 1000;

/// What the clocks say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moment {
    wall_ms: i64,
    /// Since boot, without sleep.
    awake_ms: u64,
    /// Since boot.
    since_boot_ms: u64,
    /// Which boot; empty where that cannot be known.
    boot_id: String,
}

impl Moment {
    pub(super) fn now(boot_id: &str) -> Self {
        let boot_id = boot_id.to_owned();
        Self { wall_ms: now_ms(), awake_ms: awake_ms(), since_boot_ms: since_boot_ms(), boot_id }
    }

    /// Whether the machine was not started anew since an earlier moment.
    fn is_of_boot_of(&self, earlier: &Self) -> bool {
        self.boot_id == earlier.boot_id && self.awake_ms >= earlier.awake_ms
    }

    /// How long the machine has run since an earlier moment, at least.
    fn ran_since(&self, earlier: &Self) -> u64 {
        if self.is_of_boot_of(earlier) {
            return self.awake_ms - earlier.awake_ms;
        }
        // Where boots cannot be told apart, this may be the same one.
        if self.boot_id.is_empty() { 0 } else { self.awake_ms }
    }

    /// By how much the wall clock has moved since an earlier moment beyond the time that has
    /// passed; less than nothing if it went back. While the machine was off any time may have
    /// passed.
    fn moved_since(&self, earlier: &Self) -> i64 {
        let moved = self.wall_ms.saturating_sub(earlier.wall_ms);
        if self.is_of_boot_of(earlier) {
            return moved.saturating_sub_unsigned(self.since_boot_ms - earlier.since_boot_ms);
        }
        moved.saturating_sub_unsigned(self.since_boot_ms).min(0)
    }
}

/// What earlier clean-ups have seen of the clocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// The time that two clean-ups have agreed on.
    agreed_ms: Option<i64>,
    /// The clean-up that the next ones have to agree with.
    first: Option<First>,
    /// The last one.
    last: Option<Moment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct First {
    wall_ms: i64,
    /// How long the machine has run since, at least.
    ran_ms: u64,
    /// The place of the task that was the last one then.
    sequence: i64,
    /// By how much the clock had gone ahead before.
    ahead_ms: i64,
}

impl Evidence {
    /// Takes note of what a clean-up sees.
    pub(super) fn see(&mut self, now: Moment, newest: Option<Newest>) {
        let moved = self.last.as_ref().map_or(0, |last| now.moved_since(last));
        let went_back = moved < -TOLERANCE_MS || self.is_contradicted(&now, newest);
        let ran_ms = self.last.as_ref().map_or(0, |last| now.ran_since(last));
        match self.first.as_mut().filter(|_| !went_back && moved <= TOLERANCE_MS) {
            Some(first) => {
                first.ran_ms = first.ran_ms.saturating_add(ran_ms);
                if first.ran_ms >= APART_MS {
                    self.agreed_ms = Some(first.wall_ms.min(now.wall_ms));
                    self.begin(&now, newest, 0);
                }
            }
            None => self.begin(&now, newest, moved.max(0)),
        }
        self.agreed_ms = self.agreed_ms.filter(|agreed| *agreed <= now.wall_ms);
        self.last = Some(now);
    }

    fn begin(&mut self, now: &Moment, newest: Option<Newest>, ahead_ms: i64) {
        let sequence = newest.unwrap_or_default().sequence;
        self.first = Some(First { wall_ms: now.wall_ms, ran_ms: 0, sequence, ahead_ms });
    }

    /// Whether a task shows that the clock went back, between two clean-ups.
    fn is_contradicted(&self, now: &Moment, newest: Option<Newest>) -> bool {
        let (Some(newest), Some(first)) = (newest, &self.first) else { return false };
        let possible =
            first.wall_ms.saturating_sub(TOLERANCE_MS)..=now.wall_ms.saturating_add(TOLERANCE_MS);
        newest.sequence > first.sequence && !possible.contains(&newest.created_at_ms)
    }

    /// The time that is believed without anybody's word.
    pub(super) fn agreed_ms(&self) -> Option<i64> {
        self.agreed_ms
    }

    /// By how much the clock went ahead, if that is so much that a person should know.
    pub(super) fn doubt_ms(&self) -> Option<i64> {
        self.first.as_ref().map(|first| first.ahead_ms).filter(|ahead_ms| *ahead_ms > DOUBTED_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1000;
    const YEAR: i64 = 365 * 24 * HOUR;

    /// A machine whose clocks can be turned.
    struct Machine {
        now: Moment,
        evidence: Evidence,
        newest: Newest,
    }

    impl Machine {
        fn new() -> Self {
            let now = Moment {
                wall_ms: 50 * YEAR,
                awake_ms: 1000,
                since_boot_ms: 1000,
                boot_id: "one".into(),
            };
            let newest = Newest { sequence: 1, created_at_ms: now.wall_ms - HOUR };
            Self { now, evidence: Evidence::default(), newest }
        }

        fn run(&mut self, hours: i64) {
            self.now.wall_ms += hours * HOUR;
            self.now.awake_ms += (hours * HOUR).unsigned_abs();
            self.now.since_boot_ms += (hours * HOUR).unsigned_abs();
        }

        fn sleep(&mut self, hours: i64) {
            self.now.wall_ms += hours * HOUR;
            self.now.since_boot_ms += (hours * HOUR).unsigned_abs();
        }

        /// Is off for some hours and started again.
        fn reboot(&mut self, hours: i64) {
            self.now.wall_ms += hours * HOUR;
            (self.now.awake_ms, self.now.since_boot_ms) = (1000, 1000);
            self.now.boot_id.push('+');
        }

        /// Cleans up, and says which time is believed.
        fn clean_up(&mut self) -> Option<i64> {
            self.evidence.see(self.now.clone(), Some(self.newest));
            self.evidence.agreed_ms()
        }

        fn work(&mut self) {
            let (sequence, created_at_ms) = (self.newest.sequence + 1, self.now.wall_ms);
            self.newest = Newest { sequence, created_at_ms };
        }
    }

    #[test]
    fn two_clean_ups_hours_of_running_time_apart_agree_on_the_earlier_time() {
        let mut machine = Machine::new();
        let first = machine.now.wall_ms;
        assert_eq!(machine.clean_up(), None);
        for _ in 0..5 {
            machine.run(1);
            assert_eq!(machine.clean_up(), None);
        }
        machine.run(1);
        assert_eq!(machine.clean_up(), Some(first));
        machine.run(5);
        assert_eq!(machine.clean_up(), Some(first));
        machine.run(1);
        assert_eq!(machine.clean_up(), Some(first + 6 * HOUR));
        assert_eq!(machine.evidence.doubt_ms(), None);
    }

    #[test]
    fn time_asleep_does_not_count_and_time_of_several_boots_does() {
        let mut machine = Machine::new();
        let first = machine.now.wall_ms;
        machine.clean_up();
        machine.sleep(100);
        assert_eq!(machine.clean_up(), None);
        machine.run(3);
        machine.clean_up();
        machine.reboot(50);
        assert_eq!(machine.clean_up(), None);
        machine.run(4);
        assert_eq!(machine.clean_up(), Some(first));
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_believed_only_after_hours_and_doubted_until_then() {
        let mut machine = Machine::new();
        machine.clean_up();
        machine.run(7);
        let agreed = machine.clean_up();
        machine.now.wall_ms += 4 * YEAR;
        assert_eq!(machine.clean_up(), agreed);
        assert_eq!(machine.evidence.doubt_ms(), Some(4 * YEAR));
        machine.run(5);
        assert_eq!(machine.clean_up(), agreed);
        // It is set right: as if nothing had been.
        machine.now.wall_ms -= 4 * YEAR;
        assert_eq!(machine.clean_up(), agreed);
        assert_eq!(machine.evidence.doubt_ms(), None);
        machine.run(5);
        assert_eq!(machine.clean_up(), agreed);
        machine.run(1);
        assert!(machine.clean_up() > agreed);
        // It stays as it is, for hours: then it is right.
        machine.now.wall_ms += 4 * YEAR;
        machine.clean_up();
        machine.run(6);
        assert!(machine.clean_up().unwrap() > agreed.unwrap() + 4 * YEAR);
        assert_eq!(machine.evidence.doubt_ms(), None);
    }

    #[test]
    fn a_machine_that_wakes_or_starts_with_a_wrong_clock_believes_nothing_new() {
        let mut machine = Machine::new();
        machine.clean_up();
        machine.run(6);
        let agreed = machine.clean_up();
        // Its clock went wrong in its sleep: both clocks jump.
        machine.sleep(4 * YEAR / HOUR);
        assert_eq!(machine.clean_up(), agreed);
        let mut machine = Machine::new();
        machine.clean_up();
        machine.run(6);
        let agreed = machine.clean_up();
        assert!(agreed.is_some());
        // Every day for hours, until somebody sets it right and works; it is cleaned up in the
        // wrong hours only.
        for _ in 0..5 {
            machine.reboot(1);
            machine.now.wall_ms += 4 * YEAR;
            machine.run(7);
            let believed = machine.clean_up();
            machine.now.wall_ms -= 4 * YEAR;
            assert!(believed < Some(machine.now.wall_ms), "{believed:?}");
            machine.work();
        }
    }

    #[test]
    fn a_clock_that_goes_back_takes_back_what_it_said() {
        let mut machine = Machine::new();
        machine.clean_up();
        machine.run(6);
        assert!(machine.clean_up().is_some());
        machine.now.wall_ms -= YEAR;
        assert_eq!(machine.clean_up(), None);
        machine.run(6);
        assert_eq!(machine.clean_up(), Some(machine.now.wall_ms - 6 * HOUR));
    }

    #[test]
    fn where_boots_cannot_be_told_apart_only_what_is_sure_counts() {
        let mut machine = Machine::new();
        machine.now.boot_id = String::new();
        machine.clean_up();
        machine.run(3);
        machine.clean_up();
        machine.reboot(0);
        machine.now.boot_id = String::new();
        machine.run(2);
        assert_eq!(machine.clean_up(), None);
        assert_eq!(machine.evidence.first.as_ref().unwrap().ran_ms, 3 * HOUR.unsigned_abs());
    }
}
