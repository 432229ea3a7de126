//! What differs between operating systems: files, locks, signals, clocks, under the same names.
//!
//! The names are those of Unix where there are any, so that the code that is read most reads as it
//! would without this. It calls nothing else of the library.

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
