//! The ledger: SQLite, shared by every process on the state folder, and a daybook before it, which
//! every command's start and end are written to first.

mod approvals;
#[cfg(test)]
mod brief_tests;
mod daybook;
mod feed;
mod history;
mod listing;
mod note;
mod opened;
mod post;
mod rebuild;
#[cfg(test)]
mod rebuild_tests;
mod reopening;
mod restore;
mod schema;
mod task;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use legwork_warden::failpoint::Failpoint;
use rusqlite::{Connection, ErrorCode, OptionalExtension};

pub use self::{approvals::Answerer, listing::TaskFilter, opened::Damage, task::Task};
use self::{
    daybook::{Page, Start, TaskEnd, Wait, What},
    post::renew_if_grown,
    restore::missing_one,
    schema::SCHEMA_VERSION,
    writer::Writer,
};
pub(crate) use self::{
    history::{History, Newest, OldTask},
    note::write as write_note,
    opened::{FileId, private_file},
    restore::task_id,
};
use crate::{
    clock::now_ms,
    events::EventKind,
    id::TaskId,
    meters::Meters,
    model::Outcome,
    model::status::{Status, TaskStanding},
    output::SmallOutput,
    state::StateFolder,
    store::anchor::{self, AuditHead, SharedHead},
};

/// Ends a task, whatever it was before that may end.
static FINISH: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE task SET status = :status, reason = :reason, outcome = :outcome,
                updated_at_ms = :now, stdout = :stdout, stderr = :stderr, timeline = :timeline
          WHERE id = :id AND status IN ({})",
        names(|status| status.may_become(Status::Failed))
    )
});

static CANCEL: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE task SET status = 'cancelling', updated_at_ms = ? WHERE id = ? AND status IN ({})",
        names(|status| status.may_become(Status::Cancelling))
    )
});

/// Says where a task stands that waits in a queue.
const STAND: &str = "UPDATE task SET status = ?, reason = ?, updated_at_ms = ?
                      WHERE id = ? AND status = 'queued'";

/// The names of some statuses, as SQL has them in a list.
fn names(wanted: impl Fn(Status) -> bool) -> String {
    let names = Status::ALL.into_iter().filter(|status| wanted(*status)).map(Status::as_str);
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// How long a write waits for another process before it gives up.
const BUSY_MS: u64 = 5_000;

/// When a wait for others is over that begins now.
fn deadline() -> Instant {
    Instant::now() + Duration::from_millis(BUSY_MS)
}

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Its file cannot be made.
    #[error("the ledger: {0}")]
    File(#[from] io::Error),
    /// SQLite said no.
    #[error("the ledger: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The ledger is of a newer version of this program.
    #[error(
        "the ledger has schema {0}, this program knows {SCHEMA_VERSION}: use the newer program"
    )]
    TooNew(i64),
    /// Its files are missing or damaged, and it could not be rebuilt.
    #[error("the ledger {0}")]
    Unsound(Damage),
    /// Its files are not the ones that are open here.
    #[error("the ledger: another one stands in its place")]
    Replaced,
    /// Another process writes to its daybook, for too long.
    #[error("the ledger: another process holds its daybook")]
    Busy,
    /// Another process takes too long to rebuild it.
    #[error("the ledger is being rebuilt by another process")]
    Rebuilding,
    /// A task of which nothing is known.
    #[error("the ledger: there is no task {0}")]
    Unknown(String),
    /// A row that does not read back.
    #[error("the ledger: task {0} has a damaged row")]
    Damaged(String),
    /// The thread that waited for the ledger is gone.
    #[error("the ledger: the wait for it was cut off")]
    Cut,
}

/// What became of a registration.
#[derive(Debug)]
pub(crate) enum Registered {
    /// The task is in the ledger and may start.
    New,
    /// An equal one has not ended.
    Equal(Box<Task>),
    /// As many tasks run as may.
    Full(u64),
}

/// The ledger, as one process sees it.
#[derive(Debug, Clone)]
pub struct Ledger {
    writer: Arc<Writer>,
}

impl Ledger {
    /// Opens the ledger, and makes or rebuilds it.
    pub fn open(state: Arc<StateFolder>) -> Result<Self, LedgerError> {
        Self::open_counting(state, Arc::default())
    }

    /// The same for a process that runs one command and ends: its daybook is all that it needs, and
    /// the rest is opened when somebody asks for it.
    pub(crate) fn open_briefly(
        state: Arc<StateFolder>,
        meters: Arc<Meters>,
    ) -> Result<Self, LedgerError> {
        match opened::daybook_alone(&state) {
            Some(daybook) => {
                Ok(Self { writer: Arc::new(Writer::new(state, None, daybook, meters)) })
            }
            None => Self::open_whole(state, meters, true),
        }
    }

    /// The same, and how long its writes take is counted.
    pub(crate) fn open_counting(
        state: Arc<StateFolder>,
        meters: Arc<Meters>,
    ) -> Result<Self, LedgerError> {
        Self::open_whole(state, meters, false)
    }

    fn open_whole(
        state: Arc<StateFolder>,
        meters: Arc<Meters>,
        briefly: bool,
    ) -> Result<Self, LedgerError> {
        let (opened, mut daybook) = opened::open(&state)?;
        opened.waiting(|| {
            renew_if_grown(&state, &opened, &mut daybook, Wait::patiently(), briefly);
            Ok(())
        })?;
        Ok(Self { writer: Arc::new(Writer::new(state, Some(opened), daybook, meters)) })
    }

    /// Makes this process one that stays: what it notes is posted soon.
    pub(crate) fn stay(&self) {
        self.writer.stay();
    }

    /// Takes the ledger's lock for writing, and writes nothing.
    pub(crate) async fn is_writable(&self) -> Result<(), LedgerError> {
        self.writer.write(|_| Ok(())).await
    }

    /// Registers a task, if fewer than `tasks_max` run; with `passed_over`, only if no equal one
    /// but these has yet to end. All in one atomic step.
    pub(crate) async fn register(
        &self,
        task: Arc<Task>,
        note: Arc<[u8]>,
        passed_over: Option<Vec<TaskId>>,
        tasks_max: u64,
    ) -> Result<Registered, LedgerError> {
        let (head, began) = (self.audit_head(), Instant::now());
        let registered = self
            .writer
            .note(move |page| {
                if let Some(passed_over) = &passed_over
                    && let Some(running) = page.equal(&task.fingerprint, passed_over)
                {
                    return Ok(Registered::Equal(Box::new(running)));
                }
                let running = page.open_tasks();
                if running >= tasks_max {
                    return Ok(Registered::Full(running));
                }
                let start = Start::new(task.clone(), note.clone());
                page.begin(&task.task_id, start, &head)?;
                Ok(Registered::New)
            })
            .await?;
        self.writer.meters.daybook.note_since(began);
        if let Registered::Full(_) = registered {
            let limit = EventKind::LimitReached { limit: "tasks_max" };
            self.writer.hub.tell(now_ms(), None, limit);
        }
        Ok(registered)
    }

    /// Tells who watches of something that is in no daybook.
    pub(crate) fn happened(&self, what: EventKind) {
        self.writer.hub.tell(now_ms(), None, what);
    }

    /// Where the audit log ends, as far as this process knows it: what is set there is anchored.
    pub(crate) fn audit_head(&self) -> SharedHead {
        self.writer.head.clone()
    }

    /// Where the audit logs of the state folder ended when that was last anchored, the newest
    /// first.
    pub async fn audit_anchors(&self) -> Result<Vec<AuditHead>, LedgerError> {
        self.writer.read(anchor::all).await
    }

    /// Checks the structure of the whole ledger; one that is damaged is rebuilt.
    pub(crate) async fn check(&self) -> Result<(), LedgerError> {
        self.writer.read_checked(|opened| opened::check_all(&opened.connection)).await
    }

    /// Puts back a task that has a folder and no row; says whether there is one.
    pub(crate) async fn restore(&self, id: &TaskId) -> Result<bool, LedgerError> {
        let id = id.clone();
        self.writer
            .note_with_ledger(move |page, opened, state| {
                let missing = missing_one(state, &opened.connection, &id, &HashMap::new())?;
                let found = missing.is_some();
                missing.map(|task| register_again(page, task)).transpose()?;
                Ok(found)
            })
            .await
    }

    /// A task with this fingerprint that may be joined, other than these.
    pub(crate) async fn equal(
        &self,
        fingerprint: &[u8; 32],
        passed_over: &[TaskId],
    ) -> Result<Option<Task>, LedgerError> {
        let (fingerprint, passed_over) = (*fingerprint, passed_over.to_vec());
        self.writer.note(move |page| Ok(page.equal(&fingerprint, &passed_over))).await
    }

    /// Records how a task ended, with its output if that is nowhere else; the first outcome stays.
    /// If this is it, the trust of the task's caller is returned.
    pub(crate) async fn finish(
        &self,
        id: &TaskId,
        outcome: &Outcome,
        output: Option<Arc<SmallOutput>>,
    ) -> Result<Option<String>, LedgerError> {
        let (status, reason) = Status::of(outcome);
        let reason = reason.map(str::to_owned);
        self.finish_as(id, status, reason, outcome, output).await
    }

    /// Records that a task never started.
    pub(crate) async fn never_started(
        &self,
        id: &TaskId,
        reason: &str,
    ) -> Result<Option<String>, LedgerError> {
        let outcome = Outcome::default();
        self.finish_as(id, Status::Failed, Some(reason.to_owned()), &outcome, None).await
    }

    async fn finish_as(
        &self,
        id: &TaskId,
        status: Status,
        reason: Option<String>,
        outcome: &Outcome,
        output: Option<Arc<SmallOutput>>,
    ) -> Result<Option<String>, LedgerError> {
        let outcome = serde_json::to_string(outcome).unwrap_or_default();
        let end = What::TaskEnd(Arc::new(TaskEnd { status, reason, outcome, output }));
        let began = Instant::now();
        let changed = self.change(id, Status::Failed, end, Failpoint::EngineInOutcome).await?;
        self.writer.meters.daybook.note_since(began);
        Ok(changed)
    }

    /// Notes what happened to a task, if it may still get that status; returns the trust of its
    /// caller if so.
    async fn change(
        &self,
        id: &TaskId,
        next: Status,
        what: What,
        in_it: Failpoint,
    ) -> Result<Option<String>, LedgerError> {
        let (task, happened) = (id.clone(), what.clone());
        let noted = self
            .writer
            .note(move |page| {
                let Some((status, trust)) = page.open(&task) else { return Ok(None) };
                let trust = status.may_become(next).then(|| trust.to_owned());
                if trust.is_some() {
                    page.append(task.clone(), happened.clone(), in_it)?;
                }
                Ok(Some(trust))
            })
            .await?;
        if let Some(trust) = noted {
            return Ok(trust);
        }
        // Open tasks are all in the daybook, unless somebody has removed that.
        let task = id.clone();
        let by_row = self.writer.note_with_ledger(move |page, opened, _| {
            let sql = "SELECT status, trust FROM task WHERE id = ?";
            let found = opened.connection.prepare_cached(sql)?.query_row([task.as_str()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            });
            let Some((status, trust)) = found.optional()? else { return Ok(None) };
            if !Status::from_name(&status).is_some_and(|status| status.may_become(next)) {
                return Ok(None);
            }
            page.append(task.clone(), what.clone(), in_it)?;
            Ok(Some(trust))
        });
        Box::pin(by_row).await
    }

    /// The output of a task that has no folder; none if it has one, or has not ended.
    pub(crate) async fn small_output(
        &self,
        id: &TaskId,
    ) -> Result<Option<Arc<SmallOutput>>, LedgerError> {
        let id = id.clone();
        self.writer
            .read(move |connection| {
                let sql =
                    "SELECT stdout, stderr, timeline FROM task WHERE id = ? AND stdout IS NOT NULL";
                connection
                    .prepare_cached(sql)?
                    .query_row([id.as_str()], |row| {
                        Ok(Arc::new(SmallOutput {
                            stdout: row.get(0)?,
                            stderr: row.get(1)?,
                            timeline: row.get(2)?,
                        }))
                    })
                    .optional()
            })
            .await
    }

    /// Records that a task is being stopped: it is no longer one to be joined.
    pub(crate) async fn cancelling(&self, id: &TaskId) -> Result<(), LedgerError> {
        let changed =
            self.change(id, Status::Cancelling, What::Cancelling, Failpoint::EngineInOutcome);
        changed.await.map(drop)
    }

    /// Records where a task stands that waits in a queue: why, or that it runs by now. Says whether
    /// it did wait until then.
    pub(crate) async fn stand(
        &self,
        id: &TaskId,
        standing: TaskStanding,
    ) -> Result<bool, LedgerError> {
        let task = id.clone();
        self.writer
            .note(move |page| {
                let waits = matches!(page.open(&task), Some((Status::Queued, _)));
                if waits {
                    let what = What::Standing(standing.clone());
                    page.append(task.clone(), what, Failpoint::EngineInOutcome)?;
                }
                Ok(waits)
            })
            .await
    }

    /// Takes a task out again that never started and left nothing; the trust of its caller is
    /// returned.
    pub(crate) async fn forget(&self, id: &TaskId) -> Result<Option<String>, LedgerError> {
        self.change(id, Status::Failed, What::Forget, Failpoint::EngineInOutcome).await
    }

    /// Takes a task off the list of those that are open, if its row knows better or there is none.
    pub(crate) async fn reconcile(&self, id: &TaskId) -> Result<(), LedgerError> {
        let id = id.clone();
        self.writer
            .note_with_ledger(move |page, opened, _| {
                let sql = "SELECT outcome IS NULL FROM task WHERE id = ?";
                let mut statement = opened.connection.prepare_cached(sql)?;
                let is_open = statement.query_row([id.as_str()], |row| row.get(0)).optional()?;
                if page.open(&id).is_some() && is_open != Some(true) {
                    page.append(id.clone(), What::Forget, Failpoint::EngineInOutcome)?;
                }
                Ok(())
            })
            .await
    }

    /// Makes sure that whoever reads the ledger itself, and not through this program, finds
    /// everything.
    pub(crate) async fn post(&self) -> Result<(), LedgerError> {
        self.writer.read(|_| Ok(())).await
    }

    /// The newest tasks first, of one workspace or of all: those that have not ended, or all.
    pub async fn list(
        &self,
        workspace: Option<&str>,
        finished_too: bool,
        limit: u32,
    ) -> Result<Vec<Task>, LedgerError> {
        let workspace = workspace.map(str::to_owned);
        self.writer
            .read(move |connection| {
                let condition = match (finished_too, &workspace) {
                    (false, _) => OPEN,
                    (true, Some(_)) => "WHERE workspace = ?1",
                    (true, None) => "WHERE ?1 IS NULL",
                };
                // First which ones, then what is known of them: rows are long, and most are not
                // wanted.
                let sql = format!(
                    "SELECT {} FROM task WHERE sequence IN
                         (SELECT sequence FROM task {condition} ORDER BY sequence DESC LIMIT ?2)
                      ORDER BY sequence DESC",
                    Task::COLUMNS,
                );
                select(connection, &sql, (&workspace, limit))
            })
            .await
    }

    /// Those of the newest tasks that ended and left processes behind, the newest first.
    pub(crate) async fn left_behind(
        &self,
        workspace: Option<&str>,
        among: u32,
    ) -> Result<Vec<Task>, LedgerError> {
        let workspace = workspace.map(str::to_owned);
        self.writer
            .read(move |connection| {
                let condition =
                    if workspace.is_some() { "workspace = ?1" } else { "?1 IS NULL" };
                // Few tasks have any: only these are read in full.
                let sql = format!(
                    "SELECT {} FROM task WHERE sequence IN
                         (SELECT sequence FROM task WHERE {condition} ORDER BY sequence DESC LIMIT ?2)
                        AND CASE WHEN json_valid(outcome)
                            THEN json_array_length(outcome, '$.background_pids') ELSE 0 END > 0
                      ORDER BY sequence DESC",
                    Task::COLUMNS,
                );
                select(connection, &sql, (&workspace, among))
            })
            .await
    }

    /// The ids of all tasks that have not ended.
    pub(crate) async fn open_ids(&self) -> Result<Vec<TaskId>, LedgerError> {
        self.writer.note(|page| Ok(page.open_ids())).await
    }

    /// How many tasks a list without a limit would have.
    pub async fn count(
        &self,
        workspace: Option<&str>,
        finished_too: bool,
    ) -> Result<u64, LedgerError> {
        let workspace = workspace.map(str::to_owned);
        self.writer
            .read(move |connection| {
                if !finished_too {
                    return count_open(connection, workspace.as_deref());
                }
                let sql = match workspace {
                    Some(_) => "SELECT coalesce(sum(tasks), 0) FROM tally WHERE workspace = ?1",
                    None => "SELECT coalesce(sum(tasks), 0) FROM tally WHERE ?1 IS NULL",
                };
                let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
                connection.prepare_cached(sql)?.query_row([&workspace], count)
            })
            .await
    }

    /// Tasks whose id begins with this text; two are enough to know that it is not unique.
    pub async fn find(&self, prefix: &str) -> Result<Vec<Task>, LedgerError> {
        // Ids are made of ASCII letters and digits, so this character is past every continuation.
        let (from, to) = (prefix.to_owned(), format!("{prefix}\u{7f}"));
        self.writer
            .read(move |connection| {
                let sql =
                    format!("SELECT {} FROM task WHERE id >= ? AND id < ? LIMIT 2", Task::COLUMNS);
                select(connection, &sql, [&from, &to])
            })
            .await
    }
}

/// What has not ended; the index holds nothing else, so that sorting its few rows beats a scan of
/// the table.
const OPEN: &str = "INDEXED BY task_open WHERE outcome IS NULL AND (?1 IS NULL OR workspace = ?1)";

fn count_open(connection: &Connection, workspace: Option<&str>) -> rusqlite::Result<u64> {
    let sql = match workspace {
        Some(_) => format!("SELECT count(*) FROM task {OPEN}"),
        None => {
            "SELECT count(*) FROM task INDEXED BY task_open WHERE outcome IS NULL AND ?1 IS NULL"
                .into()
        }
    };
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
    connection.prepare_cached(&sql)?.query_row([workspace], count)
}

/// The tasks that a statement finds. Damaged rows are left out, so that one of them does not hide
/// the others.
fn select(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<Task>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(values, Task::read)?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let complain = |error: &LedgerError| tracing::warn!(%error, "a row is left out");
    Ok(rows.into_iter().filter_map(|row| row.inspect_err(complain).ok()).collect())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The tasks that are not over, oldest first.
fn open_tasks(connection: &Connection) -> Result<Vec<Task>, LedgerError> {
    let sql = format!("SELECT {} FROM task {OPEN} ORDER BY sequence", Task::COLUMNS);
    Ok(select(connection, &sql, [None::<&str>])?)
}

/// Registers a task that only its folder knew of, as far as it has come.
fn register_again(page: &mut Page<'_>, mut task: Task) -> Result<(), LedgerError> {
    let (id, status, reason) = (task.task_id.clone(), task.status, task.reason.take());
    let outcome = task.outcome.take();
    task.status = Status::Running;
    let note = write_note(&task).into();
    let start = What::Start(Start::new(Arc::new(task), note));
    page.append(id.clone(), start, Failpoint::EngineInRegistration)?;
    if let Some(outcome) = outcome {
        let outcome = serde_json::to_string(&outcome).unwrap_or_default();
        let end = What::TaskEnd(Arc::new(TaskEnd { status, reason, outcome, output: None }));
        page.append(id, end, Failpoint::EngineInOutcome)?;
    }
    Ok(())
}
