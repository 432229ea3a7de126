//! Presence files: a process holds a lock on its file for as long as it lives, so others can tell
//! that it does.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::platform::{NO_WAIT, OpenOptionsExt, look_at, look_of};

/// How often a file is opened that somebody else removes meanwhile.
const OPENS_MAX: u32 = 10;

/// A file that is locked by us; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    _lock: File,
}

impl Presence {
    /// Locks the file of this name; none if somebody else has.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..OPENS_MAX {
            // Open for writing, because the end of a writer is what the kernel tells of.
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_WAIT);
            let lock = options.open(path)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Whoever had it before may have removed it while we waited.
            if is_at(path, &lock)? {
                // It is not as old as the one who had it before.
                let _ = lock.set_modified(SystemTime::now());
                return Ok(Some(Self { path: path.to_owned(), _lock: lock }));
            }
        }
        Err(io::Error::other("a lock is removed again and again"))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let opened = look_of(file)?;
    Ok(look_at(path).is_ok_and(|named| named.id == opened.id))
}

/// Whether somebody has locked this file.
pub(crate) fn is_here(path: &Path) -> bool {
    // A pipe in its place must not be waited for.
    let file = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_is_here_until_it_leaves_or_dies() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("one");
        let one = Presence::take(&path).unwrap().unwrap();
        assert!(is_here(&path) && Presence::take(&path).unwrap().is_none());
        assert!(!is_here(&scratch.path().join("nobody")));
        // As after a kill: the file is there, the lock is not.
        let kept = scratch.path().join("kept");
        fs::copy(&path, &kept).unwrap();
        assert!(!is_here(&kept));
        let heir = Presence::take(&kept).unwrap().unwrap();
        assert!(is_here(&kept));
        drop((one, heir));
        assert!(!path.exists() && !kept.exists());
    }

    #[test]
    fn a_lock_on_a_file_that_was_removed_is_no_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("one");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        // Each of them removes it while the others may have it open.
                        if let Some(_one) = Presence::take(&path).unwrap() {
                            assert!(is_here(&path), "another file stands there");
                        }
                    }
                });
            }
        });
    }
}
