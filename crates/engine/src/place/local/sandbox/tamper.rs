//! Warns when a command has changed files that others run or trust: compares them before it and
//! after it.
//!
//! A repository may be large, or on a disk of another machine that does not answer. So it is looked
//! at in a thread, and waited for no longer than a bound; what could not be looked at is said in
//! the place of what would have been found.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout},
};

use super::{
    news::{Before, warnings},
    places::SandboxPlaces,
};
use crate::{place::Soon, threads::begin_in_thread};

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(2);

/// How many are under way at a time, those included that nobody waits for any longer.
const LOOKS_MAX: usize = 4;

/// What is looked at, and by how many.
#[derive(Debug)]
pub(super) struct Watched {
    /// Git's folders.
    folders: Vec<PathBuf>,
    /// Folders that may be written, and files that decide about commands.
    writable: Vec<PathBuf>,
    deciding: Vec<PathBuf>,
    /// What of the listed paths is in those folders, once it is known.
    guarded: OnceLock<Vec<PathBuf>>,
    looks: Arc<Semaphore>,
    /// When the last look was begun.
    begun: Mutex<Instant>,
}

/// What was there before a command.
#[derive(Debug)]
pub(crate) struct TamperCheck {
    watched: Arc<Watched>,
    /// None if that could not be found out.
    before: Option<Before>,
}

impl Watched {
    pub(super) fn new(
        folders: Vec<PathBuf>,
        writable: Vec<PathBuf>,
        deciding: Vec<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            folders,
            writable,
            deciding,
            guarded: OnceLock::new(),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            begun: Mutex::new(Instant::now()),
        })
    }

    /// What is guarded in folders that may be written, but for repositories. Asks the disk the
    /// first time.
    pub(super) fn guarded(&self) -> &[PathBuf] {
        self.guarded
            .get_or_init(|| SandboxPlaces::shipped().unwritable(&self.deciding, &self.writable))
    }

    /// Looks before a command; begins at once.
    pub(super) fn check(self: &Arc<Self>) -> Soon<'static, TamperCheck> {
        let watched = self.clone();
        let look = self.look(move |it| Before::of(&it.folders, it.guarded()));
        Box::pin(async move { TamperCheck { watched, before: look.await } })
    }

    /// Does something in a thread; none if that takes too long.
    fn look<T, F>(self: &Arc<Self>, work: F) -> impl Future<Output = Option<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> T + Send + 'static,
    {
        let begun = match self.looks.clone().try_acquire_owned() {
            Ok(permit) => Ok(self.begin(permit, work)),
            Err(_) => Err((self.clone(), work)),
        };
        let looked = async move {
            let done = match begun {
                Ok(done) => done,
                Err((watched, work)) => {
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
            let found = work(&watched);
            drop(permit);
            found
        })
    }

    fn last_begun(&self) -> Instant {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TamperCheck {
    /// What has come since then.
    pub(crate) async fn warnings(self) -> Vec<String> {
        let Self { watched, before } = self;
        let found = match before {
            Some(before) => watched.look(move |it| warnings(&it.folders, &before)).await,
            None => None,
        };
        found.unwrap_or_else(|| vec![watched.unknown()])
    }
}

impl Watched {
    fn unknown(&self) -> String {
        let folder = self.folders.first().map(|folder| folder.display().to_string());
        let folder = folder.unwrap_or_default();
        format!("{folder}: it could not be read in time; the command may have set what git runs")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc};

    use super::*;

    fn watched(folder: PathBuf) -> Arc<Watched> {
        Watched::new(vec![folder], Vec::new(), Vec::new())
    }

    #[tokio::test]
    async fn another_value_of_a_known_key_is_news() {
        let scratch = tempfile::tempdir().unwrap();
        let config = scratch.path().join("config");
        fs::write(&config, "[core]\npager = less\n").unwrap();
        let watched = watched(scratch.path().to_owned());
        assert_eq!(watched.check().await.warnings().await, [""; 0]);
        let check = watched.check().await;
        fs::write(&config, "[core]\npager = other\n").unwrap();
        assert_eq!(check.warnings().await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_are_stuck_are_not_waited_for_and_at_most_a_few() {
        let watched = watched(PathBuf::from("/nowhere/.git"));
        let (sender, never) = mpsc::channel::<()>();
        let never = Arc::new(Mutex::new(never));
        for _ in 0..10 {
            let never = never.clone();
            let stuck = watched.look(move |_| never.lock().unwrap().recv().is_ok());
            assert_eq!(stuck.await, None);
        }
        assert_eq!(watched.looks.available_permits(), 0);
        let told = watched.check().await.warnings().await;
        assert!(told[0].starts_with("/nowhere/.git: it could not be read in time"), "{told:?}");
        // They answer in the end.
        tokio::time::resume();
        drop(sender);
        while watched.looks.available_permits() < LOOKS_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(watched.check().await.warnings().await, [""; 0]);
    }
}
