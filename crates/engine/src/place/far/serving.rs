//! A place that is not this machine, as everybody else sees it: what it is asked goes to its post.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use legwork_warden::{
    protocol::Spec,
    record::{ExitRecord, RecordError},
};
use tokio::sync::watch;

use super::{AGAIN, Far, PostWay, lock, message::PostQuestion, own_name};
use crate::{
    id::TaskId,
    model::sandbox::Wanted,
    output::TaskOutput,
    place::{
        Channel, Folder, Inheritance, Look, NewJob, NoProgram, Place, PlaceError, Ready, Sandbox,
        Soon, Survey, Surveyed, TamperCheck, Warden,
        jobs::{JobLook, Jobs, driver::NotSubmitted},
    },
};

impl Look for Far {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.latest()?.hello.environment.get(name).map(OsString::from)
    }

    // A plan looks through a survey, which asks; here nothing is known.
    fn find_program(&self, _name: &OsStr, _workdir: &Path) -> Result<PathBuf, NoProgram> {
        Err(NoProgram::NotFound)
    }

    fn real_program(&self, _program: &Path) -> Option<PathBuf> {
        None
    }

    fn can_be_planted(&self, _file: &Path) -> bool {
        true
    }

    fn open_folder(&self, _path: &Path) -> io::Result<Folder> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_still_there(&self, _folder: &Folder) -> bool {
        false
    }

    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

impl Place for Far {
    fn jobs(&self) -> Option<&Arc<Jobs>> {
        match &self.way {
            PostWay::Head(jobs) => Some(jobs),
            PostWay::Job(..) | PostWay::Direct(_) => None,
        }
    }

    fn warden_of_job(&self, id: &TaskId) -> io::Result<String> {
        Ok(self.warden_name(&format!("{}-{id}", self.here.mark()?)))
    }

    fn hear_of_job<'a>(&'a self, id: &'a TaskId) -> Soon<'a, io::Result<()>> {
        Box::pin(self.hear_there(id))
    }

    fn submit(&self, job: NewJob) -> Soon<'_, Result<(), NotSubmitted>> {
        Box::pin(self.submit_there(job))
    }

    fn why_lost(&self, id: &TaskId) -> Option<String> {
        Far::jobs(self).map(|jobs| jobs.why_lost(id))
    }

    fn name(&self) -> Option<&str> {
        Some(&self.settings.name)
    }

    fn boot_id(&self) -> Cow<'_, str> {
        // A job has a machine only once it runs, and its end is told by others.
        if Far::jobs(self).is_some() {
            return Cow::Borrowed("");
        }
        let latest = self.latest();
        Cow::Owned(latest.map(|link| link.hello.boot_id.clone()).unwrap_or_default())
    }

    fn refusal_to_execute(&self, _program: &Path, errno: i32) -> String {
        io::Error::from_raw_os_error(errno).to_string()
    }

    fn appears<'a>(&'a self, path: &'a Path) -> Soon<'a, ()> {
        Box::pin(async move {
            loop {
                let Ok(link) = self.link().await else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let question = PostQuestion::Appears(path.to_owned());
                if link.ask_within::<()>(question, None).await.is_ok() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        })
    }

    fn is_there<'a>(&'a self, path: &'a Path) -> Soon<'a, bool> {
        Box::pin(async move {
            let Ok(link) = self.link().await else { return false };
            link.ask(PostQuestion::Exists(path.to_owned())).await.unwrap_or(false)
        })
    }

    fn survey<'a>(&'a self, survey: Survey<'a>) -> Option<Soon<'a, io::Result<Surveyed>>> {
        Some(Box::pin(self.survey_there(survey)))
    }

    fn warm_up(&self, _usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.standing.lock().await.link = None;
            *lock(&self.latest) = None;
            lock(&self.of_tasks).clear();
        })
    }

    fn ready(&self, wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        Box::pin(async move { Ok(self.take_warden(wanted).await?) })
    }

    fn start<'a>(
        &'a self,
        warden: &'a str,
        spec: Spec,
        workdir: &'a Folder,
        given: Option<&'a OwnedFd>,
    ) -> Soon<'a, io::Result<()>> {
        let given = given.map(|given| given.as_fd().try_clone_to_owned());
        Box::pin(async move {
            let given = given.transpose()?.map(Arc::new);
            self.start_there(warden, spec, workdir.path.clone(), given).await
        })
    }

    fn give_back(&self, warden: Warden) {
        if let Some((_, is_reusable)) = lock(&self.wardens).remove(&warden.name) {
            is_reusable.store(true, Ordering::Relaxed);
        }
        drop(warden);
    }

    fn let_go(&self, warden: &str) {
        lock(&self.wardens).remove(warden);
    }

    fn known_sandbox(&self, wanted: Wanted) -> Option<Arc<Sandbox>> {
        lock(&self.known).get(&wanted).cloned()
    }

    fn refused_writes(&self, wanted: Wanted, paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        Box::pin(async move {
            let Ok(link) = self.link().await else { return Vec::new() };
            let question = PostQuestion::RefusedWrites { wanted: wanted.into(), paths };
            link.ask(question).await.unwrap_or_default()
        })
    }

    fn as_seen(&self, wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async move {
            let link = self.link().await.ok()?;
            let question = PostQuestion::AsSeen { wanted: wanted.into(), path };
            link.ask(question).await.ok().flatten()
        })
    }

    fn tamper_check(&self, wanted: Wanted, warden: &str) -> Option<Soon<'static, TamperCheck>> {
        if Far::jobs(self).is_some() {
            // The files of the workspace are seen here, too, unless it is another folder there.
            let is_same = self.settings.workspace.is_none();
            return is_same.then(|| self.here.tamper_check(wanted, warden)).flatten();
        }
        let (stream, link) = (self.stream_of(warden)?, self.latest()?);
        let warnings = async move {
            let asked = link.ask(PostQuestion::Warnings { stream }).await;
            asked.unwrap_or_else(|error| {
                vec![format!("the command may have set what git runs: {error}")]
            })
        };
        Some(Box::pin(async move { TamperCheck::Far(Box::pin(warnings)) }))
    }

    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        Box::pin(self.dial_there(warden))
    }

    fn is_alive(&self, _warden: &str) -> io::Result<bool> {
        Err(io::Error::other("it has to be asked"))
    }

    fn is_alive_there<'a>(&'a self, warden: &'a str) -> Option<Soon<'a, io::Result<bool>>> {
        if let PostWay::Job(jobs, id) = &self.way {
            return Some(Box::pin(async move {
                match jobs.look(id).await? {
                    JobLook::Queued(_) | JobLook::Running => Ok(true),
                    JobLook::Over => Ok(false),
                    JobLook::Unsure => Err(io::Error::other("its end is not certain yet")),
                }
            }));
        }
        Some(Box::pin(async move {
            let link = self.link().await?;
            link.ask(PostQuestion::IsAlive(own_name(warden))).await
        }))
    }

    fn is_connected(&self) -> bool {
        self.latest().is_some_and(|link| link.lost().is_none())
    }

    fn is_owned(&self, warden: &str) -> bool {
        self.here.is_owned(warden)
    }

    fn inherit(&self, warden: &str) -> Option<Inheritance> {
        self.here.inherit(warden)
    }

    fn engines_ended(&self) -> watch::Receiver<u64> {
        self.here.engines_ended()
    }

    fn end_left_by(&self, _warden: &str) -> Vec<u32> {
        Vec::new()
    }

    fn end_left_there<'a>(&'a self, warden: &'a str) -> Option<Soon<'a, Vec<u32>>> {
        if Far::jobs(self).is_some() {
            // The scheduler ends what is left of a job.
            return Some(Box::pin(async { Vec::new() }));
        }
        Some(Box::pin(async move {
            let Ok(link) = self.link().await else { return Vec::new() };
            link.ask(PostQuestion::EndLeftBy(own_name(warden))).await.unwrap_or_default()
        }))
    }

    fn clear_dead(&self, _dry_run: bool) -> u64 {
        0
    }

    fn bring<'a>(&'a self, id: &'a TaskId) -> Option<Soon<'a, io::Result<()>>> {
        Some(Box::pin(self.bring_here(id)))
    }

    fn forget(&self, id: &TaskId, is_stored: bool) {
        // Only what is here, record and all; what stays there is found by the next look.
        let is_here = !is_stored || matches!(self.here.exit_record(id), Ok(Ok(_)));
        match &self.way {
            PostWay::Job(jobs, _) if is_here => jobs.forget(id),
            PostWay::Job(jobs, _) => self.forget_lost(jobs.clone(), id.clone()),
            PostWay::Head(_) | PostWay::Direct(_) => {}
        }
        if let Some(link) = self.latest()
            && is_here
        {
            link.forget(id.as_str());
        }
    }

    fn output(&self, id: &TaskId) -> io::Result<TaskOutput> {
        self.here.output(id)
    }

    fn exit_record(&self, id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>> {
        self.here.exit_record(id)
    }

    fn has_stored(&self, id: &TaskId) -> bool {
        self.here.has_stored(id)
    }

    fn note_stored(&self, id: &TaskId) {
        // It is brought here.
        self.here.note_stored(id);
    }

    fn command_line(&self, pid: u32) -> Option<String> {
        lock(&self.processes).get(&pid).cloned()
    }

    fn learn_processes<'a>(&'a self, pids: &'a [u32]) -> Option<Soon<'a, ()>> {
        Some(Box::pin(self.know_processes(pids.to_vec())))
    }

    fn tell(&self, program: Vec<String>, line: String) -> Soon<'static, io::Result<()>> {
        self.here.tell(program, line)
    }
}
