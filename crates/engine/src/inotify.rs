//! Waits for changes of files with inotify.

use std::{ffi::CStr, io, path::Path};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags},
};
use tokio::net::unix::pipe::Receiver;

pub(crate) use rustix::fs::inotify::{ReadFlags, WatchFlags};

/// Bytes of changes that are read at a time: a change with a name of any length fits many times.
const READ_BYTES: usize = 4096;

/// Bytes of a change before its name: the watch, the flags, a number that is not used here, the
/// name's length.
const HEAD_BYTES: usize = 16;

/// Files and folders under watch.
#[derive(Debug)]
pub(crate) struct Inotify {
    /// It is no pipe, but it is read like one.
    descriptor: Receiver,
}

/// A change.
#[derive(Debug)]
pub(crate) struct FileChange<'a> {
    /// Which watch it is of; none if changes were too many to be told, and everything may have
    /// changed.
    pub watch: Option<i32>,
    pub flags: ReadFlags,
    /// Which file in a folder, if it is one.
    pub name: Option<&'a str>,
}

impl Inotify {
    pub(crate) fn new() -> io::Result<Self> {
        // A test can pretend that the system has no more of them.
        #[cfg(debug_assertions)]
        if std::env::var_os("LEGWORK_NO_INOTIFY").is_some() {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { descriptor: Receiver::from_owned_fd_unchecked(descriptor)? })
    }

    /// Watches a file or a folder; returns the number of the watch.
    pub(crate) fn add(&self, path: &Path, wanted: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(&self.descriptor, path, wanted)?)
    }

    /// Ends a watch; nothing if it is over already.
    pub(crate) fn remove(&self, watch: i32) {
        let _ = inotify::remove_watch(&self.descriptor, watch);
    }

    /// Whether something has changed by now.
    pub(crate) fn has_changes(&self) -> bool {
        let mut asked = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until something has changed. Safe to cancel: what has changed stays to be read.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        self.descriptor.readable().await
    }

    /// Reads what has changed.
    pub(crate) fn read(&self, mut each: impl FnMut(FileChange<'_>)) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        loop {
            let read = match self.descriptor.try_read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut rest = buffer.get(..read).unwrap_or_default();
            while let Some((change, more)) = first(rest) {
                each(change);
                rest = more;
            }
        }
    }
}

/// The first of some changes, as the kernel writes them, and the others.
fn first(bytes: &[u8]) -> Option<(FileChange<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [watch, flags, _, length] = head.as_chunks().0 else { return None };
    let (name, rest) = rest.split_at_checked(u32::from_ne_bytes(*length).try_into().ok()?)?;
    let flags = ReadFlags::from_bits_retain(u32::from_ne_bytes(*flags));
    let overflow = flags.contains(ReadFlags::QUEUE_OVERFLOW);
    let change = FileChange {
        watch: (!overflow).then(|| i32::from_ne_bytes(*watch)),
        flags,
        name: CStr::from_bytes_until_nul(name).ok().and_then(|name| name.to_str().ok()),
    };
    Some((change, rest))
}
