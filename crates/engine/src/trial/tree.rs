//! Files of a workspace, reached from its top without following any link, and the folders of
//! trials, which may have been left in any state.

use std::{
    ffi::{CStr, OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, open, openat2, statat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::record::FileTime;

/// The top of a layer's place.
#[derive(Debug)]
pub(super) struct TreeTop(OwnedFd);

/// What a file was like: another one, or the same after a change, is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileMark {
    /// Kind and mode.
    pub mode: u32,
    pub number: u64,
    /// Of a folder these say nothing: what is in it is looked at by itself.
    size: i64,
    changed: FileTime,
    pub touched: FileTime,
}

impl FileMark {
    pub(super) fn of(stat: &Stat) -> Self {
        let is_folder = is_folder(stat);
        let time = |seconds: i64, nanoseconds| {
            if is_folder { FileTime(0, 0) } else { moment(seconds, nanoseconds) }
        };
        Self {
            mode: stat.st_mode,
            number: stat.st_ino,
            size: if is_folder { 0 } else { stat.st_size },
            changed: time(stat.st_mtime, stat.st_mtime_nsec),
            touched: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether it is the same, but for having been moved.
    pub(super) fn is_same_moved(&self, other: &Self) -> bool {
        Self { touched: other.touched, ..*self } == *other
    }

    /// Whether its content was last changed then.
    pub(super) fn is_changed_at(&self, seconds: i64, nanoseconds: i64) -> bool {
        self.changed == FileTime(seconds, nanoseconds)
    }

    pub(super) fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_dir()
    }
}

fn moment(seconds: i64, nanoseconds: impl TryInto<i64>) -> FileTime {
    FileTime(seconds, nanoseconds.try_into().unwrap_or(0))
}

/// When something about it was last changed.
pub(super) fn touched(stat: &Stat) -> FileTime {
    moment(stat.st_ctime, stat.st_ctime_nsec)
}

pub(super) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// Neither links nor other mounts are on the way, and it leads nowhere else.
const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

impl TreeTop {
    pub(super) fn open(place: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(open(place, flags, Mode::empty())?))
    }

    /// Opens a folder below it.
    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat2(&self.0, path, flags, Mode::empty(), STRAIGHT)?)
    }

    /// Opens a file below it, to be read.
    pub(super) fn file(&self, path: &Path) -> io::Result<fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(fs::File::from(openat2(&self.0, path, flags, Mode::empty(), STRAIGHT)?))
    }

    /// The folder that something is in, and its name there.
    pub(super) fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.folder(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// What stands at a path; none if nothing does, or if a link or a file is on the way.
    pub(super) fn look(&self, path: &Path) -> io::Result<Option<Stat>> {
        let found = self.parent(path).and_then(|(folder, name)| stat_in(folder.as_fd(), name));
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names in a folder below it.
    pub(super) fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        names(self.folder(path)?.as_fd())
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether an error says that nothing is there.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let absent = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    absent.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(super) fn stat_in(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Stat> {
    Ok(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The names in an open folder.
pub(super) fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            all.push(OsString::from_vec(name.to_bytes().to_vec()));
        }
    }
    Ok(all)
}

/// Everything in a folder below a top, itself first; what is in a folder comes after it.
pub(super) fn walk(
    top: &TreeTop,
    path: &Path,
    mut each: impl FnMut(PathBuf, Stat) -> io::Result<()>,
) -> io::Result<()> {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(stat) = top.look(&path)? else { continue };
        if is_folder(&stat) {
            waiting.extend(top.names(&path)?.into_iter().map(|name| path.join(name)));
        }
        each(path, stat)?;
    }
    Ok(())
}

/// Removes a folder of ours with all that is in it, whatever its modes are. Links are removed, not
/// followed.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.is_dir() {
        return fs::remove_file(path);
    }
    // A command may have closed a folder to its owner, and so does the kernel with its own.
    let mut waiting = vec![path.to_owned()];
    while let Some(folder) = waiting.pop() {
        let mode = fs::symlink_metadata(&folder)?.permissions().mode();
        if mode & 0o700 != 0o700 {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(path)
}

/// What a folder and all that is in it take on the disk.
pub(crate) fn bytes_of(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        bytes += found.blocks() * 512;
        if found.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok);
            waiting.extend(entries.map(|entry| entry.path()));
        }
    }
    bytes
}

/// The extended attributes of a file that people set, by name; those of the layer are left out.
pub(super) fn attributes(file: BorrowedFd<'_>) -> Vec<(OsString, Vec<u8>)> {
    let mut names = vec![0; 64 * 1024];
    let Ok(length) = rustix::fs::flistxattr(file, &mut names[..]) else { return Vec::new() };
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let wanted = |name: &&[u8]| {
        (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
            || name.starts_with(b"system.posix_acl_")
            || *name == b"security.capability"
    };
    let mut found = Vec::new();
    for name in names.filter(wanted) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; 64 * 1024];
        if let Ok(length) = rustix::fs::fgetxattr(file, name, &mut value[..]) {
            value.truncate(length);
            found.push((name.to_owned(), value));
        }
    }
    found.sort();
    found
}

/// An attribute that the layer has on a file; links have none.
pub(super) fn layer_attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.get(..length).map(<[u8]>::to_vec)
}
