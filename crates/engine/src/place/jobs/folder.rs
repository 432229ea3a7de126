//! The folder of a job: what its post says of itself, for whoever can see it.
//!
//! `begin` is made exclusively, whole, before anything is started; whoever finds it starts nothing.
//! Its maker holds a lock on it for as long as it lives. What stays when the folder is removed is a
//! mark, so that a scheduler that starts a job again starts nothing either.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use legwork_warden::protocol::StartFailure;
use serde::{Deserialize, Serialize};

use crate::{
    id::{self, TaskId},
    plain_file,
    state::{aside::remove_all, make_private},
};

/// The folders of jobs, in the folder of posts.
const JOBS: &str = "jobs";
/// The marks of commands that were begun.
const MARKS: &str = "begun";
const BEGIN: &str = "begin";
const FAILED: &str = "failed";
const TAKEN: &str = "taken";
/// Made by the engine: whoever sees it there sees the same folder.
const HEAD: &str = "head";

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Begun {
    /// Its command was started, with this warden.
    Started { host: String, warden: String },
    /// It was not, for this reason.
    Refused(String),
    /// It never will be: it was stopped before.
    Withdrawn,
    /// It never will be: nobody knew of a job, for this reason, and its task was given up.
    Lost(String),
}

/// The folder of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobFolder {
    state: PathBuf,
    task: TaskId,
}

impl JobFolder {
    /// Of a task, in a folder of posts.
    pub(crate) fn new(state: &Path, task: &TaskId) -> Self {
        Self { state: state.to_owned(), task: task.clone() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.state.join(JOBS).join(self.task.as_str())
    }

    fn mark(&self) -> PathBuf {
        self.state.join(MARKS).join(self.task.as_str())
    }

    /// Makes it, on the side of the engine.
    pub(crate) fn make(&self) -> io::Result<()> {
        make_private(&self.path())?;
        private().create(true).truncate(true).open(self.path().join(HEAD)).map(drop)
    }

    /// Whether the engine sees it, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.path().join(HEAD).exists()
    }

    /// Says what came of the job, if nobody has; the lock is held until the file is dropped. None
    /// if somebody has.
    pub(crate) fn claim(&self, begun: &Begun) -> io::Result<Option<File>> {
        let folder = self.path();
        make_private(&folder)?;
        let new = folder.join(id::random(".begin-").map_err(io::Error::other)?);
        let mut file = private().create_new(true).open(&new)?;
        let locked = match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        };
        let written = locked.and_then(|()| {
            serde_json::to_writer(&mut file, begun)?;
            file.flush()?;
            // A link is made whole, or not at all: also on a file system of a network.
            fs::hard_link(&new, folder.join(BEGIN))
        });
        let _ = fs::remove_file(&new);
        match written {
            // One that was removed in the meantime has left its mark before.
            Ok(()) if self.is_forgotten() => {
                let _ = remove_all(&folder);
                Ok(None)
            }
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps the job from being begun, since nobody knows of it; says whether that came in time.
    pub(crate) fn give_up(&self, reason: String) -> io::Result<bool> {
        let problem = match self.claim(&Begun::Lost(reason)) {
            Ok(claimed) => return Ok(claimed.is_some() || self.is_forgotten()),
            Err(problem) => problem,
        };
        // Where no room is left for a word there may be some for a mark, which is empty.
        let begin = self.path().join(BEGIN);
        if begin.exists() || self.leave_mark().is_err() {
            return Err(problem);
        }
        if begin.exists() {
            fs::remove_file(self.mark())?;
            return Err(problem);
        }
        Ok(true)
    }

    /// What came of the job, if anything did and it is seen here.
    pub(crate) fn begun(&self) -> Option<Begun> {
        begun_in(&self.path())
    }

    /// Whether whoever has begun it is still there.
    pub(crate) fn is_held(&self) -> bool {
        let opened = OpenOptions::new().read(true).open(self.path().join(BEGIN));
        opened.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Notes that its command could not be started.
    pub(crate) fn fail(&self, failure: &StartFailure) -> io::Result<()> {
        let text = serde_json::to_vec(failure)?;
        let new = self.path().join(format!("{FAILED}.new"));
        private().create(true).truncate(true).open(&new)?.write_all(&text)?;
        fs::rename(&new, self.path().join(FAILED))
    }

    /// Why its command could not be started.
    pub(crate) fn failed(&self) -> Option<StartFailure> {
        failed_in(&self.path())
    }

    /// Whether an engine that does not see it has heard what it says.
    pub(crate) fn is_taken(&self) -> bool {
        self.path().join(TAKEN).exists()
    }

    /// Whether its task is over, and nothing of it is wanted any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.mark().exists()
    }

    /// Removes what is left of one that is forgotten: whoever forgot it may not have waited for its
    /// post.
    pub(crate) fn clear_forgotten(&self) {
        if self.is_forgotten() {
            let _ = remove_all(&self.path());
        }
    }

    /// Removes what other jobs have left on this machine. Nobody will ask for it: it is not seen by
    /// an engine, and their posts are gone, through which it could be read.
    pub(crate) fn clear_left(&self) {
        let entries = fs::read_dir(self.state.join(JOBS)).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let task = entry.file_name().to_str().and_then(TaskId::parse);
            let Some(task) = task.filter(|task| *task != self.task) else { continue };
            let other = Self::new(&self.state, &task);
            // The lock is there before the file is, so nobody is between the two.
            if !other.is_shared() && other.begun().is_some() && !other.is_held() {
                let _ = other.remove();
            }
        }
    }

    /// Removes it; a mark stays.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.leave_mark()?;
        remove_all(&self.path())
    }

    fn leave_mark(&self) -> io::Result<()> {
        make_private(&self.state.join(MARKS))?;
        private().create(true).truncate(true).open(self.mark()).map(drop)
    }
}

/// Whether this is the folder of a job that was removed: it is not made again.
pub(crate) fn is_forgotten(folder: &Path) -> bool {
    let of_job = || {
        let (task, jobs) = (folder.file_name()?, folder.parent()?);
        let state = jobs.parent().filter(|_| jobs.ends_with(JOBS))?;
        Some(state.join(MARKS).join(task).exists())
    };
    of_job().unwrap_or(false)
}

/// What came of the job whose folder this is.
pub(crate) fn begun_in(folder: &Path) -> Option<Begun> {
    let text = plain_file::read_text(&folder.join(BEGIN)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Why the command could not be started of the job whose folder this is.
pub(crate) fn failed_in(folder: &Path) -> Option<StartFailure> {
    let text = plain_file::read_text(&folder.join(FAILED)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Notes that an engine has heard what the job says whose folder this is.
pub(crate) fn mark_taken(folder: &Path) -> io::Result<()> {
    private().create(true).truncate(true).open(folder.join(TAKEN)).map(drop)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_begun_once_and_never_after_it_was_forgotten() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = JobFolder::new(scratch.path(), &TaskId::random().unwrap());
        assert!(!folder.is_shared() && !folder.is_held() && folder.begun().is_none());
        folder.make().unwrap();
        assert!(folder.is_shared());
        let started = Begun::Started { host: "n1".into(), warden: "m-w".into() };
        let held = folder.claim(&started).unwrap().unwrap();
        assert!(folder.claim(&Begun::Withdrawn).unwrap().is_none());
        assert_eq!(folder.begun(), Some(started.clone()));
        assert!(folder.is_held());
        drop(held);
        assert!(!folder.is_held());
        folder.remove().unwrap();
        assert!(!folder.path().exists());
        assert!(folder.claim(&started).unwrap().is_none(), "a scheduler starts it again");
        assert!(!folder.path().exists() && is_forgotten(&folder.path()));
        assert!(!is_forgotten(scratch.path()));
    }

    #[test]
    fn a_job_removes_what_dead_ones_have_left_on_its_machine_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = || JobFolder::new(scratch.path(), &TaskId::random().unwrap());
        let started = Begun::Started { host: "n1".into(), warden: "m-w".into() };
        let [own, dead, alive, seen] = [folder(), folder(), folder(), folder()];
        seen.make().unwrap();
        for left in [&own, &dead, &seen] {
            drop(left.claim(&started).unwrap().unwrap());
        }
        let _held = alive.claim(&started).unwrap().unwrap();
        own.clear_left();
        assert!(own.path().exists() && alive.path().exists() && seen.path().exists());
        assert!(!dead.path().exists());
        assert!(dead.claim(&started).unwrap().is_none(), "it begins once all the same");
    }
}
