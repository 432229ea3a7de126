//! Which engine a warden was forked for, and whether that engine lives.
//!
//! An engine knows more of its commands than anybody else: it may have heard of an end that it has not committed yet
//! when the warden dies. So whoever finds a dead warden leaves it to the engine, for as long as that lives. A warden's
//! name begins with its engine's mark; the engine holds a lock on the file of that name, which the kernel lets go when
//! the engine ends, however that comes.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::{id, state::make_private};

/// What stands between an engine's mark and the rest of a warden's name.
const SEPARATOR: char = '-';

/// Characters of a mark.
const MARK_CHARS: usize = 13;

/// An engine's mark and its lock; dropping it is the engine's end.
#[derive(Debug)]
pub(super) struct Owner {
    mark: String,
    path: PathBuf,
    _lock: File,
}

impl Owner {
    /// Takes a new mark in the folder of the engines, which is made.
    pub(super) fn new(engines: &Path) -> io::Result<Self> {
        make_private(engines)?;
        let mut mark = id::random("").map_err(io::Error::other)?;
        mark.truncate(MARK_CHARS);
        let path = engines.join(&mark);
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self { mark, path, _lock: lock })
    }

    /// A name for a new warden.
    pub(super) fn name(&self) -> io::Result<String> {
        let rest = id::random("").map_err(io::Error::other)?;
        Ok(format!("{}{SEPARATOR}{rest}", self.mark))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the engine lives that this warden was forked for.
pub(super) fn is_owned(engines: &Path, warden: &str) -> bool {
    warden.split_once(SEPARATOR).is_some_and(|(mark, _)| is_locked(&engines.join(mark)))
}

fn is_locked(file: &Path) -> bool {
    let file = File::open(file);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Whether a file in the folder of the engines is of one that has ended.
pub(super) fn is_left_behind(file: &Path) -> bool {
    !is_locked(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warden_is_owned_for_as_long_as_its_engine_lives() {
        let scratch = tempfile::tempdir().unwrap();
        let owner = Owner::new(scratch.path()).unwrap();
        let (warden, other) = (owner.name().unwrap(), owner.name().unwrap());
        assert_ne!(warden, other);
        assert!(is_owned(scratch.path(), &warden) && is_owned(scratch.path(), &other));
        assert!(!is_owned(scratch.path(), "ofnobody-x") && !is_owned(scratch.path(), "old"));
        let file = owner.path.clone();
        assert!(!is_left_behind(&file));
        // As after a kill: the file is there, the lock is not.
        let kept = scratch.path().join("kept");
        std::fs::copy(&file, &kept).unwrap();
        assert!(is_left_behind(&kept));
        drop(owner);
        assert!(!is_owned(scratch.path(), &warden) && !file.exists());
    }
}
