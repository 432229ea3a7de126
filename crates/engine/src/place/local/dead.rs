//! Cleans up after dead wardens and engines: their sockets, locks and processes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use legwork_warden::{end_left_by, is_alive};

use super::owner::is_left_behind;
use crate::{
    state::{StateFolder, aside::remove},
    trial::clear_ahead,
};

/// What is younger than this may belong to somebody who is just being made.
const AGE: Duration = Duration::from_secs(60);

/// Removes it, or only counts it; returns of how many wardens that was.
pub(super) fn clear(state: &StateFolder, dry_run: bool) -> u64 {
    let unlink = |path: &Path| dry_run || remove(path).is_ok();
    let mut sockets = 0;
    for path in old_entries(&state.path().join("wardens")) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(warden) = name.strip_suffix(".sock") else { continue };
        if !matches!(is_alive(&state.wardens, warden), Ok(false)) {
            continue;
        }
        if !dry_run {
            // A finished command of it may have left something.
            end_left_by(warden);
        }
        sockets += u64::from(unlink(&path));
    }
    clear_ahead(state.path(), &|warden, path| {
        !dry_run && age(path) >= AGE && matches!(is_alive(&state.wardens, warden), Ok(false))
    });
    for path in old_entries(&state.engines()).filter(|path| is_left_behind(path)) {
        unlink(&path);
    }
    sockets
}

/// What is in a folder, and has not just been made.
fn old_entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|path| age(path) >= AGE)
}

/// How long ago a file was changed; nothing if that cannot be known.
fn age(path: &Path) -> Duration {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    changed.and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or_default()
}
