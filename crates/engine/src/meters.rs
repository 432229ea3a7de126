//! Counters and timings of an engine's work, for whoever watches a server. All are atomics: to
//! count is to add, and nobody who works waits for somebody who reads.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Upper bounds of quick work: a start, a commit.
const QUICK: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
];

/// What an engine counts. Several engines may share one ([`Options::meters`]).
///
/// [`Options::meters`]: crate::Options::meters
#[derive(Debug)]
#[non_exhaustive]
pub struct Meters {
    /// From the decision that a command may run until a warden has it.
    pub starts: Timings,
    /// Records of a start or an end in the daybook, with the wait for other processes.
    pub daybook: Timings,
    /// Commits to the ledger, with the wait for other processes.
    pub ledger: Timings,
    /// Tasks that were taken over from an engine that had ended.
    pub adoptions: AtomicU64,
    /// Commands that were refused because as many tasks run as may.
    pub refused_for_tasks: AtomicU64,
    /// Connections by name of commands that are over.
    pub connections: ConnectionMeter,
    /// Bytes that they have sent.
    pub connection_bytes_out: AtomicU64,
    /// Bytes that they have received.
    pub connection_bytes_in: AtomicU64,
    /// Calls that had to wait because as many are worked on as may be.
    pub waits_for_place: AtomicU64,
    /// Calls that had to wait because their client does not read its answers.
    pub waits_for_reader: AtomicU64,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            starts: Timings::new(QUICK),
            daybook: Timings::new(QUICK),
            ledger: Timings::new(QUICK),
            adoptions: AtomicU64::new(0),
            refused_for_tasks: AtomicU64::new(0),
            connections: ConnectionMeter::default(),
            connection_bytes_out: AtomicU64::new(0),
            connection_bytes_in: AtomicU64::new(0),
            waits_for_place: AtomicU64::new(0),
            waits_for_reader: AtomicU64::new(0),
        }
    }
}

/// Connections by name, made or refused.
#[derive(Debug, Default)]
pub struct ConnectionMeter {
    made: AtomicU64,
    refused: AtomicU64,
}

impl ConnectionMeter {
    /// Counts some.
    pub(crate) fn note(&self, refused: bool, count: u64) {
        let counter = if refused { &self.refused } else { &self.made };
        counter.fetch_add(count, Relaxed);
    }

    /// Those that were let through.
    pub fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// Those that were refused or cut off.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct Timings {
    bounds: &'static [Duration],
    /// One for each bound, and one for what is beyond the last.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Timings {
    /// Counts by these upper bounds, which must be in order.
    pub fn new(bounds: &'static [Duration]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, nanoseconds: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn note(&self, took: Duration) {
        let place = self.bounds.partition_point(|bound| *bound < took);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Relaxed);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// Counts what began then and is done now.
    pub fn note_since(&self, began: Instant) {
        self.note(began.elapsed());
    }

    /// How many took at most each of the bounds, then how many there are in all.
    pub fn cumulative(&self) -> (Vec<(Duration, u64)>, u64) {
        let mut sum = 0;
        let mut counts = self.counts.iter().map(|count| {
            sum += count.load(Relaxed);
            sum
        });
        let within = self.bounds.iter().copied().zip(counts.by_ref()).collect();
        (within, counts.next().unwrap_or_default())
    }

    /// What all of them took together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Relaxed))
    }
}

/// The wardens of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WardenCount {
    /// Those that wait for a command.
    pub ready: usize,
    /// Those of them that have a sandbox prepared.
    pub confined: usize,
    /// Those that have one.
    pub busy: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_its_bound_and_above() {
        const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];
        let timings = Timings::new(BOUNDS);
        for took in [0, 1, 2, 10, 11] {
            timings.note(Duration::from_millis(took));
        }
        let (within, all) = timings.cumulative();
        let counts: Vec<u64> = within.iter().map(|(_, count)| *count).collect();
        assert_eq!((counts, all), (vec![2, 4], 5));
        assert_eq!(timings.total(), Duration::from_millis(24));
    }
}
