//! Tasks that only their folders know of.

use std::{
    collections::HashMap,
    fs::{self, DirEntry},
    sync::Arc,
    time::UNIX_EPOCH,
};

use rusqlite::Connection;

use super::{LedgerError, note, task::Task};
use crate::clock::now_ms;
use crate::{
    id::TaskId, model::Outcome, model::status::Status, output::TaskFolder, state::StateFolder,
};

/// What stands in the place of a command whose folder does not tell it.
const UNKNOWN: &str = "(not known: the note in its folder cannot be read)";

/// All tasks that have a folder and no row. Who holds a task is known by its id.
pub(super) fn missing(
    state: &StateFolder,
    connection: &Connection,
    holders: &HashMap<String, String>,
) -> Result<Vec<Task>, LedgerError> {
    let entries = fs::read_dir(state.path().join("tasks"))?;
    let mut missing = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        if let Some(id) = task_id(&entry) {
            missing.extend(missing_one(state, connection, &id, holders)?);
        }
    }
    Ok(missing)
}

/// A task that has a folder and no row, as its folder has it.
pub(super) fn missing_one(
    state: &StateFolder,
    connection: &Connection,
    id: &TaskId,
    holders: &HashMap<String, String>,
) -> Result<Option<Task>, LedgerError> {
    let mut is_there = connection.prepare_cached("SELECT 1 FROM task WHERE id = ?")?;
    if is_there.exists([id.as_str()])? {
        return Ok(None);
    }
    let folder = state.task(id);
    if !folder.path().is_dir() {
        return Ok(None);
    }
    let mut task = folder.note().ok().and_then(|bytes| note::read(&bytes));
    task = task.filter(|task| task.task_id == *id);
    let mut task = task.unwrap_or_else(|| unknown(id, &folder));
    if let Some(warden) = holders.get(id.as_str()) {
        task.warden.clone_from(warden);
    }
    // Without a record it counts as running until somebody looks whether its warden lives.
    if let Ok(Ok(record)) = folder.exit_record()
        && record.task == id.as_str()
    {
        let outcome = Outcome::from(&record);
        let (status, reason) = Status::of(&outcome);
        (task.status, task.reason) = (status, reason.map(str::to_owned));
        task.updated_at_ms = i64::try_from(record.ended_at_ms).unwrap_or(task.updated_at_ms);
        task.outcome = Some(outcome);
    }
    Ok(Some(task))
}

/// The task whose folder this is.
pub(crate) fn task_id(entry: &DirEntry) -> Option<TaskId> {
    TaskId::parse(entry.file_name().to_str()?)
}

/// A task of which there is a folder, and no more.
fn unknown(id: &TaskId, folder: &TaskFolder) -> Task {
    let changed = fs::metadata(folder.path()).and_then(|found| found.modified()).ok();
    let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let at_ms = since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(now_ms());
    Task {
        task_id: id.clone(),
        tool: "unknown".into(),
        status: Status::Running,
        reason: None,
        command: UNKNOWN.into(),
        description: None,
        workdir: String::new(),
        shell: None,
        login: false,
        tty: false,
        workspace: String::new(),
        asked_by: "unknown".into(),
        trust: "unknown".into(),
        created_at_ms: at_ms,
        updated_at_ms: at_ms,
        outcome: None,
        sandbox: Arc::default(),
        warden: String::new(),
        boot_id: String::new(),
        fingerprint: [0; 32],
    }
}
