//! Cleans up the state folder, on request or in the background, and measures what it takes on the
//! disk.

use std::{sync::Arc, time::Duration};

use super::{Tasks, versions::LatestTasks};
use crate::{
    error::{StateProblem, ToolError},
    platform::be_nice,
    store::{
        ledger::LedgerError,
        retention::{CleanUp, Collected, Manner, Retention, collect},
        usage::{Usage, usage},
    },
    threads::in_thread,
};

/// How often a server cleans up. What is old has to be so for two clean-ups, hours of running time
/// apart.
const TIDY_EVERY: Duration = Duration::from_secs(3 * 3600);

/// How much less than other threads the quiet clean-up wants of the processor.
const NICE: i32 = 19;

impl Tasks {
    /// Removes what is past its time, or says what would be.
    pub(crate) async fn collect(
        &self,
        retention: Retention,
        wanted: CleanUp,
    ) -> Result<Collected, ToolError> {
        self.settle_all().await?;
        let (state, place) = (self.store.state.clone(), self.place.clone());
        let work = move || collect(&state, &place, retention, Manner::Asked(wanted));
        let collected = in_thread(work).await.unwrap_or(Err(LedgerError::Cut))?;
        let busy = || ToolError::state(StateProblem::Busy, &"another process is cleaning up");
        collected.ok_or_else(busy)
    }

    /// Removes what is past its time, now and again and again, beside whatever else goes on: a
    /// little at a time, and only one process.
    pub(crate) fn tidy_up(self: &Arc<Self>) {
        tokio::spawn(keep_tidy(self.downgrade()));
    }

    /// What the state folder takes on the disk.
    pub(crate) async fn usage(&self) -> Result<Usage, ToolError> {
        let state = self.store.state.clone();
        Ok(in_thread(move || usage(&state)).await.unwrap_or(Err(LedgerError::Cut))?)
    }

    /// Cleans up in a thread, without anybody waiting for it.
    fn collect_quietly(&self, retention: Retention) {
        let (state, place) = (self.store.state.clone(), self.place.clone());
        // A thread of its own: its low priority stays with it.
        let work = move || {
            be_nice(NICE);
            match collect(&state, &place, retention, Manner::Quiet) {
                Ok(Some(collected)) => tracing::debug!(?collected, "cleaned up"),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the clean-up was cut off"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("tidy".into()).spawn(work) {
            tracing::warn!(%error, "nothing is cleaned up");
        }
    }
}

async fn keep_tidy(tasks: LatestTasks) {
    loop {
        let Some(tasks) = tasks.upgrade() else { return };
        match tasks.settle_all().await {
            Ok(()) => tasks.collect_quietly(tasks.judge.settings.retention),
            Err(error) => tracing::warn!(%error, "nothing is cleaned up"),
        }
        drop(tasks);
        tokio::time::sleep(TIDY_EVERY).await;
    }
}
