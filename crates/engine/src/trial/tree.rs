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
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags, chmod,
        fstat, open, openat, openat2, renameat, statat, statx, unlinkat,
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

/// Removes a folder of ours with all that is in it, whatever its modes are. Links are removed, not
/// followed.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

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
