//! Adoption: a long-lived engine takes over the commands whose engine is gone.
//!
//! An owner keeps a command from being stopped as abandoned, and records its end as soon as it comes. Engines that
//! live for one call adopt nothing; whatever they leave is settled by whoever looks next.

use std::{
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

use legwork_warden::{
    failpoint::Failpoint,
    protocol::{FromWarden, Order, ToWarden, is_understood},
};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    Running, Tasks,
    run::{self, Progress, RunControl},
};
use crate::{
    place::{Channel, Warden},
    store::ledger::Task,
};

/// How often a living engine looks for what has lost its owner.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// How long a warden may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Adopts now, and again and again for as long as the engine lives.
pub(crate) async fn keep_adopting(tasks: Weak<Tasks>) {
    loop {
        let Some(tasks) = tasks.upgrade() else { return };
        match tasks.store.ledger.list(None, false, u32::MAX).await {
            Ok(open) => {
                for task in open {
                    tasks.clone().adopt(&task).await;
                }
            }
            Err(error) => tracing::warn!(%error, "nothing can be adopted"),
        }
        drop(tasks);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Tasks {
    /// Takes over one task, if it has no owner.
    async fn adopt(self: Arc<Self>, task: &Task) {
        if self.is_ours(&task.task_id) {
            return;
        }
        let Some(channel) = self.owned_channel(task).await else { return };
        let (orders, inbox) = mpsc::unbounded_channel();
        let (sender, progress) = watch::channel(Progress::default());
        // Nobody waits for it: it goes on as the task that it is.
        let promoted = Arc::new(AtomicBool::new(true));
        let running = Running { control: RunControl::new(orders), progress, promoted };
        self.hold(task.task_id.clone(), running);
        tracing::info!(task_id = %task.task_id, "adopted");
        let warden = Warden::adopted(task.warden.clone(), channel);
        tokio::spawn(run::drive(self.clone(), task.task_id.clone(), warden, inbox, sender, None));
    }

    /// A channel on which we are the owner of a task.
    async fn owned_channel(&self, task: &Task) -> Option<Channel> {
        let mut channel = self.place.dial(&task.warden).await.ok()?;
        let id = task.task_id.as_str();
        match timeout(ANSWER, channel.receive()).await {
            Ok(Ok(FromWarden::Hello { version, task: Some(held), .. }))
                if held == id && is_understood(version) => {}
            _ => return None,
        }
        Failpoint::EngineBeforeAdoption.pass();
        channel.send(&ToWarden::Order { task: id.to_owned(), order: Order::Adopt }).await.ok()?;
        let mut earlier = Vec::new();
        loop {
            match timeout(ANSWER, channel.receive()).await {
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
