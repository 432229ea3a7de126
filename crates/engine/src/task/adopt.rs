//! Adoption: an engine that stays takes over the commands of an engine that has ended.
//!
//! An owner keeps a command from being stopped as abandoned, and records its end as soon as it
//! comes. The end of an engine is told by the place; one of those who hear of it becomes the heir:
//! it adopts what runs, and settles what does not. Engines that live for one call adopt nothing;
//! whatever they leave is settled by whoever looks next.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_warden::{
    failpoint::Failpoint,
    protocol::{self, FromWarden, Order, ToWarden},
};
use tokio::time::{sleep, timeout};

use super::{Tasks, versions::LatestTasks};
use crate::{
    id::TaskId,
    place::{Channel, Inheritance, Soon, Warden},
    store::ledger::{LedgerError, Task},
};

/// How long a warden may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A warden may not have heard yet that its engine is gone: this long after one try comes the next.
const AGAIN_MS: [u64; 4] = [10, 50, 250, 1000];

/// The same for wardens on machines that cannot be reached, in seconds; the last counts from then
/// on.
const AGAIN_FAR_SECONDS: [u64; 5] = [1, 1, 5, 15, 60];

/// How long after an outcome could not be recorded its task is looked at again.
const RECORD_AGAIN: Duration = Duration::from_secs(15);

/// What became of a try to adopt a task.
#[derive(Debug, PartialEq, Eq)]
enum Adoption {
    /// It is ours, or over.
    Done,
    /// Its warden still has an owner, or not the task: perhaps it has not heard of the end of its
    /// engine yet.
    NotYet,
}

/// Adopts now, and whenever an engine has ended, for as long as this one lives.
pub(crate) async fn keep_adopting(tasks: LatestTasks) {
    let Some(mut ended) = tasks.upgrade().map(|tasks| tasks.place.engines_ended()) else { return };
    loop {
        // What ends from here on is another reason to look.
        ended.mark_unchanged();
        let Some(tasks) = tasks.upgrade() else { return };
        if let Err(error) = tasks.adopt_lost().await {
            tracing::warn!(%error, "nothing can be adopted");
        }
        drop(tasks);
        if ended.changed().await.is_err() {
            return;
        }
    }
}

/// Takes over tasks on other machines, as soon as those can be reached.
async fn adopt_far(tasks: LatestTasks, mut lost: Vec<(Task, Inheritance)>) {
    let mut pauses = AGAIN_FAR_SECONDS.iter().copied();
    let longest = AGAIN_FAR_SECONDS.last().copied().unwrap_or_default();
    loop {
        let Some(all) = tasks.upgrade() else { return };
        let mut left = Vec::new();
        for (task, inheritance) in lost {
            let known = all.read_again(task.clone()).await.unwrap_or(task);
            if !matches!(all.adopt(&known, &inheritance).await, Ok(Adoption::Done)) {
                left.push((known, inheritance));
            }
        }
        drop(all);
        if left.is_empty() {
            return;
        }
        lost = left;
        sleep(Duration::from_secs(pauses.next().unwrap_or(longest))).await;
    }
}

/// Takes a task of ours up again whose outcome could not be recorded; its warden, or its folder,
/// has that.
pub(super) fn record_again(tasks: LatestTasks, id: TaskId) -> Soon<'static, ()> {
    Box::pin(async move {
        loop {
            sleep(RECORD_AGAIN).await;
            let Some(tasks) = tasks.upgrade() else { return };
            match tasks.adopt_again(&id).await {
                Ok(Adoption::Done) => return,
                Ok(Adoption::NotYet) => {}
                Err(error) => tracing::warn!(task_id = %id, %error, "still not recorded"),
            }
        }
    })
}

impl Tasks {
    /// Takes over every task that has lost its engine.
    pub(super) async fn adopt_lost(self: &Arc<Self>) -> Result<(), LedgerError> {
        let open = self.store.ledger.list(None, false, u32::MAX).await?;
        let (far, mut lost): (Vec<_>, Vec<(Task, Inheritance)>) = open
            .into_iter()
            .filter(|task| !self.is_ours(&task.task_id))
            .filter_map(|task| self.place.inherit(&task.warden).map(|place| (task, place)))
            .partition(|(task, _)| Self::is_far(&task.warden));
        if !far.is_empty() {
            // A machine that does not answer must not keep anybody else waiting.
            tokio::spawn(adopt_far(self.downgrade(), far));
        }
        for pause_ms in AGAIN_MS {
            let mut owned = Vec::new();
            for (task, inheritance) in lost {
                if self.adopt(&task, &inheritance).await? == Adoption::NotYet {
                    owned.push((task, inheritance));
                }
            }
            if owned.is_empty() {
                return Ok(());
            }
            sleep(Duration::from_millis(pause_ms)).await;
            lost = owned;
        }
        Ok(())
    }

    /// Takes over one task that was ours.
    async fn adopt_again(self: &Arc<Self>, id: &TaskId) -> Result<Adoption, LedgerError> {
        match self.store.ledger.find(id.as_str()).await?.pop() {
            Some(task) => self.adopt(&task, &Inheritance::default()).await,
            None => Ok(Adoption::Done),
        }
    }

    /// Takes over one task, if it has no owner; what only seems to run is settled.
    async fn adopt(
        self: &Arc<Self>,
        task: &Task,
        inheritance: &Inheritance,
    ) -> Result<Adoption, LedgerError> {
        if self.is_ours(&task.task_id) || task.status.is_final() {
            return Ok(Adoption::Done);
        }
        if self.jobs_of(&task.warden).is_some() {
            // It is looked for, and taken over when it runs.
            tracing::info!(task_id = %task.task_id, "adopted, wherever its job is");
            self.store.meters.adoptions.fetch_add(1, Ordering::Relaxed);
            let promoted = Arc::new(AtomicBool::new(true));
            let check = Self::missed_check(task);
            self.drive_job(task, None, promoted, check, (None, None), inheritance.clone());
            return Ok(Adoption::Done);
        }
        if let Ok(false) = self.is_alive(&task.warden).await {
            // Nobody else will say what became of it.
            self.settle_lost(self.read_again(task.clone()).await?).await?;
            return Ok(Adoption::Done);
        }
        let Some(channel) = self.owned_channel(task).await else { return Ok(Adoption::NotYet) };
        tracing::info!(task_id = %task.task_id, "adopted");
        self.store.meters.adoptions.fetch_add(1, Ordering::Relaxed);
        let warden = Warden::adopted(task.warden.clone(), channel, inheritance.clone());
        // Nobody waits for it: it goes on as the task that it is.
        let promoted = Arc::new(AtomicBool::new(true));
        let check = Self::missed_check(task);
        self.drive(&task.task_id, (warden, None), promoted, check, None, None);
        Ok(Adoption::Done)
    }

    /// A channel on which we are the owner of a task.
    pub(super) async fn owned_channel(&self, task: &Task) -> Option<Channel> {
        let mut channel = self.place_of(&task.warden).dial(&task.warden).await.ok()?;
        let id = task.task_id.as_str();
        match timeout(ANSWER, channel.receive_of_warden()).await {
            Ok(Ok(FromWarden::Hello { version, task: Some(held), .. }))
                if held == id && version == protocol::version() => {}
            _ => return None,
        }
        Failpoint::EngineBeforeAdoption.pass();
        channel.send(&ToWarden::Order { task: id.to_owned(), order: Order::Adopt }).await.ok()?;
        let mut earlier = Vec::new();
        loop {
            match timeout(ANSWER, channel.receive(id)).await {
                Ok(Ok(FromWarden::Adopted(true))) => break,
                // It has an owner: at most something else came before the answer.
                Ok(Ok(FromWarden::Adopted(false) | FromWarden::NotHeld)) => return None,
                Ok(Ok(other)) => earlier.push(other),
                _ => return None,
            }
        }
        Failpoint::EngineAfterAdoption.pass();
        for message in earlier {
            channel.unread(message);
        }
        Some(channel)
    }
}
