//! The ledger: SQLite, shared by every process on the state folder; two commits for each command.

mod approvals;
mod history;
mod note;
mod opened;
mod rebuild;
mod restore;
mod salvage;
mod schema;
mod task;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, LazyLock},
    time::{SystemTime, UNIX_EPOCH},
};

use legwork_warden::failpoint::Failpoint;
use rusqlite::{Connection, ErrorCode, OptionalExtension, named_params};

pub(crate) use self::{
    history::{History, OldTask},
    note::write as write_note,
    opened::private_file,
    rebuild::SET_ASIDE,
    restore::task_id,
};
pub use self::{opened::Damage, rebuild::Rebuilt, task::Task};
use self::{schema::SCHEMA_VERSION, task::insert, writer::Writer};
use crate::{id::TaskId, model::Outcome, output::SmallOutput, state::StateFolder, status::Status};

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

static FIND_EQUAL: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM task WHERE fingerprint = ? AND outcome IS NULL AND status IN ({}) LIMIT 1",
        Task::COLUMNS,
        names(Status::may_be_joined)
    )
});

/// The names of some statuses, as SQL has them in a list.
fn names(wanted: impl Fn(Status) -> bool) -> String {
    let names = Status::ALL.into_iter().filter(|status| wanted(*status)).map(Status::as_str);
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// How long a write waits for another process before it gives up.
const BUSY_MS: u64 = 5_000;

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
    /// Another process takes too long to rebuild it.
    #[error("the ledger is being rebuilt by another process")]
    Rebuilding,
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
    /// Opens the ledger, and makes, migrates or rebuilds it; of a rebuild, now or later, is told.
    pub fn open(state: Arc<StateFolder>, tell: fn(&Rebuilt)) -> Result<Self, LedgerError> {
        let (opened, rebuilt) = opened::open(&state, None)?;
        if let Some(rebuilt) = rebuilt {
            tell(&rebuilt);
        }
        Ok(Self { writer: Arc::new(Writer::new(state, tell, opened)) })
    }

    /// Registers a task, if fewer than `tasks_max` run; with `unless_equal`, only if no equal one has yet to end.
    /// All in one atomic step.
    pub(crate) async fn register(
        &self,
        task: Task,
        unless_equal: bool,
        tasks_max: u64,
    ) -> Result<Registered, LedgerError> {
        self.writer
            .write(move |connection| {
                if unless_equal && let Some(running) = find_equal(connection, &task.fingerprint)? {
                    return Ok(running.map(|task| Registered::Equal(Box::new(task))));
                }
                let running = count_open(connection, None)?;
                if running >= tasks_max {
                    return Ok(Ok(Registered::Full(running)));
                }
                insert(connection, &task)?;
                Failpoint::EngineInRegistration.pass();
                Ok(Ok(Registered::New))
            })
            .await?
    }

    /// Checks the structure of the whole ledger; one that is damaged is rebuilt.
    pub(crate) async fn check(&self) -> Result<(), LedgerError> {
        self.writer.read_checked(|opened| opened::check_all(&opened.connection)).await
    }

    /// Puts back a task that has a folder and no row; says whether there is one.
    pub(crate) async fn restore(&self, id: &TaskId) -> Result<bool, LedgerError> {
        let (id, state) = (id.clone(), self.writer.state.clone());
        self.writer
            .write(move |connection| Ok(restore::restore(&state, connection, &id, &HashMap::new())))
            .await?
    }

    /// A task with this fingerprint that may be joined.
    pub(crate) async fn equal(&self, fingerprint: &[u8; 32]) -> Result<Option<Task>, LedgerError> {
        let fingerprint = *fingerprint;
        let found =
            self.writer.read(move |connection| find_equal(connection, &fingerprint)).await?;
        found.transpose()
    }

    /// Records how a task ended, with its output if that is nowhere else; the first outcome stays. If this is
    /// it, the trust of the task's caller is returned.
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
        let id = id.clone();
        let outcome = serde_json::to_string(outcome).unwrap_or_default();
        self.writer
            .write(move |connection| {
                let output = output.as_deref();
                let changed = connection.prepare_cached(&FINISH)?.execute(named_params! {
                    ":status": status.as_str(), ":reason": reason, ":outcome": outcome,
                    ":now": now_ms(), ":id": id.as_str(),
                    ":stdout": output.map(|output| &output.stdout),
                    ":stderr": output.map(|output| &output.stderr),
                    ":timeline": output.map(|output| &output.timeline),
                })?;
                Failpoint::EngineInOutcome.pass();
                if changed == 0 {
                    return Ok(None);
                }
                // Returned by the statement itself it would take a temporary table.
                let sql = "SELECT trust FROM task WHERE id = ?";
                connection
                    .prepare_cached(sql)?
                    .query_row([id.as_str()], |row| row.get(0))
                    .optional()
            })
            .await
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
        let id = id.clone();
        self.writer
            .write(move |connection| {
                connection.prepare_cached(&CANCEL)?.execute((now_ms(), id.as_str())).map(drop)
            })
            .await
    }

    /// Takes a task out again that never started and left nothing.
    pub(crate) async fn forget(&self, id: &TaskId) -> Result<(), LedgerError> {
        let id = id.clone();
        self.writer
            .write(move |connection| {
                let sql = "DELETE FROM task WHERE id = ? AND outcome IS NULL";
                connection.prepare_cached(sql)?.execute([id.as_str()]).map(drop)
            })
            .await
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
                let sql = format!(
                    "SELECT {} FROM task {condition} ORDER BY sequence DESC LIMIT ?2",
                    Task::COLUMNS,
                );
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map((&workspace, limit), Task::read)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
            .await
            .map(readable)
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
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map([&from, &to], Task::read)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
            .await
            .map(readable)
    }
}

/// What has not ended; the index holds nothing else, so that sorting its few rows beats a scan of the table.
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

/// Leaves damaged rows out, so that one of them does not hide the others.
fn readable(rows: Vec<Result<Task, LedgerError>>) -> Vec<Task> {
    let complain = |error: &LedgerError| tracing::warn!(%error, "a row is left out");
    rows.into_iter().filter_map(|row| row.inspect_err(complain).ok()).collect()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn find_equal(
    connection: &Connection,
    fingerprint: &[u8; 32],
) -> rusqlite::Result<Option<Result<Task, LedgerError>>> {
    connection.prepare_cached(&FIND_EQUAL)?.query_row([fingerprint], Task::read).optional()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
