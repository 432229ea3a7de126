//! Keeps the answers to calls that started tasks, where what is stored of the task does not tell
//! them whole: of commands that go on, and of output that was cut or masked.
//!
//! Most answers are not here: what a short command printed and how it ended makes the same text
//! again, and costs no file.

use std::{
    fs,
    io::{self, Read},
};

use crate::{
    id::TaskId,
    plain_file,
    platform::disk_bytes,
    state::{StateFolder, make_private},
};

/// The longest one that is kept.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Keeps the answer to the call that started a task; a longer one than the longest is not kept.
pub(crate) fn keep(state: &StateFolder, task: &TaskId, text: &str) -> io::Result<()> {
    if text.len() > BYTES_MAX {
        return Ok(());
    }
    let folder = state.receipts();
    make_private(&folder)?;
    // Whole or not at all, also after a crash.
    let new = folder.join(format!(".new-{task}"));
    fs::write(&new, text)?;
    fs::rename(&new, folder.join(task.as_str()))
}

/// The answer that was kept for a task.
pub(crate) fn read(state: &StateFolder, task: &TaskId) -> io::Result<Option<String>> {
    let file = match plain_file::open(&state.receipts().join(task.as_str())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(BYTES_MAX as u64).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// What one of them takes on the disk.
pub(super) fn bytes_of(state: &StateFolder, task: &TaskId) -> u64 {
    fs::symlink_metadata(state.receipts().join(task.as_str())).map_or(0, |it| disk_bytes(&it))
}

/// What all of them take.
pub(super) fn bytes(state: &StateFolder) -> u64 {
    let entries = fs::read_dir(state.receipts()).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|it| disk_bytes(&it)).sum()
}

/// Removes that of a task, if there is one.
pub(super) fn remove(state: &StateFolder, task: &TaskId) -> io::Result<()> {
    match fs::remove_file(state.receipts().join(task.as_str())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_kept_until_it_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateFolder::open(scratch.path()).unwrap();
        let task = TaskId::random().unwrap();
        assert_eq!(read(&state, &task).unwrap(), None);
        keep(&state, &task, "a\u{1b}b\n\n").unwrap();
        assert_eq!(read(&state, &task).unwrap().as_deref(), Some("a\u{1b}b\n\n"));
        assert!(bytes(&state) > 0 && bytes(&state) == bytes_of(&state, &task));
        remove(&state, &task).unwrap();
        remove(&state, &task).unwrap();
        assert_eq!((read(&state, &task).unwrap(), bytes(&state)), (None, 0));
        keep(&state, &task, &"x".repeat(BYTES_MAX + 1)).unwrap();
        assert_eq!(read(&state, &task).unwrap(), None, "half of one would be no receipt");
    }
}
