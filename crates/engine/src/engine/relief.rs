//! Shows trials, and forgets trials and layers, of a state folder whose ledger cannot be opened, as
//! on a full disk: what makes room must not need any.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::Engine;
use crate::{
    error::ToolError,
    id::TaskId,
    output::Mask,
    place::is_warden_alive,
    state::{Repair, StateFolder},
    store::{audit::AuditEntry, open_state},
    task::{
        outside::{entry, nothing, outside_error},
        trials::{ShownChanges, TrialChanges, remove, still_runs, trial_error},
    },
    trial::{OutsideLayers, TrialError, TrialRecord, Trials},
};

/// How long the warden of a command that has ended may take to end, and how often that is looked
/// at.
const LET_GO: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// A state folder without its ledger. Nothing is written; whoever discards something here notes
/// that in the audit log as soon as there is room for it
/// ([`Engine::note_discarded`](crate::Engine::note_discarded)).
#[derive(Debug)]
pub struct Relief {
    state: StateFolder,
}

/// What was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discarded {
    /// What a trial changed.
    Trial(TaskId),
    /// What finished commands changed outside the workspace that a folder is in.
    Outside(PathBuf),
}

impl Relief {
    /// Opens no more than the folder.
    pub fn open(state: &Path, tell: fn(&Repair)) -> Result<Self, ToolError> {
        Ok(Self { state: open_state(state, tell)? })
    }

    /// The trials, newest first.
    pub fn trials(&self) -> Vec<TrialRecord> {
        let all = self.trials_folder().all();
        all.into_iter().map(|trial| trial.record).collect()
    }

    /// What a trial takes on the disk.
    pub fn trial_bytes(&self, trial: &TrialRecord) -> u64 {
        self.trials_folder().get(&trial.task_id).map_or(0, |trial| trial.bytes())
    }

    /// What a trial changed that was not brought over yet, as
    /// [`Engine::trial_changes`](crate::Engine::trial_changes) shows it.
    pub fn trial_changes(
        &self,
        trial: &TrialRecord,
        paths: &[PathBuf],
        shown: ShownChanges,
    ) -> Result<TrialChanges, ToolError> {
        self.wait_until_over(trial)?;
        let opened = self.trials_folder().get(&trial.task_id);
        let changes =
            opened.and_then(|it| TrialChanges::of(&it, paths, shown, &Mask::of_environment()));
        changes.map_err(|error| trial_error(&error))
    }

    /// Forgets what a trial changed, unless something of it may still run.
    pub fn discard_trial(&self, trial: &TrialRecord) -> Result<Discarded, ToolError> {
        self.wait_until_over(trial)?;
        let removed = remove(&self.trials_folder(), &trial.task_id);
        let failed = |error| TrialError::Io { what: "the trial".into(), error };
        removed.map_err(|error| trial_error(&failed(error)))?;
        Ok(Discarded::Trial(trial.task_id.clone()))
    }

    fn trials_folder(&self) -> Trials {
        Trials::of(self.state.path())
    }

    /// Waits for the warden of a command that has just ended: it is on its way out, and nobody
    /// tells of its end without an engine. An error while something of the trial may still run.
    fn wait_until_over(&self, trial: &TrialRecord) -> Result<(), ToolError> {
        let is_over = || match &trial.warden {
            Some(warden) => !is_warden_alive(&self.state, warden),
            None => !self.has_wardens(),
        };
        let begun = Instant::now();
        while !is_over() {
            if begun.elapsed() > LET_GO {
                return Err(still_runs(&trial.task_id));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Forgets what finished commands of the workspace that a folder is in changed outside of it,
    /// all of it, and says how many commands still run.
    pub fn discard_outside(&self, folder: &Path) -> Result<(Discarded, usize), ToolError> {
        let layers = OutsideLayers::at(self.state.path(), folder).ok_or_else(nothing)?;
        let running = layers.discard(&[], &|warden| is_warden_alive(&self.state, warden));
        let running = running.map_err(|error| outside_error(&error))?;
        Ok((Discarded::Outside(folder.to_owned()), running))
    }

    /// Whether any warden lives.
    fn has_wardens(&self) -> bool {
        let entries = std::fs::read_dir(self.state.path().join("wardens"));
        let mut names = entries.into_iter().flatten().filter_map(Result::ok);
        names.any(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            is_warden_alive(&self.state, name.strip_suffix(".sock").unwrap_or(&name))
        })
    }
}

impl Engine {
    /// Notes in the audit log what was discarded while the ledger could not be opened.
    pub async fn note_discarded(&self, discarded: &Discarded, by: &str) {
        let entry = match discarded {
            Discarded::Trial(id) => {
                AuditEntry::new("trial_discard").own("task_id", id).with("answered_by", by)
            }
            Discarded::Outside(folder) => entry("outside_discard", folder, &[], by),
        };
        self.store.note(entry).await;
    }
}
