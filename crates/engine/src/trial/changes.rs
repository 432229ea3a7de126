//! The changes of a trial: what its layers have that the folders below them have not.
//!
//! The kernel's form is read as it stands: a file in a layer is made or changed, a character device
//! of number 0 says that something was removed, and an attribute that a folder has nothing in
//! common with the one below it. A file that was only opened for writing is in a layer too: it is
//! compared, and counts only if it differs.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use legwork_warden::sandbox::PLACE_ATTRIBUTE;
use rustix::fs::{FileType, Stat};

use super::{
    Trial,
    details::OtherDifferences,
    error::TrialError,
    record::{FileTime, LayerRecord},
    tree::{FileMark, TreeTop, attributes, is_closed, is_folder, touched, walk_known},
};
pub use super::{
    change::{TriedChange, TriedChanges},
    kinds::{ChangeKind, ChangedFile},
};

/// Most changes of one trial.
const CHANGES_MAX: usize = 1_000_000;

/// Most folders that are in one another, and most bytes of a path. What is deeper is not shown, and
/// not brought over: so nothing that reads a layer need be able to go down for ever.
const LEVELS_MAX: usize = 500;
const PATH_MAX: usize = 3900;

const NONE: OtherDifferences = OtherDifferences::NONE;

/// Reads the layers of a trial.
pub(super) fn look(trial: &Trial) -> Result<TriedChanges, TrialError> {
    let mut all = Vec::new();
    for layer in &trial.record.layers {
        let upper = TreeTop::open_own(&trial.upper(layer)).map_err(TrialError::at(&layer.place))?;
        let top = TreeTop::open(&layer.place).map_err(TrialError::at(&layer.place))?;
        let mut look = Look { layer, upper, top, began: trial.record.began, found: Vec::new() };
        look.run()?;
        all.append(&mut look.found);
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(TriedChanges { all })
}

/// A look at one layer.
struct Look<'a> {
    layer: &'a LayerRecord,
    upper: TreeTop,
    top: TreeTop,
    began: FileTime,
    found: Vec<TriedChange>,
}

/// A folder of a layer that is to be read.
struct Waiting {
    path: PathBuf,
    /// Whether the same folder is below it.
    merged: bool,
    /// Whether nothing of that is seen.
    opaque: bool,
}

impl Look<'_> {
    fn run(&mut self) -> Result<(), TrialError> {
        let mut waiting = vec![Waiting { path: PathBuf::new(), merged: true, opaque: false }];
        while let Some(folder) = waiting.pop() {
            let names = self.read(&folder.path)?;
            for name in &names {
                let path = folder.path.join(name);
                let at = self.layer.place.join(&path);
                if path.as_os_str().len() > PATH_MAX || path.iter().count() > LEVELS_MAX {
                    return Err(TrialError::TooDeep);
                }
                let (mut below, mut is_unknown) = (None, false);
                if folder.merged {
                    match self.top.look(&path) {
                        // It may be anything: nothing is brought over to there.
                        Err(error) if is_closed(&error) => is_unknown = true,
                        looked => below = looked.map_err(TrialError::at(&at))?,
                    }
                }
                let begin = self.found.len();
                let found = self.entry(path, below).map_err(TrialError::at(&at))?;
                if let Some(mut inner) = found {
                    // Nothing of what is below it is seen in there, either.
                    inner.opaque |= folder.opaque;
                    waiting.push(inner);
                }
                for change in self.found.iter_mut().skip(begin).filter(|_| is_unknown) {
                    change.stale = true;
                }
            }
            if folder.merged && folder.opaque {
                let at = self.layer.place.join(&folder.path);
                self.hidden(&folder.path, &names).map_err(TrialError::at(&at))?;
            }
            if self.found.len() > CHANGES_MAX {
                return Err(TrialError::TooMany(CHANGES_MAX));
            }
        }
        Ok(())
    }

    /// The names in a folder of the layer.
    fn read(&self, path: &Path) -> Result<BTreeSet<OsString>, TrialError> {
        let names =
            self.upper.own_names(path).map_err(TrialError::at(&self.layer.place.join(path)));
        Ok(names?.into_iter().collect())
    }

    /// One entry of a layer; a folder that has to be read is returned.
    fn entry(&mut self, path: PathBuf, below: Option<Stat>) -> io::Result<Option<Waiting>> {
        let found = self.upper.own_stat(&path)?.ok_or(io::ErrorKind::NotFound)?;
        if is_whiteout(&self.upper, &path, &found) {
            if below.is_some() {
                self.removed(&path)?;
            }
            return Ok(None);
        }
        if self.is_place(&path, &found)? {
            return Ok(None);
        }
        let Some(below) = below else {
            self.made(&path, &found)?;
            let inner = Waiting { path, merged: false, opaque: false };
            return Ok(is_folder(&found).then_some(inner));
        };
        match (is_folder(&found), is_folder(&below)) {
            (true, true) => {
                if found.st_mode != below.st_mode {
                    self.add(&path, ChangeKind::Touched, &found, Some(&below), NONE);
                }
                let opaque = is_opaque(&self.upper, &path)?;
                Ok(Some(Waiting { path, merged: true, opaque }))
            }
            (true, false) => {
                self.add(&path, ChangeKind::Changed, &found, Some(&below), NONE);
                Ok(Some(Waiting { path, merged: false, opaque: false }))
            }
            (false, true) => {
                let is_known = self.hidden(&path, &BTreeSet::new())?;
                self.add(&path, ChangeKind::Changed, &found, Some(&below), NONE);
                if let Some(change) = self.found.last_mut().filter(|_| !is_known) {
                    change.stale = true;
                }
                Ok(None)
            }
            (false, false) => {
                if let Some((kind, other)) = self.compare(&path, &found, &below)? {
                    self.add(&path, kind, &found, Some(&below), other);
                }
                Ok(None)
            }
        }
    }

    /// Whether a folder is in the layer only because something is guarded there, which the command
    /// could neither write nor remove. With anything in it, it is shown.
    fn is_place(&self, path: &Path, found: &Stat) -> io::Result<bool> {
        Ok(is_folder(found)
            && has_attribute(&self.upper, path, PLACE_ATTRIBUTE)
            && self.upper.own_names(path)?.is_empty())
    }

    /// What a folder hides of the one below it; whether that can be known.
    fn hidden(&mut self, path: &Path, kept: &BTreeSet<OsString>) -> io::Result<bool> {
        let names = match self.top.names(path) {
            Err(error) if is_closed(&error) => return Ok(false),
            names => names?,
        };
        for name in names.into_iter().filter(|name| !kept.contains(name)) {
            self.removed(&path.join(name))?;
        }
        Ok(true)
    }

    fn made(&mut self, path: &Path, found: &Stat) -> io::Result<()> {
        // A copy of something that is gone now, in a folder that was changed meanwhile: somebody
        // else has removed it.
        let folder = path.parent().unwrap_or(Path::new(""));
        let stale = is_copy(&self.upper, path, found)
            && match self.top.folder(folder) {
                Ok(folder) => touched(&rustix::fs::fstat(folder)?) >= self.began,
                Err(_) => false,
            };
        self.add(path, ChangeKind::Made, found, None, NONE);
        if let Some(change) = self.found.last_mut() {
            change.stale |= stale;
        }
        Ok(())
    }

    fn removed(&mut self, path: &Path) -> io::Result<()> {
        let (layer, began, found) = (self.layer, self.began, &mut self.found);
        walk_known(&self.top, path, |path, stat, unknown| {
            found.push(TriedChange {
                path: layer.place.join(path),
                kind: ChangeKind::Removed,
                file: file_of(FileType::from_raw_mode(stat.st_mode)),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                layer: layer.number,
                before: Some(FileMark::of(&stat)),
                after: None,
                stale: unknown.is_some() || is_stale(&stat, began),
                other: NONE,
            });
            Ok(())
        })
    }

    fn add(
        &mut self,
        path: &Path,
        kind: ChangeKind,
        found: &Stat,
        below: Option<&Stat>,
        other: OtherDifferences,
    ) {
        self.found.push(TriedChange {
            path: self.layer.place.join(path),
            kind,
            file: file_of(FileType::from_raw_mode(found.st_mode)),
            bytes: u64::try_from(found.st_size).unwrap_or(0),
            layer: self.layer.number,
            before: below.map(FileMark::of),
            after: Some(FileMark::of(found)),
            stale: below.is_some_and(|below| is_stale(below, self.began)),
            other,
        });
    }

    /// How a file of the layer differs from the one below it; none if it does not.
    fn compare(
        &self,
        path: &Path,
        found: &Stat,
        below: &Stat,
    ) -> io::Result<Option<(ChangeKind, OtherDifferences)>> {
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind != FileType::from_raw_mode(below.st_mode) {
            return Ok(Some((ChangeKind::Changed, NONE)));
        }
        let mut other = OtherDifferences { owner: owners(found, below), ..NONE };
        let mut is_changed = false;
        if kind == FileType::RegularFile {
            let (mut ours, mut theirs) = match (self.upper.own(path)?, self.top.file(path)) {
                // It cannot be compared.
                (_, Err(error)) if is_closed(&error) => {
                    return Ok(Some((ChangeKind::Changed, other)));
                }
                (ours, theirs) => (ours, theirs?),
            };
            is_changed = found.st_size != below.st_size || !same_bytes(ours.file(), &mut theirs)?;
            other.attributes = attributes(ours.as_fd()) != attributes(theirs.as_fd());
        } else if kind == FileType::Symlink {
            let (folder, name) = self.top.parent(path)?;
            let theirs = rustix::fs::readlinkat(folder, name, Vec::new())?;
            is_changed = self.upper.own_link(path)?.as_encoded_bytes() != theirs.as_bytes();
        }
        if is_changed {
            return Ok(Some((ChangeKind::Changed, other)));
        }
        other.time = !FileMark::of(found).is_changed_with(&FileMark::of(below));
        let same = found.st_mode == below.st_mode && other == NONE;
        Ok((!same).then_some((ChangeKind::Touched, other)))
    }
}

/// User and group below and in the layer, where they are not the same.
fn owners(found: &Stat, below: &Stat) -> Option<[(u32, u32); 2]> {
    let owner = |stat: &Stat| (stat.st_uid, stat.st_gid);
    (owner(found) != owner(below)).then(|| [owner(below), owner(found)])
}

fn is_stale(stat: &Stat, began: FileTime) -> bool {
    !is_folder(stat) && touched(stat) >= began
}

/// Whether an entry of a layer says that something is gone.
fn is_whiteout(upper: &TreeTop, path: &Path, found: &Stat) -> bool {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice => found.st_rdev == 0,
        FileType::RegularFile if found.st_size == 0 => {
            has_attribute(upper, path, "user.overlay.whiteout")
        }
        _ => false,
    }
}

/// Whether a folder of a layer shows nothing of the one below it.
fn is_opaque(upper: &TreeTop, path: &Path) -> io::Result<bool> {
    let value = upper.own(path)?.layer_attribute("user.overlay.opaque");
    Ok(value.is_some_and(|value| value == b"y"))
}

/// Whether the kernel has copied something up from below.
fn is_copy(upper: &TreeTop, path: &Path, found: &Stat) -> bool {
    let kind = FileType::from_raw_mode(found.st_mode);
    matches!(kind, FileType::RegularFile | FileType::Directory)
        && has_attribute(upper, path, "user.overlay.origin")
}

fn has_attribute(upper: &TreeTop, path: &Path, name: &str) -> bool {
    upper.own(path).is_ok_and(|file| file.layer_attribute(name).is_some())
}

fn file_of(kind: FileType) -> ChangedFile {
    match kind {
        FileType::RegularFile => ChangedFile::File,
        FileType::Directory => ChangedFile::Folder,
        FileType::Symlink => ChangedFile::Link,
        _ => ChangedFile::Other,
    }
}

fn same_bytes(one: &mut File, other: &mut File) -> io::Result<bool> {
    const PIECE: u64 = 64 * 1024;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        one.take(PIECE).read_to_end(&mut left)?;
        other.take(PIECE).read_to_end(&mut right)?;
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}
