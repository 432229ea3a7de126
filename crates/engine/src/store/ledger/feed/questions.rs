//! Questions that were opened, answered or are over, found by comparing the ledger with what was
//! known before.
//!
//! So it does not matter who wrote them, which version that was, or how often anybody looks.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    events::{EventKind, QuestionMark},
    model::question::Reply,
};

/// The open questions, as they were last known.
#[derive(Debug, Default, Clone)]
pub(super) struct Questions {
    open: HashMap<String, Open>,
    /// The place of the newest one that was ever seen.
    newest: i64,
    /// What is known of all.
    pub mark: QuestionMark,
}

#[derive(Debug, Clone)]
struct Open {
    workspace: Arc<str>,
    opened_at_ms: i64,
    expires_at_ms: i64,
}

/// A question as the ledger has it.
struct Known {
    id: String,
    open: Open,
    decision: Option<Reply>,
}

/// What happened, and in which workspace.
pub(super) type Happened = (Arc<str>, EventKind);

const COLUMNS: &str = "id, workspace, expires_at_ms, decision, created_at_ms";

impl Questions {
    /// What happened since; it is known from now on.
    pub(super) fn look(
        &mut self,
        connection: &Connection,
        now_ms: i64,
    ) -> rusqlite::Result<Vec<Happened>> {
        let mut happened = Vec::new();
        for (id, open) in std::mem::take(&mut self.open) {
            // One that is gone is over for long.
            let decision = find(connection, &id)?.and_then(|known| known.decision);
            self.take(Known { id, open, decision }, now_ms, &mut happened);
        }
        let sql = "SELECT coalesce(max(rowid), 0) FROM approval";
        let newest = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        // If all were removed, their places are given out again.
        let seen = if newest < self.newest { 0 } else { self.newest };
        self.newest = newest;
        for known in since(connection, seen)? {
            if !self.open.contains_key(&known.id) {
                let opened = EventKind::QuestionOpened { approval_id: known.id.clone() };
                happened.push((known.open.workspace.clone(), opened));
                self.take(known, now_ms, &mut happened);
            }
        }
        self.mark = mark(connection, newest, now_ms)?;
        Ok(happened)
    }

    /// Takes note of a question, or says what became of it.
    fn take(&mut self, known: Known, now_ms: i64, happened: &mut Vec<Happened>) {
        let Known { id, open, decision } = known;
        let approval_id = id.clone();
        let opened_at_ms = open.opened_at_ms;
        let over = match decision {
            Some(decision) => EventKind::QuestionAnswered { approval_id, decision, opened_at_ms },
            None if open.expires_at_ms <= now_ms => {
                EventKind::QuestionExpired { approval_id, opened_at_ms }
            }
            None => return drop(self.open.insert(id, open)),
        };
        happened.push((open.workspace, over));
    }

    /// When the next one is over that nobody answers.
    pub(super) fn next_end_ms(&self) -> Option<i64> {
        self.open.values().map(|open| open.expires_at_ms).min()
    }
}

/// What is known of the questions at this time.
fn mark(connection: &Connection, newest: i64, now_ms: i64) -> rusqlite::Result<QuestionMark> {
    let sql = "SELECT coalesce(sum(rowid), 0) FROM approval
                WHERE decision IS NOT NULL OR expires_at_ms <= ?";
    let over: i64 = connection.prepare_cached(sql)?.query_row([now_ms], |row| row.get(0))?;
    Ok(QuestionMark { newest: newest.cast_unsigned(), over: over.cast_unsigned() })
}

/// The questions beyond this place, oldest first.
fn since(connection: &Connection, place: i64) -> rusqlite::Result<Vec<Known>> {
    let sql = format!("SELECT {COLUMNS} FROM approval WHERE rowid > ? ORDER BY rowid");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map([place], read)?.collect()
}

fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Known>> {
    let sql = format!("SELECT {COLUMNS} FROM approval WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id], read).optional()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Known> {
    let decision: Option<String> = row.get(3)?;
    let workspace = Arc::from(row.get::<_, String>(1)?);
    let open = Open { workspace, opened_at_ms: row.get(4)?, expires_at_ms: row.get(2)? };
    let decision = decision.as_deref().and_then(Reply::from_name);
    Ok(Known { id: row.get(0)?, open, decision })
}
