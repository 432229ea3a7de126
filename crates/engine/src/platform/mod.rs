//! What differs between operating systems: files, locks, signals, clocks, under the same names.
//!
//! The names are those of Unix where there are any, so that the code that is read most reads as it
//! would without this. It calls nothing else of the library.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
#[cfg(any(windows, test))]
mod windows_paths;

#[cfg(unix)]
pub(crate) use self::unix::*;
#[cfg(windows)]
pub(crate) use self::windows::*;

/// A file as it is found: which one it is, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileLook {
    /// Its disk, and its number there.
    pub id: (u64, u64),
    pub bytes: u64,
}

/// A file as it is found at some time: anything that is written to it, or put in its place, changes
/// that, except within one tick of its file system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    id: (u64, u64),
    bytes: u64,
    /// When its content was changed; nanoseconds since 1970.
    modified: i128,
    /// When anything of it was, as the file system itself says.
    changed: i128,
}

impl FileStamp {
    /// Whether it was changed less than this long ago, or later than now.
    pub(crate) fn is_younger_than(&self, age: Duration) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(age).as_nanos();
        self.changed > i128::try_from(since).unwrap_or(i128::MAX)
    }
}
