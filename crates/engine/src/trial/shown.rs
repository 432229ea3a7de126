//! What a person was shown of the layers over a home. Only that is brought over, and only as it was
//! then: commands may go on writing meanwhile.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, Read as _},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Trial,
    changes::{ChangeKind, ChangedFile, TriedChange, TriedChanges},
    error::TrialError,
    outside::OutsideLayers,
    record::{lossless, read_json, write_json},
    tree::{FileMark, TreeTop, attributes},
};

/// The list, beside that of the layers.
const SHOWN: &str = "shown.json";

/// What of the changes somebody was shown.
#[derive(Debug)]
pub(crate) struct ShownPart {
    pub changes: TriedChanges,
    /// The first one that was cut off, if not all were shown.
    pub cut: Option<PathBuf>,
}

/// A change that was shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ShownChange {
    #[serde(with = "lossless")]
    path: PathBuf,
    kind: ChangeKind,
    before: Option<FileMark>,
    after: Option<FileMark>,
    /// The layer that it was in. Nobody writes into a layer that is shown: there the mark is
    /// enough.
    layer: String,
    /// Everything that would be brought over, in short.
    digest: Option<String>,
}

impl OutsideLayers {
    fn shown(&self) -> HashMap<PathBuf, ShownChange> {
        let shown: Vec<ShownChange> = read_json(&self.folder.join(SHOWN)).unwrap_or_default();
        shown.into_iter().map(|change| (change.path.clone(), change)).collect()
    }

    fn write_shown(&self, shown: HashMap<PathBuf, ShownChange>) -> Result<(), TrialError> {
        let mut all: Vec<ShownChange> = shown.into_values().collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let place = self.folder.join(SHOWN);
        write_json(&place, &all).map_err(TrialError::at(&place))
    }

    /// Keeps in mind what was shown, and the folders that it would come with. What was shown before
    /// of other paths still counts.
    pub(super) fn note_shown(&self, trial: &Trial, part: &ShownPart) -> Result<(), TrialError> {
        let pending = trial.pending(&[])?;
        let by_path: HashMap<&Path, &TriedChange> =
            pending.all.iter().map(|change| (change.path.as_path(), change)).collect();
        let mut shown = self.shown();
        shown.retain(|path, _| by_path.contains_key(path.as_path()));
        let layer = Layer::of(trial)?;
        let is_shown =
            |change: &&TriedChange| part.cut.as_ref().is_none_or(|cut| change.path < *cut);
        for change in part.changes.all.iter().filter(is_shown) {
            for path in change.path.ancestors() {
                let Some(change) = by_path.get(path) else { continue };
                if path != change.path && !is_made_with(change) {
                    continue;
                }
                if !shown.get(path).is_some_and(|it| layer.has_mark(it, change)) {
                    shown.insert(path.to_owned(), layer.shown(change)?);
                }
            }
        }
        self.write_shown(shown)
    }

    /// Whether all that an apply of these paths would bring over was shown as it is.
    pub(super) fn check_shown(&self, trial: &Trial, paths: &[PathBuf]) -> Result<(), TrialError> {
        let (shown, layer) = (self.shown(), Layer::of(trial)?);
        let (chosen, pending) = (trial.pending(paths)?, trial.pending(&[])?);
        let folders: HashSet<&Path> =
            chosen.all.iter().flat_map(|change| change.path.ancestors().skip(1)).collect();
        // They come with what is in them.
        let above =
            |change: &&TriedChange| is_made_with(change) && folders.contains(change.path.as_path());
        let mut new = Vec::new();
        for change in chosen.all.iter().chain(pending.all.iter().filter(above)) {
            let before = shown.get(&change.path);
            let is_same = match before {
                Some(before) => {
                    layer.has_mark(before, change) || before.is_same(&layer.shown(change)?)
                }
                None => false,
            };
            if !is_same {
                new.push(change.path.clone());
            }
        }
        new.sort();
        new.dedup();
        if new.is_empty() { Ok(()) } else { Err(TrialError::NotShown(new)) }
    }

    /// Forgets that something was shown: all of it, or what is at and below some paths.
    pub(super) fn forget_shown(&self, paths: &[PathBuf]) {
        let mut shown = self.shown();
        shown.retain(|path, _| {
            !paths.is_empty() && !path.ancestors().any(|it| paths.iter().any(|path| path == it))
        });
        // Without room for the list, everything has to be shown again.
        if shown.is_empty() || self.write_shown(shown).is_err() {
            let _ = fs::remove_file(self.folder.join(SHOWN));
        }
    }
}

/// Whether something that is in it comes with the folder itself.
fn is_made_with(change: &TriedChange) -> bool {
    change.file == ChangedFile::Folder
        && matches!(change.kind, ChangeKind::Made | ChangeKind::Changed)
}

impl ShownChange {
    fn is_same(&self, now: &Self) -> bool {
        (self.kind, self.before, &self.digest) == (now.kind, now.before, &now.digest)
    }
}

/// The layer whose changes are shown.
struct Layer {
    name: String,
    top: TreeTop,
    place: PathBuf,
}

impl Layer {
    fn of(trial: &Trial) -> Result<Self, TrialError> {
        let record = trial.record.layers.first().ok_or(TrialError::Unknown)?;
        let top = TreeTop::open_own(&trial.upper(record)).map_err(TrialError::at(&trial.folder))?;
        let name = trial.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, top, place: record.place.clone() })
    }

    fn has_mark(&self, shown: &ShownChange, change: &TriedChange) -> bool {
        shown.layer == self.name
            && (shown.kind, shown.before, shown.after) == (change.kind, change.before, change.after)
    }

    fn shown(&self, change: &TriedChange) -> Result<ShownChange, TrialError> {
        let path = change.path.strip_prefix(&self.place).unwrap_or(Path::new(""));
        let digest = match change.kind {
            ChangeKind::Removed => None,
            _ => Some(self.digest(path).map_err(TrialError::at(&change.path))?),
        };
        Ok(ShownChange {
            path: change.path.clone(),
            kind: change.kind,
            before: change.before,
            after: change.after,
            layer: self.name.clone(),
            digest,
        })
    }

    /// Mode, owner, attributes, and content.
    fn digest(&self, path: &Path) -> io::Result<String> {
        let stat = self.top.own_stat(path)?.ok_or(io::ErrorKind::NotFound)?;
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {}", stat.st_mode, stat.st_uid, stat.st_gid));
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind.is_symlink() {
            hash.update(self.top.own_link(path)?.as_bytes());
        } else if kind.is_dir() || kind.is_file() {
            let mut own = self.top.own(path)?;
            for (name, value) in attributes(own.as_fd()) {
                hash.update(format!("{} {} ", name.len(), value.len()));
                hash.update(name.as_bytes());
                hash.update(value);
            }
            let mut piece = vec![0; 64 * 1024];
            while kind.is_file() {
                let length = own.file().read(&mut piece)?;
                if length == 0 {
                    break;
                }
                hash.update(piece.get(..length).unwrap_or_default());
            }
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
