//! The schema of the ledger, and the marks by which a file says that it has it.

use rusqlite::Connection;

use super::{LedgerError, approvals, opened::Damage, post};
use crate::store::anchor;

/// Version of the schema and of the daybook beside it.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The application id of a ledger. Builds from before version 1 did not set it, and counted their
/// versions up to 11.
pub(super) const APPLICATION_ID: i64 = 0x4c47_574b;

const TASKS: &str = "
CREATE TABLE task (
    sequence      INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    tool          TEXT    NOT NULL,
    workspace     TEXT    NOT NULL,
    asked_by      TEXT    NOT NULL,
    trust         TEXT    NOT NULL,
    command       TEXT    NOT NULL,
    description   TEXT,
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
    -- What confines it, as JSON; null where nothing does.
    sandbox       TEXT,
    -- The output of a run that was too small and too short for a folder.
    stdout        BLOB,
    stderr        BLOB,
    timeline      BLOB
) STRICT;
-- Only what is not finished: the duplicate check and `ps` cost the same with any history.
CREATE INDEX task_open ON task (fingerprint) WHERE outcome IS NULL;
-- The tasks of one workspace, newest first, however many the others have.
CREATE INDEX task_workspace ON task (workspace);
-- How many tasks a workspace has: counting them would read them all.
CREATE TABLE tally (
    workspace TEXT    PRIMARY KEY,
    tasks     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
    INSERT INTO tally VALUES (new.workspace, 1)
        ON CONFLICT (workspace) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_removed AFTER DELETE ON task BEGIN
    UPDATE tally SET tasks = tasks - 1 WHERE workspace = old.workspace;
END;
";

/// Makes the tables of a new ledger.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    for part in [TASKS, approvals::SCHEMA, post::SCHEMA, anchor::SCHEMA] {
        connection.execute_batch(part)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Checks the marks of a file: its application id and its version.
pub(super) fn check_marks(application_id: i64, version: i64) -> Result<(), LedgerError> {
    match version {
        0 => Err(LedgerError::Unsound(Damage::Found("it has no tables".into()))),
        _ if application_id != APPLICATION_ID => Err(LedgerError::Unsound(Damage::Older)),
        SCHEMA_VERSION => Ok(()),
        _ => Err(LedgerError::TooNew(version)),
    }
}
