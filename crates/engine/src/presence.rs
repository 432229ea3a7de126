//! Presence files: a process holds a lock on its file for as long as it lives, so others can tell
//! that it does.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::platform::{NO_WAIT, OpenOptionsExt, look_at, look_of, rename_new};

/// How often a file is opened that somebody else removes meanwhile.
const OPENS_MAX: u32 = 10;

/// The kernel tells that a file is closed just before it lets go of the lock: this long after that
/// it is looked again whether it has.
pub(crate) const RELEASE_MS: [u64; 6] = [0, 1, 4, 16, 64, 256];

/// The name under which the file of one who has left waits for the next. A new file is what takes
/// long where many come and go: file systems look at all that were removed a short time ago.
pub(crate) const SPARE: &str = ".spare";

/// A file that is locked by us; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    _lock: File,
    /// Whether it is left for the next instead.
    is_left: bool,
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
                return Ok(Some(Self::held(path, lock)));
            }
        }
        Err(io::Error::other("a lock is removed again and again"))
    }

    /// The same under a name that nobody else has ever had, with the file of one who has left where
    /// there is one.
    pub(crate) fn take_new(path: &Path) -> io::Result<Option<Self>> {
        let presence = match Self::take_spare(path) {
            Some(presence) => Some(presence),
            None => Self::take(path)?,
        };
        Ok(presence.map(|mut presence| {
            presence.is_left = true;
            presence
        }))
    }

    fn take_spare(path: &Path) -> Option<Self> {
        let spare = path.with_file_name(SPARE);
        let lock = OpenOptions::new().write(true).custom_flags(NO_WAIT).open(&spare).ok()?;
        // Only who has locked it renames it, and nobody puts another one in its place.
        lock.try_lock().ok()?;
        let is_renamed = is_at(&spare, &lock).ok()? && fs::rename(&spare, path).is_ok();
        is_renamed.then(|| Self::held(path, lock))
    }

    fn held(path: &Path, lock: File) -> Self {
        // It is not as old as the one who had it before.
        let _ = lock.set_modified(SystemTime::now());
        Self { path: path.to_owned(), _lock: lock, is_left: false }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // There is one already, or this system or its disk knows no such name.
        if !self.is_left || rename_new(&self.path, &self.path.with_file_name(SPARE)).is_err() {
            let _ = fs::remove_file(&self.path);
        }
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
    fn the_file_of_one_who_has_left_is_that_of_the_next() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name| scratch.path().join(name);
        let [one, two] =
            ["one", "two"].map(|name| Presence::take_new(&path(name)).unwrap().unwrap());
        let id = look_at(&path("one")).unwrap().id;
        drop((one, two));
        assert!(!path("one").exists() && !path("two").exists() && !is_here(&path(SPARE)));
        let three = Presence::take_new(&path("three")).unwrap().unwrap();
        assert_eq!(look_at(&path("three")).unwrap().id, id, "a new file was made");
        assert!(is_here(&path("three")) && !path(SPARE).exists());
        let four = Presence::take_new(&path("four")).unwrap().unwrap();
        assert!(is_here(&path("three")) && is_here(&path("four")));
        drop((three, four));
        // Whoever is killed leaves its name behind.
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_many_who_come_and_go_each_has_a_file_of_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let scratch = &scratch;
                scope.spawn(move || {
                    for round in 0..300 {
                        let path = scratch.path().join(format!("{thread}-{round}"));
                        let here = Presence::take_new(&path).unwrap().unwrap();
                        assert!(is_here(&path), "somebody else's file stands there");
                        assert!(Presence::take(&path).unwrap().is_none());
                        drop(here);
                        assert!(!path.exists());
                    }
                });
            }
        });
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
