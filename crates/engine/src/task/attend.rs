//! Waits for input, for those who look at tasks live: the kernel has no event for them, so wardens are asked to look.
//!
//! Only tasks with a terminal are attended to, and only while somebody reads the stream of events live.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, Weak},
};

use legwork_warden::protocol::{Met, Watch};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Tasks,
    observe::{Change, Observer, Said},
};
use crate::{
    events::{EventKind, Events, Interest},
    id::TaskId,
    store::ledger::{LedgerError, Task},
};

/// Tasks that are attended to at most, each over a connection of its own.
const TASKS_MAX: usize = 256;

impl Tasks {
    /// Attends to tasks for as long as anybody looks live.
    pub(crate) fn attend(self: &Arc<Self>) {
        let mut attendant = self.attendant.lock().unwrap_or_else(PoisonError::into_inner);
        if attendant.as_ref().is_none_or(tokio::task::AbortHandle::is_finished) {
            let readers = self.store.ledger.live_readers();
            let attending = tokio::spawn(attend(Arc::downgrade(self), readers));
            *attendant = Some(attending.abort_handle());
        }
    }
}

/// Attends to all tasks with a terminal until nobody looks live.
async fn attend(tasks: Weak<Tasks>, mut readers: watch::Receiver<usize>) {
    let mut attended = Attended { tasks, ids: HashSet::new(), watches: JoinSet::new() };
    let mut events = None;
    loop {
        if events.is_none() {
            events = match attended.begin().await {
                Ok(events) => Some(events),
                Err(error) => return tracing::warn!(%error, "waits for input are not told"),
            };
        }
        let Some(stream) = &mut events else { return };
        tokio::select! {
            () = until_nobody_looks(&mut readers) => return,
            Some(over) = attended.watches.join_next() => {
                if let Ok(id) = over {
                    attended.ids.remove(&id);
                }
            }
            event = stream.next() => match event {
                Ok(event) => {
                    if let EventKind::TaskStarted { task_id, tty: true } = &event.what {
                        attended.look_at(task_id).await;
                    }
                }
                // Something was missed: all of them are looked at anew.
                Err(_) => events = None,
            },
        }
    }
}

async fn until_nobody_looks(readers: &mut watch::Receiver<usize>) {
    let _ = readers.wait_for(|readers| *readers == 0).await;
}

/// The tasks that are attended to; none is any more when this is dropped.
struct Attended {
    tasks: Weak<Tasks>,
    ids: HashSet<TaskId>,
    watches: JoinSet<TaskId>,
}

impl Attended {
    /// Attends to all that run; returns the stream that tells of others.
    async fn begin(&mut self) -> Result<Events, LedgerError> {
        let tasks = self.tasks.upgrade().ok_or(LedgerError::Cut)?;
        // First, so that none comes between the two.
        let events = tasks.store.ledger.events(None, Interest::Changes).await?;
        for task in tasks.store.ledger.list(None, false, u32::MAX).await? {
            self.watch(&tasks, task);
        }
        Ok(events)
    }

    async fn look_at(&mut self, id: &TaskId) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        if let Ok(found) = tasks.store.ledger.find(id.as_str()).await {
            for task in found {
                self.watch(&tasks, task);
            }
        }
    }

    fn watch(&mut self, tasks: &Arc<Tasks>, task: Task) {
        let is_wanted = task.tty && !task.status.is_final() && self.ids.len() < TASKS_MAX;
        if is_wanted && self.ids.insert(task.task_id.clone()) {
            self.watches.spawn(attend_to(tasks.clone(), task));
        }
    }
}

/// Tells whenever a task waits for input, until it is over; returns its id.
async fn attend_to(tasks: Arc<Tasks>, task: Task) -> TaskId {
    let id = task.task_id.clone();
    if let Ok(observer) = Observer::of(tasks.clone(), task).await {
        tell_waits(&tasks, observer).await;
    }
    id
}

async fn tell_waits(tasks: &Tasks, mut observer: Observer) {
    let mut told = None;
    loop {
        observer.watch(Watch { waiting_for_input: true, ..Watch::default() }).await;
        loop {
            match observer.event().await {
                Said::Met(Met::WaitingForInput) => break,
                Said::Ended | Said::Gone => return,
                _ => {}
            }
        }
        let Ok(output) = observer.output().await else { return };
        let printed = (output.stdout.bytes(), output.stderr.bytes());
        // Without a word in between it is the same wait.
        if told != Some(printed) {
            told = Some(printed);
            tasks.store.ledger.waits_for_input(observer.task());
        }
        if observer.changed(printed.0, printed.1).await == Change::Ended {
            return;
        }
    }
}
