//! The journal of an apply: enough to finish it or to undo it, whoever comes next.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Trials,
    error::TrialError,
    record::{lossless, lossless_list, read_json, remove_synced, write_json},
    tree::FileMark,
};
use crate::id::TaskId;

/// How far an apply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApplyPhase {
    /// Copies are made beside what they will replace. Nothing is replaced yet.
    StagingFolder,
    /// All copies are there, and on the disk: what is left is to move them.
    Committing,
    /// Something was changed meanwhile: what was moved is moved back.
    Undoing,
    /// All is moved; what it replaced is to be removed.
    Done,
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApplyJournal {
    pub phase: ApplyPhase,
    pub trial: TaskId,
    /// The folders that it changes.
    pub grounds: Vec<StagingGround>,
    pub steps: Vec<ApplyStep>,
    /// What is applied when it is done: these paths and all below them.
    #[serde(with = "lossless_list")]
    pub applied: Vec<PathBuf>,
    /// Whether nothing of the trial is left then.
    pub whole: bool,
}

/// A folder that is changed, with the folder in it where copies are made and the old is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagingGround {
    pub layer: usize,
    #[serde(with = "lossless")]
    pub place: PathBuf,
    pub staging: String,
}

/// One change, which is done at once or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApplyStep {
    pub layer: usize,
    /// Relative to the place of the layer.
    #[serde(with = "lossless")]
    pub path: PathBuf,
    pub kind: ApplyStepKind,
    /// Its name in the staging folder.
    pub staged: String,
    /// The number of the copy.
    pub copy: u64,
    /// What it takes the place of.
    pub before: Option<FileMark>,
}

impl ApplyStep {
    /// The folder that it makes for what is put into it, if it does.
    pub(super) fn made_folder(&self) -> Option<(usize, &Path)> {
        (self.kind == ApplyStepKind::MakeFolder).then_some((self.layer, self.path.as_path()))
    }
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApplyStepKind {
    /// Puts something, with all that is in it, where nothing is.
    Make,
    /// Makes an empty folder for what is put into it.
    MakeFolder,
    /// Puts something in the place of something else.
    Replace,
    /// Takes something away, with all that is in it.
    Remove,
    /// Gives a folder another mode.
    Mode(u32),
}

impl ApplyJournal {
    /// The journal of an apply that was cut off, if there is one.
    pub(super) fn read(trials: &Trials) -> Result<Option<Self>, TrialError> {
        let place = trials.journal();
        if !place.exists() {
            return Ok(None);
        }
        read_json(&place).map(Some).map_err(TrialError::at(&place))
    }

    pub(super) fn write(&self, trials: &Trials) -> Result<(), TrialError> {
        let place = trials.journal();
        write_json(&place, self).map_err(TrialError::at(&place))
    }

    /// Goes on to the next phase.
    pub(super) fn advance(&mut self, phase: ApplyPhase, trials: &Trials) -> Result<(), TrialError> {
        self.phase = phase;
        self.write(trials)
    }

    pub(super) fn remove(trials: &Trials) -> Result<(), TrialError> {
        let place = trials.journal();
        remove_synced(&place).map_err(TrialError::at(&place))
    }

    pub(super) fn ground(&self, layer: usize) -> Option<&StagingGround> {
        self.grounds.iter().find(|ground| ground.layer == layer)
    }

    /// Where a step changes something.
    pub(super) fn at(&self, step: &ApplyStep) -> PathBuf {
        self.ground(step.layer).map_or(Path::new("/"), |ground| &ground.place).join(&step.path)
    }
}
