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

use legwork_warden::protocol::StartFailure;
use tokio::{
    sync::{
        Semaphore, SemaphorePermit,
        oneshot::{self, error::TryRecvError},
        watch,
    },
    time::{Instant, timeout},
};

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
    threads::{begin_in_thread, in_thread},
};

/// How far apart the two looks are by which a job is found to be over that has left no record.
const DOUBT: Duration = Duration::from_secs(3);

/// The same for a job whose folder is not seen where it was made: it may come back, with a record.
const AWAY: Duration = Duration::from_secs(20);

/// How long it is waited at the end of an engine for what it forgets.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long what the scheduler has said of all jobs counts for a job that waits.
const LISTED_FOR: Duration = Duration::from_millis(400);

/// The same, in times that it took to ask.
const LISTED_FACTOR: u32 = 5;

/// How many jobs that nobody waits for are submitted at a time: each takes a process and its whole
/// order here, and a scheduler that is asked by too many answers none in time.
const SUBMITTING_MAX: usize = 16;

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
    /// Room for submissions.
    submitting: Semaphore,
    /// What the scheduler said of all jobs.
    listed: tokio::sync::Mutex<Option<JobList>>,
    /// Since when jobs seem to be over, and in which word of the scheduler.
    doubts: Mutex<HashMap<TaskId, (Instant, Option<JobEnd>)>>,
    /// What says that a job was forgotten, as far as that is possible while its post ends.
    forgetting: Mutex<Vec<oneshot::Receiver<()>>>,
}

/// What a scheduler has said of all jobs, or that it does not answer; and until when that counts.
#[derive(Debug)]
struct JobList {
    until: Instant,
    jobs: Result<HashMap<TaskId, JobSeen>, String>,
}

impl JobList {
    async fn of(driver: &dyn Driver) -> Self {
        let begin = Instant::now();
        let jobs = driver.list().await.map(by_task).map_err(|error| error.to_string());
        // It may be asked again: a long queue must not keep it from its work.
        let until = Instant::now() + LISTED_FOR.max(begin.elapsed() * LISTED_FACTOR);
        Self { until, jobs }
    }
}

/// The job of each task; of several the one that says most of it.
fn by_task(all: Vec<JobSeen>) -> HashMap<TaskId, JobSeen> {
    let mut jobs: HashMap<TaskId, JobSeen> = HashMap::with_capacity(all.len());
    for job in all {
        let known = jobs.remove(&job.task);
        jobs.extend(best(known.into_iter().chain([job])).map(|job| (job.task.clone(), job)));
    }
    jobs
}

/// What is seen of a job in its folder.
#[derive(Debug, Default)]
struct SeenFolder {
    is_there: bool,
    is_over: bool,
    begun: Option<Begun>,
    is_held: bool,
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
        let submitting = Semaphore::new(SUBMITTING_MAX);
        Self { driver, state, submitting, listed, doubts, forgetting: Mutex::default() }
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
    pub(crate) async fn is_recorded(&self, id: &TaskId) -> bool {
        let stored = self.stored(id);
        in_thread(move || matches!(stored.exit_record(), Ok(Ok(_)))).await.unwrap_or(false)
    }

    /// What a job says of itself in a folder that is seen here: what came of it, and why its
    /// command could not be started. A folder on a network can be slow to answer.
    pub(crate) async fn said(&self, id: &TaskId) -> (Option<Begun>, Option<StartFailure>) {
        let folder = self.folder(id);
        in_thread(move || (folder.begun(), folder.failed())).await.unwrap_or_default()
    }

    /// Whether a folder that is seen here says that a job has begun, and its post is there.
    pub(crate) async fn has_begun(&self, id: &TaskId) -> bool {
        let folder = self.folder(id);
        in_thread(move || folder.is_held()).await.unwrap_or(false)
    }

    /// Waits for room to submit a job that nobody waits for.
    pub(crate) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.submitting.acquire().await.ok()
    }

    /// Lets a job be started.
    pub(crate) async fn submit(&self, wish: JobWish) -> Result<(), NotSubmitted> {
        let folder = self.folder(&wish.task);
        let made = in_thread(move || folder.make()).await;
        if let Some(Err(error)) = made {
            let text = format!("{}: {error}", self.state.display());
            return Err(NotSubmitted::Refused(text));
        }
        let task = wish.task.clone();
        match self.driver.submit(wish).await {
            Err(NotSubmitted::Refused(said)) => self.refused(&task, said).await,
            submitted => submitted,
        }
    }

    /// What a refusal means: a scheduler that is killed can have taken a job all the same, which
    /// begins nothing from here on, or has begun.
    async fn refused(&self, id: &TaskId, said: String) -> Result<(), NotSubmitted> {
        let (folder, refused) = (self.folder(id), Begun::Refused(said.clone()));
        let claimed = in_thread(move || folder.claim(&refused)).await;
        if matches!(claimed, Some(Ok(None))) { Ok(()) } else { Err(NotSubmitted::Refused(said)) }
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
        // Of one in the queue there is nothing to see in its folder.
        if let Some(reason) = self.queued_along(id).await {
            lock(&self.doubts).remove(id);
            return Ok(JobLook::Queued(reason));
        }
        self.judge(id, || self.one_of_all(id)).await
    }

    /// Why a job waits, where the scheduler has said so of all jobs a moment ago.
    async fn queued_along(&self, id: &TaskId) -> Option<Option<String>> {
        let listed = self.listed.lock().await;
        let list = listed.as_ref().filter(|list| Instant::now() < list.until)?;
        match &list.jobs.as_ref().ok()?.get(id)?.state {
            JobState::Queued(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    async fn judge<F>(&self, id: &TaskId, find: impl Fn() -> F) -> io::Result<JobLook>
    where
        F: Future<Output = io::Result<Option<JobSeen>>>,
    {
        let (folder, stored) = (self.folder(id), self.stored(id));
        let here = in_thread(move || {
            let is_recorded = stored.exit_record().is_ok_and(|record| record.is_ok());
            SeenFolder {
                is_there: folder.is_shared(),
                is_over: is_recorded || folder.failed().is_some(),
                begun: folder.begun(),
                is_held: folder.is_held(),
            }
        });
        let here = here.await.unwrap_or_default();
        let is_off =
            matches!(here.begun, Some(Begun::Refused(_) | Begun::Withdrawn | Begun::Lost(_)));
        if here.is_over || is_off {
            return Ok(JobLook::Over);
        }
        if here.is_held {
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
        let doubt = if here.is_there { DOUBT } else { AWAY };
        if self.doubted_for(id, end) < doubt {
            return Ok(JobLook::Unsure);
        }
        // What was said of all jobs may be older than this one.
        let again = self.driver.find(id).await?;
        if again.is_some_and(|job| !matches!(job.state, JobState::Ended(_))) {
            lock(&self.doubts).remove(id);
            return Ok(JobLook::Unsure);
        }
        match here.begun {
            Some(_) => Ok(JobLook::Over),
            None => self.give_up(id).await,
        }
    }

    /// For how long a job has seemed to be over, in this word of the scheduler.
    fn doubted_for(&self, id: &TaskId, end: Option<JobEnd>) -> Duration {
        let mut doubts = lock(&self.doubts);
        let (since, word) = doubts.entry(id.clone()).or_insert((Instant::now(), None));
        *word = end.or(word.take());
        since.elapsed()
    }

    /// Gives up a job that nobody knows and that has not begun: should it come to a node after all,
    /// it begins nothing there.
    async fn give_up(&self, id: &TaskId) -> io::Result<JobLook> {
        let (folder, reason) = (self.folder(id), self.why_lost(id));
        let is_over = in_thread(move || folder.give_up(reason)).await;
        // Where it has begun meanwhile, the next look sees it.
        let is_over = is_over.unwrap_or_else(|| Err(io::Error::other("it was cut off")))?;
        Ok(if is_over { JobLook::Over } else { JobLook::Unsure })
    }

    async fn one_of_all(&self, id: &TaskId) -> io::Result<Option<JobSeen>> {
        let mut listed = self.listed.lock().await;
        let known = listed.take().filter(|list| Instant::now() < list.until);
        let list = match known {
            Some(known) => known,
            None => JobList::of(&*self.driver).await,
        };
        let found = match &list.jobs {
            Ok(jobs) => Ok(jobs.get(id).cloned()),
            Err(said) => Err(io::Error::other(said.clone())),
        };
        *listed = Some(list);
        found
    }

    /// Why nothing is known of the end of a task, in the word of the scheduler.
    pub(crate) fn why_lost(&self, id: &TaskId) -> String {
        if let Some((_, Some(end))) = lock(&self.doubts).get(id) {
            return end.reason();
        }
        match self.folder(id).begun() {
            // Another engine has heard that word.
            Some(Begun::Lost(reason)) => reason,
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
        let (tried, forgotten) = oneshot::channel();
        let mut forgetting = lock(&self.forgetting);
        forgetting.retain_mut(|earlier| earlier.try_recv() == Err(TryRecvError::Empty));
        forgetting.push(forgotten);
        drop(forgetting);
        drop(begin_in_thread(move || {
            let mut tried = Some(tried);
            for pause in FORGET_AGAIN {
                let removed = folder.remove();
                drop(tried.take());
                match removed {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::debug!(%error, "the folder of a job stays for now");
                        std::thread::sleep(pause);
                    }
                    _ => return,
                }
            }
        }));
    }

    /// Waits until all that was forgotten is marked as such: a post that finds its mark removes
    /// what is left.
    pub(crate) async fn forgotten(&self) {
        let all = std::mem::take(&mut *lock(&self.forgetting));
        let marked = async {
            for forgotten in all {
                let _ = forgotten.await;
            }
        };
        let _ = timeout(FAREWELL, marked).await;
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
