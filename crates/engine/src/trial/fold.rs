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
    rc::Rc,
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

/// What is not copied: at and below some paths.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub paths: HashSet<PathBuf>,
    /// Also in a folder that hides the one below it. What is brought over would not be seen any
    /// more: it stays there, and is the same.
    pub in_hiding: bool,
}

/// Copies layers together into an empty folder: the first is on top. Others, and the place itself,
/// stay below them.
pub(super) fn fold(
    layers: &[TreeTop],
    below: &[TreeTop],
    place: &Path,
    into: &Path,
    left_out: &LeftOut,
) -> Result<(), TrialError> {
    let failed = TrialError::at(into);
    let top = TreeTop::open(into).map_err(&failed)?;
    let copies = StagingFolder::open(&top, "").map_err(&failed)?;
    let mut fold = Fold { place, below, left_out, copies, waiting: Vec::new() };
    fold.folder(Path::new(""), &layers.iter().collect(), false)?;
    while let Some(step) = fold.waiting.pop() {
        match step {
            FoldStep::Entry { path, layers, hides_all } => fold.entry(&path, &layers, hides_all)?,
            FoldStep::Dress { path, from, opaque, stat } => {
                let dressed = fold.dressed(&path, from, opaque, &stat);
                dressed.map_err(TrialError::at(&place.join(&path)))?;
            }
        }
    }
    Ok(())
}

struct Fold<'a> {
    /// Where the layers are laid over.
    place: &'a Path,
    below: &'a [TreeTop],
    left_out: &'a LeftOut,
    copies: StagingFolder,
    /// What is to be done, the next last: however deep the folders are.
    waiting: Vec<FoldStep<'a>>,
}

/// Something that is to be done.
enum FoldStep<'a> {
    /// A path, and the layers that have the folder that it is in.
    Entry { path: PathBuf, layers: Rc<[&'a TreeTop]>, hides_all: bool },
    /// Everything is in a folder: it gets its mode and times.
    Dress { path: PathBuf, from: &'a TreeTop, opaque: bool, stat: Stat },
}

/// What one layer has at a path.
enum Entry {
    Nothing,
    Whiteout,
    Folder { opaque: bool, stat: Stat },
    File(Stat),
}

impl<'a> Fold<'a> {
    /// Puts a folder together that all of these layers have.
    fn folder(
        &mut self,
        path: &Path,
        layers: &Rc<[&'a TreeTop]>,
        hides_all: bool,
    ) -> Result<(), TrialError> {
        let mut names: BTreeSet<OsString> = BTreeSet::new();
        for layer in layers.iter() {
            names.extend(layer.own_names(path).map_err(TrialError::at(&self.place.join(path)))?);
        }
        for name in names.into_iter().rev() {
            let path = path.join(name);
            let may_be_out = !hides_all || self.left_out.in_hiding;
            if !may_be_out || !self.left_out.paths.contains(&self.place.join(&path)) {
                self.waiting.push(FoldStep::Entry { path, layers: layers.clone(), hides_all });
            }
        }
        Ok(())
    }

    /// Puts together what the first layer that has something at a path has there.
    fn entry(
        &mut self,
        path: &Path,
        layers: &[&'a TreeTop],
        hides_all: bool,
    ) -> Result<(), TrialError> {
        let at = self.place.join(path);
        let failed = |error: io::Error| TrialError::at(&at)(error);
        for (number, layer) in layers.iter().enumerate() {
            match entry_of(layer, path).map_err(failed)? {
                Entry::Nothing => {}
                Entry::Whiteout => return self.hide(path, hides_all).map_err(failed),
                // Without its program it is nothing, but it hides what it was put over.
                Entry::File(stat) if FileType::from_raw_mode(stat.st_mode).is_socket() => {
                    return self.hide(path, hides_all).map_err(failed);
                }
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
                    mkdirat(self.copies.handle(), path, Mode::RWXU)
                        .map_err(|errno| failed(errno.into()))?;
                    let (from, path) = (*layer, path.to_owned());
                    self.waiting.push(FoldStep::Dress { path: path.clone(), from, opaque, stat });
                    return self.folder(&path, &all.into(), hides_all || opaque);
                }
            }
        }
        Ok(())
    }

    fn dressed(&self, path: &Path, from: &TreeTop, opaque: bool, stat: &Stat) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(self.copies.handle(), path, flags, Mode::empty())?;
        if opaque {
            fsetxattr(&made, OPAQUE, b"y", XattrFlags::empty())?;
        }
        dress(&made, from.own(path)?.as_fd(), stat)
    }

    /// Hides what is at a path further down. In a folder that the kernel takes from one layer alone
    /// the sign for that would be seen.
    fn hide(&self, path: &Path, hides_all: bool) -> io::Result<()> {
        if hides_all || !self.is_below(path) { Ok(()) } else { self.whiteout(path) }
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn a_socket_over_a_file_still_hides_it_after_a_fold() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = scratch.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (place, layer, into) = (folder("place"), folder("layer"), folder("into"));
        fs::write(place.join("file"), "real").unwrap();
        let _sockets = ["file", "new"].map(|name| UnixListener::bind(layer.join(name)).unwrap());
        let layers = [TreeTop::open(&layer).unwrap()];
        fold(&layers, &[], &place, &into, &LeftOut::default()).unwrap();
        let top = TreeTop::open(&into).unwrap();
        let stat = top.look(Path::new("file")).unwrap().unwrap();
        assert!(is_whiteout(&top, Path::new("file"), &stat));
        assert!(top.look(Path::new("new")).unwrap().is_none());
    }
}
