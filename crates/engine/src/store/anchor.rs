//! Where the audit log ends, as the ledger knows it: whoever cuts the log, writes it anew or takes
//! it away is found out by comparing the two.
//!
//! A head is written to the daybook with the next task that is registered, so that it costs no step
//! of its own; a process that stays does it with every posting, and every process when it ends.
//! What was noted since is not anchored yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub(super) const SCHEMA: &str = "
-- Up to where each audit log was known, and the hash of the line that ends there.
CREATE TABLE anchor (
    log    INTEGER PRIMARY KEY,
    length INTEGER NOT NULL,
    hash   TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT;
";

/// The end of an audit log, as it was once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    /// Tells one log from another that comes in its place: the number of its file.
    pub log: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The hash of the line that ends there.
    pub hash: String,
}

/// The head that this process knows, and the one that it has anchored.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedHead(Arc<SharedHeads>);

#[derive(Debug, Default)]
struct SharedHeads {
    heads: Mutex<Heads>,
    /// Goes up whenever the head moves.
    moved: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Heads {
    known: Option<AuditHead>,
    is_anchored: bool,
}

impl SharedHead {
    fn lock(&self) -> MutexGuard<'_, Heads> {
        self.0.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of where the log ends now.
    pub(super) fn set(&self, head: AuditHead) {
        *self.lock() = Heads { known: Some(head), is_anchored: false };
        self.0.moved.send_modify(|count| *count += 1);
    }

    /// Says whenever the head has moved.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.0.moved.subscribe()
    }

    /// Where the log ends, as far as this process knows.
    pub(crate) fn known(&self) -> Option<AuditHead> {
        self.lock().known.clone()
    }

    /// The head that is not anchored yet.
    pub(super) fn pending(&self) -> Option<AuditHead> {
        let heads = self.lock();
        heads.known.clone().filter(|_| !heads.is_anchored)
    }

    /// Takes note that this head is anchored.
    pub(super) fn anchored(&self, head: &AuditHead) {
        let mut heads = self.lock();
        heads.is_anchored |= heads.known.as_ref() == Some(head);
    }
}

/// Keeps a head in the ledger, unless more of that log is known.
pub(super) fn keep(connection: &Connection, head: &AuditHead, at_ms: i64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO anchor VALUES (?, ?, ?, ?) ON CONFLICT (log) DO UPDATE
               SET length = excluded.length, hash = excluded.hash, at_ms = excluded.at_ms
             WHERE excluded.length > anchor.length";
    let (log, length) = (head.log.cast_signed(), head.length.cast_signed());
    connection.prepare_cached(sql)?.execute((log, length, &head.hash, at_ms)).map(drop)
}

/// All heads, the newest first.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<AuditHead>> {
    let sql = "SELECT log, length, hash FROM anchor ORDER BY at_ms DESC, length DESC";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], read)?;
    rows.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditHead> {
    Ok(AuditHead {
        log: row.get::<_, i64>(0)?.cast_unsigned(),
        length: row.get::<_, i64>(1)?.cast_unsigned(),
        hash: row.get(2)?,
    })
}
