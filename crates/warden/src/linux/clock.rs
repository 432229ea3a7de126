//! Time since the machine was started, its sleep included.

use std::time::Duration;

pub(crate) fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into plain data on this stack. A kernel without the clock (before 2.6.39)
    // leaves it at zero.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(now.tv_sec.unsigned_abs(), nanoseconds)
}
