//! Trials, as there are none on Windows: no command can be given a copy of its files there.
//!
//! The names are those of the room on Linux. What cannot be is a type without values, so that
//! nothing here has to say what it would do with one.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

#[path = "error.rs"]
#[expect(dead_code, reason = "nothing can go wrong with what cannot be")]
mod error;
#[path = "kinds.rs"]
mod kinds;

pub(crate) use self::error::TrialError;
pub use self::kinds::{ChangeKind, ChangedFile};
use crate::id::TaskId;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedChange {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub kind: ChangeKind,
    /// Of what.
    pub file: ChangedFile,
    /// How long it is now; how long it was if it is gone.
    pub bytes: u64,
}

impl TriedChange {
    /// The mode before, if something was there.
    pub fn mode_before(&self) -> Option<u32> {
        None
    }

    /// The mode now, unless it is gone.
    pub fn mode(&self) -> Option<u32> {
        None
    }

    /// What a person has to know of it besides its kind.
    pub fn details(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The changes of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedChanges {
    /// All of them.
    pub all: Vec<TriedChange>,
}

impl TriedChanges {
    /// How many of one kind.
    pub fn count(&self, kind: ChangeKind) -> usize {
        self.listed().filter(|change| change.kind == kind).count()
    }

    /// Those that a person is shown, first those in the workspace.
    pub fn listed_from(&self, _workspace: &Path) -> Vec<&TriedChange> {
        self.all.iter().collect()
    }

    /// Those that a person is shown.
    pub fn listed(&self) -> impl Iterator<Item = &TriedChange> {
        self.all.iter()
    }

    /// How many files are made, changed and removed, in words.
    pub fn counted(&self) -> String {
        format!("{} changed", self.all.len())
    }
}

/// What was brought over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Files made.
    pub made: usize,
    /// Files changed.
    pub changed: usize,
    /// Files removed.
    pub removed: usize,
    /// Whether nothing of the trial is left.
    pub whole: bool,
}

/// What is known of a trial besides its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Its task.
    pub task_id: TaskId,
    /// The workspace that it ran in.
    pub workspace: PathBuf,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// What was brought over so far.
    pub applied: Vec<PathBuf>,
}

/// How much of a difference is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffLimits {
    #[expect(dead_code, reason = "there is no difference to be shown")]
    pub lines_max: usize,
    #[expect(dead_code, reason = "there is no difference to be shown")]
    pub bytes_max: usize,
}

/// The trials of a state folder: none.
#[derive(Debug, Clone)]
pub(crate) struct Trials;

/// One trial: there is none.
#[derive(Debug)]
pub(crate) struct Trial {
    pub record: TrialRecord,
    never: Infallible,
}

#[expect(clippy::unused_self, reason = "the signatures are those of Linux")]
#[expect(clippy::unnecessary_wraps, reason = "the signatures are those of Linux")]
impl Trials {
    pub(crate) fn of(_state: &Path) -> Self {
        Self
    }

    pub(crate) fn all(&self) -> Vec<Trial> {
        Vec::new()
    }

    pub(crate) fn get(&self, _id: &TaskId) -> Result<Trial, TrialError> {
        Err(TrialError::Unknown)
    }

    pub(crate) fn has(&self, _id: &TaskId) -> bool {
        false
    }

    pub(crate) fn names(&self) -> Vec<(String, PathBuf)> {
        Vec::new()
    }

    pub(crate) fn remove(&self, _id: &TaskId) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn remove_folder(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn stuck(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    pub(crate) fn recover(&self) -> Result<(), TrialError> {
        Ok(())
    }

    pub(crate) fn apply(&self, _id: &TaskId, _paths: &[PathBuf]) -> Result<Applied, TrialError> {
        Err(TrialError::Unknown)
    }
}

impl Trial {
    pub(crate) fn pending(&self, _paths: &[PathBuf]) -> Result<TriedChanges, TrialError> {
        match self.never {}
    }

    pub(crate) fn diff(&self, _changes: &TriedChanges, _limits: DiffLimits) -> String {
        match self.never {}
    }

    pub(crate) fn list(&self, _changes: &TriedChanges, _lines_max: usize) -> String {
        match self.never {}
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self.never {}
    }
}

/// What a folder of trials takes on the disk.
pub(crate) fn trial_bytes(_path: &Path) -> u64 {
    0
}

/// Removes a file, or a folder with all that is in it.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    }
}

/// Removes layers that were never used: there are none.
pub(crate) fn clear_ahead(_state: &Path, _is_left: &dyn Fn(&str, &Path) -> bool) {}
