//! Warns when a command has changed files that others run or trust: compares them before it and
//! after it.
//!
//! A repository may be large, or on a disk of another machine that does not answer. So it is looked
//! at in a thread, and waited for no longer than a bound; what could not be looked at is said in
//! the place of what would have been found. One on a disk of this machine that was looked at in no
//! time is looked at right here the next time: handing that over would cost more than the look.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{self, Duration},
};

use legwork_gate::visible;
use rustix::fs::statfs;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout},
};

use super::{
    configs::ConfigReader,
    finder::{FOLDERS_MAX, Finder, Found},
    news::Before,
    places::SandboxPlaces,
    repository::Hooks,
    work_folders::WorkFolders,
};
use crate::{place::Soon, threads::begin_in_thread};

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(2);

/// How many are under way at a time, those included that nobody waits for any longer.
const LOOKS_MAX: usize = 4;

/// What takes no longer than this is looked at right here the next time.
const NO_TIME: Duration = Duration::from_micros(500);

/// The kernel's numbers of filesystems that are on disks and in memory of this machine: ext, XFS,
/// Btrfs, F2FS, ZFS, bcachefs, tmpfs, and overlays of them.
const LOCAL: [u64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x0102_1994,
    0x794C_7630,
];

/// What is looked at, and by how many.
#[derive(Debug)]
pub(super) struct Watched {
    /// The folders that commands work in.
    roots: Vec<PathBuf>,
    /// What followed from them at the last look.
    work_folders: Mutex<Arc<WorkFolders>>,
    /// Folders that may be written, and files that decide about commands.
    writable: Vec<PathBuf>,
    deciding: Vec<PathBuf>,
    /// What of the listed paths is in those folders, once it is known.
    guarded: OnceLock<Vec<PathBuf>>,
    /// Knows what else is in them.
    finder: Mutex<Finder>,
    /// Knows what configurations say.
    reader: Mutex<ConfigReader>,
    /// What it was told last of where the search ended.
    said_beyond: Mutex<Option<PathBuf>>,
    /// How things were when the last command ended, once one has left processes running: what comes
    /// before the next may be theirs.
    left: Mutex<Option<Before>>,
    looks: Arc<Semaphore>,
    /// Whether the next look is not worth a thread.
    at_hand: AtomicBool,
    /// When the last look was begun.
    begun: Mutex<Instant>,
}

/// What the guards of repositories follow from.
#[derive(Debug, Default, Clone)]
pub(super) struct RepositorySurvey {
    pub work_folders: Arc<WorkFolders>,
    pub found: Arc<Found>,
    /// Where hooks are that configurations name.
    pub hooks: Hooks,
}

impl RepositorySurvey {
    /// Whether the same guards follow from both.
    pub(super) fn guards_as(&self, other: &Self) -> bool {
        self.work_folders.repositories == other.work_folders.repositories
            && self.found.repositories == other.found.repositories
            && self.hooks == other.hooks
    }
}

/// What was there before a command.
#[derive(Debug)]
pub(crate) struct LocalTamperCheck {
    watched: Arc<Watched>,
    /// None if that could not be found out.
    before: Option<Before>,
}

impl Watched {
    pub(super) fn new(
        roots: Vec<PathBuf>,
        writable: Vec<PathBuf>,
        deciding: Vec<PathBuf>,
        mut finder: Finder,
    ) -> Arc<Self> {
        let work_folders = WorkFolders::of(&roots);
        finder.search(work_folders.tops(&writable));
        Arc::new(Self {
            roots,
            work_folders: Mutex::new(Arc::new(work_folders)),
            writable,
            deciding,
            guarded: OnceLock::new(),
            finder: Mutex::new(finder),
            reader: Mutex::default(),
            said_beyond: Mutex::default(),
            left: Mutex::default(),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            at_hand: AtomicBool::new(false),
            begun: Mutex::new(Instant::now()),
        })
    }

    /// What is guarded in folders that may be written, but for repositories. Asks the disk the
    /// first time.
    pub(super) fn guarded(&self) -> &[PathBuf] {
        self.guarded
            .get_or_init(|| SandboxPlaces::shipped().unwritable(&self.deciding, &self.writable))
    }

    /// What is in the folders that may be written, as it is now.
    fn found(&self) -> Arc<Found> {
        let mut finder = self.finder.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.work_folders().is_of(&self.roots) {
            let work_folders = WorkFolders::of(&self.roots);
            finder.search(work_folders.tops(&self.writable));
            *self.work_folders.lock().unwrap_or_else(PoisonError::into_inner) =
                Arc::new(work_folders);
        }
        finder.look()
    }

    /// What followed from the folders that commands work in at the last look.
    pub(super) fn work_folders(&self) -> Arc<WorkFolders> {
        self.work_folders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The folders that may be written and are searched, besides the workspace.
    pub(super) fn other_folders(&self) -> Vec<String> {
        let others = self.writable.iter().filter(|path| Some(*path) != self.roots.first());
        others.map(|path| path.to_string_lossy().into_owned()).collect()
    }

    /// What stands for a survey that took too long.
    pub(super) fn unsurveyed(&self) -> RepositorySurvey {
        RepositorySurvey { work_folders: self.work_folders(), ..RepositorySurvey::default() }
    }

    /// The same, and the folders of hooks that configurations name.
    fn surveyed(&self) -> RepositorySurvey {
        let found = self.found();
        let work_folders = self.work_folders();
        let mut reader = self.reader();
        reader.begin(&found.pointers);
        let all = work_folders.folders.iter().chain(&found.repositories);
        let mut hooks_of = |folder: &PathBuf| reader.hooks_to_guard(folder, &self.writable);
        let hooks = all.map(|folder| (folder.clone(), hooks_of(folder))).collect();
        RepositorySurvey { work_folders, found, hooks }
    }

    /// The same, in a thread if it may take its time; none if it takes too long.
    pub(super) fn survey(
        self: &Arc<Self>,
    ) -> impl Future<Output = Option<RepositorySurvey>> + use<> {
        self.look(Self::surveyed)
    }

    /// Looks before a command; begins at once.
    pub(super) fn check(self: &Arc<Self>) -> Soon<'static, LocalTamperCheck> {
        let watched = self.clone();
        let look = self.look(|it| it.left().clone().unwrap_or_else(|| it.now()));
        Box::pin(async move { LocalTamperCheck { watched, before: look.await } })
    }

    /// Does something, in a thread if it may take its time; none if it takes too long.
    fn look<T, F>(self: &Arc<Self>, work: F) -> impl Future<Output = Option<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> T + Send + 'static,
    {
        let begun = if self.at_hand.load(Ordering::Relaxed) && self.is_quiet() {
            Begun::Done(self.timed(work))
        } else {
            match self.looks.clone().try_acquire_owned() {
                Ok(permit) => Begun::InThread(self.begin(permit, work)),
                Err(_) => Begun::NotYet(self.clone(), work),
            }
        };
        let looked = async move {
            let done = match begun {
                Begun::Done(found) => return Some(found),
                Begun::InThread(done) => done,
                Begun::NotYet(watched, work) => {
                    // All of them are stuck.
                    if watched.last_begun().elapsed() > LOOK {
                        return None;
                    }
                    let permit = watched.looks.clone().acquire_owned().await.ok()?;
                    watched.begin(permit, work)
                }
            };
            done.await.ok()
        };
        async move { timeout(LOOK, looked).await.ok().flatten() }
    }

    fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let watched = self.clone();
        begin_in_thread(move || {
            let found = watched.timed(work);
            drop(permit);
            found
        })
    }

    /// Does something, and learns from it where to do it the next time.
    fn timed<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let begun = time::Instant::now();
        let found = work(self);
        let quick = begun.elapsed() < NO_TIME;
        self.at_hand.store(quick && self.is_local(), Ordering::Relaxed);
        found
    }

    /// Whether nothing has to be read that was read before.
    fn is_quiet(&self) -> bool {
        self.finder.try_lock().is_ok_and(|finder| finder.is_quiet())
            && self.work_folders().is_of(&self.roots)
    }

    fn is_local(&self) -> bool {
        let work_folders = self.work_folders();
        let mut all = work_folders.folders.iter().chain(&self.writable);
        *work_folders.is_local.get_or_init(|| all.all(|path| is_on_this_machine(path)))
    }

    fn last_begun(&self) -> Instant {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look that has been asked for.
enum Begun<T, F> {
    Done(T),
    InThread(oneshot::Receiver<T>),
    /// Others are under way.
    NotYet(Arc<Watched>, F),
}

/// Whether a path is, or would be, on a disk that answers or is broken.
fn is_on_this_machine(path: &Path) -> bool {
    let found = path.ancestors().find_map(|path| statfs(path).ok());
    let kind = found.and_then(|found| found.f_type.try_into().ok());
    kind.is_some_and(|kind| LOCAL.contains(&kind))
}

impl LocalTamperCheck {
    /// What has come since then; `leaves` is whether processes of the command go on.
    pub(crate) async fn warnings(self, leaves: bool) -> Vec<String> {
        let Self { watched, before } = self;
        let found = match before {
            Some(before) => watched.look(move |it| it.news(&before, leaves)).await,
            None => None,
        };
        let found = found.unwrap_or_else(|| vec![watched.unknown()]);
        // The names in them are a command's work.
        found.iter().map(|warning| visible(warning)).collect()
    }
}

impl Watched {
    fn now(&self) -> Before {
        let found = self.found();
        Before::of(&self.work_folders().folders, &found, self.guarded(), &mut self.reader())
    }

    fn reader(&self) -> MutexGuard<'_, ConfigReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, Option<Before>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has come since then, and what could not be looked at; that is said when it changes.
    fn news(&self, before: &Before, leaves: bool) -> Vec<String> {
        let (found, now) = (self.found(), self.now());
        let mut news = now.since(before);
        let mut left = self.left();
        if leaves || left.is_some() {
            *left = Some(now);
        }
        drop(left);
        let mut said = self.said_beyond.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(beyond) = &found.beyond
            && said.as_ref() != Some(beyond)
        {
            *said = Some(beyond.clone());
            news.push(format!(
                "{}: this folder and others were not searched for repositories, there are more than {FOLDERS_MAX} folders",
                beyond.display()
            ));
        }
        news
    }

    fn unknown(&self) -> String {
        let work_folders = self.work_folders();
        let folder = work_folders.folders.first().map(|folder| folder.display().to_string());
        let folder = folder.unwrap_or_default();
        format!("{folder}: it could not be read in time; the command may have set what git runs")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc};

    use super::*;
    use crate::model::trusted::TrustedNames;

    fn watched(workspace: PathBuf) -> Arc<Watched> {
        let finder = Finder::new(Vec::new(), PathBuf::new(), TrustedNames::shipped());
        Watched::new(vec![workspace], Vec::new(), Vec::new(), finder)
    }

    #[tokio::test]
    async fn another_value_of_a_known_key_is_news() {
        let scratch = tempfile::tempdir().unwrap();
        let config = scratch.path().join(".git/config");
        fs::create_dir(scratch.path().join(".git")).unwrap();
        fs::write(&config, "[core]\npager = less\n").unwrap();
        let watched = watched(scratch.path().to_owned());
        assert_eq!(watched.check().await.warnings(false).await, [""; 0]);
        let check = watched.check().await;
        fs::write(&config, "[core]\npager = other\n").unwrap();
        assert_eq!(check.warnings(false).await.len(), 1);
    }

    #[tokio::test]
    async fn another_folder_in_the_place_of_the_workspace_has_its_own_repository() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (main, tree) = (base.join("main/.git"), base.join("tree"));
        let own = main.join("worktrees/tree");
        for folder in [&own, &main.join("objects"), &tree, &base.join("new/.git/objects")] {
            fs::create_dir_all(folder).unwrap();
        }
        for git in [&main, &base.join("new/.git")] {
            fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        }
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", tree.join(".git").display())).unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let watched = watched(tree.clone());
        let before = watched.survey().await.unwrap();
        let folders = |survey: &RepositorySurvey| -> Vec<PathBuf> {
            survey.work_folders.repository_folders().collect()
        };
        assert_eq!(folders(&before), [own, main]);
        fs::rename(&tree, base.join("old")).unwrap();
        fs::rename(base.join("new"), &tree).unwrap();
        assert!(!watched.is_quiet());
        let now = watched.survey().await.unwrap();
        assert_eq!(folders(&now), [tree.join(".git"), tree.join(".git")]);
        assert_eq!(now.found.repositories, [tree.join(".git")]);
        assert!(!now.guards_as(&before));
    }

    #[tokio::test]
    async fn a_quick_look_at_a_disk_of_this_machine_needs_no_thread_and_a_slow_one_does() {
        let scratch = tempfile::tempdir().unwrap();
        let watched = watched(scratch.path().to_owned());
        watched.found();
        let thread = || std::thread::current().id();
        assert_ne!(watched.look(move |_| thread()).await, Some(thread()));
        // A busy machine may take long for what is quick.
        while !watched.at_hand.load(Ordering::Relaxed) {
            watched.look(|_| ()).await;
        }
        assert_eq!(watched.look(move |_| thread()).await, Some(thread()));
        watched.look(|_| std::thread::sleep(NO_TIME)).await;
        assert_ne!(watched.look(move |_| thread()).await, Some(thread()));
        assert!(!is_on_this_machine(Path::new("/proc/self")));
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_are_stuck_are_not_waited_for_and_at_most_a_few() {
        let watched = watched(PathBuf::from("/nowhere"));
        let (sender, never) = mpsc::channel::<()>();
        let never = Arc::new(Mutex::new(never));
        for _ in 0..10 {
            let never = never.clone();
            let stuck = watched.look(move |_| never.lock().unwrap().recv().is_ok());
            assert_eq!(stuck.await, None);
        }
        assert_eq!(watched.looks.available_permits(), 0);
        let told = watched.check().await.warnings(false).await;
        assert!(told[0].starts_with("/nowhere/.git: it could not be read in time"), "{told:?}");
        // They answer in the end.
        tokio::time::resume();
        drop(sender);
        while watched.looks.available_permits() < LOOKS_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(watched.check().await.warnings(false).await, [""; 0]);
    }
}
