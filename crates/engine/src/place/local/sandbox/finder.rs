//! Finds what git and other tools act on in the folders that commands may write: repositories,
//! wherever they lie and whoever made them, and files by which tools run programs.
//!
//! A tree may have many thousand folders, and there are two looks for each command. So the folders
//! are walked once. After that the kernel says in which of them an entry came or went (inotify),
//! and only those are read again. Where it does not say so (the process runs one command only, or
//! has too many watches), the time at which a folder last changed is compared, which no command can
//! set. The walk has a bound, and says what lies beyond.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ffi::{OsStr, OsString},
    fs,
    mem::MaybeUninit,
    ops::Bound,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        Access, access,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    },
    io::Errno,
};

use super::repository::{is_git_folder, is_pointer};
use crate::model::trusted::TrustedNames;

/// Most folders that are known.
pub(super) const FOLDERS_MAX: usize = 20_000;

/// Most of them that the kernel is asked to watch: each takes memory of the kernel's, and the
/// user's other programs have to share what there is.
const WATCHES_MAX: usize = 8192;

/// Which share of the watches that a user may have is taken.
const WATCHES_SHARE: usize = 8;

/// More changes than this are not read one by one.
const CHANGES_MAX: usize = 50_000;

/// A process that looks as often as this runs more than one command: from then on it watches.
const LOOKS_WITHOUT: u64 = 6;

/// The times of so many folders are compared in no time.
const COMPARED_QUICKLY: usize = 100;

/// A folder that was changed so short a time before it was read may have been changed once more
/// without another time.
const SAME_TIME: Duration = Duration::from_millis(50);

/// The notices that are asked for of a folder.
const TOLD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// Folders in a repository in which nothing is that git runs: they can be large. Anybody can put
/// the files of one into a folder of checkouts, so this holds only in a folder `.git`, where nobody
/// works.
const INSIDE: [&str; 6] = ["objects", "refs", "logs", "lfs", "annex", "rr-cache"];

/// Files that make a folder one of git's, or lead to one.
const OF_GIT: [&str; 5] = [".git", "HEAD", "commondir", "objects", "refs"];

/// The repositories and other files that were found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Folders of git's, by whatever name; what is nearest to the top stands first.
    pub repositories: Vec<PathBuf>,
    /// Files and links `.git` that lead to one.
    pub pointers: Vec<PathBuf>,
    /// Files by which tools run programs.
    pub trusted: Vec<PathBuf>,
    /// Folders that can be entered and not listed: a repository in them is not found.
    pub unlisted: Vec<PathBuf>,
    /// A folder that was not looked at, nor were others, because there are too many.
    pub beyond: Option<PathBuf>,
}

/// Knows the folders below some others.
#[derive(Debug)]
pub(super) struct Finder {
    tops: Vec<PathBuf>,
    /// The folder that no command sees.
    hidden: PathBuf,
    names: &'static TrustedNames,
    folders_max: usize,
    watches_max: usize,
    /// Number of looks so far.
    looks: u64,
    folders: BTreeMap<PathBuf, Folder>,
    /// Those that are not watched.
    unwatched: BTreeSet<PathBuf>,
    by_watch: HashMap<i32, PathBuf>,
    /// Notices of the kernel.
    changes: Option<OwnedFd>,
    beyond: Option<PathBuf>,
    /// None until there was a look.
    found: Option<Arc<Found>>,
    /// Number of folders that were read.
    #[cfg(test)]
    reads: usize,
}

/// A folder, as it was read.
#[derive(Debug)]
struct Folder {
    watch: Option<i32>,
    state: FolderState,
    is_git: bool,
    unlisted: bool,
    /// Files in it that are of interest.
    pointer: bool,
    trusted: Vec<OsString>,
}

/// What tells whether a folder is as it was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct FolderState {
    /// Its numbers of device and inode.
    id: (u64, u64),
    /// The time at which it last got or lost an entry, or other rights; none if that says nothing.
    changed: Option<(i64, i64)>,
}

/// Notices of the kernel.
#[derive(Debug, Default)]
struct Changes {
    /// Folders that came or went.
    folders: BTreeSet<PathBuf>,
    /// Folders that have to be read again.
    stale: BTreeSet<PathBuf>,
}

impl Found {
    /// The repositories that lie among the files of no other one, and those of submodules.
    pub(super) fn free_standing(&self) -> impl Iterator<Item = &PathBuf> {
        let pointers = self.pointers.iter().filter(|pointer| is_pointer(pointer));
        let all: Vec<&PathBuf> = self.repositories.iter().chain(pointers).collect();
        let is_among_files = move |repository: &Path| {
            let own = files_of(repository).unwrap_or(repository);
            let mut others =
                all.iter().filter(|git| **git != repository && !repository.starts_with(git));
            let around = |files| own != files && own.starts_with(files);
            others.any(|git| files_of(git).is_some_and(around))
        };
        self.repositories.iter().filter(move |repository| !is_among_files(repository))
    }
}

impl Finder {
    /// Finds in these folders.
    pub(super) fn new(tops: Vec<PathBuf>, hidden: PathBuf, names: &'static TrustedNames) -> Self {
        Self {
            tops,
            hidden,
            names,
            folders_max: FOLDERS_MAX,
            watches_max: watches_allowed(),
            looks: 0,
            folders: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            by_watch: HashMap::new(),
            changes: None,
            beyond: None,
            found: None,
            #[cfg(test)]
            reads: 0,
        }
    }

    /// Finds in other folders from now on.
    pub(super) fn search(&mut self, tops: Vec<PathBuf>) {
        if self.tops != tops {
            self.tops = tops;
            self.found = None;
        }
    }

    /// True if a look has next to nothing to do.
    pub(super) fn is_quiet(&self) -> bool {
        let told = self.changes.as_ref().is_some_and(|changes| {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut asked = [PollFd::new(changes, PollFlags::IN)];
            poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
        });
        let begins = self.looks + 1 == LOOKS_WITHOUT;
        self.found.is_some()
            && !told
            && !begins
            && self.unwatched.len() < COMPARED_QUICKLY
            && self.replaced_tops().next().is_none()
    }

    /// Looks at what has changed since the last look. The same is returned where nothing of
    /// interest has.
    pub(super) fn look(&mut self) -> Arc<Found> {
        self.looks += 1;
        let changed = match self.found {
            Some(_) if self.looks != LOOKS_WITHOUT => self.look_again(),
            _ => None,
        };
        if changed != Some(false) {
            if changed.is_none() {
                self.begin();
            }
            let now = self.gather();
            if self.found.as_deref() != Some(&now) {
                self.found = Some(Arc::new(now));
            }
        }
        self.found.clone().unwrap_or_default()
    }

    /// Reads everything.
    fn begin(&mut self) {
        self.folders.clear();
        self.unwatched.clear();
        self.by_watch.clear();
        self.beyond = None;
        // With the descriptor all watches go.
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let lives_on = self.looks >= LOOKS_WITHOUT && self.watches_max > 0;
        self.changes = lives_on.then(|| inotify::init(flags).ok()).flatten();
        self.walk(self.tops.clone().into());
    }

    /// Reads what has changed; whether anything has, or none if that cannot be told.
    fn look_again(&mut self) -> Option<bool> {
        let mut changes = self.read_changes()?;
        changes.folders.extend(self.replaced_tops().cloned());
        for path in &self.unwatched {
            let before = self.folders.get(path).map(|folder| folder.state).unwrap_or_default();
            let now = FolderState::of(path);
            if before.changed.is_none() || now != before {
                changes.stale.insert(path.clone());
            }
            // Below another one all is another, even if it has the same name and time.
            if before.id != now.id {
                changes.folders.insert(path.clone());
                changes.stale.extend(path.parent().map(Path::to_owned));
            }
        }
        if changes.folders.is_empty() && changes.stale.is_empty() {
            return Some(false);
        }
        for folder in &changes.folders {
            self.forget(folder);
        }
        if self.beyond.is_some() && self.folders.len() < self.folders_max / 2 {
            return None;
        }
        let is_gone = |top: &&PathBuf| !self.folders.contains_key(*top);
        let mut waiting: VecDeque<PathBuf> = self.tops.iter().filter(is_gone).cloned().collect();
        for folder in &changes.stale {
            // It may have gone with one above it.
            if self.folders.contains_key(folder) {
                waiting.extend(self.read_again(folder));
            }
        }
        // The nearest are to be known, also where they come last.
        let depth = |path: &Path| path.components().count();
        let furthest = self.beyond.as_deref().map_or(0, depth);
        if self.is_full() && waiting.iter().any(|path| depth(path) < furthest) {
            return None;
        }
        self.walk(waiting);
        Some(true)
    }

    /// The tops in whose places other folders are now. No notice says so: the folder above a top is
    /// not watched, and the watch of the top itself goes where that one goes.
    fn replaced_tops(&self) -> impl Iterator<Item = &PathBuf> {
        self.tops.iter().filter(|top| {
            let known = self.folders.get(*top);
            known.is_some_and(|folder| folder.state.id != FolderState::of(top).id)
        })
    }

    /// Reads the kernel's notices since the last look; none if there were too many.
    fn read_changes(&self) -> Option<Changes> {
        let mut changes = Changes::default();
        let Some(told) = &self.changes else { return Some(changes) };
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(told.as_fd(), &mut buffer);
        for _ in 0..CHANGES_MAX {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Some(changes),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                return None;
            }
            let Some(folder) = self.by_watch.get(&event.wd()) else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                // It is gone.
                changes.folders.insert(folder.clone());
                continue;
            }
            let Some(name) = event.file_name() else { continue };
            let name = OsStr::from_bytes(name.to_bytes());
            if event.events().contains(ReadFlags::ISDIR) {
                changes.folders.insert(folder.join(name));
                changes.stale.insert(folder.clone());
            } else if self.is_of_interest(folder, name) {
                changes.stale.insert(folder.clone());
            }
        }
        None
    }

    fn is_of_interest(&self, folder: &Path, name: &OsStr) -> bool {
        OF_GIT.iter().any(|of_git| name == *of_git)
            || self.names.may_end_with(name)
            || self.names.has_all_of(folder)
    }

    /// Reads a folder again, and forgets what is no longer in it; returns the folders that are new.
    fn read_again(&mut self, path: &Path) -> Vec<PathBuf> {
        let inside: BTreeSet<PathBuf> = self.read(path).into_iter().collect();
        let below = self.below(path);
        let known: BTreeSet<PathBuf> =
            below.into_iter().filter(|it| it.parent() == Some(path)).collect();
        for gone in known.difference(&inside) {
            self.forget(gone);
        }
        inside.difference(&known).cloned().collect()
    }

    /// Reads folders that are not known, and those in them, the nearest first.
    fn walk(&mut self, mut waiting: VecDeque<PathBuf>) {
        while let Some(path) = waiting.pop_front() {
            if self.folders.contains_key(&path) || path == self.hidden {
                continue;
            }
            if self.is_full() {
                self.beyond.get_or_insert(path);
                return;
            }
            let inside = self.read(&path);
            // What is git's is small, and what all this is about.
            if self.is_git(&path) && is_in_git(&path) {
                for folder in inside {
                    waiting.push_front(folder);
                }
            } else {
                waiting.extend(inside);
            }
        }
    }

    /// Reads a folder, and returns those in it.
    fn read(&mut self, path: &Path) -> Vec<PathBuf> {
        #[cfg(test)]
        {
            self.reads += 1;
        }
        // Known before it is watched: one that takes its place meanwhile is told from it.
        let state = FolderState::of(path);
        // Asked for before it is read: what comes meanwhile is told.
        let watch = self.watch(path);
        let mut folder = Folder {
            watch,
            state,
            is_git: false,
            unlisted: false,
            pointer: false,
            trusted: Vec::new(),
        };
        let (mut inside, mut of_git) = (Vec::new(), Vec::new());
        let takes_all = self.names.has_all_of(path);
        let entries = fs::read_dir(path);
        let unread = entries.is_err();
        folder.unlisted = unread && access(path, Access::EXEC_OK).is_ok();
        for entry in entries.into_iter().flatten().filter_map(Result::ok) {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let is_folder = kind.as_ref().is_ok_and(fs::FileType::is_dir);
            of_git.extend(OF_GIT.iter().filter(|known| name == **known));
            if is_folder {
                inside.push(name);
                continue;
            }
            folder.pointer |= name == ".git";
            let is_strange = kind.is_ok_and(|kind| kind.is_socket() || kind.is_fifo());
            if !is_strange && (takes_all || self.names.has(path, &name)) {
                folder.trusted.push(name);
            }
        }
        folder.is_git = is_git_folder(|name| of_git.contains(&name));
        if folder.is_git && is_in_git(path) {
            inside.retain(|name| !INSIDE.iter().any(|large| name == *large));
        }
        // What may not be read now may be read when its rights were changed.
        if unread && let Some(watch) = folder.watch.take() {
            self.unwatch(watch);
        }
        // One that is mounted twice has one watch, which tells of one of its paths.
        let elsewhere = |watch: &i32| self.by_watch.get(watch).is_none_or(|known| known == path);
        folder.watch = folder.watch.filter(elsewhere);
        if let Some(watch) = folder.watch {
            self.by_watch.insert(watch, path.to_owned());
            self.unwatched.remove(path);
        } else {
            folder.state.changed = folder.state.changed.filter(|time| !is_just_now(*time));
            self.unwatched.insert(path.to_owned());
        }
        self.folders.insert(path.to_owned(), folder);
        inside.into_iter().map(|name| path.join(name)).collect()
    }

    fn is_full(&self) -> bool {
        self.folders.len() >= self.folders_max
    }

    fn is_git(&self, path: &Path) -> bool {
        self.folders.get(path).is_some_and(|folder| folder.is_git)
    }

    fn watch(&mut self, path: &Path) -> Option<i32> {
        let changes = self.changes.as_ref()?;
        let known = self.folders.get(path).is_some_and(|folder| folder.watch.is_some());
        if !known && self.by_watch.len() >= self.watches_max {
            return None;
        }
        let added = inotify::add_watch(changes, path, TOLD);
        if added == Err(Errno::NOSPC) {
            // Others of this user have the rest.
            self.watches_max = self.by_watch.len();
        }
        added.ok()
    }

    fn unwatch(&mut self, watch: i32) {
        self.by_watch.remove(&watch);
        if let Some(changes) = &self.changes {
            let _ = inotify::remove_watch(changes, watch);
        }
    }

    /// Forgets a folder, and all below it.
    fn forget(&mut self, path: &Path) {
        for below in self.below(path).into_iter().chain([path.to_owned()]) {
            self.unwatched.remove(&below);
            if let Some(watch) = self.folders.remove(&below).and_then(|folder| folder.watch) {
                self.unwatch(watch);
            }
        }
    }

    /// The known folders in a folder, however deep.
    fn below(&self, path: &Path) -> Vec<PathBuf> {
        let bounds = (Bound::Excluded(path), Bound::Unbounded);
        let after = self.folders.range::<Path, _>(bounds);
        after.map(|(below, _)| below).take_while(|it| it.starts_with(path)).cloned().collect()
    }

    fn gather(&self) -> Found {
        let mut found = Found { beyond: self.beyond.clone(), ..Found::default() };
        for (path, folder) in &self.folders {
            if folder.is_git {
                found.repositories.push(path.clone());
            }
            if folder.unlisted {
                found.unlisted.push(path.clone());
            }
            if folder.pointer {
                found.pointers.push(path.join(".git"));
            }
            found.trusted.extend(folder.trusted.iter().map(|name| path.join(name)));
        }
        found.repositories.sort_by_key(|path| path.components().count());
        found
    }
}

/// The folder of the files that belong to a folder or file of git's beside them.
fn files_of(git: &Path) -> Option<&Path> {
    git.parent().filter(|_| git.ends_with(".git"))
}

/// True if a folder is named `.git`, or in one: that of a submodule, say.
fn is_in_git(path: &Path) -> bool {
    path.iter().any(|name| name == ".git")
}

/// The number of watches that one of these may have.
fn watches_allowed() -> usize {
    let allowed = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let allowed = allowed.ok().and_then(|text| text.trim().parse::<usize>().ok());
    allowed.map_or(0, |allowed| (allowed / WATCHES_SHARE).min(WATCHES_MAX))
}

impl FolderState {
    fn of(path: &Path) -> Self {
        let Ok(data) = fs::symlink_metadata(path) else { return Self::default() };
        let changed = Some((data.ctime(), data.ctime_nsec()));
        Self { id: (data.dev(), data.ino()), changed }
    }
}

fn is_just_now((seconds, nanoseconds): (i64, i64)) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::new(
        seconds.try_into().unwrap_or_default(),
        nanoseconds.try_into().unwrap_or_default(),
    );
    // Also one that is in the future says nothing.
    now.checked_sub(changed).is_none_or(|ago| ago < SAME_TIME)
}

#[cfg(test)]
mod tests;
