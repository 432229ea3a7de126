//! Keeping the state folder in order: the clean-up, asked for or quietly, and what it takes on the disk.

use std::sync::{Arc, Weak};

use super::Tasks;
use crate::{
    error::ToolError,
    store::{
        ledger::LedgerError,
        retention::{Collected, Effort, Retention, collect},
        usage::{Usage, usage},
    },
    threads::in_thread,
};

/// How much less than other threads the quiet clean-up wants of the processor.
const NICE: i32 = 19;

impl Tasks {
    /// Removes what is past its time, or says what would be.
    pub(crate) async fn collect(
        &self,
        retention: Retention,
        dry_run: bool,
    ) -> Result<Collected, ToolError> {
        self.settle_all().await?;
        let (state, place) = (self.store.state.clone(), self.place.clone());
        let work = move || collect(&state, &place, retention, Effort::ALL, dry_run);
        let collected = in_thread(work).await.unwrap_or(Err(LedgerError::Cut))?;
        collected.ok_or_else(|| ToolError::state(&"another process is cleaning up"))
    }

    /// Removes what is past its time, beside whatever else goes on: a little at a time, and only one process.
    pub(crate) fn tidy_up(self: &Arc<Self>) {
        tokio::spawn(tidy_up(Arc::downgrade(self), self.judge.settings.retention));
    }

    /// What the state folder takes on the disk.
    pub(crate) async fn usage(&self) -> Result<Usage, ToolError> {
        let state = self.store.state.clone();
        Ok(in_thread(move || usage(&state)).await.unwrap_or(Err(LedgerError::Cut))?)
    }
}

async fn tidy_up(tasks: Weak<Tasks>, retention: Retention) {
    let Some(tasks) = tasks.upgrade() else { return };
    if let Err(error) = tasks.settle_all().await {
        tracing::warn!(%error, "nothing is cleaned up");
        return;
    }
    let (state, place) = (tasks.store.state.clone(), tasks.place.clone());
    drop(tasks);
    // A thread of its own: its low priority stays with it.
    let work = move || {
        let _ = rustix::process::setpriority_process(None, NICE);
        match collect(&state, &place, retention, Effort::QUIET, false) {
            Ok(Some(collected)) => tracing::debug!(?collected, "cleaned up"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the clean-up was cut off"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tidy".into()).spawn(work) {
        tracing::warn!(%error, "nothing is cleaned up");
    }
}
