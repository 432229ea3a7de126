//! Puts several finished layers together: a new one that shows what all of them show.
//!
//! The layers are only read, and the new one is a folder that no command has ever seen, so that no
//! link in it is anybody's. Cut off, it is in no list, and the originals are as they were.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::OsString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{FileType, Mode, OFlags, Stat, XattrFlags, fsetxattr, mkdirat, mknodat, openat};

use super::{
    changes::{is_opaque, is_whiteout},
    error::TrialError,
    stage::{CopySource, StagingFolder, dress},
    tree::{TreeTop, is_folder},
};

/// The attribute of a folder that shows nothing of the one below it.
const OPAQUE: &str = "user.overlay.opaque";

/// Copies layers together into an empty folder: the first is on top. Others, and the place itself,
/// stay below them. What is at or below a path that is to be left out is not copied.
pub(super) fn fold(
    layers: &[TreeTop],
    below: &[TreeTop],
    place: &Path,
    into: &Path,
    left_out: &HashSet<PathBuf>,
) -> Result<(), TrialError> {
    let failed = TrialError::at(into);
    let top = TreeTop::open(into).map_err(&failed)?;
    let copies = StagingFolder::open(&top, "").map_err(&failed)?;
    let mut fold = Fold { place, below, left_out, copies };
    let all: Vec<&TreeTop> = layers.iter().collect();
    fold.folder(Path::new(""), &all, false)
}

struct Fold<'a> {
    /// Where the layers are laid over.
    place: &'a Path,
    below: &'a [TreeTop],
    left_out: &'a HashSet<PathBuf>,
    copies: StagingFolder,
}

/// What one layer has at a path.
enum Entry {
    Nothing,
    Whiteout,
    Folder { opaque: bool, stat: Stat },
    File(Stat),
}

impl Fold<'_> {
    /// Puts a folder together that all of these layers have.
    fn folder(
        &mut self,
        path: &Path,
        layers: &[&TreeTop],
        hides_all: bool,
    ) -> Result<(), TrialError> {
        let mut names: BTreeSet<OsString> = BTreeSet::new();
        for layer in layers {
            names.extend(layer.own_names(path).map_err(TrialError::at(&self.place.join(path)))?);
        }
        for name in names {
            let path = path.join(name);
            // What a folder hides that is brought over would not be seen any more: it is the same.
            if hides_all || !self.left_out.contains(&self.place.join(&path)) {
                self.entry(&path, layers, hides_all)?;
            }
        }
        Ok(())
    }

    /// Puts together what the first layer that has something at a path has there.
    fn entry(
        &mut self,
        path: &Path,
        layers: &[&TreeTop],
        hides_all: bool,
    ) -> Result<(), TrialError> {
        let at = self.place.join(path);
        let failed = |error: io::Error| TrialError::at(&at)(error);
        for (number, layer) in layers.iter().enumerate() {
            match entry_of(layer, path).map_err(failed)? {
                Entry::Nothing => {}
                // In a folder that the kernel takes from one layer alone it would be seen.
                Entry::Whiteout if hides_all || !self.is_below(path) => return Ok(()),
                Entry::Whiteout => return self.whiteout(path).map_err(failed),
                Entry::File(stat) => {
                    let source = CopySource { top: layer, place: self.place, seen: None };
                    let parent = self.parent(path).map_err(failed)?;
                    let copied = self.copies.copy_file(&source, path, &stat, &parent, path);
                    return copied.map_err(failed);
                }
                Entry::Folder { opaque, stat } => {
                    let (mut all, mut opaque) = (vec![*layer], opaque);
                    for below in layers.iter().skip(number + 1) {
                        if opaque {
                            break;
                        }
                        match entry_of(below, path).map_err(failed)? {
                            Entry::Nothing => {}
                            Entry::Folder { opaque: hides, .. } => {
                                all.push(below);
                                opaque = hides;
                            }
                            // Nothing of what is further down is seen.
                            _ => opaque = true,
                        }
                    }
                    return self.made_folder(path, &all, opaque, hides_all, &stat);
                }
            }
        }
        Ok(())
    }

    fn made_folder(
        &mut self,
        path: &Path,
        layers: &[&TreeTop],
        opaque: bool,
        hides_all: bool,
        stat: &Stat,
    ) -> Result<(), TrialError> {
        let at = self.place.join(path);
        let failed = TrialError::at(&at);
        let made = self.mkdir(path).map_err(&failed)?;
        self.folder(path, layers, hides_all || opaque)?;
        if opaque {
            fsetxattr(&made, OPAQUE, b"y", XattrFlags::empty())
                .map_err(|errno| failed(errno.into()))?;
        }
        let Some(first) = layers.first() else { return Ok(()) };
        let own = first.own(path).map_err(&failed)?;
        dress(&made, own.as_fd(), stat).map_err(&failed)
    }

    /// Whether something is at a path further down, as far as that can be known.
    fn is_below(&self, path: &Path) -> bool {
        let has = |top: &TreeTop| match entry_of(top, path) {
            Ok(entry) => !matches!(entry, Entry::Nothing | Entry::Whiteout),
            Err(_) => true,
        };
        let real = |place: &Path| TreeTop::open(place).and_then(|top| top.look(path));
        self.below.iter().any(has) || real(self.place).map_or(true, |found| found.is_some())
    }

    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        Ok(openat(self.copies.handle(), parent, flags, Mode::empty())?)
    }

    fn mkdir(&self, path: &Path) -> io::Result<OwnedFd> {
        mkdirat(self.copies.handle(), path, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(self.copies.handle(), path, flags, Mode::empty())?)
    }

    fn whiteout(&self, path: &Path) -> io::Result<()> {
        let mode = Mode::empty();
        Ok(mknodat(self.copies.handle(), path, FileType::CharacterDevice, mode, 0)?)
    }
}

fn entry_of(layer: &TreeTop, path: &Path) -> io::Result<Entry> {
    Ok(match layer.own_stat(path)? {
        None => Entry::Nothing,
        Some(stat) if is_whiteout(layer, path, &stat) => Entry::Whiteout,
        Some(stat) if is_folder(&stat) => Entry::Folder { opaque: is_opaque(layer, path)?, stat },
        Some(stat) => Entry::File(stat),
    })
}
