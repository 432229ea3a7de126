//! Files of a workspace or of a layer, reached from its top without following any link. A layer may
//! have been left in any state.

use std::{
    ffi::{CStr, OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags, chmod, fstat,
        open, openat, openat2, statat, statx,
    },
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

    /// Whether it is what was seen, but for having been moved. Moving one name of a file touches
    /// all of them.
    pub(super) fn is_of(&self, stat: &Stat, moved: bool) -> bool {
        let found = Self::of(stat);
        *self == found || ((moved || stat.st_nlink > 1) && self.is_same_moved(&found))
    }

    /// Whether a file of a layer is the one that was looked at. To read one that is closed to its
    /// owner we open it for a moment, which changes when it was last touched.
    pub(super) fn is_same_source(&self, other: &Self) -> bool {
        let is_closed = self.mode & Mode::RUSR.as_raw_mode() == 0;
        self == other || (is_closed && self.is_same_moved(other))
    }

    /// Whether the content of both was last changed at the same time.
    pub(super) fn is_changed_with(&self, other: &Self) -> bool {
        self.changed == other.changed
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

    /// The top of a layer, which is opened to its owner if the command has closed it.
    pub(super) fn open_own(place: &Path) -> io::Result<Self> {
        match Self::open(place) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = open(place, flags, Mode::empty())?;
                chmod(number_of(&handle), Mode::RWXU)?;
                Self::open(place)
            }
            opened => opened,
        }
    }

    /// Opens a folder below it.
    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat2(&self.0, plain(path), flags, Mode::empty(), STRAIGHT)?)
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

    /// Holds what stands at a path below it, whatever that is: a link itself.
    pub(super) fn held(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(&self.0, plain(path), flags, Mode::empty(), STRAIGHT)?)
    }

    /// Gives the folder below it that has this number another mode, whatever it has. Whether it
    /// stands there.
    pub(super) fn set_mode(&self, path: &Path, number: u64, mode: Mode) -> io::Result<bool> {
        let folder = match self.held(path) {
            Err(error) if is_absent(&error) => return Ok(false),
            held => held?,
        };
        let stat = fstat(&folder)?;
        let is_it = is_folder(&stat) && stat.st_ino == number;
        if is_it {
            chmod(number_of(&folder), mode)?;
        }
        Ok(is_it)
    }

    /// The names in a folder below it.
    pub(super) fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        names(self.folder(path)?.as_fd())
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The number of the folder itself.
    pub(super) fn number(&self) -> io::Result<u64> {
        Ok(fstat(&self.0)?.st_ino)
    }

    /// Whether files can be moved between both: one file system, mounted once.
    pub(super) fn is_mounted_with(&self, other: &Self) -> io::Result<bool> {
        let mount = |top: &Self| statx(&top.0, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let (one, two) = (mount(self)?, mount(other)?);
        let is_told = one.stx_mask & two.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_mnt_id);
        Ok(is_told && device(&one) == device(&two))
    }
}

impl From<OwnedFd> for TreeTop {
    fn from(folder: OwnedFd) -> Self {
        Self(folder)
    }
}

/// A file or a folder of a layer that is open. What the command has closed to its owner is closed
/// again when this is let go.
#[derive(Debug)]
pub(super) struct OwnFile {
    file: fs::File,
    _closed: Vec<ClosedFile>,
}

impl OwnFile {
    pub(super) fn file(&mut self) -> &mut fs::File {
        &mut self.file
    }

    /// An attribute that the kernel has put there for the layer.
    pub(super) fn layer_attribute(&self, name: &str) -> Option<Vec<u8>> {
        let mut value = [0; 256];
        let length = rustix::fs::fgetxattr(&self.file, name, &mut value[..]).ok()?;
        value.get(..length).map(<[u8]>::to_vec)
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Something of a layer that was opened to its owner, with the mode that it has to have.
#[derive(Debug)]
struct ClosedFile(OwnedFd, Mode);

impl Drop for ClosedFile {
    fn drop(&mut self) {
        let _ = chmod(number_of(&self.0), self.1);
    }
}

/// A name for an open file by which its mode can be changed, whatever stands at its path by now.
pub(super) fn number_of(handle: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// The layer of a command: it is ours, whatever the modes in it are.
impl TreeTop {
    /// Opens a file or a folder of the layer, to be read.
    pub(super) fn own(&self, path: &Path) -> io::Result<OwnFile> {
        let closed = match self.file(plain(path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.open_up(path)?,
            opened => return Ok(OwnFile { file: opened?, _closed: Vec::new() }),
        };
        Ok(OwnFile { file: self.file(plain(path))?, _closed: closed })
    }

    /// What stands at a path of the layer; none if nothing does.
    pub(super) fn own_stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        match self.look(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let _closed = self.open_up(path.parent().unwrap_or(Path::new("")))?;
                self.look(path)
            }
            looked => looked,
        }
    }

    /// The names in a folder of the layer.
    pub(super) fn own_names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        names(self.own(path)?.as_fd())
    }

    /// Where a link of the layer leads.
    pub(super) fn own_link(&self, path: &Path) -> io::Result<OsString> {
        let read = || -> io::Result<OsString> {
            let (folder, name) = self.parent(path)?;
            let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
            Ok(OsString::from_vec(target.into_bytes()))
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let _closed = self.open_up(path.parent().unwrap_or(Path::new("")))?;
                read()
            }
            target => target,
        }
    }

    /// Opens everything on the way to a path to its owner, and the path itself. Each is held by a
    /// descriptor: nothing else gets another mode, whoever moves files around here.
    fn open_up(&self, path: &Path) -> io::Result<Vec<ClosedFile>> {
        let mut closed = Vec::new();
        let mut here = self.0.try_clone()?;
        for name in path.components() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            here = openat(&here, name.as_os_str(), flags, Mode::empty())?;
            let stat = fstat(&here)?;
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            let needed = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Mode::RWXU,
                FileType::RegularFile => Mode::RUSR,
                _ => Mode::empty(),
            };
            if !mode.contains(needed) {
                chmod(number_of(&here), mode | needed)?;
                closed.push(ClosedFile(here.try_clone()?, mode));
            }
        }
        Ok(closed)
    }
}

/// A path below a top, which has a name itself.
fn plain(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
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
    walk_known(top, path, |path, stat, unknown| match unknown {
        Some(error) => Err(error),
        None => each(path, stat),
    })
}

/// The same, and what is in a folder that cannot be read is left out: it comes with the error.
pub(super) fn walk_known(
    top: &TreeTop,
    path: &Path,
    mut each: impl FnMut(PathBuf, Stat, Option<io::Error>) -> io::Result<()>,
) -> io::Result<()> {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(stat) = top.look(&path)? else { continue };
        let mut unknown = None;
        if is_folder(&stat) {
            match top.names(&path) {
                Ok(names) => waiting.extend(names.into_iter().map(|name| path.join(name))),
                Err(error) if is_closed(&error) => unknown = Some(error),
                Err(error) => return Err(error),
            }
        }
        each(path, stat, unknown)?;
    }
    Ok(())
}

/// Whether an error says that something cannot be known: it is closed to us, or on another file
/// system.
pub(super) fn is_closed(error: &io::Error) -> bool {
    let closed = [Errno::ACCESS, Errno::PERM, Errno::XDEV];
    closed.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
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
