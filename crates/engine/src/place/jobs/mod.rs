//! Jobs: tasks that a scheduler starts, each with a post and a warden of its own.
//!
//! The exit record is the truth. The word of the scheduler only explains that there is none; and
//! that a task is over without one is concluded only when the scheduler does not know it or calls
//! it ended, nobody holds the lock of its post, and both were seen twice, seconds apart.

mod containers;
pub(crate) mod driver;
pub(crate) mod folder;
pub(crate) mod order;
mod programs;
mod slurm;
mod srun;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use self::{
    containers::Containers,
    driver::{Driver, JobEnd, JobSeen, JobState, JobWish, NotSubmitted, best},
    folder::{Begun, JobFolder},
    slurm::Slurm,
};
use super::{local::own_program, post::default_folder};
use crate::{
    id::{self, TaskId},
    model::place::{PlaceReach, PlaceSettings},
    output::TaskFolder,
    state::make_private,
    threads::in_thread,
};

/// How far apart the two looks are by which a job is found to be over that has left no record.
const DOUBT: Duration = Duration::from_secs(3);

/// How long what the scheduler has said of all jobs counts for a job that waits.
const LISTED_FOR: Duration = Duration::from_millis(400);

/// The pauses after which the folder of a job is removed again: a post that is about to end may
/// have made a file in it meanwhile.
const FORGET_AGAIN: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// A job, as far as it can be seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobLook {
    /// It waits in the queue, for this reason.
    Queued(Option<String>),
    /// It runs, or is about to.
    Running,
    /// It has begun and is over, or never will begin.
    Over,
    /// It seems to be over, and nobody has said so; seen for the first time.
    Unsure,
}

/// The jobs of a place.
#[derive(Debug)]
pub(crate) struct Jobs {
    driver: Arc<dyn Driver>,
    /// The folder of posts.
    state: PathBuf,
    /// What the scheduler said of all jobs, and when it was asked.
    listed: tokio::sync::Mutex<Option<(Instant, Vec<JobSeen>)>>,
    /// Since when jobs seem to be over, and in which word of the scheduler.
    doubts: Mutex<HashMap<TaskId, (Instant, Option<JobEnd>)>>,
}

impl Jobs {
    /// The jobs of a place that a scheduler is configured for; none of any other.
    pub(crate) fn of(settings: &PlaceSettings, workspace: &Path) -> Option<Arc<Self>> {
        let state = settings.state.clone().or_else(|| default_folder().ok())?;
        let driver: Arc<dyn Driver> = match &settings.reach {
            PlaceReach::Slurm { options } => Arc::new(Slurm::new(options.clone())),
            PlaceReach::Image { image, options } => {
                let workspace = settings.workspace.as_deref().unwrap_or(workspace);
                let folders = vec![state.clone(), workspace.to_owned()];
                Arc::new(Containers::new(image.clone(), options.clone(), folders))
            }
            PlaceReach::Ssh { .. } | PlaceReach::Docker { .. } => return None,
        };
        Some(Arc::new(Self::with(driver, state)))
    }

    /// Those of any driver.
    pub(crate) fn with(driver: Arc<dyn Driver>, state: PathBuf) -> Self {
        let (listed, doubts) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { driver, state, listed, doubts }
    }

    /// The driver.
    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// What tells of jobs that have begun or ended, where the scheduler does.
    pub(crate) fn news(&self) -> Option<watch::Receiver<()>> {
        self.driver.news()
    }

    /// The folder of posts.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// The folder of a job.
    pub(crate) fn folder(&self, id: &TaskId) -> JobFolder {
        JobFolder::new(&self.state, id)
    }

    /// What a task has stored, where its folder is seen here.
    pub(crate) fn stored(&self, id: &TaskId) -> TaskFolder {
        TaskFolder::new(self.folder(id).path().join("tasks").join(id.as_str()))
    }

    /// Whether the end of a task is recorded in a folder that is seen here.
    pub(crate) fn is_recorded(&self, id: &TaskId) -> bool {
        matches!(self.stored(id).exit_record(), Ok(Ok(_)))
    }

    /// Lets a job be started.
    pub(crate) async fn submit(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        let folder = self.folder(&wish.task);
        let made = in_thread(move || folder.make()).await;
        if let Some(Err(error)) = made {
            let text = format!("{}: {error}", self.state.display());
            return Err(NotSubmitted::Refused(text));
        }
        self.driver.submit(wish).await
    }

    /// The words that reach the post of a job that runs; an error if it does not.
    pub(crate) async fn reach(
        &self,
        id: &TaskId,
        program: &[OsString],
    ) -> io::Result<driver::Words> {
        match self.driver.find(id).await? {
            Some(job) if job.state == JobState::Running => {
                Ok(self.driver.reach(Some(&job), program))
            }
            _ => Err(io::Error::new(io::ErrorKind::NotConnected, "its job does not run")),
        }
    }

    /// Looks at a job.
    pub(crate) async fn look(&self, id: &TaskId) -> io::Result<JobLook> {
        self.judge(id, || async { self.driver.find(id).await }).await
    }

    /// The same for one of many: what the scheduler said of all of them a moment ago counts.
    pub(crate) async fn look_along(&self, id: &TaskId) -> io::Result<JobLook> {
        self.judge(id, || self.one_of_all(id)).await
    }

    async fn judge<F>(&self, id: &TaskId, find: impl Fn() -> F) -> io::Result<JobLook>
    where
        F: Future<Output = io::Result<Option<JobSeen>>>,
    {
        let (folder, stored) = (self.folder(id), self.stored(id));
        let here = in_thread(move || {
            let is_over = stored.exit_record().is_ok_and(|record| record.is_ok());
            (is_over || folder.failed().is_some(), folder.begun(), folder.is_held())
        });
        let (is_over, begun, is_held) = here.await.unwrap_or_default();
        let is_off = matches!(begun, Some(Begun::Refused(_) | Begun::Withdrawn));
        if is_over || is_off {
            return Ok(JobLook::Over);
        }
        if is_held {
            lock(&self.doubts).remove(id);
            return Ok(JobLook::Running);
        }
        let end = match find().await? {
            Some(JobSeen { state: JobState::Queued(reason), .. }) => {
                lock(&self.doubts).remove(id);
                return Ok(JobLook::Queued(reason));
            }
            Some(JobSeen { state: JobState::Running, .. }) => {
                lock(&self.doubts).remove(id);
                return Ok(JobLook::Running);
            }
            Some(JobSeen { state: JobState::Ended(end), .. }) => Some(end),
            None => None,
        };
        let mut doubts = lock(&self.doubts);
        let (since, word) = doubts.entry(id.clone()).or_insert((Instant::now(), None));
        *word = end.or(word.take());
        Ok(if since.elapsed() >= DOUBT { JobLook::Over } else { JobLook::Unsure })
    }

    async fn one_of_all(&self, id: &TaskId) -> io::Result<Option<JobSeen>> {
        let mut listed = self.listed.lock().await;
        let known = listed.take().filter(|(at, _)| at.elapsed() < LISTED_FOR);
        let (at, all) = match known {
            Some(known) => known,
            None => (Instant::now(), self.driver.list().await?),
        };
        let found = best(all.iter().filter(|job| job.task == *id).cloned());
        *listed = Some((at, all));
        Ok(found)
    }

    /// Why nothing is known of the end of a task, in the word of the scheduler.
    pub(crate) fn why_lost(&self, id: &TaskId) -> String {
        let doubts = lock(&self.doubts);
        match doubts.get(id) {
            Some((_, Some(end))) => end.reason(),
            _ => "unknown_to_scheduler".into(),
        }
    }

    /// Keeps a job from being begun, and takes it out of the queue; says whether that came in time.
    pub(crate) async fn withdraw(&self, id: &TaskId) -> io::Result<bool> {
        let folder = self.folder(id);
        let claim = move || {
            let claimed = folder.claim(&Begun::Withdrawn)?.is_some();
            Ok(claimed || folder.begun() == Some(Begun::Withdrawn))
        };
        let claimed = in_thread(claim).await;
        let claimed = claimed.unwrap_or_else(|| Err(io::Error::other("it was cut off")))?;
        if claimed {
            self.driver.cancel(id).await?;
        }
        Ok(claimed)
    }

    /// Ends the job of a task, whatever it does.
    pub(crate) async fn cancel(&self, id: &TaskId) -> io::Result<()> {
        self.driver.cancel(id).await
    }

    /// Removes what a job has left where that is seen here.
    pub(crate) fn forget(&self, id: &TaskId) {
        lock(&self.doubts).remove(id);
        let folder = self.folder(id);
        self.driver.forget(id);
        drop(crate::threads::begin_in_thread(move || {
            for pause in FORGET_AGAIN {
                match folder.remove() {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::debug!(%error, "the folder of a job stays for now");
                        std::thread::sleep(pause);
                    }
                    _ => return,
                }
            }
        }));
    }

    /// This program where posts find it: a copy of it, in their folder.
    pub(crate) fn program(&self, hash: &str) -> io::Result<PathBuf> {
        let folder = self.state.join("programs").join(hash);
        let program = folder.join("legwork");
        if program.exists() {
            return Ok(program);
        }
        make_private(&folder)?;
        let new = folder.join(id::random(".new-").map_err(io::Error::other)?);
        io::copy(&mut own_program()?, &mut fs::File::create(&new)?)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o700))?;
        fs::rename(&new, &program)?;
        Ok(program)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
