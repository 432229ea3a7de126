//! Changes of files, where the system does not tell of them in a way that is used here: whoever
//! wants to know looks now and then.

use std::{io, ops::BitOr, path::Path};

/// Files and folders under watch: there are none.
#[derive(Debug)]
pub(crate) enum Inotify {}

/// A change.
#[derive(Debug)]
pub(crate) struct FileChange<'a> {
    /// Which watch it is of.
    pub watch: Option<i32>,
    pub flags: ReadFlags,
    /// Which file in a folder, if it is one.
    pub name: Option<&'a str>,
}

/// What is watched for, and what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchFlags(u32);

/// What was seen.
pub(crate) type ReadFlags = WatchFlags;

impl WatchFlags {
    pub(crate) const ATTRIB: Self = Self(1);
    pub(crate) const CLOSE_WRITE: Self = Self(1 << 1);
    pub(crate) const CREATE: Self = Self(1 << 2);
    pub(crate) const DELETE: Self = Self(1 << 3);
    pub(crate) const IGNORED: Self = Self(1 << 4);
    pub(crate) const MODIFY: Self = Self(1 << 5);
    pub(crate) const MOVED_TO: Self = Self(1 << 6);
    pub(crate) const ONESHOT: Self = Self(1 << 7);
    pub(crate) const ONLYDIR: Self = Self(1 << 8);
    pub(crate) const MOVED_FROM: Self = Self(1 << 9);

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for WatchFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl Inotify {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn add(&self, _path: &Path, _wanted: WatchFlags) -> io::Result<i32> {
        match *self {}
    }

    pub(crate) fn remove(&self, _watch: i32) {
        match *self {}
    }

    pub(crate) fn has_changes(&self) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn changed(&self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn read(&self, _each: impl FnMut(FileChange<'_>)) -> io::Result<()> {
        match *self {}
    }
}
