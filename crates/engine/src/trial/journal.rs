//! The journal of an apply: enough to finish it or to undo it, whoever comes next.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Trials,
    error::TrialError,
    record::{NEW, lossless, lossless_list, read_json, remove_synced, write_json},
    tree::FileMark,
};
use crate::{clock::now_ms, id::TaskId};

/// What the name of a journal ends with, and that of the marks beside it.
const JOURNAL: &str = "json";
const MARKS: &str = "marks";

/// What a journal has behind its name that can be neither finished nor undone, before the time in
/// milliseconds since 1970.
const STUCK: &str = ".stuck-";

/// How far an apply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApplyPhase {
    /// Copies are made. Nothing is replaced yet.
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
    /// Where the journal itself is.
    #[serde(skip)]
    pub file: PathBuf,
}

/// A folder that is changed, with the one where copies are made and the old is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagingGround {
    pub layer: usize,
    #[serde(with = "lossless")]
    pub place: PathBuf,
    /// The number of that folder: another one may stand there later.
    pub place_number: u64,
    /// In the state folder, or relative to the place where that is on another file system.
    #[serde(with = "lossless")]
    pub staging: PathBuf,
    /// The number of that folder, once it is made.
    pub staging_number: Option<u64>,
}

impl StagingGround {
    /// Whether commands may reach the copies.
    pub(super) fn is_beside(&self) -> bool {
        self.staging.is_relative()
    }

    /// Where copies are made and the old is kept.
    pub(super) fn kept(&self) -> PathBuf {
        self.place.join(&self.staging)
    }
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

/// What was seen of everything that an apply moves, by where it belongs in its place.
#[derive(Debug, Default)]
pub(super) struct ApplyMarks {
    /// What is in folders that are removed or replaced.
    pub old: BTreeMap<PathBuf, FileMark>,
    /// The copies, each with all that is in it. Without them a copy is known by its number alone.
    pub made: Option<BTreeMap<PathBuf, FileMark>>,
}

/// One of them in its file.
#[derive(Debug, Serialize, Deserialize)]
struct MarkedPath {
    #[serde(with = "lossless")]
    path: PathBuf,
    mark: FileMark,
}

impl ApplyMarks {
    /// Those beside a journal; none if it has none that can be read.
    pub(super) fn read(journal: &Path) -> Option<Self> {
        let [old, made]: [Vec<MarkedPath>; 2] = read_json(&journal.with_extension(MARKS)).ok()?;
        let by_path = |marks: Vec<MarkedPath>| marks.into_iter().map(|it| (it.path, it.mark));
        Some(Self { old: by_path(old).collect(), made: Some(by_path(made).collect()) })
    }

    pub(super) fn write(&self, journal: &Path) -> Result<(), TrialError> {
        let listed = |marks: &BTreeMap<PathBuf, FileMark>| -> Vec<MarkedPath> {
            let pair = |(path, mark): (&PathBuf, &FileMark)| MarkedPath {
                path: path.clone(),
                mark: *mark,
            };
            marks.iter().map(pair).collect()
        };
        let both = [listed(&self.old), self.made.as_ref().map(listed).unwrap_or_default()];
        let file = journal.with_extension(MARKS);
        write_json(&file, &both).map_err(TrialError::at(&file))
    }
}

impl ApplyJournal {
    /// Where the journal of a trial is.
    pub(super) fn file_of(trials: &Trials, id: &TaskId) -> PathBuf {
        trials.applying.join(format!("{id}.{JOURNAL}"))
    }

    /// The files of all applies that were cut off.
    pub(super) fn all(trials: &Trials) -> Vec<PathBuf> {
        let entries = fs::read_dir(&trials.applying).into_iter().flatten().filter_map(Result::ok);
        let files = entries.map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|it| it == JOURNAL)).collect()
    }

    /// What is left beside the journals of an apply that was cut off before it had one, or after.
    pub(super) fn left(trials: &Trials) -> Vec<PathBuf> {
        let entries = fs::read_dir(&trials.applying).into_iter().flatten().filter_map(Result::ok);
        let files = entries.map(|entry| entry.path());
        let is_left = |path: &PathBuf| {
            let is = |kind: &str| path.extension().is_some_and(|it| it == kind);
            is(NEW) || (is(MARKS) && !path.with_extension(JOURNAL).exists())
        };
        files.filter(is_left).collect()
    }

    /// The journals of applies that could be neither finished nor undone.
    pub(super) fn stuck(trials: &Trials) -> Vec<PathBuf> {
        let entries = fs::read_dir(&trials.applying).into_iter().flatten().filter_map(Result::ok);
        let files = entries.map(|entry| entry.path());
        let is_stuck = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(STUCK))
        };
        let mut stuck: Vec<PathBuf> = files.filter(is_stuck).collect();
        stuck.sort();
        stuck
    }

    pub(super) fn read(file: &Path) -> Result<Self, TrialError> {
        let read: Self = read_json(file).map_err(TrialError::at(file))?;
        Ok(Self { file: file.to_owned(), ..read })
    }

    pub(super) fn write(&self) -> Result<(), TrialError> {
        write_json(&self.file, self).map_err(TrialError::at(&self.file))
    }

    /// Goes on to the next phase.
    pub(super) fn advance(&mut self, phase: ApplyPhase) -> Result<(), TrialError> {
        self.phase = phase;
        self.write()
    }

    pub(super) fn remove(&self) -> Result<(), TrialError> {
        remove_synced(&self.file).map_err(TrialError::at(&self.file))?;
        let marks = self.file.with_extension(MARKS);
        remove_synced(&marks).map_err(TrialError::at(&marks))
    }

    /// Gives a journal a name under which nobody goes on with it.
    pub(super) fn set_aside(file: &Path) -> io::Result<()> {
        let mut name = file.as_os_str().to_owned();
        name.push(format!("{STUCK}{}", now_ms()));
        fs::rename(file, name)?;
        remove_synced(&file.with_extension(MARKS))
    }

    pub(super) fn ground(&self, layer: usize) -> Option<&StagingGround> {
        self.grounds.iter().find(|ground| ground.layer == layer)
    }

    /// Where a step changes something.
    pub(super) fn at(&self, step: &ApplyStep) -> PathBuf {
        self.ground(step.layer).map_or(Path::new("/"), |ground| &ground.place).join(&step.path)
    }
}
