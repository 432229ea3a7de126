//! Whether a sandbox that was made ahead still shows the files as they are.
//!
//! Its mounts are private copies: what was mounted since is not there. A secret that did not exist could not be
//! covered. Both are noticed here for the price of a few questions to the kernel.

use std::{
    fs::{self, File, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::mounts::path;
use crate::sandbox::Profile;

/// How things were when a sandbox was made.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Says when the mounts of this process's namespace change.
    mounts: Option<File>,
    /// Which file stood at these paths, if any.
    files: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// When these folders last got or lost an entry.
    folders: Vec<(PathBuf, Option<(i64, i64)>)>,
}

impl Snapshot {
    pub(super) fn take(profile: &Profile) -> Self {
        let guarded = profile.unwritable.iter().map(|guarded| path(&guarded.path));
        let absent =
            profile.unreadable.iter().map(|bytes| path(bytes)).filter(|path| !path.exists());
        let mut folders: Vec<PathBuf> = absent.filter_map(nearest).collect();
        folders.sort();
        folders.dedup();
        Self {
            mounts: File::open("/proc/self/mounts").ok(),
            files: guarded.map(|path| (path.to_owned(), identity(path))).collect(),
            folders: folders.into_iter().map(|path| (path.clone(), changed(&path))).collect(),
        }
    }

    /// Whether everything is as it was.
    pub(super) fn is_current(&self) -> bool {
        let same_mounts = self.mounts.as_ref().is_none_or(|mounts| {
            let mut asked = [PollFd::new(mounts, PollFlags::PRI)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut asked, Some(&now)).is_ok_and(|changed| changed == 0)
        });
        same_mounts
            && self.files.iter().all(|(path, before)| identity(path) == *before)
            && self.folders.iter().all(|(path, before)| changed(path) == *before)
    }
}

/// The nearest folder above a path that exists: whatever appears there changes it.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

fn changed(folder: &Path) -> Option<(i64, i64)> {
    fs::metadata(folder).ok().map(|data: Metadata| (data.mtime(), data.mtime_nsec()))
}
