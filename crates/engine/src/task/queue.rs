//! Commands that a scheduler starts: given to it, waited for while they are in its queue, taken
//! over once they run.
//!
//! Whoever gives a command to a scheduler never does so again. Looks decide: the folder of the job
//! where it is seen here, then the scheduler's word, and for an end without a record both twice.

use std::sync::{Arc, atomic::AtomicBool};

use legwork_gate::Grant;
use legwork_warden::{failpoint::Failpoint, protocol::StdinSource};
use tokio::sync::{mpsc, watch};

use super::{
    Running, Submitted, Tasks,
    drive::RunTrace,
    places::{out_of_reach, pass_input},
    plan::Plan,
    programs::ProgramQuestions,
    progress::Progress,
    run::{Run, RunControl},
    start::{into_plan, is_small_file, report_of},
    waiting::{Queued, Submission},
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{
        Caller, EndedBy, Outcome,
        place::task_of,
        question::SharedAsker,
        status::{Status, TaskStanding},
    },
    output::SmallOutput,
    place::{
        Inheritance, NewJob, TamperCheck,
        jobs::{JobLook, Jobs, folder::Begun},
    },
    platform::OwnedFd,
    store::{
        audit::AuditEntry,
        ledger::{LedgerError, Task, write_note},
    },
    trace::Trace,
};

/// Why a command failed that was refused where it should have run.
pub(super) const REFUSED: &str = "refused_there";

impl Tasks {
    /// Registers a command and gives it to a scheduler: ledger first.
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        id: TaskId,
        grant: Grant<Plan>,
        caller: Caller,
    ) -> Result<Submitted, ToolError> {
        let place = grant.plan().place().clone();
        let wanted = self.judge.wanted_by(grant.plan().wanted, grant.explanation());
        let sandbox = self.sandbox_at(&place, wanted).await?;
        if let Some(sandbox) = &sandbox {
            self.check(sandbox)?;
        }
        let unnamed = |error: std::io::Error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, error.to_string())
        };
        let warden = place.warden_of_job(&id).map_err(unnamed)?;
        let looking = sandbox.as_ref().and_then(|_| place.tamper_check(wanted, &warden));
        let mut task = self.row(grant.plan(), &id, &warden, &caller);
        let report = report_of(sandbox.as_deref(), &grant, wanted);
        (task.status, task.boot_id, task.sandbox) = (Status::Queued, String::new(), report.clone());
        let note: Arc<[u8]> = write_note(&task).into();
        let task = Arc::new(task);
        Failpoint::EngineBeforeRow.pass();
        let duplicates = grant.plan().duplicates;
        let equal = self.register(task.clone(), note.clone(), duplicates, &caller).await?;
        if let Some(running) = equal {
            return Ok(Submitted::AlreadyRunning(running));
        }
        caller.session.note_started(id.as_str());
        Failpoint::EngineAfterRow.pass();
        let said = grant.explanation().note.clone();
        let plan = into_plan(grant, wanted);
        let named = plan.named();
        let mut spec = self.spec(&plan, &id, sandbox.as_deref(), note.to_vec());
        let mut given = plan.given.as_ref().map(OwnedFd::try_clone).transpose().map_err(unnamed)?;
        // What comes bit by bit, or is large, is passed on when the command runs.
        let passed = given.take_if(|given| !is_small_file(given));
        if passed.is_some() {
            spec.stdin = StdinSource::Open;
        }
        let missing = sandbox.iter().flat_map(|sandbox| &sandbox.report.missing);
        let job = NewJob {
            id: id.clone(),
            spec,
            workdir: plan.workdir.path.clone(),
            given: given.map(Arc::new),
            wanted,
            missing: missing.map(|missing| missing.layer.clone()).collect(),
            real_program: plan.look().real_program(&plan.program),
            is_awaited: plan.is_awaited,
        };
        let check = match looking {
            Some(looking) => Some(looking.await),
            None => None,
        };
        let promoted = Arc::new(AtomicBool::new(false));
        let submission = Some(Submission { place: place.clone(), job });
        let asked = (caller.asker, caller.trace);
        let own = Inheritance::default();
        let handles = self.drive_job(&task, submission, promoted.clone(), check, asked, own);
        let handles = handles.ok_or_else(|| {
            ToolError::new(ErrorKind::ToolExecutionFailed, "its place has no scheduler")
        })?;
        if let Some(input) = passed {
            tokio::spawn(pass_input(self.clone(), (*task).clone(), input));
        }
        let at = self.place_of(&warden);
        let run = Run::new(id, named, at, handles, promoted, self.attention.begin(), report);
        Ok(Submitted::Started(run.approved_with(said)))
    }

    /// Lets a task of its own wait for a job and drive what then runs; one that was given to the
    /// scheduler before is only waited for. None where there is no scheduler.
    pub(super) fn drive_job(
        self: &Arc<Self>,
        task: &Task,
        submission: Option<Submission>,
        promoted: Arc<AtomicBool>,
        check: Option<TamperCheck>,
        (asker, trace): (Option<SharedAsker>, Option<Trace>),
        inheritance: Inheritance,
    ) -> Option<(RunControl, watch::Receiver<Progress>)> {
        let jobs = self.jobs_of(&task.warden)?;
        let id = task.task_id.clone();
        let (sender, orders) = mpsc::unbounded_channel();
        let begin = Progress::queued(submission.is_some());
        let (progress, seen) = watch::channel(begin);
        let control = RunControl::new(sender);
        let handles = (control.clone(), seen.clone());
        let questions = ProgramQuestions::new(id.clone(), control.clone(), asker, promoted.clone());
        let running = Running { control, progress: seen, promoted: promoted.clone() };
        self.hold(id.clone(), running);
        let traced = RunTrace::begin(trace, &id);
        let (warden, tasks) = (task.warden.clone(), self.clone());
        let news = jobs.news();
        let queued = Queued {
            tasks,
            id,
            warden,
            jobs,
            orders,
            progress,
            promoted,
            ordered: Vec::new(),
            stands: false,
            stopped: None,
            news,
            inheritance,
        };
        tokio::spawn(Box::pin(queued.drive(submission, check, questions, traced)));
        Some(handles)
    }

    /// The jobs of the place of a warden that a scheduler starts.
    pub(super) fn jobs_of(&self, warden: &str) -> Option<Arc<Jobs>> {
        task_of(warden)?;
        self.places.at(warden)?.jobs().cloned()
    }

    /// A task in a queue as it is by now, where this engine does not drive it itself.
    pub(crate) async fn seen_in_queue(&self, task: Task) -> Result<Task, LedgerError> {
        if task.status != Status::Queued || self.is_ours(&task.task_id) {
            return Ok(task);
        }
        let Some(jobs) = self.jobs_of(&task.warden) else { return Ok(task) };
        // Of one that has not begun its engine says what it is: it may be about to submit it.
        if self.place.is_owned(&task.warden) && !jobs.has_begun(&task.task_id).await {
            return Ok(task);
        }
        match jobs.look_along(&task.task_id).await {
            Ok(JobLook::Running) => self.stand(&task.task_id, Status::Running, None).await?,
            Ok(JobLook::Queued(reason)) if reason != task.reason => {
                self.stand(&task.task_id, Status::Queued, reason).await?;
            }
            Ok(JobLook::Over) => return Box::pin(self.settle_if_gone(task)).await,
            Ok(JobLook::Queued(_) | JobLook::Unsure) | Err(_) => return Ok(task),
        }
        self.read_again(task).await
    }

    pub(super) async fn stand(
        &self,
        id: &TaskId,
        status: Status,
        reason: Option<String>,
    ) -> Result<(), LedgerError> {
        self.store.ledger.stand(id, TaskStanding { status, reason }).await.map(drop)
    }

    /// Stops a task that waits in a queue; says whether that came before it began.
    pub(crate) async fn stop_queued(&self, task: &Task) -> Result<bool, ToolError> {
        let Some(jobs) = self.jobs_of(&task.warden) else { return Ok(false) };
        let _ = self.store.ledger.cancelling(&task.task_id).await;
        let withdrawn = jobs.withdraw(&task.task_id).await;
        let withdrawn = withdrawn.map_err(|error| out_of_reach(&error))?;
        if withdrawn {
            self.finish_stopped(&task.task_id).await?;
            self.forget_now(&task.warden, &task.task_id, false).await;
        }
        Ok(withdrawn)
    }

    /// Records that a task was stopped before it began.
    async fn finish_stopped(&self, id: &TaskId) -> Result<(), LedgerError> {
        let outcome = Outcome { ended_by: Some(EndedBy::Stopped), ..Outcome::default() };
        self.finish(id, &outcome, Some(Arc::new(SmallOutput::default()))).await
    }

    /// Settles a task whose job has said itself that it never ran its command; says whether it has.
    pub(super) async fn settle_unstarted(&self, task: &Task) -> Result<bool, LedgerError> {
        let (id, Some(jobs)) = (&task.task_id, self.jobs_of(&task.warden)) else {
            return Ok(false);
        };
        let (begun, failed) = jobs.said(id).await;
        if let Some(failure) = failed {
            self.record_failed_start(id, &failure).await;
            return Ok(true);
        }
        match begun {
            Some(Begun::Withdrawn) => self.finish_stopped(id).await?,
            Some(Begun::Refused(reason)) => self.note_refused_start(id, &reason).await?,
            Some(Begun::Started { .. } | Begun::Lost(_)) | None => return Ok(false),
        }
        Ok(true)
    }

    pub(super) async fn note_refused_start(
        &self,
        id: &TaskId,
        reason: &str,
    ) -> Result<(), LedgerError> {
        let trust = self.store.ledger.never_started(id, REFUSED).await?;
        let entry = AuditEntry::new("outcome")
            .own("task_id", id)
            .own("status", &Status::Failed)
            .own("reason", REFUSED)
            .own("message", reason)
            .own("trust", &trust);
        self.store.note(entry).await;
        Ok(())
    }
}
