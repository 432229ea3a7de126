//! The seam to what schedules: five verbs, and no knowledge of tools.
//!
//! A driver starts *our* program somewhere and says what became of that; commands are the business
//! of the post and the warden there. The number that a scheduler gives to a job is a hint and no
//! identity: name and comment carry the task's id, and whoever concludes something looks first.

use std::{ffi::OsString, fmt, io, path::PathBuf, time::Duration};

use tokio::sync::watch;

use crate::{id::TaskId, place::Soon};

/// What is submitted for a task.
#[derive(Debug, Clone)]
pub(crate) struct JobWish {
    pub task: TaskId,
    /// The program there, and the folder of posts.
    pub program: PathBuf,
    pub state: PathBuf,
    /// What the post is told, as text.
    pub order: String,
    /// How long it may take; the post holds that, and the scheduler a little later.
    pub wall: Option<Duration>,
    pub memory_bytes: Option<u64>,
    /// Whether somebody waits for its end.
    pub is_awaited: bool,
}

/// A job as a scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobSeen {
    pub task: TaskId,
    /// The scheduler's own name for it: a hint.
    pub number: String,
    /// The machine that it runs on, if it does.
    pub node: String,
    pub state: JobState,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    /// It waits, for this reason.
    Queued(Option<String>),
    /// It runs, or is about to, or is being ended.
    Running,
    /// It has ended, in the word of the scheduler.
    Ended(JobEnd),
}

/// The word of a scheduler about an end. It explains a missing record, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    OutOfMemory,
    NodeFailed,
    Cancelled,
    TimeLimit,
    Other(String),
}

impl JobEnd {
    /// The reason of an outcome that nobody knows.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::OutOfMemory => "out_of_memory".into(),
            Self::NodeFailed => "node_failed".into(),
            Self::Cancelled => "cancelled_by_scheduler".into(),
            Self::TimeLimit => "scheduler_time_limit".into(),
            Self::Other(word) => format!("scheduler_{}", word.to_ascii_lowercase()),
        }
    }
}

/// Why a job was not submitted.
#[derive(Debug)]
pub(crate) enum NotSubmitted {
    /// The scheduler has refused it.
    Refused(String),
    /// It may have been, or not.
    Unknown(String),
}

/// A program and its arguments, which pass bytes on.
pub(crate) type Words = (OsString, Vec<OsString>);

/// What schedules.
pub(crate) trait Driver: Send + Sync + fmt::Debug {
    /// Lets the post of a task be started, once.
    fn submit(&self, wish: JobWish) -> Soon<'_, Result<(), NotSubmitted>>;

    /// The job of a task, if there is one; of several that one which runs.
    fn find<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<Option<JobSeen>>> {
        Box::pin(async move {
            let all = self.list().await?;
            Ok(best(all.into_iter().filter(|job| job.task == *task)))
        })
    }

    /// Ends the job of a task, or takes it out of the queue. One that is not there is.
    fn cancel<'a>(&'a self, task: &'a TaskId) -> Soon<'a, io::Result<()>>;

    /// What runs a program beside a job, with bytes to its stdin and from its stdout; or, without a
    /// job, where questions are answered before there is one.
    fn reach(&self, job: Option<&JobSeen>, program: &[OsString]) -> Words;

    /// All jobs of ours that the scheduler knows.
    fn list(&self) -> Soon<'_, io::Result<Vec<JobSeen>>>;

    /// Something that changes whenever a job has begun or ended, where the scheduler tells that.
    fn news(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// Hears that nobody will ask for a task again, of which a job may be left.
    fn forget(&self, _task: &TaskId) {}

    /// Names what it lacks; an error where commands cannot be run with it at all.
    fn check(&self) -> Soon<'_, io::Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Of several jobs for one task the one that says most of it: one that runs, one that waits, one
/// that has ended.
pub(crate) fn best(jobs: impl Iterator<Item = JobSeen>) -> Option<JobSeen> {
    jobs.min_by_key(|job| match job.state {
        JobState::Running => 0,
        JobState::Queued(_) => 1,
        JobState::Ended(_) => 2,
    })
}
