//! Marks of commands that were begun: a mark is made before its command is started, by whoever is
//! first, so that none is started twice.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    id::TaskId,
    state::{aside::remove_all, make_private},
};

/// What is older than this belongs to a task that nobody will ask for.
const AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Marks a command as begun; an error if it is already.
pub(super) fn mark(state: &Path, task: &TaskId) -> io::Result<()> {
    let folder = folder(state);
    make_private(&folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(folder.join(task.as_str())) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(io::Error::other("the command was begun already, and is not begun again"))
        }
        Err(error) => Err(error),
    }
}

/// Takes a mark away.
pub(super) fn unmark(state: &Path, task: &TaskId) {
    let _ = fs::remove_file(folder(state).join(task.as_str()));
}

/// Removes the marks and folders of tasks that nobody will ask for.
pub(super) fn clear_old(state: &Path) {
    for folder in [folder(state), state.join("tasks"), state.join("jobs")] {
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let changed = entry.metadata().and_then(|found| found.modified());
            let age = changed.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            if age.is_some_and(|age| age > AGE) {
                let _ = remove_all(&entry.path());
            }
        }
    }
}

fn folder(state: &Path) -> PathBuf {
    state.join("begun")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_begun_once() {
        let scratch = tempfile::tempdir().unwrap();
        let task = TaskId::random().unwrap();
        mark(scratch.path(), &task).unwrap();
        assert!(mark(scratch.path(), &task).is_err());
        unmark(scratch.path(), &task);
        mark(scratch.path(), &task).unwrap();
    }
}
