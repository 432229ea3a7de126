//! Clocks: the wall clock, for times that people read, and the kernel's monotonic clocks, for
//! measuring.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use crate::platform::{awake_ms, since_boot_ms};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
