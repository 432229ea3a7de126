//! Keeping the state folder in order: the clean-up, asked for or quietly, and what it takes on the disk.

use std::sync::{Arc, Weak};

use crate::{
    engine::{Engine, Inner},
    error::ToolError,
    store::ledger::LedgerError,
    store::retention::{Collected, Effort, Retention, collect},
    store::usage::{Usage, usage},
    threads::in_thread,
};

/// How much less than other threads the quiet clean-up wants of the processor.
const NICE: i32 = 19;

impl Engine {
    /// Removes what is past its time, or says what would be.
    pub async fn collect(
        &self,
        retention: Retention,
        dry_run: bool,
    ) -> Result<Collected, ToolError> {
        let settled = self.inner.settle_all().await;
        settled.map_err(|error| ToolError::state(&error))?;
        let state = self.inner.state.clone();
        let work = move || collect(&state, retention, Effort::ALL, dry_run);
        let collected = in_thread(work).await.unwrap_or(Err(LedgerError::Cut));
        let collected = collected.map_err(|error| ToolError::state(&error))?;
        collected.ok_or_else(|| ToolError::state(&"another process is cleaning up"))
    }

    /// Removes what is past its time, beside whatever else goes on: a little at a time, and only one process.
    pub fn tidy_up(&self) {
        tokio::spawn(tidy_up(Arc::downgrade(&self.inner), self.inner.settings.retention));
    }

    /// What the state folder takes on the disk.
    pub async fn usage(&self) -> Result<Usage, ToolError> {
        let state = self.inner.state.clone();
        let usage = in_thread(move || usage(&state)).await.unwrap_or(Err(LedgerError::Cut));
        usage.map_err(|error| ToolError::state(&error))
    }

    /// Checks the whole ledger; one that is damaged is rebuilt.
    pub async fn check_ledger(&self) -> Result<(), ToolError> {
        self.inner.ledger.check().await.map_err(|error| ToolError::state(&error))
    }
}

async fn tidy_up(engine: Weak<Inner>, retention: Retention) {
    let Some(inner) = engine.upgrade() else { return };
    if let Err(error) = inner.settle_all().await {
        tracing::warn!(%error, "nothing is cleaned up");
        return;
    }
    let state = inner.state.clone();
    drop(inner);
    // A thread of its own: its low priority stays with it.
    let work = move || {
        let _ = rustix::process::setpriority_process(None, NICE);
        match collect(&state, retention, Effort::QUIET, false) {
            Ok(Some(collected)) => tracing::debug!(?collected, "cleaned up"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the clean-up was cut off"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tidy".into()).spawn(work) {
        tracing::warn!(%error, "nothing is cleaned up");
    }
}
