//! The way to a place: a transport, or a scheduler; and what a scheduler is given.

use std::{io, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use super::{
    Far,
    message::{JobSaid, PostQuestion},
    mirror::{self, Source},
    read_given,
    transport::Transport,
};
use crate::{
    id::TaskId,
    model::place::PlaceSettings,
    place::{
        NewJob,
        jobs::{
            Jobs,
            driver::{JobWish, NotSubmitted},
            folder::Begun,
            order::JobOrder,
        },
    },
    threads::in_thread,
};

/// The way to a place.
#[derive(Debug)]
pub(in crate::place) enum PostWay {
    /// A connection to the machine that commands run on.
    Direct(Transport),
    /// Where questions are answered before a scheduler has found a machine.
    Head(Arc<Jobs>),
    /// The job of one task.
    Job(Arc<Jobs>, TaskId),
}

impl PostWay {
    /// The way to a place as it is configured.
    pub(super) fn to(settings: &PlaceSettings, workspace: &Path, state: &Path) -> Self {
        match Jobs::of(settings, workspace) {
            Some(jobs) => Self::Head(jobs),
            None => Self::Direct(Transport::new(settings.clone(), state)),
        }
    }
}

impl Far {
    /// Gives a command to the scheduler.
    pub(super) async fn submit_there(&self, job: NewJob) -> Result<(), NotSubmitted> {
        let refused = |error: io::Error| NotSubmitted::Refused(error.to_string());
        let PostWay::Head(jobs) = &self.way else {
            return Err(refused(io::ErrorKind::Unsupported.into()));
        };
        let _room = if job.is_awaited { None } else { jobs.room().await };
        let link = self.link().await.map_err(refused)?;
        let given = match job.given {
            Some(given) => Some(read(given).await.map_err(refused)?),
            None => None,
        };
        let environment = link.hello.environment.clone().into_iter().collect();
        let opening = self.opening().map_err(refused)?;
        let (wall_ms, memory_bytes) = (job.spec.wall_ms_max, job.spec.limits.memory_bytes_max);
        let order = JobOrder {
            opening,
            wanted: job.wanted.into(),
            spec: job.spec,
            workdir: job.workdir,
            given,
            environment,
            missing: job.missing,
            real_program: job.real_program,
        };
        let wish = JobWish {
            task: job.id,
            program: self.program(jobs).await.map_err(refused)?,
            state: jobs.state().to_owned(),
            order: order.to_line().map_err(refused)?,
            wall: wall_ms.map(Duration::from_millis),
            memory_bytes,
            is_awaited: job.is_awaited,
        };
        jobs.submit(wish).await
    }
}

impl Far {
    /// Forgets a job that is over and has left no record here: first what it has printed is brought
    /// here, where its folder is seen. While a post holds the folder, or it cannot be read, it
    /// stays.
    pub(super) fn forget_lost(&self, jobs: Arc<Jobs>, id: TaskId) {
        let (folder, source) = (jobs.folder(&id), Source::Folder(jobs.stored(&id)));
        let tasks = self.state.path().join("tasks");
        tokio::spawn(async move {
            let is_held = in_thread(move || folder.is_held()).await;
            if is_held == Some(false) && mirror::bring(source, &tasks, &id).await.is_ok() {
                jobs.forget(&id);
            }
        });
    }

    /// Asks a job what it says of itself, and writes that where one would see it that shares its
    /// folder.
    pub(super) async fn hear_there(&self, id: &TaskId) -> io::Result<()> {
        let PostWay::Job(jobs, _) = &self.way else { return Ok(()) };
        let said: JobSaid = self.link().await?.ask(PostQuestion::Job).await?;
        let folder = jobs.folder(id);
        if let Some(failure) = &said.failed {
            folder.fail(failure)?;
        }
        if let Some(begun @ Begun::Refused(_)) = &said.begun {
            folder.claim(begun)?;
        }
        self.bring_here(id).await
    }
}

async fn read(given: Arc<OwnedFd>) -> io::Result<Vec<u8>> {
    let read = in_thread(move || read_given(&given)).await;
    read.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
}
