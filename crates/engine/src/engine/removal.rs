//! Removes a state folder, whatever state it is in: nothing in it is opened, and nothing of others.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    state::is_of_a_state_folder,
    trial::{remove_tree, trial_bytes},
};

/// The content of a state folder: what Legwork has put there, and what it has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateContent {
    /// Entries that are Legwork's, by name.
    pub own: Vec<PathBuf>,
    /// Entries that are not, and stay.
    pub foreign: Vec<PathBuf>,
}

impl StateContent {
    /// Reads the names in a folder; nothing where there is none.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut content = Self::default();
        for entry in entries {
            let entry = entry?;
            let is_own = entry.file_name().to_str().is_some_and(is_of_a_state_folder);
            if is_own { &mut content.own } else { &mut content.foreign }.push(entry.path());
        }
        content.own.sort();
        content.foreign.sort();
        // One that anything of ours was ever recorded in has one of these. Else the names are those
        // of somebody else's folder, which are like ours.
        let marks = ["ledger.db", "tasks", "wardens", "engines"].map(|name| folder.join(name));
        if !content.own.iter().any(|path| marks.contains(path)) {
            content.foreign.append(&mut content.own);
        }
        Ok(content)
    }

    /// The bytes that it takes on the disk.
    pub fn bytes(&self) -> u64 {
        self.own.iter().map(|path| trial_bytes(path)).sum()
    }

    /// Removes what is Legwork's, whatever its modes are, and follows no link. What cannot be
    /// removed is returned.
    pub fn remove(&self) -> Vec<(PathBuf, io::Error)> {
        let removed = |path: &PathBuf| remove_tree(path).err().map(|error| (path.clone(), error));
        self.own.iter().filter_map(removed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        folder
    }

    fn names(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect()
    }

    #[test]
    fn what_is_ours_goes_and_what_is_not_stays() {
        let folder =
            folder_with(&["tasks/t_1", "tmp/a/b", "ledger.db.damaged-1", "mine", "tmp-mine"]);
        for name in ["ledger.db", "ledger.db-wal", "audit.jsonl", "tokens.json", "tasks.txt"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let content = StateContent::of(folder.path()).unwrap();
        assert_eq!(names(&content.foreign), ["mine", "tasks.txt", "tmp-mine"]);
        assert!(content.remove().is_empty());
        let left = StateContent::of(folder.path()).unwrap();
        assert_eq!(names(&left.foreign), ["mine", "tasks.txt", "tmp-mine"]);
        assert!(left.own.is_empty());
    }

    #[test]
    fn a_folder_with_names_like_ours_is_somebody_elses() {
        let folder = folder_with(&["tmp", "places", "ssh"]);
        let content = StateContent::of(folder.path()).unwrap();
        assert_eq!(names(&content.foreign), ["places", "ssh", "tmp"]);
        assert!(content.own.is_empty());
        let none = StateContent::of(&folder.path().join("none")).unwrap();
        assert_eq!(none, StateContent::default());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_removed_and_not_followed() {
        let (folder, other) = (folder_with(&["tasks"]), folder_with(&["kept"]));
        std::os::unix::fs::symlink(other.path(), folder.path().join("trials")).unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("tasks/link")).unwrap();
        assert!(StateContent::of(folder.path()).unwrap().remove().is_empty());
        assert!(other.path().join("kept").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
