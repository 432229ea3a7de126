//! Clocks: the wall clock, for times that people read, and the kernel's monotonic clocks, for
//! measuring.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since the machine was started, without those in which it slept.
pub(crate) fn awake_ms() -> u64 {
    kernel_ms(ClockId::Monotonic)
}

/// Milliseconds since the machine was started.
pub(crate) fn since_boot_ms() -> u64 {
    kernel_ms(ClockId::Boottime)
}

fn kernel_ms(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}
