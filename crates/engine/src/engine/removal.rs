//! Removes a state folder, whatever state it is in: nothing in it is opened, and nothing of others.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    platform::open_to_owner,
    state::{StateFolder, is_of_a_state_folder},
    trial::{remove_tree, trial_bytes},
};

/// Names that others hardly use. A folder with two of them is a state folder: one alone may be
/// somebody else's.
const MARKS: [&str; 5] = ["engines", "ledger.db", "ledger.db-daybook", "tokens.json", "wardens"];

/// The content of a state folder: what Legwork has put there, and what it has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateContent {
    /// Entries that are Legwork's, by name.
    pub own: Vec<PathBuf>,
    /// Entries that are not, and stay.
    pub foreign: Vec<PathBuf>,
}

impl StateContent {
    /// Reads the names in a folder, which is opened to its owner first; nothing where there is
    /// none. A folder of another user is an error.
    pub fn of(folder: &Path) -> io::Result<Self> {
        match open_to_owner(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened?,
        }
        let mut content = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is_own = entry.file_name().to_str().is_some_and(is_of_a_state_folder);
            if is_own { &mut content.own } else { &mut content.foreign }.push(entry.path());
        }
        content.own.sort();
        content.foreign.sort();
        if !is_state_folder(folder, &content.own) {
            content.foreign.append(&mut content.own);
        }
        // What is in a closed one is looked for later.
        for path in content.own.iter().filter(|path| !path.is_symlink() && path.is_dir()) {
            let _ = open_to_owner(path);
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

/// Whether a folder with these names of ours is a state folder. The default one is by its path,
/// whatever is left in it; elsewhere the names may be those of somebody else's folder.
fn is_state_folder(folder: &Path, own: &[PathBuf]) -> bool {
    let is_same =
        |usual: PathBuf| usual == folder || usual.canonicalize().ok() == folder.canonicalize().ok();
    let has = |mark: &&str| own.contains(&folder.join(mark));
    MARKS.into_iter().filter(has).count() > 1 || StateFolder::default_path().is_ok_and(is_same)
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
        let folder = folder_with(&["wardens", "tmp/a/b", "ledger.db.aside-1", "mine", "tmp-mine"]);
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
        // Any one of them may be a name of somebody else's.
        for mark in MARKS {
            let folder = folder_with(&["tasks", "tmp", "trials", "recent", "places", mark]);
            let content = StateContent::of(folder.path()).unwrap();
            assert_eq!(content.foreign.len(), 6, "{content:?}");
            assert!(content.own.is_empty());
        }
        let folder = folder_with(&["tmp"]);
        let none = StateContent::of(&folder.path().join("none")).unwrap();
        assert_eq!(none, StateContent::default());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_closed_to_its_owner_is_opened_and_a_file_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder_with(&["engines", "wardens"]);
        for mode in [0o000, 0o400, 0o500, 0o600] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(StateContent::of(folder.path()).unwrap().own.len(), 2, "{mode:o}");
            let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o700, 0o700, "{mode:o}");
        }
        let file = folder.path().join("file");
        fs::write(&file, "mine").unwrap();
        let error = StateContent::of(&file).unwrap_err();
        assert!(error.to_string().contains("no folder"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_removed_and_not_followed() {
        let (folder, other) =
            (folder_with(&["tasks", "engines", "wardens"]), folder_with(&["kept"]));
        std::os::unix::fs::symlink(other.path(), folder.path().join("trials")).unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("tasks/link")).unwrap();
        assert!(StateContent::of(folder.path()).unwrap().remove().is_empty());
        assert!(other.path().join("kept").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
