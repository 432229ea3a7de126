//! Publishes when a command without an engine will be stopped.
//!
//! The time is that of the adoption socket's file, so that a list of tasks can tell it without a
//! word: whoever spoke with the warden would count as somebody who looks after the command.

use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use super::WardenProcess;

impl WardenProcess<'_> {
    /// Notes since when there is no engine.
    pub(super) fn note_alone(&mut self, since: Option<Instant>) {
        self.alone_since = since;
        let left = self.run.as_ref().filter(|_| since.is_some()).map(|run| run.orphan_ttl);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let until = left.map_or(now, |left| wall_time(SystemTime::now() + left));
        let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: unchanged, last_modification: until };
        let name = format!("{}.sock", self.name);
        // It is only told: nothing follows from it.
        let _ = utimensat(&self.setup.wardens, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

fn wall_time(time: SystemTime) -> Timespec {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
}
