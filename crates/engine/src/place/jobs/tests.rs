//! Jobs against a scripted scheduler: one that forgets ids, hands them out again, runs a job twice,
//! answers late and lies about the end. Nothing is begun twice, and no end is invented.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    JobLook, Jobs,
    driver::{Driver, JobEnd, JobSeen, JobState, JobWish, NotSubmitted, Words},
    folder::{Begun, JobFolder},
};
use crate::{id::TaskId, place::Soon};

/// What a scheduler says when it is asked.
#[derive(Debug, Clone)]
enum Answer {
    Nothing,
    Error,
    Job(JobState),
    /// The job of another task, under the number that ours had.
    Another(TaskId),
}

/// A scheduler that says what it was told to say; the last answer counts from then on.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    late: Duration,
    asked: AtomicUsize,
    cancelled: AtomicUsize,
    /// Whether each submission is refused, whatever came of it.
    refuses: bool,
    /// How often each submission is run.
    runs: usize,
    begun: Arc<AtomicUsize>,
}

impl Script {
    fn of(answers: &[Answer]) -> Self {
        Self { answers: Mutex::new(answers.iter().cloned().collect()), ..Self::default() }
    }

    fn next(&self, task: &TaskId) -> io::Result<Vec<JobSeen>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        let job = |task: &TaskId, state| JobSeen {
            task: task.clone(),
            number: "7".into(),
            node: "n1".into(),
            state,
        };
        match answer.unwrap_or(Answer::Nothing) {
            Answer::Nothing => Ok(Vec::new()),
            Answer::Error => Err(io::Error::other("no controller")),
            Answer::Job(state) => Ok(vec![job(task, state)]),
            Answer::Another(other) => Ok(vec![job(&other, JobState::Running)]),
        }
    }
}

impl Driver for Script {
    fn submit(&self, wish: JobWish) -> Soon<'_, Result<(), NotSubmitted>> {
        Box::pin(async move {
            // As posts do that a scheduler starts, however often.
            for _ in 0..self.runs {
                let folder = JobFolder::new(&wish.state, &wish.task);
                let begun = Begun::Started { host: "n1".into(), warden: "w".into() };
                if folder.claim(&begun).unwrap().is_some() {
                    self.begun.fetch_add(1, Ordering::Relaxed);
                }
            }
            tokio::time::sleep(self.late).await;
            if self.refuses { Err(NotSubmitted::Refused("no".into())) } else { Ok(()) }
        })
    }

    fn find<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<Option<JobSeen>>> {
        Box::pin(async move {
            tokio::time::sleep(self.late).await;
            Ok(super::best(self.next(task)?.into_iter().filter(|job| job.task == *task)))
        })
    }

    fn cancel<'a>(&'a self, _task: &'a TaskId) -> Soon<'a, io::Result<()>> {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn reach(&self, _job: Option<&JobSeen>, _program: &[OsString]) -> Words {
        (OsString::new(), Vec::new())
    }

    fn list(&self) -> Soon<'_, io::Result<Vec<JobSeen>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn wish(task: &TaskId, state: &Path) -> JobWish {
    JobWish {
        task: task.clone(),
        program: "/p".into(),
        state: state.to_owned(),
        order: String::new(),
        wall: None,
        memory_bytes: None,
        is_awaited: false,
    }
}

/// Jobs of a script, a folder for them, and a task.
fn jobs(script: Script) -> (Jobs, tempfile::TempDir, TaskId) {
    let scratch = tempfile::tempdir().unwrap();
    let jobs = Jobs::with(Arc::new(script), scratch.path().to_owned());
    let id = TaskId::random().unwrap();
    jobs.folder(&id).make().unwrap();
    (jobs, scratch, id)
}

/// What is concluded from one look after the other, a second apart.
async fn looks(jobs: &Jobs, id: &TaskId, count: usize) -> Vec<Option<JobLook>> {
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(jobs.look(id).await.ok());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_forgets_a_job_is_believed_when_it_says_so_twice() {
    use JobLook::{Over, Running, Unsure};
    crate::threads::INLINE.set(true);
    let running = Answer::Job(JobState::Running);
    let (jobs, _scratch, id) = jobs(Script::of(&[running, Answer::Nothing]));
    let expected = [Running, Unsure, Unsure, Unsure, Over].map(Some);
    assert_eq!(looks(&jobs, &id, 5).await, expected);
    assert_eq!(jobs.why_lost(&id), "unknown_to_scheduler");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_given_up_begins_nothing_when_it_comes_after_all() {
    crate::threads::INLINE.set(true);
    let begun: Arc<AtomicUsize> = Arc::default();
    let script = Script { runs: 1, begun: begun.clone(), ..Script::default() };
    let (jobs, scratch, id) = jobs(script);
    assert_eq!(looks(&jobs, &id, 4).await.last().unwrap(), &Some(JobLook::Over));
    jobs.driver().submit(wish(&id, scratch.path())).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    // Another engine hears the same.
    let other = Jobs::with(Arc::new(Script::of(&[Answer::Error])), scratch.path().to_owned());
    assert_eq!(other.look(&id).await.unwrap(), JobLook::Over);
    assert_eq!(other.why_lost(&id), "unknown_to_scheduler");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_begins_while_it_is_given_up_is_not() {
    crate::threads::INLINE.set(true);
    let (jobs, _scratch, id) = jobs(Script::of(&[Answer::Nothing]));
    assert_eq!(looks(&jobs, &id, 3).await, vec![Some(JobLook::Unsure); 3]);
    let begun = Begun::Started { host: "n1".into(), warden: "w".into() };
    let _held = jobs.folder(&id).claim(&begun).unwrap().unwrap();
    assert_eq!(jobs.give_up(&id).await.unwrap(), JobLook::Unsure);
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Running);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_is_away_for_a_while_takes_no_record_along() {
    crate::threads::INLINE.set(true);
    let ended = Answer::Job(JobState::Ended(JobEnd::Other("COMPLETED".into())));
    let (jobs, scratch, id) = jobs(Script::of(&[ended]));
    let (folder, away) = (scratch.path().join("jobs"), scratch.path().join("away"));
    std::fs::rename(&folder, &away).unwrap();
    let seen = looks(&jobs, &id, 15).await;
    assert!(seen.iter().all(|look| *look == Some(JobLook::Unsure)), "{seen:?}");
    std::fs::rename(&away, &folder).unwrap();
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Over);
    // One that never comes back is not waited for without end.
    std::fs::remove_dir_all(&folder).unwrap();
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Over);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_comes_back_takes_the_doubt_away() {
    crate::threads::INLINE.set(true);
    let queued = Answer::Job(JobState::Queued(Some("Resources".into())));
    let script = [Answer::Nothing, Answer::Nothing, queued, Answer::Nothing];
    let (jobs, _scratch, id) = jobs(Script::of(&script));
    let seen = looks(&jobs, &id, 6).await;
    let waits = JobLook::Queued(Some("Resources".into()));
    let expected = [
        JobLook::Unsure,
        JobLook::Unsure,
        waits,
        JobLook::Unsure,
        JobLook::Unsure,
        JobLook::Unsure,
    ];
    assert_eq!(seen, expected.map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_does_not_answer_says_nothing_about_a_job() {
    crate::threads::INLINE.set(true);
    let (jobs, _scratch, id) = jobs(Script::of(&[Answer::Error]));
    assert_eq!(looks(&jobs, &id, 10).await, vec![None; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_number_that_was_handed_out_again_is_not_taken_for_the_job() {
    crate::threads::INLINE.set(true);
    let other = Answer::Another(TaskId::random().unwrap());
    let (jobs, _scratch, id) = jobs(Script::of(&[Answer::Job(JobState::Running), other]));
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Running);
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Unsure);
    let reached = jobs.reach(&id, &[]).await;
    assert_eq!(reached.unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn a_lie_about_the_end_counts_for_nothing_while_the_post_holds_its_lock() {
    crate::threads::INLINE.set(true);
    let ended = Answer::Job(JobState::Ended(JobEnd::NodeFailed));
    let (jobs, _scratch, id) = jobs(Script::of(&[ended]));
    let begun = Begun::Started { host: "n1".into(), warden: "w".into() };
    let held = jobs.folder(&id).claim(&begun).unwrap().unwrap();
    assert_eq!(looks(&jobs, &id, 10).await, vec![Some(JobLook::Running); 10]);
    drop(held);
    let seen = looks(&jobs, &id, 5).await;
    assert_eq!((&seen[0], &seen[4]), (&Some(JobLook::Unsure), &Some(JobLook::Over)));
    assert_eq!(jobs.why_lost(&id), "node_failed");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_run_twice_is_begun_once() {
    crate::threads::INLINE.set(true);
    let begun: Arc<AtomicUsize> = Arc::default();
    let script = Script { runs: 3, begun: begun.clone(), ..Script::default() };
    let (jobs, scratch, id) = jobs(script);
    jobs.submit(wish(&id, scratch.path())).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    // Nor after everything of it was taken and forgotten.
    jobs.folder(&id).remove().unwrap();
    jobs.driver().submit(wish(&id, scratch.path())).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_refused_begins_nothing_and_one_that_has_begun_was_not_refused() {
    crate::threads::INLINE.set(true);
    let (jobs, scratch, id) = jobs(Script { refuses: true, ..Script::default() });
    let refused = jobs.submit(wish(&id, scratch.path())).await;
    assert!(matches!(refused, Err(NotSubmitted::Refused(_))), "{refused:?}");
    let started = Begun::Started { host: "n1".into(), warden: "w".into() };
    assert!(jobs.folder(&id).claim(&started).unwrap().is_none(), "it comes all the same");
    let begun: Arc<AtomicUsize> = Arc::default();
    let script = Script { refuses: true, runs: 1, begun: begun.clone(), ..Script::default() };
    let jobs = Jobs::with(Arc::new(script), scratch.path().to_owned());
    jobs.submit(wish(&TaskId::random().unwrap(), scratch.path())).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_withdrawn_never_begins_however_late_the_scheduler_is() {
    crate::threads::INLINE.set(true);
    let begun: Arc<AtomicUsize> = Arc::default();
    let late = Duration::from_secs(90);
    let script = Script { runs: 1, late, begun: begun.clone(), ..Script::default() };
    let (jobs, scratch, id) = jobs(script);
    jobs.folder(&id).make().unwrap();
    assert!(jobs.withdraw(&id).await.unwrap());
    jobs.submit(wish(&id, scratch.path())).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    assert_eq!(jobs.look(&id).await.unwrap(), JobLook::Over);
    assert!(jobs.withdraw(&id).await.unwrap(), "once more changes nothing");
    // And one that has begun is not withdrawn.
    let other = TaskId::random().unwrap();
    jobs.submit(wish(&other, scratch.path())).await.unwrap();
    assert!(!jobs.withdraw(&other).await.unwrap());
}
