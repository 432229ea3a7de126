//! The folders that commands work in, with the repositories that they belong to: another folder may
//! take the place of one while a server runs.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

use super::{outermost, repository::Repository};

/// Tells a folder from any other that has, or had, its path.
type FolderId = Option<(u64, u64, Option<SystemTime>)>;

/// What follows from the folders that commands work in.
#[derive(Debug, Default)]
pub(super) struct WorkFolders {
    roots: Vec<FolderId>,
    /// The repositories that they work in.
    pub repositories: Vec<Repository>,
    /// Git's folders in them, each named once.
    pub folders: Vec<PathBuf>,
    /// Whether all of it is on disks of this machine, once it is known.
    pub is_local: OnceLock<bool>,
}

impl WorkFolders {
    pub(super) fn of(roots: &[PathBuf]) -> Self {
        // Known before they are looked at: what takes a place meanwhile is another one.
        let ids = ids_of(roots);
        let repositories: Vec<_> = roots.iter().map(|root| Repository::around(root)).collect();
        // A repository that a command makes in a folder shadows the one around it.
        let possible = roots.iter().map(|root| root.join(".git"));
        let folders = repositories.iter().flat_map(Repository::folders).chain(possible);
        let mut folders: Vec<PathBuf> = folders.collect();
        folders.sort_unstable();
        folders.dedup();
        Self { roots: ids, repositories, folders, is_local: OnceLock::new() }
    }

    /// True if these folders are still those that it follows from.
    pub(super) fn is_of(&self, roots: &[PathBuf]) -> bool {
        self.roots == ids_of(roots)
    }

    /// The folders of the repositories.
    pub(super) fn repository_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.repositories.iter().flat_map(Repository::folders)
    }

    /// The folders that are searched, where these may be written.
    pub(super) fn tops(&self, writable: &[PathBuf]) -> Vec<PathBuf> {
        let tops = writable.iter().cloned().chain(self.repository_folders());
        let tops: Vec<PathBuf> = tops.filter(|path| path != Path::new("/")).collect();
        outermost(&tops)
    }
}

fn ids_of(roots: &[PathBuf]) -> Vec<FolderId> {
    let id_of = |root: &PathBuf| {
        let data = fs::metadata(root).ok()?;
        // A new folder may get the number of one that was removed.
        Some((data.dev(), data.ino(), data.created().ok()))
    };
    roots.iter().map(id_of).collect()
}
