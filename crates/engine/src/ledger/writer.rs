//! The one writer of a process: what waits together is committed together.
//!
//! A write that comes alone is committed at once, on the thread that asked. While many tasks are ready, the
//! writer's turn comes after theirs, and one commit serves them all. When another process holds the ledger,
//! the wait for it moves to a thread, so that the event loop never waits. There, too, a ledger that turns out to be
//! damaged is rebuilt, and one that was replaced is opened anew; then the write is tried again.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    BUSY_MS, LedgerError, is_busy,
    opened::{self, Damage, Opened},
    rebuild::{Rebuilt, rebuild},
    salvage::merge,
};
use crate::{state::StateFolder, threads::in_thread};

/// Commits between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1000;

/// How often a ledger is mended for one write before that is given up.
const MENDS: u32 = 2;

/// The writer, and the connection that it shares with readers.
#[derive(Debug)]
pub(super) struct Writer {
    pub state: Arc<StateFolder>,
    tell: fn(&Rebuilt),
    opened: Mutex<Opened>,
    queue: Mutex<Queue>,
    commits: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Box<dyn Job>>,
    /// Whether a task is at work on the queue.
    served: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Queue({} jobs)", self.jobs.len())
    }
}

/// A write that waits for its commit. It may be run more than once, and counts only when committed.
trait Job: Send {
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    fn answer(self: Box<Self>, committed: Result<(), LedgerError>);
}

struct Work<F, T> {
    run: F,
    result: Option<T>,
    answer: oneshot::Sender<Result<T, LedgerError>>,
}

impl<F, T> Job for Work<F, T>
where
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.result = Some((self.run)(connection)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), LedgerError>) {
        let Self { result, answer, .. } = *self;
        // Whoever asked may have left; what is committed stays.
        let _ = answer.send(committed.and_then(|()| result.ok_or(LedgerError::Cut)));
    }
}

impl Writer {
    pub(super) fn new(state: Arc<StateFolder>, tell: fn(&Rebuilt), opened: Opened) -> Self {
        let commits = AtomicU64::new(0);
        Self { state, tell, opened: Mutex::new(opened), queue: Mutex::default(), commits }
    }

    /// Reads now, or in a thread if the connection is in use.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.read_checked(move |opened| Ok(work(&opened.connection)?)).await
    }

    /// The same, for what can find damage that SQLite itself does not see.
    pub(super) async fn read_checked<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Opened) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let read = move |opened: &Opened| opened.check().and_then(|()| work(opened));
        let now = self.try_opened().map(|opened| read(&opened));
        match now {
            Some(Err(error)) if may_pass(&error) => {}
            Some(result) => return result,
            None => {}
        }
        let writer = self.clone();
        let patient = move || writer.patiently(read);
        in_thread(patient).await.unwrap_or(Err(LedgerError::Cut))
    }

    /// Writes, together with whatever else waits.
    pub(super) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (answer, committed) = oneshot::channel();
        {
            let mut queue = self.queue();
            queue.jobs.push(Box::new(Work { run: work, result: None, answer }));
            if !queue.served {
                queue.served = true;
                tokio::spawn(self.clone().serve());
            }
        }
        committed.await.unwrap_or(Err(LedgerError::Cut))
    }

    /// Commits one batch after the other until none is left.
    async fn serve(self: Arc<Self>) {
        loop {
            let batch = {
                let mut queue = self.queue();
                queue.served = !queue.jobs.is_empty();
                std::mem::take(&mut queue.jobs)
            };
            if batch.is_empty() {
                return;
            }
            let left = self.commit_now(batch);
            if !left.is_empty() {
                let writer = self.clone();
                let patient = move || writer.commit_patiently(left);
                // If the thread is gone the jobs are too, and those who wait are told so.
                let _ = in_thread(patient).await;
            }
            self.checkpoint().await;
        }
    }

    /// Commits a batch if nobody is in the way; what is returned has not been committed.
    fn commit_now(&self, mut batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        let committed = match self.try_opened() {
            Some(opened) => commit(&opened, &mut batch).is_ok(),
            None => false,
        };
        if !committed {
            return batch;
        }
        for job in batch {
            job.answer(Ok(()));
        }
        Vec::new()
    }

    /// Commits each job by itself, waiting for others where need be.
    fn commit_patiently(&self, batch: Vec<Box<dyn Job>>) {
        for job in batch {
            let mut alone = [job];
            let committed = self.patiently(|opened| commit(opened, &mut alone));
            let [job] = alone;
            job.answer(committed);
        }
    }

    /// Moves what was committed into the main file now and then, in a thread, since that syncs the disk.
    ///
    /// The writer waits for it: with commits going on meanwhile there would always be something left to move,
    /// and the log would never begin anew but grow for ever.
    async fn checkpoint(self: &Arc<Self>) {
        if self.commits.fetch_add(1, Ordering::Relaxed) % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            let writer = self.clone();
            let checkpoint = move || {
                writer.patiently(|opened| {
                    opened.check()?;
                    let sql = "PRAGMA wal_checkpoint(PASSIVE)";
                    Ok(opened.connection.query_row(sql, [], |_| Ok(()))?)
                })
            };
            if let Some(Err(error)) = in_thread(checkpoint).await {
                tracing::warn!(%error, "the ledger was not checkpointed");
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger, if it is free; it does not wait for other processes either.
    fn try_opened(&self) -> Option<MutexGuard<'_, Opened>> {
        match self.opened.try_lock() {
            Ok(opened) => Some(opened),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Does something with the ledger, waiting for other processes, and mending it where that is needed.
    fn patiently<T>(
        &self,
        mut work: impl FnMut(&Opened) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mends = 0;
        loop {
            opened.connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
            let result = work(&opened);
            let _ = opened.connection.busy_timeout(Duration::ZERO);
            match result {
                Err(error) if is_mendable(&error) && mends < MENDS => {
                    mends += 1;
                    self.mend(&mut opened, &error)?;
                }
                result => return result,
            }
        }
    }

    /// Opens the ledger that stands in the place of this one, or rebuilds it first; what only the old connection
    /// still sees is taken along.
    fn mend(&self, opened: &mut Opened, error: &LedgerError) -> Result<(), LedgerError> {
        opened.abandon();
        let mut rebuilt = match Damage::of(error) {
            Some(damage) => rebuild(&self.state, &damage, opened.id(), None)?,
            None => None,
        };
        let (new, at_open) = opened::open(&self.state, Some(&opened.connection))?;
        rebuilt = rebuilt.or(at_open);
        match rebuilt {
            Some(rebuilt) => (self.tell)(&rebuilt),
            None => merge_into(&opened.connection, &new)?,
        }
        *opened = new;
        Ok(())
    }
}

/// Whether a thread may do what could not be done at once.
fn may_pass(error: &LedgerError) -> bool {
    is_mendable(error) || matches!(error, LedgerError::Sqlite(error) if is_busy(error))
}

/// Whether another ledger is the answer.
fn is_mendable(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Replaced) || Damage::of(error).is_some()
}

/// Takes along what another process could not know when it rebuilt the ledger.
fn merge_into(old: &Connection, new: &Opened) -> Result<(), LedgerError> {
    new.connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    new.connection.execute_batch("BEGIN IMMEDIATE")?;
    let merged = merge(old, &new.connection);
    let end = if merged.is_ok() { "COMMIT" } else { "ROLLBACK" };
    new.connection.execute_batch(end)?;
    Ok(merged?)
}

/// Runs all jobs in one transaction.
fn commit(opened: &Opened, jobs: &mut [Box<dyn Job>]) -> Result<(), LedgerError> {
    let run = |sql| opened.connection.prepare_cached(sql)?.execute([]).map(drop);
    run("BEGIN IMMEDIATE")?;
    let done = opened.check().and_then(|()| {
        jobs.iter_mut().try_for_each(|job| job.run(&opened.connection))?;
        Ok(run("COMMIT")?)
    });
    // Also when only the commit failed: what is not committed must not linger.
    done.inspect_err(|_| drop(run("ROLLBACK")))
}

#[cfg(test)]
impl Writer {
    /// For looking over SQLite's shoulder.
    pub(super) fn with_connection(&self, look: impl FnOnce(&mut Connection)) {
        look(&mut self.try_opened().unwrap().connection);
    }
}
