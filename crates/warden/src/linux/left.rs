//! Ends, or at least names, the processes that a warden left when it was killed together with its
//! spawner.
//!
//! Its command dies with it, but what the command has started does not, and no process of ours has
//! it for a child. What is in the warden's cgroups is known to be its: there it is ended at a
//! stroke, or at least named. Nothing is signalled by its number.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    cgroup::{self, name_of, name_of_task},
    limits::{LimitsPlace, LimitsPlaces},
    warden::NAME,
};

/// How long the dying may take.
const DYING: Duration = Duration::from_secs(1);

/// Ends what a warden that is gone has left behind, where it can be, and returns the processes that
/// are still there.
pub fn end_left_by(warden: &str) -> Vec<u32> {
    let places = LimitsPlaces::find();
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(base) = places.of_wardens() {
        folders.extend([name_of(warden), name_of_task(warden)].map(|name| base.folder.join(name)));
    }
    if let Ok(LimitsPlace::First(folder)) = &places.pids {
        folders.push(folder.join(name_of(warden)));
    }
    let left = members(&folders);
    // One whose socket was removed seems to be gone, and still cares for its command.
    if left.is_empty() || left.iter().any(|pid| is_warden(*pid)) {
        return Vec::new();
    }
    for folder in &folders {
        // Cgroups of version 1 have no such file: what is in them alone can only be named.
        let _ = fs::write(folder.join("cgroup.kill"), "1");
    }
    let patience = Instant::now() + DYING;
    while !members(&folders).is_empty() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    for folder in &folders {
        cgroup::remove(folder);
    }
    members(&folders)
}

/// The processes in these cgroups.
fn members(folders: &[PathBuf]) -> Vec<u32> {
    let inside = |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs"));
    let listed: Vec<String> = folders.iter().filter_map(|folder| inside(folder).ok()).collect();
    let mut pids: Vec<u32> =
        listed.iter().flat_map(|list| list.lines()).filter_map(|line| line.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn is_warden(pid: u32) -> bool {
    let name = fs::read(Path::new("/proc").join(pid.to_string()).join("comm")).unwrap_or_default();
    name.trim_ascii_end() == NAME.to_bytes()
}
