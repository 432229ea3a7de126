//! The driver of a command that a scheduler has: submits it, waits while it is in the queue, takes
//! its warden over when it runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use legwork_warden::{failpoint::Failpoint, protocol::Order};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{
    Tasks,
    adopt::record_again,
    drive::{RunDriver, RunTrace, give},
    programs::ProgramQuestions,
    progress::{Ended, Ending, Progress},
    queue::REFUSED,
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{Outcome, status::Status},
    place::{
        Inheritance, NewJob, Place, TamperCheck, Warden,
        jobs::{JobLook, Jobs, driver::NotSubmitted, folder::Begun},
    },
};

/// The pauses between looks at a job, in milliseconds; the last counts from then on.
const PAUSES_MS: [u64; 9] = [20, 20, 30, 50, 50, 100, 100, 200, 500];

/// How long a job may run before it is reached without having said that it has begun: its folder
/// may not be seen here.
const UNSEEN: Duration = Duration::from_millis(1500);

/// How long a command runs that is seen here before it is reached: a short one has ended by then,
/// and its record tells all.
const SHORT: Duration = Duration::from_millis(60);

/// The same for one that nobody waits for. Whoever looks at it reaches it by themselves; its owner
/// has to be there only when it is to be stopped, asks, or has run for long.
const UNWATCHED: Duration = Duration::from_secs(5);

/// The pauses between looks until then, in milliseconds.
const SHORT_PAUSE_MS: u64 = 5;

/// How often it is looked whether a short command has ended while it is being reached.
const RECORD: Duration = Duration::from_millis(20);

/// How long a job that is to be stopped, and cannot be reached, is tried to be.
const STOP: Duration = Duration::from_secs(10);

/// What is given to a scheduler.
pub(super) struct Submission {
    pub place: Arc<dyn Place>,
    pub job: NewJob,
}

/// A command in a queue, and all that its driver holds.
pub(super) struct Queued {
    pub tasks: Arc<Tasks>,
    pub id: TaskId,
    /// The name that its warden has for everybody.
    pub warden: String,
    pub jobs: Arc<Jobs>,
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub progress: watch::Sender<Progress>,
    pub promoted: Arc<AtomicBool>,
    /// What was ordered and waits for the warden.
    pub ordered: Vec<Order>,
    /// Whether it is said to run.
    pub stands: bool,
    /// Since when it is to be stopped.
    pub stopped: Option<Instant>,
    /// What tells that a job has begun or ended, where the scheduler does.
    pub news: Option<watch::Receiver<()>>,
    /// The place of the engine that submitted it, if that has ended.
    pub inheritance: Inheritance,
}

/// What came of a wait in a queue.
enum Turn {
    /// It runs, and this is its warden.
    Runs(Box<Warden>),
    /// It is over, or never began.
    Over,
}

impl Queued {
    pub(super) async fn drive(
        mut self,
        submission: Option<Submission>,
        check: Option<TamperCheck>,
        questions: ProgramQuestions,
        mut traced: RunTrace,
    ) {
        if let Some(submission) = submission
            && let Err(error) = self.submit(submission).await
        {
            let refused = self.tasks.note_refused_start(&self.id, &error.message).await;
            if let Err(error) = refused {
                tracing::warn!(task_id = %self.id, %error, "a refused start is not in the ledger");
            }
            self.tasks.forget_there(&self.warden, &self.id, false);
            return self.end(Ending::NotStarted(Box::new(error)));
        }
        self.progress.send_modify(Progress::handed_over);
        let Turn::Runs(mut warden) = self.wait().await else {
            let ending = self.ending(check, &questions).await;
            if let Ending::Ended(ended) = &ending {
                drop(traced.ended(&ended.outcome));
            }
            return self.end(ending);
        };
        self.runs().await;
        if !self.promoted.load(Ordering::Relaxed) {
            warden.attend(self.id.as_str(), self.promoted.clone());
        }
        let Self { tasks, id, warden: name, orders, progress, ordered, .. } = self;
        for order in ordered {
            give(&tasks, &id, &mut warden, order).await;
        }
        let driver = RunDriver {
            tasks: tasks.clone(),
            task_id: id.clone(),
            warden: *warden,
            orders,
            progress,
            tamper_check: check,
            questions,
            traced,
        };
        driver.drive(None).await;
        tasks.places.leave_task(&name, &id);
    }

    /// Tells who waits for it.
    fn end(self, ending: Ending) {
        self.tasks.leave(&self.id);
        self.tasks.places.leave_task(&self.warden, &self.id);
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(ending);
        });
    }

    /// Gives it to the scheduler. What was refused is an error; what is not known is looked for.
    async fn submit(&mut self, Submission { place, job }: Submission) -> Result<(), ToolError> {
        Failpoint::EngineBeforeSubmission.pass();
        let submitting = place.submit(job);
        tokio::pin!(submitting);
        let submitted = loop {
            tokio::select! {
                submitted = &mut submitting => break submitted,
                Some(order) = self.orders.recv() => hear(order, &self.progress, &mut self.ordered),
            }
        };
        Failpoint::EngineAfterSubmission.pass();
        match submitted {
            Ok(()) => Ok(()),
            Err(NotSubmitted::Unknown(said)) => {
                tracing::warn!(task_id = %self.id, said, "whether it was submitted is not known");
                Ok(())
            }
            Err(NotSubmitted::Refused(said)) => {
                Err(ToolError::new(ErrorKind::ToolExecutionFailed, said)
                    .detail("reason", "not_submitted")
                    .hint("the scheduler has refused it; see `options` of the place"))
            }
        }
    }

    /// Waits until it runs and its warden is ours, or it is over.
    async fn wait(&mut self) -> Turn {
        let mut pauses = PAUSES_MS.iter().copied();
        let last = PAUSES_MS.last().copied().unwrap_or_default();
        let mut runs_since: Option<Instant> = None;
        let mut told = None;
        loop {
            if self.stops().await {
                return Turn::Over;
            }
            match self.jobs.look_along(&self.id).await {
                Ok(JobLook::Over) if self.is_heard().await => return Turn::Over,
                Ok(JobLook::Running) => {
                    let since = *runs_since.get_or_insert_with(Instant::now);
                    let is_seen = self.jobs.said(&self.id).await.0.is_some();
                    if is_seen && since.elapsed() >= SHORT {
                        self.runs().await;
                    }
                    if since.elapsed() >= self.patience(is_seen) {
                        match self.reach().await {
                            Some(warden) => return Turn::Runs(Box::new(warden)),
                            None if self.is_over(is_seen).await => return Turn::Over,
                            None => {}
                        }
                    }
                }
                Ok(JobLook::Queued(reason)) => {
                    runs_since = None;
                    if told.as_ref() != Some(&reason) {
                        self.tell(reason.clone()).await;
                        told = Some(reason);
                    }
                }
                Ok(JobLook::Over | JobLook::Unsure) => {}
                Err(error) => tracing::debug!(task_id = %self.id, %error, "no word of its job"),
            }
            let is_short = runs_since.is_some_and(|since| since.elapsed() < SHORT);
            let pause = if is_short { SHORT_PAUSE_MS } else { pauses.next().unwrap_or(last) };
            let pause = Duration::from_millis(pause);
            tokio::select! {
                () = sleep(pause) => {}
                () = next(&mut self.news) => {}
                Some(order) = self.orders.recv() => hear(order, &self.progress, &mut self.ordered),
            }
        }
    }

    /// How long it may run before it is reached.
    fn patience(&self, is_seen: bool) -> Duration {
        let is_wanted = !self.promoted.load(Ordering::Relaxed) || !self.ordered.is_empty();
        if !is_seen {
            UNSEEN
        } else if is_wanted {
            SHORT
        } else {
            // A warden that nobody owns stops its command when that time is over.
            UNWATCHED.min(self.tasks.orphan_ttl / 10).max(SHORT)
        }
    }

    /// Says that it runs.
    async fn runs(&mut self) {
        if !self.stands {
            self.stands = true;
            let _ = self.tasks.stand(&self.id, Status::Running, None).await;
            self.progress.send_modify(Progress::runs);
        }
    }

    /// Whether it has ended before it could be reached, wherever that is recorded.
    async fn is_over(&self, is_seen: bool) -> bool {
        if self.jobs.is_recorded(&self.id).await {
            return true;
        }
        let place = self.tasks.place_of(&self.warden);
        if !is_seen && let Err(error) = place.hear_of_job(&self.id).await {
            tracing::debug!(task_id = %self.id, %error, "its job says nothing");
        }
        matches!(place.exit_record(&self.id), Ok(Ok(_)))
    }

    /// Says why it waits.
    async fn tell(&self, reason: Option<String>) {
        let _ = self.tasks.stand(&self.id, Status::Queued, reason.clone()).await;
        self.progress.send_modify(|progress| progress.waits_for(reason));
    }

    /// The warden, as its owner; none if it cannot be reached now, or has written its record first.
    async fn reach(&mut self) -> Option<Warden> {
        let task = self.tasks.store.ledger.find(self.id.as_str()).await.ok()?.pop()?;
        let (jobs, id) = (self.jobs.clone(), self.id.clone());
        let recorded = async {
            while !jobs.is_recorded(&id).await {
                sleep(RECORD).await;
            }
        };
        let reached = {
            let dialing = self.tasks.owned_channel(&task);
            tokio::pin!(dialing, recorded);
            loop {
                tokio::select! {
                    channel = &mut dialing => break channel?,
                    () = &mut recorded => return None,
                    Some(order) = self.orders.recv() => {
                        hear(order, &self.progress, &mut self.ordered);
                    }
                }
            }
        };
        Some(Warden::adopted(self.warden.clone(), reached, self.inheritance.clone()))
    }

    /// Takes it out of the queue, if that was ordered; says whether that came before it began.
    async fn stops(&mut self) -> bool {
        if !self.ordered.iter().any(|order| matches!(order, Order::Stop { .. })) {
            return false;
        }
        let _ = self.tasks.store.ledger.cancelling(&self.id).await;
        let since = *self.stopped.get_or_insert_with(Instant::now);
        match self.jobs.withdraw(&self.id).await {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => tracing::debug!(task_id = %self.id, %error, "not withdrawn"),
        }
        if since.elapsed() >= STOP {
            // It has begun somewhere, and cannot be told.
            let _ = self.jobs.cancel(&self.id).await;
        }
        false
    }

    /// Whether the scheduler has heard of a command that it was withdrawn, if it was: what does not
    /// begin here may begin on a node that does not see this folder.
    async fn is_heard(&self) -> bool {
        let is_withdrawn = self.jobs.said(&self.id).await.0 == Some(Begun::Withdrawn);
        !is_withdrawn || self.jobs.withdraw(&self.id).await.is_ok()
    }

    /// What is recorded of a command that is over, or never began.
    async fn ending(&self, check: Option<TamperCheck>, questions: &ProgramQuestions) -> Ending {
        let found = self.tasks.store.ledger.find(self.id.as_str()).await.ok();
        let Some(task) = found.and_then(|mut found| found.pop()) else {
            return Ending::Ended(Ended::lost("unknown_to_ledger"));
        };
        let (begun, failed) = self.jobs.said(&self.id).await;
        let is_final = task.status.is_final();
        let explain = |outcome: &mut Outcome| questions.explain(outcome);
        let settled = if is_final {
            // Whoever has settled it may have been killed before its job was forgotten.
            let never_ran = matches!(begun, Some(Begun::Withdrawn | Begun::Refused(_)));
            let is_stored = !never_ran && failed.is_none();
            self.tasks.forget_there(&self.warden, &self.id, is_stored);
            Ok(task)
        } else {
            self.tasks.settle_with(task, check, explain).await
        };
        let (status, outcome) = match settled {
            Ok(task) => (task.status, task.outcome),
            Err(error) => {
                tracing::warn!(task_id = %self.id, %error, "the outcome is not in the ledger yet");
                let id = self.id.clone();
                let again = record_again(self.tasks.downgrade(), id);
                tokio::spawn(again);
                (Status::Interrupted, None)
            }
        };
        match (failed, begun) {
            (Some(failure), _) => Ending::NeverStarted(failure),
            (None, Some(Begun::Refused(reason))) if status == Status::Failed => {
                let place = self.tasks.place_of(&self.warden);
                let problem = format!("place `{}`: {reason}", place.name().unwrap_or_default());
                let error = ToolError::new(ErrorKind::ToolExecutionFailed, problem);
                Ending::NotStarted(Box::new(error.detail("reason", REFUSED)))
            }
            _ => {
                let outcome = outcome.unwrap_or_else(|| Outcome::lost("unknown"));
                let small = self.tasks.store.ledger.small_output(&self.id).await.ok().flatten();
                Ending::Ended(Ended::with(outcome, small))
            }
        }
    }
}

/// Waits for news, where there will be any.
async fn next(news: &mut Option<watch::Receiver<()>>) {
    match news {
        Some(news) => {
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

/// Takes an order for a command that does not run yet: who lets go of it is answered at once.
fn hear(order: Order, progress: &watch::Sender<Progress>, ordered: &mut Vec<Order>) {
    match order {
        Order::Report => progress.send_modify(Progress::report_nothing),
        order => ordered.push(order),
    }
}
