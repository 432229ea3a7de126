//! The schema, and the steps that lead to it from every older one.

use rusqlite::{Connection, TransactionBehavior};

use super::{LedgerError, approvals, post};
use crate::store::anchor;

/// The steps from an empty ledger to the schema of this program, of which `user_version` counts
/// those done.
pub(super) const MIGRATIONS: [&str; 11] = [
    FIRST_SCHEMA,
    "ALTER TABLE task ADD COLUMN description TEXT;",
    approvals::SCHEMA,
    "ALTER TABLE task ADD COLUMN sandbox TEXT;
     ALTER TABLE approval ADD COLUMN sandbox TEXT NOT NULL DEFAULT 'none';",
    GROWTH,
    post::SCHEMA,
    approvals::WHAT_IS_BOUND,
    anchor::SCHEMA,
    approvals::PROGRAMS,
    "ALTER TABLE approval ADD COLUMN task_id TEXT;",
    approvals::TRIALS,
];

/// Version of the schema.
#[expect(clippy::cast_possible_wrap, reason = "a handful")]
pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

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

/// What keeps every statement as cheap with a hundred thousand tasks as with none.
const GROWTH: &str = "
-- The tasks of one workspace, newest first, however many the others have.
CREATE INDEX task_workspace ON task (workspace);
-- How many tasks a workspace has: counting them would read them all.
CREATE TABLE tally (
    workspace TEXT    PRIMARY KEY,
    tasks     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO tally SELECT workspace, count(*) FROM task GROUP BY workspace;
CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
    INSERT INTO tally VALUES (new.workspace, 1)
        ON CONFLICT (workspace) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_removed AFTER DELETE ON task BEGIN
    UPDATE tally SET tasks = tasks - 1 WHERE workspace = old.workspace;
END;
CREATE INDEX approval_open ON approval (created_at_ms) WHERE decision IS NULL;
CREATE INDEX approval_expiry ON approval (expires_at_ms);
";

/// Brings the schema up to date, in one step.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), LedgerError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited for the lock.
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}
