//! The one writer of a process: what waits together is committed together.
//!
//! A write that comes alone is committed at once, on the thread that asked. While many tasks are ready, the
//! writer's turn comes after theirs, and one commit serves them all. When another process holds the ledger,
//! the wait for it moves to a thread, so that the event loop never waits.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{BUSY_MS, LedgerError, is_busy};

/// Commits between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1000;

/// The writer, and the connection that it shares with readers.
#[derive(Debug)]
pub(super) struct Writer {
    connection: Mutex<Connection>,
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
    pub(super) fn new(connection: Connection) -> Self {
        let commits = AtomicU64::new(0);
        Self { connection: Mutex::new(connection), queue: Mutex::default(), commits }
    }

    /// Reads now, or in a thread if the connection is in use.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let now = self.try_connection().map(|connection| work(&connection));
        match now {
            Some(Err(error)) if is_busy(&error) => {}
            Some(result) => return Ok(result?),
            None => {}
        }
        let writer = self.clone();
        let patient = move || {
            let connection = writer.patient_connection()?;
            Ok(work(&connection)?)
        };
        tokio::task::spawn_blocking(patient).await.map_err(|_| LedgerError::Cut)?
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
                let _ = tokio::task::spawn_blocking(patient).await;
            }
            self.checkpoint().await;
        }
    }

    /// Commits a batch if nobody is in the way; what is returned has not been committed.
    fn commit_now(&self, mut batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        let committed = match self.try_connection() {
            Some(connection) => commit(&connection, &mut batch).is_ok(),
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
            let committed = self
                .patient_connection()
                .and_then(|connection| Ok(commit(&connection, &mut alone)?));
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
                let connection = writer.patient_connection()?;
                let sql = "PRAGMA wal_checkpoint(PASSIVE)";
                Ok::<(), LedgerError>(connection.query_row(sql, [], |_| Ok(()))?)
            };
            if let Ok(Err(error)) = tokio::task::spawn_blocking(checkpoint).await {
                tracing::warn!(%error, "the ledger was not checkpointed");
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if it is free; it does not wait for other processes either.
    fn try_connection(&self) -> Option<MutexGuard<'_, Connection>> {
        match self.connection.try_lock() {
            Ok(connection) => Some(connection),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The connection, set to wait for other processes while it is held.
    fn patient_connection(&self) -> Result<Patient<'_>, LedgerError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        Ok(Patient(connection))
    }
}

/// A connection that waits; given back, it does so no longer.
struct Patient<'a>(MutexGuard<'a, Connection>);

impl std::ops::Deref for Patient<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Drop for Patient<'_> {
    fn drop(&mut self) {
        let _ = self.0.busy_timeout(Duration::ZERO);
    }
}

/// Runs all jobs in one transaction.
fn commit(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    let run = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
    run("BEGIN IMMEDIATE")?;
    let done = jobs.iter_mut().try_for_each(|job| job.run(connection));
    // Also when only the commit failed: what is not committed must not linger.
    done.and_then(|()| run("COMMIT")).inspect_err(|_| drop(run("ROLLBACK")))
}
