//! Copies of what a trial made, prepared beside the files that they will replace: with mode, owner,
//! attributes, times, holes, links and hard links.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
        chownat, copy_file_range, fchmod, fchown, fsetxattr, ftruncate, futimens, linkat, mkdirat,
        mknodat, openat, renameat_with, seek, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use super::{
    changes::open_own,
    tree::{TreeTop, attributes, names, stat_in},
};

/// A folder in which copies are made, and where the old is kept until all is done.
#[derive(Debug)]
pub(super) struct StagingFolder {
    handle: OwnedFd,
    /// Files of the layer with several names, and the path of the copy of each.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl StagingFolder {
    /// Makes the folder at the top of a place. It must not be there.
    pub(super) fn make(top: &TreeTop, name: &str) -> io::Result<Self> {
        mkdirat(top.handle(), name, Mode::RWXU)?;
        Self::open(top, name)
    }

    pub(super) fn open(top: &TreeTop, name: &str) -> io::Result<Self> {
        Ok(Self { handle: top.folder(Path::new(name))?, linked: HashMap::new() })
    }

    pub(super) fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Whether two names can be exchanged here, which everything else rests on.
    pub(super) fn check(&self) -> io::Result<()> {
        let names = ["one", "two"];
        for name in names {
            mkdirat(&self.handle, name, Mode::RWXU)?;
        }
        let [one, two] = names;
        renameat_with(&self.handle, one, &self.handle, two, RenameFlags::EXCHANGE)?;
        for name in names {
            unlinkat(&self.handle, name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    /// Copies something of a layer, with all that is in it; returns the number of the copy.
    pub(super) fn copy(&mut self, from: &Path, name: &str) -> io::Result<u64> {
        let top = self.handle.try_clone()?;
        self.copy_into(from, &top, OsStr::new(name), Path::new(name))?;
        Ok(stat_in(self.handle.as_fd(), OsStr::new(name))?.st_ino)
    }

    /// Copies something into a folder, where it is at this path below the staging folder. Never
    /// more is open than the way down to it.
    fn copy_into(
        &mut self,
        from: &Path,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<()> {
        let found = fs::symlink_metadata(from)?;
        if !found.is_dir() {
            return self.copy_file(from, &found, folder, name, path);
        }
        mkdirat(folder, name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = openat(folder, name, flags, Mode::empty())?;
        for entry in fs::read_dir(from)? {
            let (from, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            self.copy_into(&from, &inner, &name, &path.join(&name))?;
        }
        // It gets its mode and times when everything is in it.
        dress(&inner, &File::open(from)?, &found)
    }

    /// An empty folder with the mode of one of the layer.
    pub(super) fn copy_folder(&self, from: &Path, name: &str) -> io::Result<u64> {
        mkdirat(&self.handle, name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.handle, name, flags, Mode::empty())?;
        dress(&made, &File::open(from)?, &fs::symlink_metadata(from)?)?;
        Ok(stat_in(self.handle.as_fd(), OsStr::new(name))?.st_ino)
    }

    fn copy_file(
        &mut self,
        from: &Path,
        found: &Metadata,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<()> {
        let kind = found.file_type();
        let number = (found.dev(), found.ino());
        if found.nlink() > 1
            && let Some(first) = self.linked.get(&number)
        {
            return Ok(linkat(&self.handle, first, folder, name, AtFlags::empty())?);
        }
        if kind.is_symlink() {
            symlinkat(fs::read_link(from)?, folder, name)?;
            let (owner, times) = (owner(found), times(found));
            let itself = AtFlags::SYMLINK_NOFOLLOW;
            let _ = chownat(folder, name, Some(owner.0), Some(owner.1), itself);
            utimensat(folder, name, &times, itself)?;
        } else if kind.is_file() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let made = openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            let own = open_own(from)?;
            copy_bytes(&own, &made, found.len())?;
            dress(&made, &own, found)?;
        } else if kind.is_fifo() {
            let mode = Mode::from_raw_mode(found.mode() & 0o7777);
            mknodat(folder, name, rustix::fs::FileType::Fifo, mode, 0)?;
        } else {
            // A socket without its program is nothing, and devices are not made in sandboxes.
            return Ok(());
        }
        if found.nlink() > 1 {
            self.linked.insert(number, path.to_owned());
        }
        Ok(())
    }
}

/// Gives a copy what else the original has.
fn dress(made: &OwnedFd, own: &File, found: &Metadata) -> io::Result<()> {
    let (user, group) = owner(found);
    // Another's file can only be made by root; the group may be one that we are not in.
    if fchown(made, Some(user), Some(group)).is_err() {
        let _ = fchown(made, None, Some(group));
    }
    for (name, value) in attributes(own.as_fd()) {
        match fsetxattr(made, &name, &value, XattrFlags::empty()) {
            // The file system of the workspace may know no such attributes.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    fchmod(made, Mode::from_raw_mode(found.mode() & 0o7777))?;
    Ok(futimens(made, &times(found))?)
}

fn owner(found: &Metadata) -> (Uid, Gid) {
    (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()))
}

fn times(found: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds: i64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    }
}

/// Copies what is in a file, and leaves out its holes.
fn copy_bytes(from: &File, to: &OwnedFd, length: u64) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let begin = match seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = seek(from, SeekFrom::Hole(begin)).unwrap_or(length).min(length);
        copy_range(from, to, begin, end)?;
        at = end;
    }
    Ok(ftruncate(to, length)?)
}

fn copy_range(from: &File, to: &OwnedFd, begin: u64, end: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (begin, begin);
    while read_at < end {
        let length = usize::try_from(end - read_at).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                return copy_by_hand(from, to, read_at, end);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Where the kernel copies nothing between two file systems.
fn copy_by_hand(from: &File, to: &OwnedFd, begin: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let to = File::from(to.try_clone()?);
    let mut buffer = vec![0; 256 * 1024];
    let mut at = begin;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = from.read_at(buffer.get_mut(..wanted).unwrap_or_default(), at)?;
        if read == 0 {
            break;
        }
        to.write_all_at(buffer.get(..read).unwrap_or_default(), at)?;
        at += read as u64;
    }
    Ok(())
}

/// Removes a staging folder with all that is in it, from below: links are not followed.
pub(super) fn remove_staging(top: &TreeTop, name: &str) -> io::Result<()> {
    remove_in(top.handle().as_fd(), OsStr::new(name))
}

/// Never more is open than the way down.
fn remove_in(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match openat(parent, name, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            openat(parent, name, flags, Mode::empty())?
        }
        Err(errno) => return Err(errno.into()),
    };
    let _ = fchmod(&folder, Mode::RWXU);
    for inner in names(folder.as_fd())? {
        let stat = stat_in(folder.as_fd(), &inner)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            remove_in(folder.as_fd(), &inner)?;
        } else {
            unlinkat(&folder, &inner, AtFlags::empty())?;
        }
    }
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
