//! What commands have written outside their workspace: told with their results, shown, brought over
//! or forgotten.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Tasks,
    trials::{ShownChanges, TrialChanges, trial_error},
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{Outcome, OutsideChange},
    store::audit::AuditEntry,
    threads::in_thread,
    trial::{Applied, OutsideLayers, ShownPart, Trial, TrialError, Trials},
};

/// What commands of a workspace have changed outside of it, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutsideState {
    /// The name of their layers.
    pub id: String,
    /// The workspace.
    pub workspace: PathBuf,
    /// The folder that they changed: the home.
    pub home: PathBuf,
    /// When the last of these commands began, in milliseconds since 1970.
    pub began_at_ms: i64,
    /// What their layers take on the disk.
    pub bytes: u64,
}

/// How many changes a result lists.
const LISTED: usize = 20;

impl Tasks {
    /// Waits for the sandboxes of commands that have ended: what they wrote is then seen by the
    /// next.
    pub(super) async fn settle_outside(&self) {
        if let Some(layers) = self.place.outside() {
            self.settle_layers(layers).await;
        }
    }

    async fn settle_layers(&self, layers: OutsideLayers) {
        let opened = in_thread(move || layers.opened()).await.unwrap_or_default();
        // Mostly they are gone already, and the ledger need not be asked.
        let lives = |warden: &str| self.place.is_alive(warden).unwrap_or(true);
        for (id, warden) in opened.into_iter().filter(|(_, warden)| lives(warden)) {
            let Ok(task) = self.one(id.as_str()).await else {
                // On a full disk the ledger may not be there: it is not known whether it has ended.
                self.is_warden_gone(&warden, true).await;
                continue;
            };
            let has_left = task.outcome.as_ref().is_none_or(|it| !it.background_pids.is_empty());
            if task.status.is_final() && !has_left {
                self.is_let_go(&task).await;
            }
        }
    }

    /// Adds to an outcome what the command has written outside the workspace.
    pub(super) async fn note_outside(&self, id: &TaskId, outcome: &mut Outcome) {
        let Some(layers) = self.place.outside() else { return };
        let id = id.clone();
        let Some(looked) = in_thread(move || layers.of_task(&id)).await else { return };
        match looked {
            Ok(changes) => {
                let all = changes.listed().count();
                let change = |it: &crate::trial::TriedChange| OutsideChange {
                    path: it.path.display().to_string(),
                    kind: it.kind.name().to_owned(),
                };
                outcome.changes = changes.listed().take(LISTED).map(change).collect();
                outcome.more_changes = all.saturating_sub(LISTED) as u64;
            }
            Err(error) => outcome
                .warnings
                .push(format!("what was written outside the workspace cannot be read: {error}")),
        }
    }

    /// Does something with the layers of the workspace that a folder is in, in a thread.
    async fn with_outside<T: Send + 'static>(
        &self,
        folder: &Path,
        work: impl FnOnce(&OutsideLayers, &Trials, &dyn Fn(&str) -> bool) -> Result<T, TrialError>
        + Send
        + 'static,
    ) -> Result<T, ToolError> {
        let layers = OutsideLayers::at(self.store.state.path(), folder).ok_or_else(nothing)?;
        self.settle_layers(layers.clone()).await;
        let (trials, place) = (self.trials_folder(), self.place.clone());
        let done = in_thread(move || {
            work(&layers, &trials, &|warden| place.is_alive(warden).unwrap_or(true))
        });
        let cut = || ToolError::new(ErrorKind::ToolExecutionFailed, "it was cut off");
        done.await.ok_or_else(cut)?.map_err(|error| match error {
            TrialError::Unknown => nothing(),
            error => outside_error(&error),
        })
    }

    /// The workspaces whose finished commands have changed something outside, the latest first.
    pub(crate) async fn outside(&self) -> Result<Vec<OutsideState>, ToolError> {
        let state = self.store.state.path().to_owned();
        let all = in_thread(move || OutsideLayers::all(&state)).await.unwrap_or_default();
        let mut states = Vec::new();
        for layers in all {
            self.settle_layers(layers.clone()).await;
            let place = self.place.clone();
            let kept = in_thread(move || {
                let kept = layers.kept(&|warden| place.is_alive(warden).unwrap_or(true))?;
                Some(OutsideState {
                    id: layers.name(),
                    workspace: layers.workspace().to_owned(),
                    home: layers.place().to_owned(),
                    began_at_ms: kept.began_at_ms,
                    bytes: kept.bytes,
                })
            });
            states.extend(kept.await.flatten());
        }
        states.sort_by_key(|state| std::cmp::Reverse(state.began_at_ms));
        Ok(states)
    }

    /// What finished commands of the workspace that a folder is in have changed outside of it.
    pub(crate) async fn outside_changes(
        &self,
        folder: &Path,
        paths: Vec<PathBuf>,
        shown: ShownChanges,
    ) -> Result<TrialChanges, ToolError> {
        let mask = self.mask.get();
        self.with_outside(folder, move |layers, _, is_alive| {
            let show = |trial: &Trial, note| {
                let told = TrialChanges { note, ..TrialChanges::of(trial, &paths, shown, &mask)? };
                let part = ShownPart { changes: told.changes.clone(), cut: told.cut.clone() };
                Ok((told, part))
            };
            layers.show(show, is_alive)?.ok_or(TrialError::Unknown)
        })
        .await
    }

    /// Brings that over: all of it, or what is at and below these paths.
    pub(crate) async fn apply_outside(
        &self,
        folder: &Path,
        paths: Vec<PathBuf>,
        by: &str,
    ) -> Result<Applied, ToolError> {
        self.store.note_first(entry("outside_apply", folder, &paths, by)).await?;
        self.with_outside(folder, move |layers, trials, is_alive| {
            layers.apply(trials, &paths, is_alive)
        })
        .await
    }

    /// Forgets it: all of it, or what is at and below these paths. How many commands still run,
    /// whose changes come later.
    pub(crate) async fn discard_outside(
        &self,
        folder: &Path,
        paths: Vec<PathBuf>,
        by: &str,
    ) -> Result<usize, ToolError> {
        let entry = entry("outside_discard", folder, &paths, by);
        let discarded =
            self.with_outside(folder, move |layers, _, is_alive| layers.discard(&paths, is_alive));
        let running = discarded.await?;
        self.store.note(entry).await;
        Ok(running)
    }
}

/// Nothing is kept.
pub(crate) fn nothing() -> ToolError {
    ToolError::new(
        ErrorKind::UnknownTask,
        "nothing is kept of what commands wrote outside this workspace",
    )
}

pub(crate) fn entry(kind: &'static str, folder: &Path, paths: &[PathBuf], by: &str) -> AuditEntry {
    AuditEntry::new(kind)
        .with("folder", folder.display().to_string())
        .with("answered_by", by)
        .with("paths", paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>())
}

/// The typed error of something that cannot be done with layers: they are no trial.
pub(crate) fn outside_error(error: &TrialError) -> ToolError {
    match error {
        TrialError::NoChange(path) => ToolError::new(
            ErrorKind::InvalidToolInput,
            format!("no command of this workspace has changed {}", path.display()),
        )
        .hint("list the changes to see their paths"),
        TrialError::ChangedUnderneath(_) => {
            trial_error(error).hint("apply other paths, or discard these")
        }
        error => trial_error(error),
    }
}
