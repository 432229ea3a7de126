//! Whole trees of ours, removed and counted: of any depth, with few descriptors and a small stack,
//! whatever modes a command has left them with. No link is followed.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat},
    io::Errno,
};

use super::tree::{is_folder, names, number_of};

/// Removes a folder of ours with all that is in it, whatever its modes are. Links are removed, not
/// followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    remove_in(CWD, path.as_os_str())
}

/// How often a folder is read again in which something is left: others may remove it, too.
const ROUNDS_MAX: usize = 1000;

/// The same for something in an open folder. However deep it is, a few descriptors are enough: what
/// is in a folder that is not empty is moved up first.
pub(super) fn remove_in(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let mut moved = 0;
    for _ in 0..ROUNDS_MAX {
        let Some(top) = open_to_remove(parent, name)? else {
            match unlinkat(parent, name, AtFlags::empty()) {
                // A folder came to have this name in between.
                Err(Errno::ISDIR) => continue,
                removed => return gone(removed),
            }
        };
        let mut waiting = names(top.as_fd())?;
        while let Some(name) = waiting.pop() {
            if is_removed(top.as_fd(), &name)? {
                continue;
            }
            let Some(folder) = open_to_remove(top.as_fd(), &name)? else { continue };
            for inner in names(folder.as_fd())? {
                if !is_removed(folder.as_fd(), &inner)? {
                    waiting.extend(move_up(folder.as_fd(), &inner, top.as_fd(), &mut moved)?);
                }
            }
            // What is left in it is found in the next round.
            let _ = unlinkat(&top, &name, AtFlags::REMOVEDIR);
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) => {}
            removed => return gone(removed),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes a file or an empty folder; whether it is gone.
fn is_removed(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let removed = match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => unlinkat(parent, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        removed => gone(removed).map(|()| true),
    }
}

/// Opens a folder whose content is to be removed; none if it is something else, or gone.
fn open_to_remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let Some(found) = opened_up(parent, name)? else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(openat(&found, ".", flags, Mode::empty())?))
}

/// A folder that is opened to its owner for good: a command may have closed it, and so does the
/// kernel with its own.
fn opened_up(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(parent, name, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let stat = fstat(&found)?;
    if !is_folder(&stat) {
        return Ok(None);
    }
    if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
        chmod(number_of(&found), Mode::RWXU)?;
    }
    Ok(Some(found))
}

/// Moves a folder to the top of what is being removed; its name there, unless it is gone.
fn move_up(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<Option<OsString>> {
    // One that is closed to its owner cannot be moved.
    if opened_up(folder, name)?.is_none() {
        return Ok(None);
    }
    loop {
        *moved += 1;
        let there = OsString::from(format!(".going-{moved}"));
        match renameat(folder, name, top, &there) {
            Ok(()) => return Ok(Some(there)),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Somebody else may have removed it meanwhile.
fn gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What a folder of ours and all that is in it take on the disk. What is closed to its owner is
/// opened for as long as it is counted, and only one folder is open at a time, however deep it is.
pub(crate) fn bytes_of(path: &Path) -> u64 {
    let mut count = Counted::default();
    // What cannot be counted is left out.
    let _ = count.all(path);
    count.bytes
}

/// The way down to the folder that is being counted.
#[derive(Default)]
struct Counted {
    bytes: u64,
    above: Vec<CountedFolder>,
}

/// A folder on that way: which one it is, the names in it that are not counted yet, and the mode
/// that it gets back.
struct CountedFolder {
    number: (u64, u64),
    left: Vec<OsString>,
    closed: Option<Mode>,
}

impl Counted {
    fn all(&mut self, path: &Path) -> io::Result<()> {
        let mut here = self.enter(CWD, path.as_os_str())?;
        while let Some(folder) = here {
            let Some(name) = self.above.last_mut().and_then(|it| it.left.pop()) else {
                here = self.leave(&folder)?;
                continue;
            };
            let next = self.enter(folder.as_fd(), &name)?;
            here = Some(next.unwrap_or(folder));
        }
        Ok(())
    }

    /// Counts something, and opens it if it is a folder.
    fn enter(&mut self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(found) = openat(parent, name, flags, Mode::empty()) else { return Ok(None) };
        let stat = fstat(&found)?;
        self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if !is_folder(&stat) {
            return Ok(None);
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let needed = Mode::RUSR | Mode::XUSR;
        let closed = (!mode.contains(needed)).then_some(mode);
        if closed.is_some() && chmod(number_of(&found), mode | needed).is_err() {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&found, ".", flags, Mode::empty())?;
        let left = names(folder.as_fd())?;
        self.above.push(CountedFolder { number: (stat.st_dev, stat.st_ino), left, closed });
        Ok(Some(folder))
    }

    /// Goes back to the folder that one is in; none from the first one.
    fn leave(&mut self, folder: &OwnedFd) -> io::Result<Option<OwnedFd>> {
        let left = self.above.pop();
        let above = match self.above.last() {
            None => None,
            Some(expected) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let above = openat(folder, "..", flags, Mode::empty())?;
                let stat = fstat(&above)?;
                // Somebody has moved it: where we are now is not what is counted.
                if (stat.st_dev, stat.st_ino) != expected.number {
                    return Err(io::ErrorKind::NotFound.into());
                }
                Some(above)
            }
        };
        if let Some(mode) = left.and_then(|left| left.closed) {
            chmod(number_of(folder), mode)?;
        }
        Ok(above)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
    };

    use rustix::fs::open;

    use super::*;

    /// Folders in one another, each with a file; the mode of all.
    fn deep(scratch: &Path, levels: usize, mode: u32) -> PathBuf {
        let path = scratch.join("deep");
        fs::create_dir(&path).unwrap();
        let mut here = open(&path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&here, "dd", Mode::RWXU).unwrap();
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = openat(&here, "file", flags, Mode::RUSR).unwrap();
            rustix::io::write(&file, &[1; 5000]).unwrap();
            let inner =
                openat(&here, "dd", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            chmod(number_of(&here), Mode::from_raw_mode(mode)).unwrap();
            here = inner;
        }
        path
    }

    /// A few descriptors above those that are open now.
    fn with_few_descriptors(work: impl FnOnce()) {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..before }).unwrap();
        work();
        setrlimit(Resource::Nofile, before).unwrap();
    }

    #[test]
    fn a_tree_of_any_depth_is_counted_and_removed_with_few_descriptors_and_a_small_stack() {
        let scratch = tempfile::tempdir().unwrap();
        for mode in [0o700, 0o000] {
            let path = deep(scratch.path(), 5000, mode);
            with_few_descriptors(|| {
                let small = std::thread::Builder::new().stack_size(256 * 1024);
                let counted = small.spawn({
                    let path = path.clone();
                    move || {
                        let bytes = bytes_of(&path);
                        remove_tree(&path).map(|()| bytes)
                    }
                });
                let bytes = counted.unwrap().join().unwrap().unwrap();
                assert!(bytes >= 5000 * 5000, "{mode:o}: {bytes}");
            });
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_is_counted_keeps_its_modes_and_nothing_is_counted_or_removed_through_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (top, other) = (scratch.path().join("top"), scratch.path().join("other"));
        fs::create_dir_all(top.join("closed/inner")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("large"), vec![1; 1 << 20]).unwrap();
        fs::write(top.join("closed/inner/file"), vec![1; 64 << 10]).unwrap();
        symlink(&other, top.join("closed/link")).unwrap();
        symlink(&other, top.join(".going-1")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o100)).unwrap();
        let bytes = bytes_of(&top);
        assert!((64 << 10..1 << 20).contains(&bytes), "{bytes}");
        assert_eq!(mode(&top.join("closed")), 0o100);
        remove_tree(&top).unwrap();
        assert!(!top.exists() && other.join("large").exists());
    }
}
