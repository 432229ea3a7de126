//! The ledger: SQLite, shared by every process on the state folder; two commits for each command.

mod approvals;
mod writer;

use std::{
    fs::{OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{Arc, LazyLock},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, named_params};
use serde::Serialize;

use self::writer::Writer;
use crate::{
    id::TaskId,
    model::Outcome,
    output::{Mask, SmallOutput},
    sandbox::SandboxReport,
    status::Status,
};

/// The steps from an empty ledger to the schema of this program, of which `user_version` counts those done.
const MIGRATIONS: [&str; 4] = [
    FIRST_SCHEMA,
    "ALTER TABLE task ADD COLUMN description TEXT;",
    approvals::SCHEMA,
    "ALTER TABLE task ADD COLUMN sandbox TEXT;
     ALTER TABLE approval ADD COLUMN sandbox TEXT NOT NULL DEFAULT 'none';",
];

/// Version of the schema.
#[expect(clippy::cast_possible_wrap, reason = "a handful")]
const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

const FIRST_SCHEMA: &str = "
CREATE TABLE task (
    sequence      INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    tool          TEXT    NOT NULL,
    workspace     TEXT    NOT NULL,
    asked_by      TEXT    NOT NULL,
    trust         TEXT    NOT NULL,
    command       TEXT    NOT NULL,
    workdir       TEXT    NOT NULL,
    shell         TEXT,
    login         INTEGER NOT NULL,
    tty           INTEGER NOT NULL,
    fingerprint   BLOB    NOT NULL,
    boot_id       TEXT    NOT NULL,
    warden        TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    reason        TEXT,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    outcome       TEXT,
    -- The output of a run that was too small and too short for a folder.
    stdout        BLOB,
    stderr        BLOB,
    timeline      BLOB
) STRICT;
-- Only what is not finished: the duplicate check and `ps` cost the same with any history.
CREATE INDEX task_open ON task (fingerprint) WHERE outcome IS NULL;
";

/// Ends a task, whatever it was before that may end.
static FINISH: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE task SET status = :status, reason = :reason, outcome = :outcome,
                updated_at_ms = :now, stdout = :stdout, stderr = :stderr, timeline = :timeline
          WHERE id = :id AND status IN ({}) RETURNING trust",
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
    /// A row that does not read back.
    #[error("the ledger: task {0} has a damaged row")]
    Damaged(String),
    /// The thread that waited for the ledger is gone.
    #[error("the ledger: the wait for it was cut off")]
    Cut,
}

/// A task, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The id.
    pub task_id: TaskId,
    /// The tool or verb through which it came.
    pub tool: String,
    /// The status.
    pub status: Status,
    /// Why it has this status, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command, as it was asked for.
    pub command: String,
    /// What the caller says that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The folder that it runs in.
    pub workdir: String,
    /// The shell, for a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Whether that is a login shell.
    pub login: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The workspace of the caller.
    pub workspace: String,
    /// Who asked.
    pub asked_by: String,
    /// How far that caller is trusted.
    pub trust: String,
    /// When it was registered, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When its status last changed.
    pub updated_at_ms: i64,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What keeps it in its place.
    pub sandbox: Arc<SandboxReport>,
    /// The warden that holds it.
    #[serde(skip)]
    pub(crate) warden: String,
    /// The boot of the machine in which it was started.
    #[serde(skip)]
    pub(crate) boot_id: String,
    /// Equal commands have equal ones.
    #[serde(skip)]
    pub(crate) fingerprint: [u8; 32],
}

impl Task {
    /// The same without secrets in what is said of it, to be shown.
    #[must_use]
    pub fn masked(mut self, mask: &Mask) -> Self {
        let said = [&mut self.command, &mut self.workdir, &mut self.workspace, &mut self.asked_by];
        for text in said.into_iter().chain(&mut self.description).chain(&mut self.shell) {
            mask.string(text);
        }
        self
    }

    const COLUMNS: &'static str = "id, tool, status, reason, command, description, workdir, shell, login, \
        tty, workspace, asked_by, trust, created_at_ms, updated_at_ms, outcome, sandbox, warden, boot_id, \
        fingerprint";

    fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, LedgerError>> {
        let id: String = row.get("id")?;
        let status: String = row.get("status")?;
        let outcome: Option<String> = row.get("outcome")?;
        let sandbox: Option<String> = row.get("sandbox")?;
        let outcome = outcome.map(|text| serde_json::from_str(&text)).transpose();
        let (Some(status), Ok(outcome)) = (Status::from_name(&status), outcome) else {
            return Ok(Err(LedgerError::Damaged(id)));
        };
        Ok(Ok(Self {
            task_id: id.into(),
            tool: row.get("tool")?,
            status,
            reason: row.get("reason")?,
            command: row.get("command")?,
            description: row.get("description")?,
            workdir: row.get("workdir")?,
            shell: row.get("shell")?,
            login: row.get("login")?,
            tty: row.get("tty")?,
            workspace: row.get("workspace")?,
            asked_by: row.get("asked_by")?,
            trust: row.get("trust")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
            outcome,
            sandbox: sandbox.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
            warden: row.get("warden")?,
            boot_id: row.get("boot_id")?,
            fingerprint: row.get("fingerprint")?,
        }))
    }
}

/// What became of a registration.
#[derive(Debug)]
pub(crate) enum Registered {
    /// The task is in the ledger and may start.
    New,
    /// An equal one has not ended.
    Equal(Box<Task>),
}

/// The ledger, as one process sees it.
#[derive(Debug, Clone)]
pub struct Ledger {
    writer: Arc<Writer>,
}

impl Ledger {
    /// Opens the ledger, and makes or migrates its schema.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        make_private(path)?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        switch_to_wal(&connection)?;
        // Checkpoints sync the disk: not in a commit that somebody waits for. The writer makes them.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version > SCHEMA_VERSION {
            return Err(LedgerError::TooNew(version));
        }
        if version < SCHEMA_VERSION {
            migrate(&mut connection)?;
        }
        connection.busy_timeout(Duration::ZERO)?;
        Ok(Self { writer: Arc::new(Writer::new(connection)) })
    }

    /// Registers a task; with `unless_equal`, only if no equal one has yet to end, in one atomic step.
    pub(crate) async fn register(
        &self,
        task: Task,
        unless_equal: bool,
    ) -> Result<Registered, LedgerError> {
        self.writer
            .write(move |connection| {
                if unless_equal && let Some(running) = find_equal(connection, &task.fingerprint)? {
                    return Ok(running.map(|task| Registered::Equal(Box::new(task))));
                }
                insert(connection, &task)?;
                Ok(Ok(Registered::New))
            })
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
                connection
                    .prepare_cached(&FINISH)?
                    .query_row(
                        named_params! {
                            ":status": status.as_str(), ":reason": reason, ":outcome": outcome,
                            ":now": now_ms(), ":id": id.as_str(),
                            ":stdout": output.map(|output| &output.stdout),
                            ":stderr": output.map(|output| &output.stderr),
                            ":timeline": output.map(|output| &output.timeline),
                        },
                        |row| row.get(0),
                    )
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
                let sql = format!(
                    "SELECT {} FROM task {} ORDER BY sequence DESC LIMIT ?2",
                    Task::COLUMNS,
                    listed(finished_too)
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
                let sql = format!("SELECT count(*) FROM task {}", listed(finished_too));
                connection.prepare_cached(&sql)?.query_row([&workspace], |row| row.get::<_, i64>(0))
            })
            .await
            .map(i64::cast_unsigned)
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

/// Makes the ledger's file, readable by its owner only; SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file.set_permissions(Permissions::from_mode(0o600)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The condition of a list.
fn listed(finished_too: bool) -> &'static str {
    // The index holds only what is open, so that sorting its few rows beats a scan of the table.
    if finished_too {
        "WHERE (?1 IS NULL OR workspace = ?1)"
    } else {
        "INDEXED BY task_open WHERE outcome IS NULL AND (?1 IS NULL OR workspace = ?1)"
    }
}

/// Leaves damaged rows out, so that one of them does not hide the others.
fn readable(rows: Vec<Result<Task, LedgerError>>) -> Vec<Task> {
    let complain = |error: &LedgerError| tracing::warn!(%error, "a row is left out");
    rows.into_iter().filter_map(|row| row.inspect_err(complain).ok()).collect()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// SQLite does not wait when two processes make this switch at once, so the wait is here.
fn switch_to_wal(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + Duration::from_millis(BUSY_MS);
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Brings the schema up to date, in one step.
fn migrate(connection: &mut Connection) -> Result<(), LedgerError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited for the lock.
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}

fn find_equal(
    connection: &Connection,
    fingerprint: &[u8; 32],
) -> rusqlite::Result<Option<Result<Task, LedgerError>>> {
    connection.prepare_cached(&FIND_EQUAL)?.query_row([fingerprint], Task::read).optional()
}

fn insert(connection: &Connection, task: &Task) -> rusqlite::Result<()> {
    // What is not confined says so by saying nothing.
    let confined = *task.sandbox != SandboxReport::default();
    let sandbox = confined.then(|| serde_json::to_string(&task.sandbox).unwrap_or_default());
    connection
        .prepare_cached(
            "INSERT INTO task (id, tool, status, command, description, workdir, shell, login, tty, workspace,
                               asked_by, trust, created_at_ms, updated_at_ms, sandbox, warden, boot_id,
                               fingerprint)
             VALUES (:id, :tool, :status, :command, :description, :workdir, :shell, :login, :tty, :workspace,
                     :asked_by, :trust, :created, :updated, :sandbox, :warden, :boot_id, :fingerprint)",
        )?
        .execute(named_params! {
            ":id": task.task_id.as_str(), ":tool": task.tool, ":status": task.status.as_str(),
            ":command": task.command, ":description": task.description, ":workdir": task.workdir, ":shell": task.shell,
            ":login": task.login, ":tty": task.tty, ":workspace": task.workspace,
            ":asked_by": task.asked_by, ":trust": task.trust, ":created": task.created_at_ms,
            ":updated": task.updated_at_ms, ":sandbox": sandbox, ":warden": task.warden, ":boot_id": task.boot_id,
            ":fingerprint": task.fingerprint,
        })
        .map(drop)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
