//! Trials: commands that ran on a copy, what they changed, and what of it is brought over.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use serde::Serialize;

use super::Tasks;
use crate::{
    error::{ErrorKind, StateProblem, ToolError},
    id::TaskId,
    model::status::Status,
    output::Mask,
    store::{audit::AuditEntry, ledger::Task},
    threads::in_thread,
    trial::{Applied, DiffLimits, Trial, TrialError, Trials, TriedChanges},
};

/// A trial, with what is known of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialState {
    /// Its task.
    pub task_id: TaskId,
    /// What the command was.
    pub command: String,
    /// The workspace.
    pub workspace: PathBuf,
    /// How far its command is.
    pub status: Status,
    /// When it was begun, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// What was brought over so far.
    pub applied: Vec<PathBuf>,
    /// What its layers take on the disk.
    pub bytes: u64,
}

/// What a trial changed, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialChanges {
    /// The trial.
    pub task_id: TaskId,
    /// The changes that were not brought over yet.
    pub changes: TriedChanges,
    /// How many there are of which kind, in words.
    pub counted: String,
    /// A line for each, up to the limit that was asked for.
    pub list: String,
    /// A unified diff, if one was asked for; without secrets.
    pub diff: Option<String>,
}

impl TrialChanges {
    /// The changes of a trial at and below these paths, or all of them.
    pub(super) fn of(
        trial: &Trial,
        paths: &[PathBuf],
        shown: ShownChanges,
        mask: &Mask,
    ) -> Result<Self, TrialError> {
        let changes = trial.pending(paths)?;
        let diff = shown.diff.map(|(lines_max, bytes_max)| {
            let text = trial.diff(&changes, DiffLimits { lines_max, bytes_max });
            mask.text(&text).into_owned()
        });
        Ok(Self {
            counted: changes.counted(),
            list: trial.list(&changes, shown.lines_max),
            task_id: trial.record.task_id.clone(),
            changes,
            diff,
        })
    }
}

/// How much of a trial's changes is shown.
#[derive(Debug, Clone, Copy)]
pub struct ShownChanges {
    /// Lines of the list.
    pub lines_max: usize,
    /// Lines and bytes of the diff; none without one.
    pub diff: Option<(usize, usize)>,
}

impl Tasks {
    pub(super) fn trials_folder(&self) -> Trials {
        Trials::of(self.store.state.path())
    }

    /// Does something with the trials in a thread.
    async fn with_trials<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Trials) -> Result<T, TrialError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let trials = self.trials_folder();
        let done = in_thread(move || work(&trials)).await;
        let cut = || ToolError::new(ErrorKind::ToolExecutionFailed, "it was cut off");
        done.ok_or_else(cut)?.map_err(|error| trial_error(&error))
    }

    /// Finishes or undoes what an apply was cut off at.
    pub(crate) fn recover_trials(&self) {
        if let Err(error) = self.trials_folder().recover() {
            tracing::warn!(%error, "an apply was cut off, and could be neither finished nor undone");
        }
    }

    /// The journals of applies that could be neither finished nor undone.
    pub(crate) fn stuck_applies(&self) -> Vec<PathBuf> {
        self.trials_folder().stuck()
    }

    /// All trials, newest first.
    pub(crate) async fn trials(&self) -> Result<Vec<TrialState>, ToolError> {
        let all = self.with_trials(|trials| {
            let measured = |trial: Trial| (trial.bytes(), trial.record);
            Ok(trials.all().into_iter().map(measured).collect::<Vec<_>>())
        });
        let mut states = Vec::new();
        for (bytes, record) in all.await? {
            // A trial whose task is gone is gone with the next clean-up.
            let Ok(task) = self.one(record.task_id.as_str()).await else { continue };
            states.push(TrialState {
                task_id: record.task_id,
                command: task.command,
                workspace: record.workspace,
                status: task.status,
                created_at_ms: record.created_at_ms,
                applied: record.applied,
                bytes,
            });
        }
        Ok(states)
    }

    /// The task of the trial whose id begins with this text; `@` is the newest trial.
    pub(crate) async fn trial(&self, prefix: &str) -> Result<Task, ToolError> {
        if prefix != "@" {
            let task = self.one(prefix).await?;
            let (trials, id) = (self.trials_folder(), task.task_id.clone());
            return if trials.has(&id) { Ok(task) } else { Err(no_trial(prefix)) };
        }
        let newest = self.with_trials(|trials| {
            Ok(trials.all().into_iter().next().map(|trial| trial.record.task_id))
        });
        match newest.await? {
            Some(id) => self.one(id.as_str()).await,
            None => Err(ToolError::new(ErrorKind::UnknownTask, "there is no trial")),
        }
    }

    /// An error while a trial's command, or anything that it left behind, still runs.
    async fn check_over(&self, task: &Task) -> Result<(), ToolError> {
        if self.is_trial_over(task).await { Ok(()) } else { Err(still_runs(&task.task_id)) }
    }

    /// Whether nothing of a trial runs any more: it can be shown, applied and discarded.
    pub(crate) async fn is_trial_over(&self, task: &Task) -> bool {
        task.status.is_final() && self.is_let_go(task).await
    }

    /// Whether the warden of a finished command is gone that served no other. It goes by itself
    /// when the last process of the sandbox has, and waits for that for as long as it takes: no
    /// process can hide from it, whatever its command line says.
    pub(super) async fn is_let_go(&self, task: &Task) -> bool {
        let left = task.outcome.as_ref().is_some_and(|it| !it.background_pids.is_empty());
        self.is_warden_gone(&task.warden, left).await
    }

    pub(super) async fn is_warden_gone(&self, warden: &str, has_left: bool) -> bool {
        let patience = if has_left { STOPPED } else { LET_GO };
        if let Ok(mut channel) = self.place.dial(warden).await {
            let gone = async { while channel.receive_of_warden().await.is_ok() {} };
            let _ = tokio::time::timeout(patience, gone).await;
        }
        // When in doubt it lives.
        !self.place.is_alive(warden).unwrap_or(true)
    }

    /// What a trial changed and what of that was not brought over, at and below these paths.
    pub(crate) async fn trial_changes(
        &self,
        task: &Task,
        paths: Vec<PathBuf>,
        shown: ShownChanges,
    ) -> Result<TrialChanges, ToolError> {
        self.check_over(task).await?;
        self.shown_changes(task.task_id.clone(), paths, shown).await
    }

    /// The same of a trial that is over.
    pub(super) async fn shown_changes(
        &self,
        id: TaskId,
        paths: Vec<PathBuf>,
        shown: ShownChanges,
    ) -> Result<TrialChanges, ToolError> {
        let mask = self.mask.get();
        self.with_trials(move |trials| TrialChanges::of(&trials.get(&id)?, &paths, shown, &mask))
            .await
    }

    /// Brings over what a trial changed: all of it, or what is at and below these paths.
    pub(crate) async fn apply_trial(
        self: &Arc<Self>,
        task: &Task,
        paths: Vec<PathBuf>,
        by: &str,
    ) -> Result<Applied, ToolError> {
        self.check_over(task).await?;
        let entry = AuditEntry::new("trial_apply")
            .own("task_id", &task.task_id)
            .with("answered_by", by)
            .with("paths", paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>())
            .command(&task.command);
        self.store.note_first(entry).await?;
        let id = task.task_id.clone();
        self.with_trials(move |trials| trials.apply(&id, &paths)).await
    }

    /// Forgets a trial: nothing of it is left but its task.
    pub(crate) async fn discard_trial(&self, task: &Task, by: &str) -> Result<(), ToolError> {
        self.check_over(task).await?;
        self.forget_trial(&task.task_id).await?;
        let entry = AuditEntry::new("trial_discard")
            .own("task_id", &task.task_id)
            .with("answered_by", by)
            .command(&task.command);
        self.store.note(entry).await;
        Ok(())
    }

    /// Removes the folder of a trial, if there is one.
    pub(super) async fn forget_trial(&self, id: &TaskId) -> Result<(), ToolError> {
        let id = id.clone();
        let removed = self.with_trials(move |trials| {
            remove(trials, &id).map_err(|error| TrialError::Io { what: "the trial".into(), error })
        });
        removed.await
    }
}

/// How long the warden of a command that has left nothing behind may take to end. It does so within
/// milliseconds, but for a machine that has no time for it.
const LET_GO: Duration = Duration::from_secs(30);

/// How long that of one may take that has, if all of it was stopped just now.
const STOPPED: Duration = Duration::from_secs(3);

/// How often the removal of a trial is begun anew.
const REMOVALS_MAX: usize = 100;

/// Removes the folder of a trial. Whoever answers a question and whoever has asked it do so at the
/// same time, so that a file may be gone before it is removed here: then what is left is removed.
fn remove(trials: &Trials, id: &TaskId) -> io::Result<()> {
    for _ in 0..REMOVALS_MAX {
        match trials.remove(id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
    Ok(())
}

pub(super) fn still_runs(id: &TaskId) -> ToolError {
    ToolError::new(ErrorKind::ToolExecutionFailed, format!("the trial `{id}` still runs"))
        .hint("wait for its end, or stop it")
}

fn no_trial(prefix: &str) -> ToolError {
    ToolError::new(ErrorKind::UnknownTask, format!("the task `{prefix}` is no trial"))
        .hint("list the trials to see their ids")
}

/// The typed error of something that cannot be done with a trial.
pub(super) fn trial_error(error: &TrialError) -> ToolError {
    match error {
        TrialError::Unknown => ToolError::new(ErrorKind::UnknownTask, error.to_string()),
        TrialError::ChangedUnderneath(paths) => {
            let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            ToolError::new(
                ErrorKind::ChangedUnderneath,
                format!("{error}; nothing was brought over"),
            )
            .detail("paths", named)
            .hint("apply other paths, or discard the trial and try the command again")
        }
        TrialError::ChangedInTrial(path) => ToolError::new(
            ErrorKind::ChangedUnderneath,
            format!("{error}; nothing was brought over"),
        )
        .detail("paths", vec![path.display().to_string()])
        .hint("discard the trial and try the command again"),
        TrialError::Swapped(path) => ToolError::new(
            ErrorKind::ChangedUnderneath,
            format!("{error}; nothing was brought over"),
        )
        .detail("paths", vec![path.display().to_string()])
        .hint("stop the commands that run in this folder, and apply again"),
        TrialError::NoChange(_) | TrialError::NotInPart(_) | TrialError::Unfit { .. } => {
            ToolError::new(ErrorKind::InvalidToolInput, error.to_string())
                .hint("list the changes of the trial to see their paths")
        }
        TrialError::Io { what, error } if error.kind() == io::ErrorKind::CrossesDevices => {
            let mounted = format!("another file system is mounted over {what}");
            ToolError::new(
                ErrorKind::ChangedUnderneath,
                format!("{mounted}; nothing was brought over"),
            )
            .detail("paths", vec![what.clone()])
            .hint("unmount it, or apply other paths")
        }
        TrialError::Io { error: io, .. } if StateProblem::of(io) == StateProblem::Full => {
            ToolError::state(StateProblem::Full, &format!("{error}; nothing was brought over"))
        }
        TrialError::Io { .. }
        | TrialError::TooMany(_)
        | TrialError::TooDeep
        | TrialError::Stuck { .. } => {
            ToolError::new(ErrorKind::ToolExecutionFailed, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Barrier, thread};

    use super::*;

    #[test]
    fn a_trial_that_several_remove_at_once_is_removed_for_all_of_them() {
        let state = tempfile::tempdir().unwrap();
        let (trials, id) = (Trials::of(state.path()), TaskId::random().unwrap());
        let folder = state.path().join("trials").join(id.as_str());
        for _ in 0..20 {
            for at in 0..100 {
                fs::create_dir_all(folder.join(format!("folder-{at}/deep"))).unwrap();
            }
            let begin = Barrier::new(4);
            thread::scope(|scope| {
                let removals: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            begin.wait();
                            remove(&trials, &id)
                        })
                    })
                    .collect();
                for removal in removals {
                    removal.join().unwrap().unwrap();
                }
            });
            let left: Vec<_> = fs::read_dir(state.path().join("trials")).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
