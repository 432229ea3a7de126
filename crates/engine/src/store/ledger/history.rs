//! The ledger as the clean-up sees it: old tasks first, on a connection of its own, so that nobody
//! waits for it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use legwork_warden::failpoint::Failpoint;
use rusqlite::{OptionalExtension, Row};

use super::{
    BUSY_MS, LedgerError, approvals,
    daybook::{Daybook, Wait, What},
    opened::{self, OPENS_MAX, Opened, open_daybook},
    post::{catch_up, locked_if_free, renew},
    register_again,
    restore::missing,
};
use crate::{id::TaskId, model::Outcome, state::StateFolder};

/// What a row takes besides its output, about.
const ROW_BYTES: i64 = 1024;

/// A row, as far as it matters for whether it is kept.
#[derive(Debug, Clone)]
pub(crate) struct OldTask {
    pub sequence: i64,
    pub task_id: TaskId,
    pub is_over: bool,
    pub warden: String,
    /// Whether it left processes behind.
    pub left_something: bool,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    /// What its row takes in the ledger.
    pub row_bytes: u64,
}

/// The task that was registered last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Newest {
    /// Its place in the history.
    pub sequence: i64,
    pub created_at_ms: i64,
}

/// The history of a state folder.
#[derive(Debug)]
pub(crate) struct History {
    state: Arc<StateFolder>,
    opened: Opened,
    daybook: Daybook,
}

impl History {
    pub(crate) fn open(state: Arc<StateFolder>) -> Result<Self, LedgerError> {
        let (opened, daybook) = opened::open(&state)?;
        opened.connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        let mut history = Self { state, opened, daybook };
        history.with_daybook(|_, opened, daybook| catch_up(opened, daybook))?;
        Ok(history)
    }

    /// Puts back the tasks that have a folder and no row.
    pub(crate) fn restore(&mut self) -> Result<usize, LedgerError> {
        self.with_daybook(|state, opened, daybook| {
            loop {
                let done = locked_if_free(opened, daybook, Wait::patiently(), |page| {
                    let missing = missing(state, &opened.connection, &HashMap::new())?;
                    let restored = missing.len();
                    missing.into_iter().try_for_each(|task| register_again(page, task))?;
                    catch_up(opened, page.book())?;
                    Ok(restored)
                })?;
                if let Some(restored) = done {
                    return Ok(restored);
                }
                opened.wait_until_free()?;
            }
        })
    }

    /// Makes sure that what was removed is not posted once more, after a crash.
    pub(crate) fn renew(&mut self) -> Result<(), LedgerError> {
        self.with_daybook(|state, opened, daybook| renew(state, opened, daybook, Wait::patiently()))
    }

    /// Does something with the daybook; if another one stands in its place, with that one.
    fn with_daybook<T>(
        &mut self,
        mut work: impl FnMut(&StateFolder, &Opened, &mut Daybook) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        for _ in 1..OPENS_MAX {
            match work(&self.state, &self.opened, &mut self.daybook) {
                Err(LedgerError::Replaced) => {
                    self.opened.check()?;
                    self.daybook = open_daybook(&self.state, &self.opened)?;
                }
                result => return result,
            }
        }
        work(&self.state, &self.opened, &mut self.daybook)
    }

    /// The oldest tasks beyond this place.
    pub(crate) fn oldest(&self, beyond: i64, limit: u32) -> Result<Vec<OldTask>, LedgerError> {
        let sql = "SELECT sequence, id, outcome, warden, created_at_ms, updated_at_ms,
                          length(command) + coalesce(length(stdout), 0) + coalesce(length(stderr), 0)
                     FROM task WHERE sequence > ? ORDER BY sequence LIMIT ?";
        let mut statement = self.opened.connection.prepare_cached(sql)?;
        let rows = statement.query_map((beyond, limit), read)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The task of this id.
    pub(crate) fn find(&self, id: &TaskId) -> Result<Option<OldTask>, LedgerError> {
        let sql =
            "SELECT sequence, id, outcome, warden, created_at_ms, updated_at_ms, length(command)
                     FROM task WHERE id = ?";
        let mut statement = self.opened.connection.prepare_cached(sql)?;
        Ok(statement.query_row([id.as_str()], read).optional()?)
    }

    /// Removes rows of tasks that are over.
    pub(crate) fn remove(&self, tasks: &[OldTask]) -> Result<(), LedgerError> {
        self.opened.commit(|connection| {
            let sql = "DELETE FROM task WHERE id = ? AND outcome IS NOT NULL";
            let mut statement = connection.prepare_cached(sql)?;
            for task in tasks {
                statement.execute([task.task_id.as_str()])?;
            }
            Ok(())
        })
    }

    /// Tells everybody who wants to know that these tasks were removed: an entry that changes
    /// nothing else.
    pub(crate) fn tell_removed(&mut self, tasks: &[OldTask]) {
        let told = self.with_daybook(|_, _, daybook| {
            daybook.locked(Wait::patiently(), |page| {
                tasks.iter().try_for_each(|task| {
                    page.append(task.task_id.clone(), What::Forget, Failpoint::EngineInOutcome)
                })
            })
        });
        if let Err(error) = told {
            tracing::warn!(%error, "nobody is told of the tasks that were removed");
        }
    }

    /// Removes questions that were over a day before this time, and returns how many.
    pub(crate) fn remove_approvals(&self, now_ms: i64) -> Result<u64, LedgerError> {
        self.opened.commit(|connection| {
            let sql = "DELETE FROM approval WHERE expires_at_ms < ?";
            Ok(connection.execute(sql, [now_ms - approvals::KEPT_MS])? as u64)
        })
    }

    /// The task that was registered last.
    pub(crate) fn newest(&self) -> Result<Option<Newest>, LedgerError> {
        let sql = "SELECT sequence, created_at_ms FROM task ORDER BY sequence DESC LIMIT 1";
        let read = |row: &Row<'_>| Ok(Newest { sequence: row.get(0)?, created_at_ms: row.get(1)? });
        Ok(self.opened.connection.query_row(sql, [], read).optional()?)
    }

    /// How many tasks there are, and when the oldest was registered.
    pub(crate) fn extent(&self) -> Result<(u64, Option<i64>), LedgerError> {
        let connection = &self.opened.connection;
        let sql = "SELECT coalesce(sum(tasks), 0) FROM tally";
        let tasks: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let sql = "SELECT created_at_ms FROM task ORDER BY sequence LIMIT 1";
        let oldest = connection.query_row(sql, [], |row| row.get(0)).optional()?;
        Ok((tasks.cast_unsigned(), oldest))
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<OldTask> {
    let outcome: Option<String> = row.get(2)?;
    let parsed = outcome.as_deref().map(serde_json::from_str::<Outcome>);
    // An outcome that cannot be read may have left anything.
    let left_something = match parsed {
        Some(Ok(outcome)) => !outcome.background_pids.is_empty(),
        Some(Err(_)) => true,
        None => false,
    };
    Ok(OldTask {
        sequence: row.get(0)?,
        task_id: row.get::<_, String>(1)?.into(),
        is_over: outcome.is_some(),
        warden: row.get(3)?,
        left_something,
        created_at_ms: row.get(4)?,
        updated_at_ms: row.get(5)?,
        row_bytes: (row.get::<_, i64>(6)? + ROW_BYTES).unsigned_abs(),
    })
}

#[cfg(test)]
impl History {
    /// For looking over SQLite's shoulder.
    pub(super) fn with_connection(&mut self, look: impl FnOnce(&mut rusqlite::Connection)) {
        look(&mut self.opened.connection);
    }
}
