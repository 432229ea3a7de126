//! Reads what can be read of a damaged ledger.
//!
//! A damaged page hides the rows on it, not the others: rows are read by ranges of their places,
//! and one by one where a range fails. The index of ids is read besides, so that a row which cannot
//! be read is known by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, config::DbConfig, params_from_iter, types::Value,
};

use super::{BUSY_MS, LedgerError, daybook::Daybook, post::enter_batch, rebuild::DAYBOOK};
use crate::store::anchor;

/// Rows that are read together.
const RANGE: i64 = 256;

/// Ranges without a row after which no more are looked for, where the last row is not known.
const EMPTY_RANGES: u32 = 1000;

/// What was salvaged.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    /// Tasks that were read.
    pub tasks: u64,
    /// Ids of those that were not.
    pub lost: BTreeSet<String>,
}

/// Copies what can be read of the old ledger and its daybook, and of a connection and a daybook
/// that are still open, into a new one.
pub(super) fn salvage(
    old: Option<&Path>,
    rescue: Option<(&Connection, &mut Daybook)>,
    new: &Connection,
) -> Result<Salvaged, LedgerError> {
    let mut known = BTreeSet::new();
    if let Some((rescue, _)) = &rescue {
        merge(rescue, new)?;
    }
    if let Some(old) = old.filter(|old| old.is_file()) {
        // With its log, held against whoever still has it open. It may be the log that is damaged,
        // or that belongs to another ledger: then what is in the main file alone counts as well.
        for opened in [with_log(old), without_log(old)].into_iter().flatten() {
            // With it SQLite reads what is there of a file that is too short.
            let _ = opened.pragma_update(None, "writable_schema", true);
            merge(&opened, new)?;
            known.extend(known_ids(&opened).into_values());
        }
    }
    if let Some((_, daybook)) = rescue {
        // What was read before stays, whatever is wrong with the rest.
        let _ = daybook.everything();
        enter_batch(new, &daybook.batch())?;
    }
    if let Some(daybook) = old.and_then(daybook_of) {
        enter_batch(new, &daybook.batch())?;
    }
    let mut is_there = new.prepare("SELECT 1 FROM task WHERE id = ?")?;
    let mut lost = BTreeSet::new();
    for id in known {
        if !is_there.exists([&id])? {
            lost.insert(id);
        }
    }
    let tasks: i64 = new.query_row("SELECT count(*) FROM task", [], |row| row.get(0))?;
    Ok(Salvaged { tasks: tasks.cast_unsigned(), lost })
}

/// The daybook that was set aside with a ledger, if it can be read at all.
fn daybook_of(old: &Path) -> Option<Daybook> {
    let mut path = old.as_os_str().to_owned();
    path.push(DAYBOOK);
    Daybook::salvage(Path::new(&path))
}

/// Copies what can be read here and is not known there; what cannot be written is an error.
pub(super) fn merge(old: &Connection, new: &Connection) -> rusqlite::Result<()> {
    let columns = common_columns(old, new, "task");
    if columns.iter().any(|column| column == "id") {
        let last = known_ids(old).keys().next_back().copied();
        Copy::new("task", "sequence", &columns, &upsert(&columns)).rows(old, new, last)?;
    }
    let columns = common_columns(old, new, "approval");
    if columns.iter().any(|column| column == "id") {
        Copy::new("approval", "rowid", &columns, "DO NOTHING").rows(old, new, None)?;
    }
    for (head, at_ms) in anchor::readable(old) {
        anchor::keep(new, &head, at_ms)?;
    }
    Ok(())
}

fn with_log(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    // It is evidence: its log stays beside it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // A commit that has begun is waited for, and none comes after it: see `Opened::check`.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    Ok(connection)
}

fn without_log(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let escaped: String = path
        .to_string_lossy()
        .chars()
        .map(|character| match character {
            '%' | '?' | '#' => format!("%{:02x}", u32::from(character)),
            other => other.to_string(),
        })
        .collect();
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
}

/// A row that is there already gives way only to one that knows how the task ended.
fn upsert(columns: &[String]) -> String {
    let set: Vec<String> =
        columns.iter().map(|column| format!("{column} = excluded.{column}")).collect();
    format!(
        "DO UPDATE SET {} WHERE task.outcome IS NULL AND excluded.outcome IS NOT NULL",
        set.join(", ")
    )
}

/// The ids in the index, by the places of their rows, as far as it can be read from either end.
fn known_ids(old: &Connection) -> BTreeMap<i64, String> {
    let mut known = BTreeMap::new();
    for direction in ["ASC", "DESC"] {
        let sql = format!(
            "SELECT sequence, id FROM task INDEXED BY sqlite_autoindex_task_1 ORDER BY id {direction}"
        );
        let Ok(mut statement) = old.prepare(&sql) else { continue };
        let Ok(mut rows) = statement.query([]) else { continue };
        while let Ok(Some(row)) = rows.next() {
            if let (Ok(sequence), Ok(id)) = (row.get(0), row.get(1)) {
                known.insert(sequence, id);
            }
        }
    }
    known
}

/// The columns that a table has in both ledgers, without the place of its rows.
fn common_columns(old: &Connection, new: &Connection, table: &str) -> Vec<String> {
    let columns = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
        statement.query_map([table], |row| row.get(0))?.collect()
    };
    let (old, new) = (columns(old).unwrap_or_default(), columns(new).unwrap_or_default());
    let common = |column: &String| *column != "sequence" && old.contains(column);
    new.into_iter().filter(common).collect()
}

/// How the rows of one table are copied.
struct Copy {
    range: String,
    first: String,
    last: String,
    insert: String,
    width: usize,
}

impl Copy {
    fn new(table: &str, place: &str, columns: &[String], on_conflict: &str) -> Self {
        let (names, marks) = (columns.join(", "), vec!["?"; columns.len()].join(", "));
        Self {
            range: format!(
                "SELECT {names}, {place} FROM {table} NOT INDEXED
                  WHERE {place} BETWEEN ? AND ? ORDER BY {place}"
            ),
            first: format!("SELECT min({place}) FROM {table} NOT INDEXED"),
            last: format!("SELECT max({place}) FROM {table} NOT INDEXED"),
            insert: format!(
                "INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT (id) {on_conflict}"
            ),
            width: columns.len(),
        }
    }

    /// Copies what can be read.
    fn rows(
        &self,
        old: &Connection,
        new: &Connection,
        known_last: Option<i64>,
    ) -> rusqlite::Result<()> {
        let edge =
            |sql: &str| old.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten();
        let mut from = edge(&self.first).unwrap_or(1);
        let last = edge(&self.last).max(known_last);
        let mut empty = 0;
        while last.map_or(empty < EMPTY_RANGES, |last| from <= last) {
            let to = from.saturating_add(RANGE - 1);
            let (mut copied, broken_at) = self.range(old, new, (from, to))?;
            if let Some(broken_at) = broken_at {
                for place in broken_at..=to {
                    copied += self.range(old, new, (place, place))?.0;
                }
            }
            empty = if copied == 0 { empty + 1 } else { 0 };
            from = to.saturating_add(1);
        }
        Ok(())
    }

    /// Copies a range of places; returns how many rows were there, and from which place on it
    /// cannot be read.
    fn range(
        &self,
        old: &Connection,
        new: &Connection,
        (mut from, to): (i64, i64),
    ) -> rusqlite::Result<(u64, Option<i64>)> {
        let mut copied = 0;
        let Ok(mut statement) = old.prepare_cached(&self.range) else {
            return Ok((copied, Some(from)));
        };
        let Ok(mut rows) = statement.query([from, to]) else { return Ok((copied, Some(from))) };
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok((copied, None)),
                Err(_) => return Ok((copied, Some(from))),
            };
            let values: rusqlite::Result<Vec<Value>> =
                (0..self.width).map(|column| row.get(column)).collect();
            let (Ok(values), Ok(place)) = (values, row.get::<_, i64>(self.width)) else {
                return Ok((copied, Some(from)));
            };
            from = place + 1;
            match new.prepare_cached(&self.insert)?.execute(params_from_iter(values)) {
                Ok(_) => copied += 1,
                // Values of the wrong kind, or none where one must be: the row itself is damaged.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                }
                Err(error) => return Err(error),
            }
        }
    }
}
