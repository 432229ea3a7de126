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

use super::repository::is_pointer;
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
/// the files of one into a folder of checkouts, so this holds by the names that git gives.
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
    /// Time of its last change, if that is to be compared; none if that says nothing.
    changed: Option<(i64, i64)>,
    is_git: bool,
    unlisted: bool,
    /// Files in it that are of interest.
    pointer: bool,
    trusted: Vec<OsString>,
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

    /// True if a look has next to nothing to do.
    pub(super) fn is_quiet(&self) -> bool {
        let told = self.changes.as_ref().is_some_and(|changes| {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut asked = [PollFd::new(changes, PollFlags::IN)];
            poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
        });
        let begins = self.looks + 1 == LOOKS_WITHOUT;
        self.found.is_some() && !told && !begins && self.unwatched.len() < COMPARED_QUICKLY
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
        for path in &self.unwatched {
            let before = self.folders.get(path).and_then(|folder| folder.changed);
            if before.is_none() || time_of_change(path) != before {
                changes.stale.insert(path.clone());
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
        self.walk(waiting);
        Some(true)
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
            if self.folders.len() >= self.folders_max {
                self.beyond.get_or_insert(path);
                return;
            }
            let inside = self.read(&path);
            // What is git's is small, and what all this is about.
            if self.is_git(&path) && is_named_by_git(&path) {
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
        // Asked for before it is read: what comes meanwhile is told.
        let watch = self.watch(path);
        let changed = time_of_change(path);
        let mut folder = Folder {
            watch,
            changed: None,
            is_git: false,
            unlisted: false,
            pointer: false,
            trusted: Vec::new(),
        };
        let (mut head, mut objects, mut common) = (false, false, false);
        let mut inside = Vec::new();
        let takes_all = self.names.has_all_of(path);
        let entries = fs::read_dir(path);
        let unread = entries.is_err();
        folder.unlisted = unread && access(path, Access::EXEC_OK).is_ok();
        for entry in entries.into_iter().flatten().filter_map(Result::ok) {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let is_folder = kind.as_ref().is_ok_and(fs::FileType::is_dir);
            head |= name == "HEAD";
            objects |= name == "objects";
            if is_folder {
                inside.push(name);
                continue;
            }
            common |= name == "commondir";
            folder.pointer |= name == ".git";
            let is_strange = kind.is_ok_and(|kind| kind.is_socket() || kind.is_fifo());
            if !is_strange && (takes_all || self.names.has(path, &name)) {
                folder.trusted.push(name);
            }
        }
        folder.is_git = head && (objects || common);
        if folder.is_git && is_named_by_git(path) {
            inside.retain(|name| !INSIDE.iter().any(|large| name == *large));
        } else if path.ends_with("objects") && path.parent().is_some_and(|it| self.is_git(it)) {
            inside.retain(|name| !is_of_objects(name));
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
            folder.changed = changed.filter(|time| !is_just_now(*time));
            self.unwatched.insert(path.to_owned());
        }
        self.folders.insert(path.to_owned(), folder);
        inside.into_iter().map(|name| path.join(name)).collect()
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

/// True if a folder has a name that git gives to a repository, or to that of a submodule.
fn is_named_by_git(path: &Path) -> bool {
    path.ancestors().any(|git| {
        let is_named = git.file_name().is_some_and(|name| name.as_bytes().ends_with(b".git"));
        let inside = path.strip_prefix(git).unwrap_or(path);
        is_named && (inside.as_os_str().is_empty() || inside.starts_with("modules"))
    })
}

/// True if git has objects in a folder by this name.
fn is_of_objects(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"pack" || name == b"info" || name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit)
}

/// The number of watches that one of these may have.
fn watches_allowed() -> usize {
    let allowed = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let allowed = allowed.ok().and_then(|text| text.trim().parse::<usize>().ok());
    allowed.map_or(0, |allowed| (allowed / WATCHES_SHARE).min(WATCHES_MAX))
}

/// The time at which a folder last got or lost an entry, or other rights.
fn time_of_change(path: &Path) -> Option<(i64, i64)> {
    fs::symlink_metadata(path).ok().map(|data| (data.ctime(), data.ctime_nsec()))
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
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    fn finder(top: &Path, lives_on: bool) -> Finder {
        let hidden = top.join("state");
        let mut finder = Finder::new(vec![top.to_owned()], hidden, TrustedNames::shipped());
        finder.looks = if lives_on { LOOKS_WITHOUT } else { LOOKS_WITHOUT + 1 };
        if !lives_on {
            finder.watches_max = 0;
        }
        finder
    }

    fn repository(folder: &Path) {
        fs::create_dir_all(folder.join("objects/aa")).unwrap();
        fs::create_dir_all(folder.join("hooks")).unwrap();
        fs::write(folder.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    /// What is found, without the folder of the test.
    fn names(finder: &mut Finder, top: &Path) -> Vec<String> {
        let found = finder.look();
        let all = found.repositories.iter().chain(&found.pointers).chain(&found.trusted);
        all.map(|path| path.strip_prefix(top).unwrap().display().to_string()).collect()
    }

    /// Does something in a folder, once with one who lives on and once without watches; what both
    /// find has to be the same.
    fn each(work: impl Fn(&Path, &mut dyn FnMut(&[&str]))) {
        for lives_on in [true, false] {
            let scratch = TempDir::new().unwrap();
            let top = scratch.path().canonicalize().unwrap();
            let mut finder = finder(&top, lives_on);
            work(&top, &mut |expected| {
                assert_eq!(names(&mut finder, &top), expected, "lives on: {lives_on}");
            });
        }
    }

    #[test]
    fn repositories_are_found_by_whatever_name_and_wherever_they_come_from() {
        each(|top, finds| {
            repository(&top.join("a/.git"));
            repository(&top.join("bare.git"));
            repository(&top.join("state/.git"));
            finds(&["bare.git", "a/.git"]);
            // Submodules, one inside the other, with a slash in the name.
            repository(&top.join("a/.git/modules/x/y"));
            repository(&top.join("a/.git/modules/x/y/modules/z"));
            // What is in there is not looked for by git.
            repository(&top.join("a/.git/objects/bb"));
            finds(&["bare.git", "a/.git", "a/.git/modules/x/y", "a/.git/modules/x/y/modules/z"]);
            fs::remove_dir_all(top.join("a/.git/modules")).unwrap();
            fs::rename(top.join("a/.git"), top.join("a/moved")).unwrap();
            finds(&["bare.git", "a/moved"]);
            repository(&top.join("a/.git"));
            finds(&["bare.git", "a/.git", "a/moved"]);
            // A folder above it moves, and another one takes its place.
            fs::rename(top.join("a"), top.join("b")).unwrap();
            fs::create_dir(top.join("a")).unwrap();
            finds(&["bare.git", "b/.git", "b/moved"]);
            fs::rename(top.join("b/moved"), top.join("a/.git")).unwrap();
            finds(&["bare.git", "a/.git", "b/.git"]);
            // Away and back, with something new inside.
            fs::rename(top.join("b"), top.join("c")).unwrap();
            repository(&top.join("c/new"));
            fs::rename(top.join("c"), top.join("b")).unwrap();
            finds(&["bare.git", "a/.git", "b/.git", "b/new"]);
            fs::remove_dir_all(top.join("b")).unwrap();
            fs::remove_file(top.join("bare.git/HEAD")).unwrap();
            finds(&["a/.git"]);
            fs::create_dir_all(top.join("b/sub")).unwrap();
            finds(&["a/.git"]);
            // Entries that come one after the other.
            fs::create_dir_all(top.join("b/sub/.git/objects")).unwrap();
            finds(&["a/.git"]);
            fs::write(top.join("b/sub/.git/HEAD"), "").unwrap();
            finds(&["a/.git", "b/sub/.git"]);
        });
    }

    #[test]
    fn what_leads_to_a_repository_and_what_tools_trust_is_found() {
        each(|top, finds| {
            fs::create_dir_all(top.join("p/.vscode")).unwrap();
            fs::create_dir_all(top.join("p/.husky/_")).unwrap();
            finds(&[]);
            fs::write(top.join("p/.git"), "gitdir: elsewhere\n").unwrap();
            symlink("elsewhere", top.join(".git")).unwrap();
            for name in
                ["p/.mcp.json", "p/.vscode/tasks.json", "p/.vscode/other.json", "tasks.json"]
            {
                fs::write(top.join(name), "{}").unwrap();
            }
            fs::write(top.join("p/.husky/pre-commit"), "").unwrap();
            finds(&[
                ".git",
                "p/.git",
                "p/.mcp.json",
                "p/.husky/pre-commit",
                "p/.vscode/tasks.json",
            ]);
            fs::remove_file(top.join("p/.husky/pre-commit")).unwrap();
            fs::remove_file(top.join(".git")).unwrap();
            finds(&["p/.git", "p/.mcp.json", "p/.vscode/tasks.json"]);
        });
    }

    #[test]
    fn a_repository_among_the_files_of_another_is_told_from_a_submodule_and_a_neighbour() {
        let scratch = TempDir::new().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        for name in [
            "a/.git",
            "a/.git/modules/b",
            "a/target/x/.git",
            "a/bare.git",
            "ab/.git",
            "bare.git",
            "tree/y/.git",
            "not/y/.git",
        ] {
            repository(&top.join(name));
        }
        for (name, text) in [
            ("a/b/.git", "gitdir: ../.git/modules/b\n"),
            ("tree/.git", "gitdir: ../bare.git\n"),
            ("not/.git", "gitdir: ../nowhere\n"),
            (".git", "x\n"),
        ] {
            fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
            fs::write(top.join(name), text).unwrap();
        }
        let found = finder(&top, true).look();
        assert_eq!((found.repositories.len(), found.pointers.len()), (8, 4));
        let free = found.free_standing().map(|path| path.strip_prefix(&top).unwrap());
        let free: BTreeSet<_> = free.map(|path| path.to_str().unwrap()).collect();
        let expected = ["a/.git", "a/.git/modules/b", "ab/.git", "bare.git", "not/y/.git"];
        assert_eq!(free, BTreeSet::from(expected));
    }

    #[test]
    fn a_folder_with_the_files_of_a_repository_hides_none_of_its_folders() {
        each(|top, finds| {
            for name in ["logs/p/.git", "objects/p/.git", "refs/lfs/.git"] {
                repository(&top.join(name));
            }
            let all = ["logs/p/.git", "objects/p/.git", "refs/lfs/.git"];
            finds(&all);
            fs::write(top.join("HEAD"), "").unwrap();
            fs::create_dir_all(top.join("objects")).unwrap();
            repository(&top.join("logs/q/.git"));
            let more = ["", "logs/p/.git", "logs/q/.git", "objects/p/.git", "refs/lfs/.git"];
            finds(&more);
        });
    }

    #[test]
    fn a_folder_that_could_not_be_read_is_read_when_it_can_be() {
        if rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: root can read everything");
            return;
        }
        each(|top, finds| {
            repository(&top.join("a/.git"));
            let rights =
                |mode| fs::set_permissions(top.join("a"), fs::Permissions::from_mode(mode));
            rights(0o000).unwrap();
            finds(&[]);
            rights(0o311).unwrap();
            finds(&[]);
            let unlisted = finder(top, false).look().unlisted.clone();
            assert_eq!(unlisted, [top.join("a")]);
            rights(0o700).unwrap();
            finds(&["a/.git"]);
        });
    }

    #[test]
    fn a_large_tree_is_read_once_and_then_only_what_changed() {
        let scratch = TempDir::new().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        for number in 0..3000 {
            let folder = top.join(format!("{}/{number}", number % 30));
            fs::create_dir_all(&folder).unwrap();
            for file in 0..10 {
                fs::write(folder.join(file.to_string()), "").unwrap();
            }
        }
        let mut finder = finder(&top, true);
        assert_eq!(names(&mut finder, &top), [""; 0]);
        assert_eq!(finder.reads, 3031);
        assert!(finder.is_quiet() && finder.unwatched.is_empty());
        let same = finder.look();
        assert!(Arc::ptr_eq(&same, &finder.look()) && finder.reads == 3031);
        // Files that are of no interest cost nothing but being told.
        fs::write(top.join("7/7/more"), "").unwrap();
        assert!(!finder.is_quiet());
        assert!(Arc::ptr_eq(&same, &finder.look()) && finder.reads == 3031);
        repository(&top.join("7/7/.git"));
        assert_eq!(names(&mut finder, &top), ["7/7/.git"]);
        // The folder that it is in, itself, and that of its hooks.
        assert_eq!(finder.reads, 3034);
    }

    #[test]
    fn a_folder_beyond_the_bound_is_named_and_the_nearest_are_not_beyond() {
        each(|top, _| {
            for number in 0..40 {
                fs::create_dir_all(top.join(format!("a/deep/deeper/{number}"))).unwrap();
            }
            repository(&top.join("z/.git"));
            let mut finder = finder(top, true);
            finder.folders_max = 20;
            assert_eq!(names(&mut finder, top), ["z/.git"]);
            let found = finder.look();
            assert!(found.beyond.as_ref().unwrap().starts_with(top.join("a/deep/deeper")));
            fs::remove_dir_all(top.join("a")).unwrap();
            assert_eq!(finder.look().beyond, None);
        });
    }

    #[test]
    fn more_changes_than_are_told_are_found_all_the_same() {
        let scratch = TempDir::new().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let mut finder = finder(&top, true);
        assert_eq!(names(&mut finder, &top), [""; 0]);
        // The kernel keeps 16384 by default.
        let told = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        for number in 0..told.trim().parse::<u32>().unwrap().min(100_000) {
            fs::write(top.join(number.to_string()), "").unwrap();
        }
        repository(&top.join("late/.git"));
        assert_eq!(names(&mut finder, &top), ["late/.git"]);
    }

    #[test]
    fn who_looks_again_and_again_watches() {
        let scratch = TempDir::new().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b")).unwrap();
        let mut finder = Finder::new(vec![top.clone()], top.join("state"), TrustedNames::shipped());
        for _ in 1..LOOKS_WITHOUT {
            assert_eq!(names(&mut finder, &top), [""; 0]);
            assert_eq!(finder.by_watch.len(), 0);
        }
        assert!(!finder.is_quiet());
        assert_eq!(names(&mut finder, &top), [""; 0]);
        assert_eq!((finder.by_watch.len(), finder.unwatched.len()), (3, 0));
    }

    #[test]
    fn a_tree_is_watched_no_further_than_there_are_watches() {
        each(|top, _| {
            fs::create_dir_all(top.join("a/b/c/d")).unwrap();
            let mut finder = finder(top, true);
            finder.watches_max = 2;
            assert_eq!(names(&mut finder, top), [""; 0]);
            assert_eq!((finder.by_watch.len(), finder.unwatched.len()), (2, 3));
            repository(&top.join("a/b/c/d/.git"));
            assert_eq!(names(&mut finder, top), ["a/b/c/d/.git"]);
        });
    }
}
