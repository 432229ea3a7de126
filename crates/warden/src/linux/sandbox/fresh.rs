//! Checks that a sandbox which was made ahead still fits: which paths of its profile exist now.
//!
//! A sandbox that was made ahead shows the files as they were. Its mounts are private copies: what
//! was mounted since is not there. A secret that did not exist could not be covered, and one that
//! was replaced is covered no more, because a cover goes with the file under it. A socket may have
//! come, or a program that is denied. All are noticed here for the price of a few questions to the
//! kernel.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap},
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    denied::{self, CoveredFile},
    elsewhere::Mounts,
    mounts::path,
    sockets,
};
use crate::sandbox::Profile;

/// Folders of the kernel's, which hold no secrets of people.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

/// A profile, and how things are.
#[derive(Debug)]
pub(super) struct FilesAround {
    pub profile: Profile,
    /// What may be written, by its real path; a folder stands before what is in it.
    pub writable: Vec<PathBuf>,
    /// What is shown wherever it is, by its real path.
    pub shown: Vec<PathBuf>,
    /// What may not be read, wherever it is: by its real path, and by others to the same.
    pub unreadable: Vec<PathBuf>,
    /// Our own state folder, by its real path.
    pub state: PathBuf,
    /// What stands in the view in the place of something else: programs that are denied.
    pub covered: Vec<CoveredFile>,
    /// Sockets of other programs that would be seen.
    pub sockets: Vec<PathBuf>,
    /// Until when they are taken to be the same.
    look_again_at: Cell<Option<Instant>>,
    /// Where else the same files are.
    pub elsewhere: Mounts,
    /// Says when the mounts of this process's namespace change.
    mounts: Option<File>,
    /// Which file stood at these paths, if any.
    files: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// When these folders last got or lost an entry.
    folders: Vec<(PathBuf, Option<(i64, i64)>)>,
}

impl FilesAround {
    /// Looks around.
    pub(super) fn of(profile: Profile) -> Self {
        let mounts = File::open("/proc/self/mounts").ok();
        let guarded = profile.unwritable.iter().map(|guarded| path(&guarded.path));
        let secrets = profile.unreadable.iter().map(|bytes| path(bytes));
        let (secrets, absent): (Vec<&Path>, Vec<&Path>) = secrets.partition(|path| path.exists());
        let folders = nearest(&absent);
        let mut writable = real_paths(&profile.writable);
        writable.sort();
        writable.dedup();
        let state = path(&profile.state);
        let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
        let programs = denied::paths(&profile);
        let covered = denied::covered(&profile, &writable);
        let elsewhere = Mounts::now();
        let real_secrets = secrets.iter().filter_map(|path| path.canonicalize().ok());
        let mut unreadable = elsewhere.everywhere(real_secrets.collect());
        unreadable.extend(elsewhere.others(&state));
        // Some people link a history to /dev/null; what is there is the command's own.
        unreadable.retain(|path| !OWN.iter().any(|folder| path.starts_with(folder)));
        let files = guarded.chain(secrets).map(Path::to_owned).chain(programs);
        let files = files.chain(ways_in_copies(&profile));
        // A folder that has taken the place of one is another.
        let folders_shown = profile.writable.iter().chain(&profile.shown);
        let files = files.chain(folders_shown.map(|bytes| path(bytes).to_owned()));
        Self {
            mounts,
            files: files.map(|path| (path.clone(), identity(&path))).collect(),
            covered,
            folders: folders.into_iter().map(|path| (path.to_owned(), changed(path))).collect(),
            shown: real_paths(&profile.shown),
            look_again_at: Cell::default(),
            sockets: sockets::reachable(&writable, &state),
            unreadable,
            writable,
            state,
            elsewhere,
            profile,
        }
    }

    /// Whether everything is as it was.
    pub(super) fn are_current(&self) -> bool {
        let same_mounts = self.mounts.as_ref().is_none_or(|mounts| {
            let mut asked = [PollFd::new(mounts, PollFlags::PRI)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut asked, Some(&now)).is_ok_and(|changed| changed == 0)
        });
        same_mounts
            && self.files.iter().all(|(path, before)| identity(path) == *before)
            && self.folders.iter().all(|(path, before)| changed(path) == *before)
            && self.same_sockets()
    }
}

/// A list of the machine's sockets that takes longer than this to read is not read for every
/// command ...
const LONG_LIST: Duration = Duration::from_micros(500);

/// ... but as often as this.
const LIST_FOR: Duration = Duration::from_secs(1);

impl FilesAround {
    fn same_sockets(&self) -> bool {
        if self.look_again_at.get().is_some_and(|at| Instant::now() < at) {
            return true;
        }
        let begun = Instant::now();
        let found = sockets::reachable(&self.writable, &self.state);
        let long = begun.elapsed() > LONG_LIST;
        self.look_again_at.set(long.then(|| Instant::now() + LIST_FOR));
        found == self.sockets
    }
}

/// Those that exist, by their real paths.
fn real_paths(paths: &[Vec<u8>]) -> Vec<PathBuf> {
    let existing = paths.iter().map(|bytes| path(bytes)).filter(|path| path.exists());
    existing.filter_map(|path| path.canonicalize().ok()).collect()
}

/// The folders that a view has gone through in its copies: what was found there once stays in it,
/// whatever stands in its place later.
fn ways_in_copies(profile: &Profile) -> BTreeSet<PathBuf> {
    let places = profile.copies.iter().map(|copy| path(&copy.place));
    let guarded = profile.unwritable.iter().map(|guarded| path(&guarded.path));
    let others = [&profile.unreadable, &profile.writable, &profile.shown].into_iter().flatten();
    let kept: Vec<&Path> = guarded.chain(others.map(|bytes| path(bytes))).collect();
    let ways = |place| {
        let inside = kept.iter().filter(move |path| path.starts_with(place));
        let above = inside.flat_map(|path| path.ancestors().skip(1));
        above.filter(move |way| way.starts_with(place)).chain([place])
    };
    places.flat_map(ways).map(Path::to_owned).collect()
}

/// The nearest folders above these paths that exist: whatever appears there changes one of them.
/// Most paths have the same few, so each is looked at once.
fn nearest<'p>(paths: &[&'p Path]) -> BTreeSet<&'p Path> {
    let mut known = HashMap::new();
    let mut is_folder = |path: &'p Path| *known.entry(path).or_insert_with(|| path.is_dir());
    let above = |path: &&'p Path| path.ancestors().skip(1).find(|folder| is_folder(folder));
    paths.iter().filter_map(above).collect()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

fn changed(folder: &Path) -> Option<(i64, i64)> {
    fs::metadata(folder).ok().map(|data| (data.mtime(), data.mtime_nsec()))
}
