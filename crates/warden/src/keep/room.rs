//! How much output may be stored: the task's limit, and the free space of the disk.

use std::time::Duration;

use crate::{
    protocol::Limits,
    system::files::{FolderOfTask, disk_space},
};

/// The disk is looked at after this much output, or after this long if there is any.
const LOOK_BYTES: u64 = 256 * 1024;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is kept at least where the disk has little room: a head and a tail that say something.
const LOW_DISK_BYTES: u64 = 64 * 1024;

/// Unless it is configured, output leaves this much of the disk free, or this part of it if that is
/// less.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;
const FREE_PART: u64 = 20;

/// The room for one run's output.
#[derive(Debug)]
pub(super) struct Room {
    pub output_bytes_max: u64,
    free_bytes_min: Option<u64>,
    /// Output since the last look, and when that was.
    unlooked_bytes: u64,
    looked_at: Option<Duration>,
    /// Where the disk has little room: what was kept when that was seen.
    low: Option<u64>,
    /// Whether something was dropped because of that.
    pub was_low: bool,
}

impl Room {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            output_bytes_max: limits.output_bytes_max.unwrap_or(u64::MAX),
            free_bytes_min: limits.disk_free_bytes_min,
            unlooked_bytes: 0,
            looked_at: None,
            low: None,
            was_low: false,
        }
    }

    /// What may be kept now.
    pub(super) fn ceiling(
        &mut self,
        folder: &FolderOfTask,
        kept: u64,
        more: u64,
        now: Duration,
    ) -> u64 {
        self.unlooked_bytes += more;
        let is_due = self.looked_at.is_none_or(|at| now.saturating_sub(at) >= LOOK_EVERY);
        if is_due || self.unlooked_bytes >= LOOK_BYTES {
            (self.unlooked_bytes, self.looked_at) = (0, Some(now));
            let is_low = self.is_low(folder, more);
            self.low = is_low.then(|| self.low.unwrap_or_else(|| kept.max(LOW_DISK_BYTES)));
        }
        self.low.map_or(self.output_bytes_max, |low| low.min(self.output_bytes_max))
    }

    fn is_low(&self, folder: &FolderOfTask, more: u64) -> bool {
        let Some((free, all)) = disk_space(folder) else { return false };
        let kept_free = self.free_bytes_min.unwrap_or(FREE_BYTES_MIN.min(all / FREE_PART));
        free < kept_free.saturating_add(more)
    }

    /// Something was dropped to stay below the ceiling.
    pub(super) fn trimmed(&mut self) {
        self.was_low |= self.low.is_some_and(|low| low < self.output_bytes_max);
    }
}
