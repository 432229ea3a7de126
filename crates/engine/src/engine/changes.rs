//! Trials: shows what commands changed on a copy, brings it over, forgets it.

use std::path::PathBuf;

use super::Engine;
use crate::{
    error::ToolError,
    store::ledger::Task,
    task::trials::{ShownChanges, TrialChanges, TrialState},
    trial::Applied,
};

impl Engine {
    /// Whether commands can be tried here, as far as that can be known without trying one.
    pub fn can_try(&self) -> bool {
        self.latest().place.can_try()
    }

    /// The trials of all workspaces, newest first.
    pub async fn trials(&self) -> Result<Vec<TrialState>, ToolError> {
        self.latest().trials().await
    }

    /// The task of the trial whose id begins with this text; `@` is the newest trial.
    pub async fn trial(&self, prefix: &str) -> Result<Task, ToolError> {
        self.latest().trial(prefix).await
    }

    /// Whether nothing of a trial runs any more: only then it can be shown, applied or discarded.
    pub async fn is_trial_over(&self, trial: &Task) -> bool {
        self.latest().is_trial_over(trial).await
    }

    /// What a trial changed that was not brought over yet: all of it, or what is at and below some
    /// absolute paths. An error while its command, or anything that it left behind, still runs.
    pub async fn trial_changes(
        &self,
        trial: &Task,
        paths: Vec<PathBuf>,
        shown: ShownChanges,
    ) -> Result<TrialChanges, ToolError> {
        self.latest().trial_changes(trial, paths, shown).await
    }

    /// Brings over what a trial changed: all of it, or what is at and below some absolute paths.
    /// All of that is brought over, or nothing is: what was changed underneath meanwhile is an
    /// error. `by` is who says so, for the audit log: a person, never a model.
    pub async fn apply_trial(
        &self,
        trial: &Task,
        paths: Vec<PathBuf>,
        by: &str,
    ) -> Result<Applied, ToolError> {
        self.latest().apply_trial(trial, paths, by).await
    }

    /// Forgets what a trial changed; its task stays.
    pub async fn discard_trial(&self, trial: &Task, by: &str) -> Result<(), ToolError> {
        self.latest().discard_trial(trial, by).await
    }
}
