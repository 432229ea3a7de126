//! Copies of what a trial made, prepared where no command reaches them if that is possible: with
//! mode, owner, attributes, times, holes, links and hard links.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec,
        Timestamps, Uid, XattrFlags, chmod, chownat, copy_file_range, fchmod, fchown, fsetxattr,
        fstat, ftruncate, futimens, linkat, mkdirat, mknodat, openat, readlinkat, renameat_with,
        seek, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use super::{
    error::TrialError,
    sweep::remove_in,
    tree::{FileMark, TreeTop, attributes, is_folder, names, number_of, stat_in},
};

/// Says what was seen at a path; none if nothing was.
pub(super) type SeenMark<'a> = &'a dyn Fn(&Path) -> Option<FileMark>;

/// The layer that copies are made of.
pub(super) struct CopySource<'a> {
    pub top: &'a TreeTop,
    /// Where it is laid over.
    pub place: &'a Path,
    /// What was seen in the layer when the trial was looked at.
    pub seen: SeenMark<'a>,
}

impl CopySource<'_> {
    /// What stands at a path. It has to be what was seen: nothing else was shown to anybody.
    fn found(&self, path: &Path) -> Result<Stat, TrialError> {
        let full = self.place.join(path);
        let found = self.top.own_stat(path).map_err(TrialError::at(&full))?;
        let is_seen = |found: &Stat| {
            (self.seen)(&full).is_some_and(|it| it.is_same_source(&FileMark::of(found)))
        };
        found.filter(is_seen).ok_or(TrialError::ChangedInTrial(full))
    }
}

/// A folder in which copies are made, and where the old is kept until all is done. Somebody may be
/// at it meanwhile: whatever is used again is held by a descriptor, and compared.
#[derive(Debug)]
pub(super) struct StagingFolder {
    top: TreeTop,
    /// Files of the layer with several names, and the copy of each.
    linked: HashMap<(u64, u64), LinkedCopy>,
    made: MadeCopies,
}

/// A copy that gets several names.
#[derive(Debug, Clone)]
struct LinkedCopy {
    path: PathBuf,
    number: u64,
}

/// Copies by where they belong, and what each of them is like.
#[derive(Debug, Default)]
struct MadeCopies {
    numbers: BTreeMap<PathBuf, u64>,
    marks: HashMap<u64, FileMark>,
}

impl MadeCopies {
    fn note(&mut self, at: PathBuf, made: &Stat) {
        self.numbers.insert(at, made.st_ino);
        self.marks.insert(made.st_ino, FileMark::of(made));
    }
}

impl StagingFolder {
    /// Makes the folder: in the state folder, or in a place. It must not be there.
    pub(super) fn make(place: &TreeTop, path: &Path) -> io::Result<Self> {
        mkdirat(place.handle(), path, Mode::RWXU)?;
        let top = Self::found(place, path)?;
        Ok(Self { top, linked: HashMap::new(), made: MadeCopies::default() })
    }

    /// One that was made before.
    pub(super) fn found(place: &TreeTop, path: &Path) -> io::Result<TreeTop> {
        if path.is_absolute() { TreeTop::open(path) } else { place.folder(path).map(TreeTop::from) }
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.top.handle()
    }

    /// The folder itself.
    pub(super) fn folder(&self) -> io::Result<TreeTop> {
        Ok(TreeTop::from(self.handle().try_clone_to_owned()?))
    }

    /// What was made in it, by where that belongs.
    pub(super) fn into_made(self) -> BTreeMap<PathBuf, FileMark> {
        let MadeCopies { numbers, marks } = self.made;
        let mark = |(path, number)| Some((path, *marks.get(&number)?));
        numbers.into_iter().filter_map(mark).collect()
    }

    /// Whether two names can be exchanged here, which everything else rests on.
    pub(super) fn check(&self) -> io::Result<()> {
        let names = ["one", "two"];
        for name in names {
            mkdirat(self.handle(), name, Mode::RWXU)?;
        }
        let [one, two] = names;
        renameat_with(self.handle(), one, self.handle(), two, RenameFlags::EXCHANGE)?;
        for name in names {
            unlinkat(self.handle(), name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    /// Copies something of a layer, with all that is in it; returns the number of the copy.
    pub(super) fn copy(
        &mut self,
        from: &CopySource<'_>,
        path: &Path,
        name: &str,
    ) -> Result<u64, TrialError> {
        let at = from.place.join(path);
        let top = self.top.handle().try_clone_to_owned().map_err(TrialError::at(&at))?;
        self.copy_into(from, path, &top, Path::new(name))?;
        self.open_up(&at, name).map_err(TrialError::at(&at))
    }

    /// A folder that is closed to its owner cannot be moved: it is closed when it is in its place.
    /// Returns the number of the copy.
    fn open_up(&mut self, at: &Path, name: &str) -> io::Result<u64> {
        let number = self.made.numbers.get(at).copied();
        let copy = self.top.held(Path::new(name))?;
        let stat = fstat(&copy)?;
        if number != Some(stat.st_ino) {
            return Err(swapped());
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        if is_folder(&stat) && !mode.contains(Mode::WUSR | Mode::XUSR) {
            chmod(number_of(&copy), mode | Mode::RWXU)?;
            self.made.note(at.to_owned(), &fstat(&copy)?);
        }
        Ok(stat.st_ino)
    }

    /// Copies something into a folder, where it is at this path below the staging folder. Never
    /// more is open than the way down to it.
    fn copy_into(
        &mut self,
        from: &CopySource<'_>,
        path: &Path,
        folder: &OwnedFd,
        staged: &Path,
    ) -> Result<(), TrialError> {
        let at = from.place.join(path);
        let found = from.found(path)?;
        let failed = TrialError::at(&at);
        if !is_folder(&found) {
            self.copy_file(from, path, &found, folder, staged).map_err(&failed)?;
            // It was read in pieces.
            return from.found(path).map(drop);
        }
        let inner = make_folder(folder, staged).map_err(&failed)?;
        for name in from.top.own_names(path).map_err(&failed)? {
            self.copy_into(from, &path.join(&name), &inner, &staged.join(&name))?;
        }
        // It gets its mode and times when everything is in it.
        let dressed = || -> io::Result<Stat> {
            dress(&inner, from.top.own(path)?.as_fd(), &found)?;
            Ok(fstat(&inner)?)
        };
        let made = dressed().map_err(&failed)?;
        self.made.note(at.clone(), &made);
        Ok(())
    }

    /// An empty folder with the mode of one of the layer.
    pub(super) fn copy_folder(
        &mut self,
        from: &CopySource<'_>,
        path: &Path,
        name: &str,
    ) -> Result<u64, TrialError> {
        let (found, at) = (from.found(path)?, from.place.join(path));
        let mut copied = || {
            let made = make_folder(&self.top.handle().try_clone_to_owned()?, Path::new(name))?;
            dress(&made, from.top.own(path)?.as_fd(), &found)?;
            self.made.note(at.clone(), &fstat(&made)?);
            self.open_up(&at, name)
        };
        copied().map_err(TrialError::at(&from.place.join(path)))
    }

    fn copy_file(
        &mut self,
        from: &CopySource<'_>,
        path: &Path,
        found: &Stat,
        folder: &OwnedFd,
        staged: &Path,
    ) -> io::Result<()> {
        let name = staged.file_name().unwrap_or_default();
        let number = (found.st_dev, found.st_ino);
        let first = self.linked.get(&number).filter(|_| found.st_nlink > 1);
        let made = match first {
            Some(first) => Some(self.link(first, folder, name)?),
            None => make_file(from, path, found, folder, name)?,
        };
        // A socket without its program is nothing, and devices are not made in sandboxes.
        let Some(made) = made else { return Ok(()) };
        let made = fstat(&made)?;
        if found.st_nlink > 1 {
            let copy = LinkedCopy { path: staged.to_owned(), number: made.st_ino };
            self.linked.entry(number).or_insert(copy);
        }
        self.made.note(from.place.join(path), &made);
        Ok(())
    }

    /// Gives a copy a second name, if it is still the one that was made.
    fn link(&self, first: &LinkedCopy, folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
        let copy = self.top.held(&first.path)?;
        let stat = fstat(&copy)?;
        let known = self.made.marks.get(&stat.st_ino);
        if stat.st_ino != first.number || known.is_some_and(|mark| *mark != FileMark::of(&stat)) {
            return Err(swapped());
        }
        linkat(CWD, number_of(&copy), folder, name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(copy)
    }
}

fn swapped() -> io::Error {
    io::Error::other("something else was put in the place of its copy")
}

/// Copies a file that is no folder, and holds the copy; none of what cannot be copied.
fn make_file(
    from: &CopySource<'_>,
    path: &Path,
    found: &Stat,
    folder: &OwnedFd,
    name: &OsStr,
) -> io::Result<Option<OwnedFd>> {
    let held = || {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::empty())
    };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => {
            let target = from.top.own_link(path)?;
            symlinkat(&target, folder, name)?;
            let made = held()?;
            if readlinkat(&made, c"", Vec::new())?.as_bytes() != target.as_bytes() {
                return Err(swapped());
            }
            let ((user, group), itself) = (owner(found), AtFlags::EMPTY_PATH);
            let _ = chownat(&made, c"", Some(user), Some(group), itself);
            utimensat(&made, c"", &times(found), itself)?;
            Ok(Some(made))
        }
        FileType::RegularFile => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let made = openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            let mut own = from.top.own(path)?;
            // Another file may stand there by now.
            if fstat(&own)?.st_ino != found.st_ino {
                return Err(io::ErrorKind::NotFound.into());
            }
            copy_bytes(own.file(), &made, u64::try_from(found.st_size).unwrap_or(0))?;
            dress(&made, own.as_fd(), found)?;
            Ok(Some(made))
        }
        FileType::Fifo => {
            let mode = Mode::from_raw_mode(found.st_mode & 0o7777);
            mknodat(folder, name, FileType::Fifo, mode, 0)?;
            let pipe = held()?;
            let is_pipe = FileType::from_raw_mode(fstat(&pipe)?.st_mode).is_fifo();
            if is_pipe { Ok(Some(pipe)) } else { Err(swapped()) }
        }
        _ => Ok(None),
    }
}

/// Makes a folder that only we can read yet, and opens it.
fn make_folder(parent: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let name = path.file_name().unwrap_or_default();
    mkdirat(parent, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Gives a copy what else the original has.
fn dress(made: &OwnedFd, own: BorrowedFd<'_>, found: &Stat) -> io::Result<()> {
    let (user, group) = owner(found);
    // Another's file can only be made by root; the group may be one that we are not in.
    if fchown(made, Some(user), Some(group)).is_err() {
        let _ = fchown(made, None, Some(group));
    }
    for (name, value) in attributes(own) {
        match fsetxattr(made, &name, &value, XattrFlags::empty()) {
            // The file system of the workspace may know no such attributes.
            Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    fchmod(made, Mode::from_raw_mode(found.st_mode & 0o7777))?;
    Ok(futimens(made, &times(found))?)
}

fn owner(found: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid))
}

fn times(found: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time(found.st_atime, found.st_atime_nsec),
        last_modification: time(found.st_mtime, found.st_mtime_nsec),
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

/// Removes a staging folder with all that is in it, wherever it is by now. Links are not followed.
pub(super) fn remove_staging(
    place: Option<&TreeTop>,
    folder: &TreeTop,
    path: &Path,
) -> io::Result<()> {
    for name in names(folder.handle())? {
        remove_in(folder.handle(), &name)?;
    }
    let parent = if path.is_absolute() { CWD } else { place.map_or(CWD, TreeTop::handle) };
    // Something else may stand there. An empty folder that somebody has moved away is his.
    match stat_in(parent, path.as_os_str()) {
        Ok(stat) if stat.st_ino == folder.number()? => {
            match unlinkat(parent, path, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
                Err(Errno::NOTEMPTY) if path.is_relative() => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        }
        _ => Ok(()),
    }
}
