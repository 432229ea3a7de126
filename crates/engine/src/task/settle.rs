//! Records how tasks end, in the ledger and the audit log, and settles tasks whose warden is gone.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use legwork_gate::Level;
use legwork_warden::{
    failpoint::Failpoint,
    protocol::{StartFailure, StartStage},
    record::RecordError,
};

use tokio::time::{Instant, sleep_until, timeout};

use super::{Tasks, names, rights::TRIAL};
use crate::{
    error::ToolError,
    events::Interest,
    id::TaskId,
    model::{Outcome, status::Status},
    output::{SmallOutput, TaskOutput},
    place::TamperCheck,
    store::{
        audit::AuditEntry,
        ledger::{LedgerError, Task},
    },
    threads::in_thread,
};

/// Why a task failed whose command could not be started.
const SPAWN_FAILED: &str = "spawn_failed";

/// Why nothing is known of a run whose warden was killed.
const WARDEN_LOST: &str = "warden_lost";

/// How long a scheduler may take to say a word for a list.
const SCHEDULER: Duration = Duration::from_secs(2);

/// How long an engine that lives may take to say what became of a task whose warden is gone.
const OWNER: Duration = Duration::from_secs(3);

impl Tasks {
    /// Records how a task ended, in the ledger and the audit log; the first outcome stays.
    pub(crate) async fn finish(
        &self,
        id: &TaskId,
        outcome: &Outcome,
        output: Option<Arc<SmallOutput>>,
    ) -> Result<(), LedgerError> {
        let known = self.with_survivors(id, outcome).await?;
        let outcome = known.as_ref().unwrap_or(outcome);
        if let Some(trust) = self.store.ledger.finish(id, outcome, output).await? {
            Failpoint::EngineAfterOutcome.pass();
            names::note_connections(self, id, outcome).await;
            let (status, reason) = Status::of(outcome);
            let mut entry = AuditEntry::new("outcome")
                .own("task_id", id)
                .own("status", &status)
                .own("reason", &reason)
                .own("exit_status", &outcome.exit_status)
                .own("signal", &outcome.signal)
                .own("duration_ms", &outcome.duration_ms)
                .own("trust", &trust);
            if !outcome.warnings.is_empty() {
                entry = entry.with("warnings", outcome.warnings.clone());
            }
            self.store.note(entry).await;
        }
        Ok(())
    }

    /// What is known of a run that has lost its warden, once what it left behind was ended, or is
    /// named.
    async fn with_survivors(
        &self,
        id: &TaskId,
        outcome: &Outcome,
    ) -> Result<Option<Outcome>, LedgerError> {
        if outcome.lost.as_deref() != Some(WARDEN_LOST) {
            return Ok(None);
        }
        let found = self.store.ledger.find(id.as_str()).await?;
        let Some(warden) = found.into_iter().next().map(|task| task.warden) else {
            return Ok(None);
        };
        let place = self.place_of(&warden);
        if let Some(ending) = place.end_left_there(&warden) {
            let background_pids = ending.await;
            return Ok(Some(Outcome { background_pids, ..outcome.clone() }));
        }
        let left = in_thread(move || place.end_left_by(&warden)).await;
        Ok(Some(Outcome { background_pids: left.unwrap_or_default(), ..outcome.clone() }))
    }

    /// A start that failed: a task without a folder never was; any other one failed.
    pub(crate) async fn record_failed_start(&self, id: &TaskId, failure: &StartFailure) {
        let recorded = match failure.stage {
            StartStage::Folder => self.store.ledger.forget(id).await,
            _ => self.store.ledger.never_started(id, SPAWN_FAILED).await,
        };
        let trust = recorded.unwrap_or_else(|error| {
            tracing::warn!(task_id = %id, %error, "a failed start is not in the ledger yet");
            None
        });
        let entry = AuditEntry::new("outcome")
            .own("task_id", id)
            .own("status", &Status::Failed)
            .own("reason", SPAWN_FAILED)
            .own("message", &io::Error::from_raw_os_error(failure.errno).to_string())
            .own("trust", &trust);
        self.store.note(entry).await;
    }

    /// What a task has printed, if it is in the ledger or in a folder.
    pub(crate) async fn output(&self, id: &TaskId) -> Result<TaskOutput, ToolError> {
        let small = self.store.ledger.small_output(id).await?;
        if small.is_none() {
            Box::pin(self.bring_task(id)).await?;
        }
        let unreadable = |error| ToolError::unreadable(id.as_str(), &error);
        small.map_or_else(
            || self.place.output(id).map_err(unreadable),
            |small| Ok(TaskOutput::from(&*small)),
        )
    }

    /// Brings what a task of another place has stored here.
    async fn bring_task(&self, id: &TaskId) -> Result<(), ToolError> {
        // Only of one that is elsewhere is nothing here; but for what was brought before.
        if !self.places.are_used(self.store.state.path()) {
            return Ok(());
        }
        if let Some(task) = self.store.ledger.find(id.as_str()).await?.pop() {
            self.bring(&task.warden, id).await;
        }
        Ok(())
    }

    /// What is known of a run whose warden is gone: its record, or nothing.
    pub(crate) async fn outcome_without_warden(&self, warden: &str, id: &TaskId) -> Outcome {
        if Self::is_far(warden) {
            Box::pin(self.bring(warden, id)).await;
        }
        match self.place.exit_record(id) {
            Ok(Ok(record)) if record.task == id.as_str() => Outcome::from(&record),
            Ok(Ok(_) | Err(RecordError::Damaged)) => Outcome::lost("exit_record_damaged"),
            Ok(Err(RecordError::Empty)) | Err(_) => {
                let why = self.place_of(warden).why_lost(id);
                Outcome::lost(why.as_deref().unwrap_or(WARDEN_LOST))
            }
        }
    }

    /// Tasks whose id begins with this text; one that only its folder knows of is put back before.
    pub(crate) async fn find(&self, text: &str) -> Result<Vec<Task>, LedgerError> {
        let found = self.store.ledger.find(text).await?;
        match TaskId::parse(text) {
            Some(id) if found.is_empty() && self.place.has_stored(&id) => {
                self.store.ledger.restore(&id).await?;
                self.store.ledger.find(text).await
            }
            _ => Ok(found),
        }
    }

    /// Settles every task that only seems to run.
    pub(crate) async fn settle_all(&self) -> Result<(), LedgerError> {
        let mut answers = true;
        for id in self.store.ledger.open_ids().await? {
            // Of our own we would know.
            if self.is_ours(&id) {
                continue;
            }
            match self.store.ledger.find(id.as_str()).await?.pop() {
                Some(task) if task.status == Status::Queued && answers => {
                    // A scheduler that does not answer keeps nobody waiting.
                    let seen = Box::pin(self.seen_in_queue(task));
                    answers = answers && timeout(SCHEDULER, seen).await.is_ok();
                }
                // Nobody connects to another machine for a list.
                Some(task) if self.is_out_of_reach(&task.warden) => {}
                Some(task) if !task.status.is_final() => drop(self.settle_if_gone(task).await?),
                _ => self.store.ledger.reconcile(&id).await?,
            }
        }
        Ok(())
    }

    /// A task as the ledger has it now.
    pub(crate) async fn read_again(&self, task: Task) -> Result<Task, LedgerError> {
        let found = self.store.ledger.find(task.task_id.as_str()).await?;
        Ok(found.into_iter().next().unwrap_or(task))
    }

    /// A task whose end was heard, once its engine has had the time to record it: that one knows
    /// more of it than the warden tells everybody, such as what the command has tampered with.
    pub(super) async fn recorded_by_its_engine(&self, task: Task) -> Result<Task, LedgerError> {
        let driver = self.running().get(&task.task_id).map(|run| run.progress.clone());
        if let Some(mut progress) = driver {
            let recorded = progress.wait_for(|progress| progress.end.is_some());
            let _ = timeout(OWNER, recorded).await;
            return self.read_again(task).await;
        }
        let task = self.read_again(task).await?;
        if task.status.is_final() { Ok(task) } else { self.left_to_its_engine(task).await }
    }

    /// A task whose warden is gone, once its engine has had the time to say what became of it.
    async fn left_to_its_engine(&self, mut task: Task) -> Result<Task, LedgerError> {
        if !self.place.is_owned(&task.warden) {
            return Ok(task);
        }
        let patience = Instant::now() + OWNER;
        let mut ended = self.place.engines_ended();
        let mut events = self.store.ledger.events(None, Interest::Changes).await?;
        loop {
            task = self.read_again(task).await?;
            if task.status.is_final() || !self.place.is_owned(&task.warden) {
                return Ok(task);
            }
            tokio::select! {
                () = events.of_task(&task.task_id) => {}
                _ = ended.changed() => {}
                () = sleep_until(patience) => return Ok(task),
            }
        }
    }

    /// Settles a task if its warden is gone, and returns it as it then is.
    pub(crate) async fn settle_if_gone(&self, task: Task) -> Result<Task, LedgerError> {
        if task.status.is_final() {
            return Ok(task);
        }
        // When in doubt it lives: a wrong "interrupted" could never be taken back.
        if Box::pin(self.is_alive(&task.warden)).await.unwrap_or(true) {
            return Ok(task);
        }
        let task = self.left_to_its_engine(task).await?;
        self.settle_lost(task).await
    }

    /// Settles a task whose warden is gone, and of which nobody else will say what became of it.
    pub(super) async fn settle_lost(&self, task: Task) -> Result<Task, LedgerError> {
        let check = Self::missed_check(&task);
        Box::pin(self.settle_with(task, check, |_| {})).await
    }

    /// What stands for the look before a task, for those who have not had it started.
    pub(super) fn missed_check(task: &Task) -> Option<TamperCheck> {
        let is_trial = task.sandbox.granted_by.as_deref() == Some(TRIAL);
        let is_checked = task.sandbox.level == Level::WorkspaceWrite && !is_trial;
        let others = &task.sandbox.other_folders;
        is_checked.then(|| TamperCheck::Missed(PathBuf::from(&task.workspace), others.clone()))
    }

    /// The same by the engine that had it started, which adds what only that one knows.
    pub(super) async fn settle_with(
        &self,
        task: Task,
        check: Option<TamperCheck>,
        explain: impl FnOnce(&mut Outcome),
    ) -> Result<Task, LedgerError> {
        if task.status.is_final() {
            return Ok(task);
        }
        Failpoint::EngineBeforeSettlement.pass();
        if Box::pin(self.settle_unstarted(&task)).await? {
            self.forget_now(&task.warden, &task.task_id, false).await;
            return self.read_again(task).await;
        }
        let rebooted = task.boot_id != self.place_of(&task.warden).boot_id();
        let known = self.outcome_without_warden(&task.warden, &task.task_id);
        let mut outcome = match Box::pin(known).await {
            outcome if outcome.lost.is_some() && rebooted => Outcome::lost("reboot"),
            outcome => outcome,
        };
        if let Some(check) = check {
            let leaves = !outcome.background_pids.is_empty();
            outcome.warnings = check.warnings(leaves).await;
        }
        explain(&mut outcome);
        self.finish(&task.task_id, &outcome, None).await?;
        self.forget_now(&task.warden, &task.task_id, true).await;
        self.read_again(task).await
    }
}
