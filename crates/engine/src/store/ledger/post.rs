//! Posting: what is in the daybook gets its rows in the ledger.

use std::{borrow::Cow, collections::HashMap};

use legwork_warden::failpoint::Failpoint;
use rusqlite::{Connection, OptionalExtension, named_params};

use super::{
    CANCEL, FINISH, LedgerError, STAND,
    daybook::{
        Batch, Daybook, DaybookEntry, Generation, Page, TaskEnd, Wait, What, new_generation,
    },
    open_tasks,
    opened::Opened,
    rebuild::DAYBOOK,
    schema::SCHEMA_VERSION,
    task::{Task, insert},
};
use crate::{
    id::TaskId,
    model::status::Status,
    state::StateFolder,
    store::anchor::{self, AuditHead},
};

pub(super) const SCHEMA: &str = "
-- Up to where which daybook is in this ledger.
CREATE TABLE posted (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation BLOB    NOT NULL,
    upto       INTEGER NOT NULL
) STRICT;
";

/// Up to where this daybook is in the ledger; none if the ledger speaks of another one.
pub(super) fn posted(
    connection: &Connection,
    generation: &Generation,
) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT upto FROM posted WHERE one = 1 AND generation = ?";
    let upto: Option<i64> =
        connection.prepare_cached(sql)?.query_row([generation], |row| row.get(0)).optional()?;
    Ok(upto.map(i64::cast_unsigned))
}

/// Posts a batch in one transaction; what another process has posted meanwhile is passed over.
pub(super) fn post(opened: &Opened, batch: &Batch) -> Result<(), LedgerError> {
    opened.commit(|connection| {
        // A daybook is replaced only after all of it was posted: if it still stands there, nothing
        // newer was.
        if opened.daybook_id() != Some(batch.id) {
            return Err(LedgerError::Replaced);
        }
        let known = posted(connection, &batch.generation)?.unwrap_or(0);
        let Some((end, _)) = batch.entries.last().filter(|(end, _)| *end > known) else {
            return Ok(());
        };
        let new = batch.entries.iter().filter(|(end, _)| *end > known);
        enter(connection, new.map(|(_, entry)| &**entry))?;
        mark(connection, batch.generation, *end)?;
        Failpoint::EngineInPosting.pass();
        Ok(())
    })?;
    Failpoint::EngineAfterPosting.pass();
    Ok(())
}

/// Notes up to where a daybook is in the ledger.
pub(super) fn mark(
    connection: &Connection,
    generation: Generation,
    upto: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO posted VALUES (1, ?, ?)";
    connection.prepare_cached(sql)?.execute((generation, upto.cast_signed())).map(drop)
}

/// Posts a batch of a daybook in whose place another one stands.
pub(super) fn post_late(opened: &Opened, batch: &Batch) -> Result<(), LedgerError> {
    opened.commit(|connection| enter_batch(connection, batch))
}

/// Enters all of a batch, whether or not some of it is in the ledger already.
pub(super) fn enter_batch(connection: &Connection, batch: &Batch) -> Result<(), LedgerError> {
    enter(connection, batch.entries.iter().map(|(_, entry)| &**entry))
}

/// Posts what is not in the ledger yet, by whomever it was written.
pub(super) fn catch_up(opened: &Opened, daybook: &mut Daybook) -> Result<(), LedgerError> {
    if daybook.is_behind()? {
        let batch = daybook.batch();
        post(opened, &batch)?;
        daybook.posted(&batch);
    }
    Ok(())
}

/// Does something with both, everything being posted before; none if the ledger is held by
/// somebody. Whoever waits for it does that without the daybook, since nobody who only writes to
/// that needs to wait along.
pub(super) fn locked_if_free<T>(
    opened: &Opened,
    daybook: &mut Daybook,
    wait: Wait,
    work: impl FnOnce(&mut Page<'_>) -> Result<T, LedgerError>,
) -> Result<Option<T>, LedgerError> {
    daybook.locked(wait, |page| {
        if !opened.is_free()? {
            return Ok(None);
        }
        catch_up(opened, page.book())?;
        work(page).map(Some)
    })
}

/// Begins the daybook anew, with the tasks that are open.
pub(super) fn renew(
    state: &StateFolder,
    opened: &Opened,
    daybook: &mut Daybook,
    wait: Wait,
) -> Result<(), LedgerError> {
    while !renew_if_free(state, opened, daybook, wait)? {
        opened.wait_until_free()?;
    }
    Ok(())
}

/// The same, unless the ledger is held by somebody; says whether it was done.
fn renew_if_free(
    state: &StateFolder,
    opened: &Opened,
    daybook: &mut Daybook,
    wait: Wait,
) -> Result<bool, LedgerError> {
    let new = locked_if_free(opened, daybook, wait, |page| {
        let next = new_generation()?;
        page.close(next)?;
        begin(state, opened, next)
    })?;
    Ok(new.map(|new| daybook.go_on_in(new)).is_some())
}

/// Begins the daybook anew if it has grown; if that fails, or would have to wait for the ledger, it
/// grows on.
pub(super) fn renew_if_grown(
    state: &StateFolder,
    opened: &Opened,
    daybook: &mut Daybook,
    wait: Wait,
    briefly: bool,
) {
    if daybook.has_grown(briefly)
        && let Err(error) = renew_if_free(state, opened, daybook, wait)
    {
        tracing::warn!(%error, "the daybook was not begun anew");
    }
}

/// Begins a daybook, with the tasks that the ledger has as open.
pub(super) fn begin(
    state: &StateFolder,
    opened: &Opened,
    generation: Generation,
) -> Result<Daybook, LedgerError> {
    let path = state.beside_ledger(DAYBOOK);
    Daybook::begin(&path, generation, open_tasks(&opened.connection)?)?;
    let mut new = Daybook::open(&path, |_| Ok(None))?.ok_or(LedgerError::Replaced)?;
    let (generation, carried) = new.beginning();
    opened.commit(|connection| Ok(mark(connection, generation, carried)?))?;
    new.acknowledge();
    Ok(new)
}

/// A task whose start is posted: its row is written once, with all that is known of it by then.
struct New<'a> {
    task: Cow<'a, Task>,
    end: Option<&'a TaskEnd>,
    forgotten: bool,
}

/// Enters what happened, whether or not some of it is in the ledger already.
fn enter<'a>(
    connection: &Connection,
    entries: impl Iterator<Item = &'a DaybookEntry>,
) -> Result<(), LedgerError> {
    let mut new: Vec<New<'a>> = Vec::new();
    let mut places: HashMap<&TaskId, usize> = HashMap::new();
    let mut last_anchor = None;
    for entry in entries {
        if let What::Anchor(head) = &entry.what {
            // One process after another writes to the same log: mostly the last says it all.
            let other = last_anchor.replace(entry).filter(|last| !is_older(last, head));
            other.map(|entry| change(connection, entry)).transpose()?;
            continue;
        }
        if let What::Start(start) = &entry.what {
            // Its checksum is right: only a newer program writes what does not read back.
            let task = start.row().ok_or(LedgerError::TooNew(SCHEMA_VERSION + 1))?;
            places.insert(&entry.task, new.len());
            new.push(New { task, end: None, forgotten: false });
            continue;
        }
        match places.get(&entry.task).and_then(|place| new.get_mut(*place)) {
            Some(new) => happened(new, entry),
            None => change(connection, entry)?,
        }
    }
    if let Some(entry) = last_anchor {
        change(connection, entry)?;
    }
    for New { task, end, forgotten } in new {
        if forgotten {
            forget(connection, &task.task_id)?;
        } else if !insert(connection, &task, end)?
            && let Some(end) = end
        {
            // It has a row, by a posting of which the ledger does not know, or from its folder.
            finish(connection, &task.task_id, task.updated_at_ms, end)?;
        }
    }
    Ok(())
}

/// Whether an entry anchors less of the same log.
fn is_older(entry: &DaybookEntry, than: &AuditHead) -> bool {
    matches!(&entry.what, What::Anchor(head) if head.log == than.log && head.length <= than.length)
}

/// Takes along what happened to a task that has no row yet.
fn happened<'a>(new: &mut New<'a>, entry: &'a DaybookEntry) {
    match &entry.what {
        What::Cancelling if new.end.is_none() => {
            let task = new.task.to_mut();
            (task.status, task.updated_at_ms) = (Status::Cancelling, entry.at_ms);
        }
        What::Standing(standing) if new.end.is_none() && new.task.status == Status::Queued => {
            let task = new.task.to_mut();
            (task.status, task.updated_at_ms) = (standing.status, entry.at_ms);
            task.reason.clone_from(&standing.reason);
        }
        What::TaskEnd(end) if new.end.is_none() => {
            new.task.to_mut().updated_at_ms = entry.at_ms;
            new.end = Some(end);
        }
        What::Start(_)
        | What::Cancelling
        | What::TaskEnd(_)
        | What::Standing(_)
        | What::Closed(_)
        | What::Anchor(_) => {}
        What::Forget => new.forgotten = new.end.is_none(),
    }
}

/// Changes the row of a task that has one.
fn change(connection: &Connection, entry: &DaybookEntry) -> rusqlite::Result<()> {
    let id = &entry.task;
    match &entry.what {
        What::Start(_) | What::Closed(_) => Ok(()),
        What::Anchor(head) => anchor::keep(connection, head, entry.at_ms),
        What::Cancelling => {
            connection.prepare_cached(&CANCEL)?.execute((entry.at_ms, id.as_str())).map(drop)
        }
        What::Standing(standing) => {
            let (status, reason) = (standing.status.as_str(), &standing.reason);
            let row = (status, reason, entry.at_ms, id.as_str());
            connection.prepare_cached(STAND)?.execute(row).map(drop)
        }
        What::TaskEnd(end) => finish(connection, id, entry.at_ms, end),
        What::Forget => forget(connection, id),
    }
}

/// Takes a task out again that never started.
fn forget(connection: &Connection, id: &TaskId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM task WHERE id = ? AND outcome IS NULL";
    connection.prepare_cached(sql)?.execute([id.as_str()]).map(drop)
}

/// Ends a task; the first outcome stays.
fn finish(connection: &Connection, id: &TaskId, at_ms: i64, end: &TaskEnd) -> rusqlite::Result<()> {
    let output = end.output.as_deref();
    let changed = connection.prepare_cached(&FINISH)?.execute(named_params! {
        ":status": end.status.as_str(), ":reason": end.reason, ":outcome": end.outcome,
        ":now": at_ms, ":id": id.as_str(),
        ":stdout": output.map(|output| &output.stdout),
        ":stderr": output.map(|output| &output.stderr),
        ":timeline": output.map(|output| &output.timeline),
    })?;
    if changed == 0
        && !connection.prepare_cached("SELECT 1 FROM task WHERE id = ?")?.exists([id.as_str()])?
    {
        tracing::warn!(task_id = %id, "the end of a task that the ledger does not know");
    }
    Ok(())
}
