//! What the state folder takes on the disk.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    path::Path,
    sync::Arc,
};

use serde::Serialize;

use crate::{
    platform::disk_bytes,
    state::StateFolder,
    store::ledger::{History, LedgerError, task_id},
};

/// Disk usage of a state folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The ledger with its log.
    pub ledger_bytes: u64,
    /// Tasks in it.
    pub tasks: u64,
    /// Folders of tasks.
    pub folders: u64,
    /// What they take, with the answers to calls that are kept beside them.
    pub folder_bytes: u64,
    /// When the oldest task was registered, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_at_ms: Option<i64>,
}

/// Lengths of the files that records are kept in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordSizes {
    /// The ledger.
    pub ledger_bytes: u64,
    /// What was committed and is not in the ledger's own file yet.
    pub ledger_log_bytes: u64,
    /// The daybook.
    pub daybook_bytes: u64,
    /// The audit log.
    pub audit_bytes: u64,
}

/// Looks how long the files of records are; one that is not there is empty.
pub(crate) fn record_sizes(state: &StateFolder) -> RecordSizes {
    let length = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    RecordSizes {
        ledger_bytes: length(&state.beside_ledger("")),
        ledger_log_bytes: length(&state.beside_ledger("-wal")),
        daybook_bytes: length(&state.beside_ledger("-daybook")),
        audit_bytes: length(&state.audit()),
    }
}

/// Looks what a state folder takes.
pub(crate) fn usage(state: &Arc<StateFolder>) -> Result<Usage, LedgerError> {
    let (tasks, oldest_at_ms) = History::open(state.clone())?.extent()?;
    let folders = folder_sizes(state)?;
    Ok(Usage {
        ledger_bytes: ledger_bytes(state),
        tasks,
        folders: folders.len() as u64,
        folder_bytes: folders.values().sum::<u64>(),
        oldest_at_ms,
    })
}

/// What the ledger takes, with its log and its daybook.
pub(crate) fn ledger_bytes(state: &StateFolder) -> u64 {
    let files = ["", "-wal", "-daybook"].map(|suffix| state.beside_ledger(suffix));
    files.iter().filter_map(|path| fs::metadata(path).ok()).map(|found| on_disk(&found)).sum()
}

/// What the folders of tasks take, by the tasks' ids.
pub(crate) fn folder_sizes(state: &StateFolder) -> std::io::Result<HashMap<String, u64>> {
    let entries = fs::read_dir(state.path().join("tasks"))?.filter_map(Result::ok);
    let sized = |entry: fs::DirEntry| {
        let id = task_id(&entry)?;
        Some((id.to_string(), folder_bytes(&entry.path())))
    };
    Ok(entries.filter_map(sized).collect())
}

/// What a folder and the files in it take.
pub(crate) fn folder_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter_map(|entry| entry.metadata().ok());
    let own = fs::symlink_metadata(path).ok();
    files.chain(own).map(|found| on_disk(&found)).sum()
}

/// What is really taken: an artifact may have holes, and a file of one byte takes a block.
fn on_disk(found: &Metadata) -> u64 {
    disk_bytes(found)
}
