//! The one writer of a process: what waits together is committed together.
//!
//! What happens to tasks is noted in the daybook, and posted to the ledger a little later, or
//! before the ledger is read. Everything else is written to the ledger itself. A write that comes
//! alone is committed at once, on the thread that asked. While many tasks are ready, the writer's
//! turn comes after theirs, and one commit serves them all. When another process holds the ledger,
//! the wait for it moves to a thread, so that the event loop never waits. There, too, a ledger that
//! turns out to be damaged is rebuilt, and one that was replaced is opened anew; then the write is
//! tried again.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{Notify, oneshot};

use super::{
    LedgerError,
    daybook::{Daybook, Page, Wait},
    deadline, is_busy,
    opened::Opened,
    post::{locked_if_free, post, renew_if_grown},
    reopening::is_reopened_on,
};
use crate::{
    events::Hub, meters::Meters, state::StateFolder, store::anchor::SharedHead, threads::in_thread,
};

/// Commits between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1000;

/// How long entries of the daybook wait for others, to be posted together.
const POSTED_AFTER: Duration = Duration::from_millis(200);

/// So many entries, or bytes of them, do not wait any longer.
const ENTRIES_MAX: usize = 256;
const ENTRY_BYTES_MAX: u64 = 256 * 1024;

/// With so many bytes unposted nothing new is noted before that is done.
const UNPOSTED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How often a ledger is opened anew for one write before that is given up.
const REOPENS: u32 = 2;

/// The writer, and the connection that it shares with readers.
#[derive(Debug)]
pub(super) struct Writer {
    pub state: Arc<StateFolder>,
    /// None until somebody needs more than the daybook.
    opened: Mutex<Option<Opened>>,
    /// Taken after the ledger, never before it.
    daybook: Mutex<Daybook>,
    queue: Mutex<Queue>,
    /// Rows and commits since the last checkpoint.
    written: AtomicU64,
    /// Whether a posting is coming.
    posting: AtomicBool,
    /// Told when it should not wait any longer.
    hurry: Notify,
    /// Whether this process serves for longer.
    stays: AtomicBool,
    /// Who wants to know what happens.
    pub hub: Arc<Hub>,
    /// Held by whoever begins to feed the hub.
    pub feeding: Arc<tokio::sync::Mutex<()>>,
    /// Where the audit log ends.
    pub head: SharedHead,
    pub meters: Arc<Meters>,
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
    /// Whether others are to be told of it.
    fn rings(&self) -> bool;
    fn answer(self: Box<Self>, committed: Result<(), LedgerError>);
}

struct Work<F, T> {
    run: F,
    rings: bool,
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

    fn rings(&self) -> bool {
        self.rings
    }

    fn answer(self: Box<Self>, committed: Result<(), LedgerError>) {
        let Self { result, answer, .. } = *self;
        // Whoever asked may have left; what is committed stays.
        let _ = answer.send(committed.and_then(|()| result.ok_or(LedgerError::Cut)));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.head.pending().is_some() {
            // What another process keeps us from anchoring now it anchors with its own next entry.
            let head = self.head.clone();
            let _ = self.daybook().locked(Wait::No, |page| page.anchor(&head));
        }
    }
}

impl Writer {
    pub(super) fn new(
        state: Arc<StateFolder>,
        opened: Option<Opened>,
        daybook: Daybook,
        meters: Arc<Meters>,
    ) -> Self {
        Self {
            state,
            opened: Mutex::new(opened),
            daybook: Mutex::new(daybook),
            queue: Mutex::default(),
            written: AtomicU64::new(0),
            posting: AtomicBool::new(false),
            hurry: Notify::new(),
            stays: AtomicBool::new(false),
            hub: Arc::default(),
            feeding: Arc::default(),
            head: SharedHead::default(),
            meters,
        }
    }

    /// Notes something in the daybook, now, or in a thread if another process is at it.
    pub(super) async fn note<T: Send + 'static>(
        self: &Arc<Self>,
        mut work: impl FnMut(&mut Page<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        if let Some(mut daybook) = free(self.daybook.try_lock())
            && daybook.pending_bytes() < UNPOSTED_BYTES_MAX
        {
            match daybook.locked(Wait::No, &mut work) {
                Err(error) if may_pass(&error) => {}
                result => {
                    self.see_to_posting(Some(&daybook));
                    return result;
                }
            }
        }
        // Rare, and long.
        Box::pin(self.clone().note_patiently(work)).await
    }

    async fn note_patiently<T: Send + 'static>(
        self: Arc<Self>,
        mut work: impl FnMut(&mut Page<'_>) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (writer, until) = (self.clone(), deadline());
        let patient = move || {
            // The ledger is not needed for it, and another process may hold that for long.
            if writer.daybook().pending_bytes() < UNPOSTED_BYTES_MAX {
                match writer.daybook().locked(Wait::Until(until), &mut work) {
                    Err(error) if is_reopened_on(&error) => {}
                    result => return result,
                }
            }
            writer.patiently(until, |opened| {
                if writer.daybook().pending_bytes() >= UNPOSTED_BYTES_MAX {
                    writer.post(opened, Wait::Until(until))?;
                }
                writer.daybook().locked(Wait::Until(until), &mut work)
            })
        };
        let noted = in_thread(patient).await.unwrap_or(Err(LedgerError::Cut));
        self.see_to_posting(None);
        noted
    }

    /// Notes something that depends on what is in the ledger, in a thread: everything is posted
    /// before, and nothing is written meanwhile.
    pub(super) async fn note_with_ledger<T: Send + 'static>(
        self: &Arc<Self>,
        mut work: impl FnMut(&mut Page<'_>, &Opened, &StateFolder) -> Result<T, LedgerError>
        + Send
        + 'static,
    ) -> Result<T, LedgerError> {
        let (writer, until) = (self.clone(), deadline());
        let patient = move || {
            writer.patiently(until, |opened| {
                loop {
                    let work = |page: &mut Page<'_>| work(page, opened, &writer.state);
                    let wait = Wait::Until(until);
                    let done = locked_if_free(opened, &mut writer.daybook(), wait, work)?;
                    if let Some(done) = done {
                        return Ok(done);
                    }
                    opened.wait_until_free()?;
                }
            })
        };
        let noted = in_thread(patient).await.unwrap_or(Err(LedgerError::Cut));
        self.see_to_posting(None);
        noted
    }

    /// Takes note of what other processes have written to the daybook; only if that is in doubt
    /// they are kept from it.
    pub(super) async fn look(self: &Arc<Self>) -> Result<(), LedgerError> {
        if let Some(mut daybook) = free(self.daybook.try_lock()) {
            match daybook.is_behind() {
                // Whoever wrote it posts it, unless it gets to be too much for us.
                Ok(_) if is_much(&daybook) => {
                    self.see_to_posting(Some(&daybook));
                    return Ok(());
                }
                Err(error) if may_pass(&error) => {}
                result => return result.map(drop),
            }
        }
        Box::pin(self.clone().note_patiently(|_| Ok(()))).await
    }

    /// From now on what was noted is posted soon, also if nobody reads it: this process stays.
    pub(super) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Sees to it that what was noted is posted, soon; whoever does not stay leaves that to the
    /// next one, if it is little.
    fn see_to_posting(self: &Arc<Self>, daybook: Option<&Daybook>) {
        let is_much = daybook.is_some_and(is_much);
        let is_any = daybook.is_none_or(|daybook| daybook.pending() > 0);
        let wanted = is_much || is_any && self.stays.load(Ordering::Relaxed);
        if wanted && !self.posting.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().post_later());
        }
        if is_much {
            self.hurry.notify_one();
        }
    }

    /// Posts what has come together after a while, in a thread.
    async fn post_later(self: Arc<Self>) {
        let _ = tokio::time::timeout(POSTED_AFTER, self.hurry.notified()).await;
        self.posting.store(false, Ordering::Relaxed);
        let (writer, until) = (self.clone(), deadline());
        let post = move || {
            writer.patiently(until, |opened| {
                if writer.head.pending().is_some() {
                    let anchor = |page: &mut Page<'_>| page.anchor(&writer.head);
                    writer.daybook().locked(Wait::Until(until), anchor)?;
                }
                writer.post(opened, Wait::Until(until))?;
                let mut daybook = writer.daybook();
                renew_if_grown(&writer.state, opened, &mut daybook, Wait::Until(until), false);
                Ok(())
            })
        };
        if let Some(Err(error)) = in_thread(post).await {
            tracing::warn!(%error, "what happened is in the daybook, and not in the ledger yet");
        }
        self.checkpoint().await;
    }

    /// Posts what is not in the ledger yet; nobody who writes to the daybook waits meanwhile.
    fn post(&self, opened: &Opened, wait: Wait) -> Result<(), LedgerError> {
        let batch = {
            let mut daybook = self.daybook();
            let behind = match (daybook.is_behind(), wait) {
                // With the lock there is no doubt about what is there.
                (Err(LedgerError::Busy), Wait::Until(_)) => {
                    daybook.locked(wait, |_| Ok(()))?;
                    daybook.is_behind()
                }
                (behind, _) => behind,
            };
            if !behind? {
                return Ok(());
            }
            daybook.batch()
        };
        let began = Instant::now();
        post(opened, &batch)?;
        self.meters.ledger.note_since(began);
        self.written.fetch_add(batch.entries.len() as u64 / 2 + 1, Ordering::Relaxed);
        self.daybook().posted(&batch);
        Ok(())
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
        self.read_after(work, Self::post).await
    }

    /// The same, for what has nothing to do with the daybook.
    pub(super) async fn read_unposted<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.read_after(move |opened| Ok(work(&opened.connection)?), |_, _, _| Ok(())).await
    }

    async fn read_after<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&Opened) -> Result<T, LedgerError> + Send + 'static,
        first: impl Fn(&Self, &Opened, Wait) -> Result<(), LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let read = move |opened: &Opened| opened.check().and_then(|()| work(opened));
        if let Some(slot) = free(self.opened.try_lock())
            && let Some(opened) = slot.as_ref()
        {
            match first(self, opened, Wait::No).and_then(|()| read(opened)) {
                Err(error) if may_pass(&error) || is_full(&error) => {}
                result => return result,
            }
        }
        let (writer, until) = (self.clone(), deadline());
        let patient = move || {
            writer.patiently(until, |opened| {
                match first(&writer, opened, Wait::Until(until)) {
                    // What is in the ledger can be read all the same.
                    Err(error) if is_full(&error) => {
                        tracing::warn!(%error, "the newest tasks are in the daybook only");
                    }
                    result => result?,
                }
                read(opened)
            })
        };
        in_thread(patient).await.unwrap_or(Err(LedgerError::Cut))
    }

    /// Writes, together with whatever else waits.
    pub(super) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.queued(work, false).await
    }

    /// The same, for what other processes wait for: they are told as soon as it is committed,
    /// whether or not whoever asked for it is still there.
    pub(super) async fn write_and_ring<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.queued(work, true).await
    }

    async fn queued<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
        rings: bool,
    ) -> Result<T, LedgerError> {
        let (answer, committed) = oneshot::channel();
        {
            let mut queue = self.queue();
            queue.jobs.push(Box::new(Work { run: work, rings, result: None, answer }));
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
        let began = Instant::now();
        let committed = free(self.opened.try_lock()).is_some_and(|slot| {
            slot.as_ref().is_some_and(|opened| commit(opened, &mut batch).is_ok())
        });
        if !committed {
            return batch;
        }
        self.meters.ledger.note_since(began);
        if batch.iter().any(|job| job.rings()) {
            self.ring();
        }
        for job in batch {
            job.answer(Ok(()));
        }
        Vec::new()
    }

    /// Commits each job by itself, waiting for others where need be.
    fn commit_patiently(&self, batch: Vec<Box<dyn Job>>) {
        for job in batch {
            let (mut alone, began) = ([job], Instant::now());
            let committed = self.patiently(deadline(), |opened| commit(opened, &mut alone));
            self.meters.ledger.note_since(began);
            let [job] = alone;
            if job.rings() && committed.is_ok() {
                self.ring();
            }
            job.answer(committed);
        }
    }

    /// Moves what was committed into the main file now and then, in a thread, since that syncs the
    /// disk.
    ///
    /// The writer waits for it: with commits going on meanwhile there would always be something
    /// left to move, and the log would never begin anew but grow for ever.
    async fn checkpoint(self: &Arc<Self>) {
        if self.written.fetch_add(1, Ordering::Relaxed) >= CHECKPOINT_EVERY {
            self.written.store(0, Ordering::Relaxed);
            let writer = self.clone();
            let checkpoint = move || {
                writer.patiently(deadline(), |opened| {
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

    pub(super) fn daybook(&self) -> MutexGuard<'_, Daybook> {
        self.daybook.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the ledger, waiting for other processes, and opening it anew where that
    /// is needed.
    fn patiently<T>(
        &self,
        until: Instant,
        mut work: impl FnMut(&Opened) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut slot = lock_until(&self.opened, until)?;
        let opened = match slot.take() {
            Some(opened) => slot.insert(opened),
            None => slot.insert(self.open_late()?),
        };
        let mut reopens = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            opened.connection.busy_timeout(left.max(LEAST))?;
            let result = work(opened);
            let _ = opened.connection.busy_timeout(Duration::ZERO);
            // What others put in its place is opened for as long as they do; damage is repaired a
            // few times.
            let is_pending = |error: &LedgerError| {
                matches!(error, LedgerError::Replaced) && Instant::now() < until
            };
            match result {
                Err(error)
                    if is_reopened_on(&error) && (reopens < REOPENS || is_pending(&error)) =>
                {
                    reopens += 1;
                    match self.reopen(opened, &error) {
                        Err(error) if is_pending(&error) => {}
                        reopened => reopened?,
                    }
                }
                result => return result,
            }
        }
    }
}

/// How long the ledger is waited for at least, once it is our turn.
const LEAST: Duration = Duration::from_millis(10);

/// Waits for a lock, but not for ever.
fn lock_until<T>(mutex: &Mutex<T>, until: Instant) -> Result<MutexGuard<'_, T>, LedgerError> {
    loop {
        if let Some(guard) = free(mutex.try_lock()) {
            return Ok(guard);
        }
        if Instant::now() >= until {
            return Err(LedgerError::Busy);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a lock guards, if nobody has it.
fn free<T>(lock: Result<T, TryLockError<T>>) -> Option<T> {
    match lock {
        Ok(guarded) => Some(guarded),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Whether so much is not in the ledger yet that it should not wait any longer.
fn is_much(daybook: &Daybook) -> bool {
    if !daybook.is_known() {
        return daybook.has_grown(false);
    }
    daybook.pending() >= ENTRIES_MAX || daybook.pending_bytes() >= ENTRY_BYTES_MAX
}

/// Whether nothing can be written, and what is there can be read.
fn is_full(error: &LedgerError) -> bool {
    let LedgerError::Sqlite(error) = error else { return false };
    let codes = [ErrorCode::DiskFull, ErrorCode::ReadOnly, ErrorCode::SystemIoFailure];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// Whether a thread may do what could not be done at once.
fn may_pass(error: &LedgerError) -> bool {
    match error {
        LedgerError::Busy => true,
        LedgerError::Sqlite(error) if is_busy(error) => true,
        error => is_reopened_on(error),
    }
}

/// Runs all jobs in one transaction.
fn commit(opened: &Opened, jobs: &mut [Box<dyn Job>]) -> Result<(), LedgerError> {
    opened.commit(|connection| Ok(jobs.iter_mut().try_for_each(|job| job.run(connection))?))
}

#[cfg(test)]
impl Writer {
    /// Whether more than the daybook is open.
    pub(super) fn is_open(&self) -> bool {
        self.opened.lock().unwrap().is_some()
    }

    /// For looking over SQLite's shoulder.
    pub(super) fn with_connection(&self, look: impl FnOnce(&mut Connection)) {
        look(&mut self.opened.lock().unwrap().as_mut().unwrap().connection);
    }

    /// For doing what this process would do in a thread.
    pub(super) fn with_opened(&self, work: impl FnOnce(&Opened)) {
        work(self.opened.lock().unwrap().as_ref().unwrap());
    }

    /// What would be posted.
    pub(super) fn batch(&self) -> super::daybook::Batch {
        self.daybook().batch()
    }
}
