//! Trials: commands that ran on a copy-on-write view, and what of it is brought over.
//!
//! A trial is a task like any other. Beside its row it has a folder, `trials/<task id>` in the
//! state folder, with a layer for each folder that it could write: the kernel puts there what the
//! command made, changed and removed. [`changes`] reads that, [`diff`] shows it, [`apply`] brings
//! it into the workspace as one step, and removing the folder forgets it.
//!
//! This room knows files and nothing else: neither tasks nor questions.

mod ahead;
mod apply;
mod bench;
mod change;
mod changes;
mod details;
mod diff;
mod error;
mod journal;
mod kinds;
mod record;
mod stage;
mod sweep;
mod tree;

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

pub(crate) use self::{
    ahead::{LayersAhead, clear_ahead},
    diff::DiffLimits,
    error::TrialError,
    sweep::{bytes_of as trial_bytes, remove_tree},
};
pub use self::{
    apply::Applied,
    changes::{ChangeKind, ChangedFile, TriedChange, TriedChanges},
    record::TrialRecord,
};
use self::{
    journal::ApplyJournal,
    record::{FileTime, LayerRecord, read_json, write_json, write_json_soon},
};
use crate::{clock::now_ms, id::TaskId};

/// What the folder of a trial holds.
const RECORD: &str = "trial.json";
const SEALED: &str = "changes.json";

/// The lock of whoever applies something.
const LOCK: &str = "applying.lock";

/// What the name of a trial's folder begins with that is being removed.
const REMOVED: &str = ".removed-";

impl TriedChanges {
    /// How many files are made, changed and removed, in words.
    pub fn counted(&self) -> String {
        diff::counted(self)
    }
}

/// A folder of a trial that the command sees as a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrialLayer {
    pub place: PathBuf,
    pub upper: PathBuf,
    pub work: PathBuf,
}

/// The trials of a state folder.
#[derive(Debug, Clone)]
pub(crate) struct Trials {
    /// `trials` in the state folder; made with the first one.
    folder: PathBuf,
    /// `applying` in the state folder: the journals of applies, and the copies that they make.
    applying: PathBuf,
}

/// One trial.
#[derive(Debug)]
pub(crate) struct Trial {
    folder: PathBuf,
    pub record: TrialRecord,
}

impl Trials {
    pub(crate) fn of(state: &Path) -> Self {
        Self { folder: state.join("trials"), applying: state.join("applying") }
    }

    /// Makes empty layers those of a trial, which begins now; whether they still fit. The last of
    /// them may be of places whose changes nobody wants: all but these many.
    pub(crate) fn begin(
        &self,
        layers: &mut LayersAhead,
        kept: usize,
        id: &TaskId,
        workspace: &Path,
    ) -> io::Result<bool> {
        if !layers.is_current() {
            return Ok(false);
        }
        let places = layers.layers().iter().take(kept).enumerate();
        let record = TrialRecord {
            task_id: id.clone(),
            workspace: workspace.to_owned(),
            layers: places.map(|(number, layer)| LayerRecord::new(number, &layer.place)).collect(),
            created_at_ms: now_ms(),
            began: FileTime::of_now(layers.folder())?,
            applied: Vec::new(),
        };
        // Without it there is no trial, and nothing of one is worth a wait for the disk yet.
        write_json_soon(&layers.folder().join(RECORD), &record)?;
        private(&self.folder)?;
        layers.move_to(&self.folder.join(id.as_str()))?;
        Ok(true)
    }

    /// All of them, newest first.
    pub(crate) fn all(&self) -> Vec<Trial> {
        let names = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let mut all: Vec<Trial> =
            names.filter_map(|entry| Trial::open(entry.path()).ok()).collect();
        all.sort_by_key(|trial| std::cmp::Reverse(trial.record.created_at_ms));
        all
    }

    /// The trial of a task.
    pub(crate) fn get(&self, id: &TaskId) -> Result<Trial, TrialError> {
        Trial::open(self.folder.join(id.as_str())).map_err(|_| TrialError::Unknown)
    }

    pub(crate) fn has(&self, id: &TaskId) -> bool {
        self.folder.join(id.as_str()).join(RECORD).is_file()
    }

    /// The folders and their names, also of those without a record.
    pub(crate) fn names(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let text = |entry: &fs::DirEntry| entry.file_name().into_string().ok();
        folders.filter_map(|entry| Some((text(&entry)?, entry.path()))).collect()
    }

    /// Forgets a trial: nothing of it is left.
    pub(crate) fn remove(&self, id: &TaskId) -> io::Result<()> {
        self.remove_folder(id.as_str())
    }

    /// The same by the name of its folder. It gets a name first that nobody looks for: cut off, the
    /// next clean-up finishes it.
    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        let folder = self.folder.join(name);
        if name.starts_with(REMOVED) {
            return remove_tree(&folder);
        }
        let going = self.folder.join(format!("{REMOVED}{name}"));
        remove_tree(&going)?;
        match fs::rename(&folder, &going) {
            Ok(()) => remove_tree(&going),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // There is not even room for a name.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => remove_tree(&folder),
            Err(error) => Err(error),
        }
    }

    /// Finishes or undoes applies that were cut off. Does nothing while somebody applies, and costs
    /// a look where nobody ever did.
    pub(crate) fn recover(&self) -> Result<(), TrialError> {
        if ApplyJournal::all(self).is_empty() && ApplyJournal::left(self).is_empty() {
            return Ok(());
        }
        match self.lock(FlockOperation::NonBlockingLockExclusive) {
            Ok(_lock) => apply::recover(self),
            // Whoever has it finishes.
            Err(_) => Ok(()),
        }
    }

    /// The journals of applies that could be neither finished nor undone. Each says where what it
    /// replaced is kept.
    pub(crate) fn stuck(&self) -> Vec<PathBuf> {
        ApplyJournal::stuck(self)
    }

    /// Brings changes of a trial over: all of them, or those at and below some paths.
    pub(crate) fn apply(&self, id: &TaskId, paths: &[PathBuf]) -> Result<Applied, TrialError> {
        let _lock = self.lock_to_apply()?;
        self.recover_before(id)?;
        apply::apply(self, &self.get(id)?, paths)
    }

    /// What another apply was cut off at keeps nobody from this one, unless it is of the same
    /// trial.
    fn recover_before(&self, id: &TaskId) -> Result<(), TrialError> {
        match apply::recover(self) {
            Err(error) if ApplyJournal::file_of(self, id).exists() => Err(error),
            Err(error) => {
                tracing::warn!(%error, "an apply was cut off, and could be neither finished nor undone");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn lock_to_apply(&self) -> Result<fs::File, TrialError> {
        let lock = private(&self.folder).and_then(|()| self.lock(FlockOperation::LockExclusive));
        lock.map_err(|error| TrialError::io("the lock of applying", &error))
    }

    fn lock(&self, operation: FlockOperation) -> io::Result<fs::File> {
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.folder.join(LOCK))?;
        flock(&file, operation)?;
        Ok(file)
    }
}

/// Makes a folder that only its owner can read, unless it is there.
fn private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// An empty layer. Its top is what the command sees as the folder itself, so it has that folder's
/// mode and owner.
fn make_layer(folder: &Path, number: usize, place: &Path) -> io::Result<TrialLayer> {
    let own = folder.join(number.to_string());
    fs::DirBuilder::new().mode(0o700).create(&own)?;
    let (upper, work) = (own.join("upper"), own.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let seen = fs::metadata(place)?;
    // Somebody else's folder is seen as our own.
    let _ = std::os::unix::fs::chown(&upper, Some(seen.uid()), Some(seen.gid()));
    fs::set_permissions(&upper, fs::Permissions::from_mode(seen.mode() & 0o7777))?;
    Ok(TrialLayer { place: place.to_owned(), upper, work })
}

impl Trial {
    fn open(folder: PathBuf) -> io::Result<Self> {
        let record = read_json(&folder.join(RECORD))?;
        Ok(Self { folder, record })
    }

    fn upper(&self, layer: &LayerRecord) -> PathBuf {
        self.folder.join(layer.number.to_string()).join("upper")
    }

    /// What the command changed. The first look is kept: it says what stood in the workspace then.
    /// Only for a trial that is over.
    pub(crate) fn changes(&self) -> Result<TriedChanges, TrialError> {
        let place = self.folder.join(SEALED);
        let sealed = read_json(&place).ok();
        if let Some(sealed) = sealed.filter(TriedChanges::is_marked) {
            return Ok(sealed);
        }
        let changes = changes::look(self)?;
        // What is shown as nothing need not outlast a power cut to stay that.
        let write = if changes.all.is_empty() { write_json_soon } else { write_json };
        write(&place, &changes).map_err(|error| TrialError::io("the list of changes", &error))?;
        Ok(changes)
    }

    /// The changes that are not applied yet, at and below these paths; all of them without any.
    pub(crate) fn pending(&self, paths: &[PathBuf]) -> Result<TriedChanges, TrialError> {
        let mut changes = match self.changes() {
            // Whoever wants to see what fills a disk can. An apply insists on the list that is
            // kept.
            Err(error) if error.is_no_room() => changes::look(self)?,
            changes => changes?,
        };
        let set = |paths: &[PathBuf]| paths.iter().cloned().collect::<HashSet<PathBuf>>();
        let (wanted, applied) = (set(paths), set(&self.record.applied));
        changes.all.retain(|change| {
            let is_in = |set: &HashSet<PathBuf>| change.path.ancestors().any(|it| set.contains(it));
            (wanted.is_empty() || is_in(&wanted)) && !is_in(&applied)
        });
        Ok(changes)
    }

    /// A unified diff of these changes, as far as the limits let it go.
    pub(crate) fn diff(&self, changes: &TriedChanges, limits: DiffLimits) -> String {
        diff::unified(self, changes, limits)
    }

    /// A list of these changes, one a line, and of how many there are at most so many.
    pub(crate) fn list(&self, changes: &TriedChanges, lines_max: usize) -> String {
        diff::list(self, changes, lines_max)
    }

    /// What the layers take on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        sweep::bytes_of(&self.folder)
    }
}
