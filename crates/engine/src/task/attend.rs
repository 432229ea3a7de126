//! Watches running tasks for those who read events live: waits for input, and ends that no engine
//! would record.
//!
//! The kernel has no event for a wait for input: the wardens of tasks with a terminal are asked to
//! look for it. And a task without an engine ends without anybody who records that: its warden is
//! listened to, and whoever hears of the end records it. All this only while somebody reads the
//! stream of events live.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError},
};

use legwork_warden::protocol::{Met, WatchFor};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Tasks,
    observe::{Change, Observer, Said},
    versions::LatestTasks,
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
            let attending = tokio::spawn(attend(self.downgrade(), readers));
            *attendant = Some(attending.abort_handle());
        }
    }
}

/// Attends to tasks until nobody looks live.
async fn attend(tasks: LatestTasks, mut readers: watch::Receiver<usize>) {
    let Some(mut ended) = tasks.upgrade().map(|tasks| tasks.place.engines_ended()) else { return };
    let mut attended = Attended::new(tasks);
    let mut events = None;
    loop {
        if events.is_none() {
            ended.mark_unchanged();
            events = match attended.begin().await {
                Ok(events) => Some(events),
                Err(error) => return tracing::warn!(%error, "not all events are told"),
            };
        }
        let Some(stream) = &mut events else { return };
        // Whether all of them are looked at anew.
        let anew = tokio::select! {
            () = until_nobody_looks(&mut readers) => return,
            Some(over) = attended.watches.join_next() => attended.is_over(over.ok().as_ref()),
            told = ended.changed() => told.is_ok(),
            event = stream.next() => match event.as_deref().map(|event| &event.what) {
                Ok(EventKind::TaskStarted { task_id, tty: true }) => {
                    attended.look_at(task_id).await;
                    false
                }
                Ok(_) => false,
                Err(_) => true,
            },
        };
        if anew {
            events = None;
        }
    }
}

async fn until_nobody_looks(readers: &mut watch::Receiver<usize>) {
    let _ = readers.wait_for(|readers| *readers == 0).await;
}

/// The tasks that are attended to; none is any more when this is dropped.
struct Attended {
    tasks: LatestTasks,
    ids: HashSet<TaskId>,
    watches: JoinSet<TaskId>,
    /// Whether there were too many.
    is_full: bool,
}

impl Attended {
    fn new(tasks: LatestTasks) -> Self {
        Self { tasks, ids: HashSet::new(), watches: JoinSet::new(), is_full: false }
    }

    /// Attends to all that run; returns the stream that tells of others.
    async fn begin(&mut self) -> Result<Events, LedgerError> {
        let tasks = self.tasks.upgrade().ok_or(LedgerError::Cut)?;
        // First, so that none comes between the two.
        let events = tasks.store.ledger.events(None, Interest::Changes).await?;
        self.is_full = false;
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
        let is_open = !task.status.is_final() && !self.ids.contains(&task.task_id);
        // Of our own, and of those whose engine lives, the end is recorded anyway.
        if !is_open || !task.tty && tasks.place.is_owned(&task.warden) {
            return;
        }
        self.is_full |= self.ids.len() >= TASKS_MAX;
        if !self.is_full {
            self.ids.insert(task.task_id.clone());
            self.watches.spawn(attend_to(tasks.clone(), task));
        }
    }

    /// Takes note that a task is over; says whether there is room now for one that had none.
    fn is_over(&mut self, task: Option<&TaskId>) -> bool {
        task.is_some_and(|task| self.ids.remove(task)) && self.is_full
    }
}

/// Listens to the warden of a task until that is over; returns its id.
async fn attend_to(tasks: Arc<Tasks>, task: Task) -> TaskId {
    let (id, tty) = (task.task_id.clone(), task.tty);
    // Without a warden it is settled by this alone.
    if let Ok(mut observer) = Observer::of(tasks.clone(), task).await {
        if tty {
            tell_waits(&tasks, observer).await;
        } else {
            observer.ended().await;
        }
    }
    id
}

/// Tells whenever a task waits for input, until it is over.
async fn tell_waits(tasks: &Tasks, mut observer: Observer) {
    let mut told = None;
    loop {
        observer.watch(WatchFor { waiting_for_input: true, ..WatchFor::default() }).await;
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
