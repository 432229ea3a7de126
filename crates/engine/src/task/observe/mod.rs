//! Looking at a task through its warden, from any process: what the task tools, `logs -f`, `attach`
//! and `stop` share.
//!
//! An observer speaks with the warden over its adoption socket and owns nothing: letting go of it
//! changes nothing. Whoever hears of the end first writes it into the ledger; the first outcome
//! stays.

mod controls;
mod reach;

use std::{collections::VecDeque, fmt::Display, sync::Arc, time::Duration};

use legwork_warden::protocol::{
    self, FromWarden, LiveResources, Met, NewOutput, Order, Report, ToWarden, WatchFor,
};
use tokio::time::{Instant, timeout_at};

pub use self::controls::{Controls, InputTaken};
use super::{Tasks, progress::small_output};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    model::{Caller, Outcome, status::Status},
    output::{Mask, TaskOutput},
    place::{Channel, Place},
    store::ledger::Task,
};

/// How long a warden may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// A task, seen through its warden while it has one.
#[derive(Debug)]
pub struct Observer {
    tasks: Arc<Tasks>,
    task: Task,
    channel: Option<Channel>,
    /// An end that was heard and is not in the ledger yet.
    heard: Option<Box<protocol::RunEnd>>,
    /// What came while something else was waited for.
    events: VecDeque<Said>,
    /// Whether the output is known to be in the task's folder.
    spilled: bool,
    /// How much output was told of, whether or not it can be read.
    told: (u64, u64),
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is more output.
    Grown,
    /// The command has ended.
    Ended,
}

/// What a warden says.
#[derive(Debug)]
pub(crate) enum Said {
    Grew,
    Spilled(bool),
    Report(Box<Report>),
    Measured(LiveResources),
    InputTaken(InputTaken),
    Met(Met),
    Stopped(Vec<u32>),
    /// The command waited in a queue, and runs now.
    Began,
    /// The command has ended.
    Ended,
    /// There is no warden (any more).
    Gone,
}

impl Observer {
    /// Connects to the warden of a task; a task without one is settled.
    pub(crate) async fn of(tasks: Arc<Tasks>, task: Task) -> Result<Self, ToolError> {
        let mut observer = Self {
            tasks,
            task,
            channel: None,
            heard: None,
            events: VecDeque::new(),
            spilled: false,
            told: (0, 0),
        };
        observer.connect().await?;
        Ok(observer)
    }

    /// Whether it waits in a queue.
    pub fn is_queued(&self) -> bool {
        self.task.status == Status::Queued
    }

    /// Waits until it waits in a queue no longer. Safe to cancel.
    pub(crate) async fn begun(&mut self) {
        while self.is_queued() {
            let _ = Box::pin(self.begins()).await;
        }
    }

    /// Whether the command has ended and no process is left of it: then its warden has nothing more
    /// to say.
    fn has_left_nothing(&self) -> bool {
        self.task.outcome.as_ref().is_some_and(|outcome| outcome.background_pids.is_empty())
    }

    fn no_answer(&self) -> ToolError {
        ToolError::new(
            ErrorKind::ToolExecutionFailed,
            format!("the supervisor of task {} does not answer", self.task.task_id),
        )
        .detail("task_id", self.task.task_id.as_str())
        .hint("it may have been stopped by a signal; try again")
    }

    /// The typed error of an output that cannot be read.
    pub(crate) fn unreadable(&self, problem: &impl Display) -> ToolError {
        ToolError::unreadable(self.task.task_id.as_str(), problem)
    }

    /// The task as it was last known.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// What must not be shown of its output.
    pub fn mask(&self) -> Arc<Mask> {
        self.tasks.mask.get()
    }

    /// Where it runs.
    pub(super) fn place(&self) -> Arc<dyn Place> {
        self.tasks.place_of(&self.task.warden)
    }

    /// Those of some processes that still run, with their command lines.
    pub(crate) async fn processes(&self, pids: &[u32]) -> Vec<(u32, String)> {
        let place = self.place();
        if let Some(learning) = place.learn_processes(pids) {
            learning.await;
        }
        place.processes(pids)
    }

    /// Whether the command has ended.
    pub fn is_over(&self) -> bool {
        self.task.status.is_final()
    }

    /// How the run is doing; none if nothing is left of it.
    pub async fn report(&mut self) -> Result<Option<Report>, ToolError> {
        if self.is_queued() {
            return Ok(None);
        }
        self.order(Order::Report).await;
        self.answer(|event| match event {
            Said::Report(report) => Ok(*report),
            other => Err(other),
        })
        .await
    }

    /// What the command and everything below it uses at this moment; none if nothing is left of it.
    pub async fn resources(&mut self) -> Result<Option<LiveResources>, ToolError> {
        if self.is_queued() {
            return Ok(None);
        }
        self.order(Order::Measure).await;
        self.answer(|event| match event {
            Said::Measured(resources) => Ok(resources),
            other => Err(other),
        })
        .await
    }

    /// What has been printed so far.
    pub async fn output(&mut self) -> Result<TaskOutput, ToolError> {
        if self.is_queued() {
            return Ok(TaskOutput::default());
        }
        if !self.is_over() && !self.spilled {
            self.order(Order::Spill).await;
            let spilled = self
                .answer(|event| match event {
                    Said::Spilled(spilled) => Ok(spilled),
                    other => Err(other),
                })
                .await?;
            self.spilled = spilled == Some(true);
            if spilled == Some(false) && !self.is_over() {
                return Err(self.unreadable(&"it cannot be stored, and is held in memory"));
            }
        }
        self.tasks.output(&self.task.task_id).await
    }

    /// Waits for the answer to an order; what else comes meanwhile is kept for later.
    async fn answer<T>(
        &mut self,
        wanted: impl Fn(Said) -> Result<T, Said>,
    ) -> Result<Option<T>, ToolError> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let Ok(event) = timeout_at(deadline, self.receive()).await else {
                return Err(self.no_answer());
            };
            match wanted(event) {
                Ok(answer) => return Ok(Some(answer)),
                Err(Said::Gone) => return Ok(None),
                Err(other) => self.events.push_back(other),
            }
        }
    }

    /// Waits until there is more output than this, or the command has ended. Safe to cancel.
    pub async fn changed(&mut self, stdout_bytes: u64, stderr_bytes: u64) -> Change {
        if self.is_over() {
            return Change::Ended;
        }
        self.follow(stdout_bytes, stderr_bytes).await;
        loop {
            match self.event().await {
                Said::Grew => return Change::Grown,
                Said::Began => self.follow(stdout_bytes, stderr_bytes).await,
                Said::Ended | Said::Gone => return Change::Ended,
                _ => {}
            }
        }
    }

    /// Waits until the command has ended. Safe to cancel.
    pub async fn ended(&mut self) {
        while !self.is_over() && !matches!(self.event().await, Said::Gone) {}
    }

    /// Asks to be told when the warden finds one of these.
    pub(crate) async fn watch(&mut self, watch: WatchFor) {
        self.order(Order::Watch(watch)).await;
    }

    /// Whether there is still a warden: the command runs, or has left something behind.
    pub(crate) fn is_held(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether something came that nobody has looked at.
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty()
    }

    /// Asks to be told once when there is more output than this.
    pub(crate) async fn follow(&mut self, stdout_bytes: u64, stderr_bytes: u64) {
        // What was told of already and cannot be read will not come by asking again.
        let (stdout_bytes, stderr_bytes) =
            (stdout_bytes.max(self.told.0), stderr_bytes.max(self.told.1));
        self.order(Order::Follow { stdout_bytes, stderr_bytes }).await;
    }

    /// What can be done to the task, for a caller who may act on it: an error says what that caller
    /// has less of.
    pub async fn controls(&mut self, caller: &Caller) -> Result<Controls<'_>, ToolError> {
        // By the configuration of now, however long this has been open.
        match self.tasks.current().await.right(caller, &self.task) {
            Ok(()) => Ok(Controls(self)),
            Err(only_sees) => Err(only_sees.refusal(&self.task)),
        }
    }

    /// The same for what this engine does by itself.
    pub(in crate::task) fn own_controls(&mut self) -> Controls<'_> {
        Controls(self)
    }

    async fn order(&self, order: Order) {
        if let Some(channel) = &self.channel {
            let task = self.task.task_id.to_string();
            // A warden that is gone is noticed when its answer is read.
            let _ = channel.send(&ToWarden::Order { task, order }).await;
        }
    }

    /// The next thing that happens. Safe to cancel.
    pub(crate) async fn event(&mut self) -> Said {
        match self.events.pop_front() {
            Some(event) => event,
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Said {
        if self.heard.is_some() {
            self.settle().await;
            return Said::Ended;
        }
        if self.channel.is_none() && self.is_queued() {
            return Box::pin(self.begins()).await;
        }
        let message = match &mut self.channel {
            Some(channel) => channel.receive(self.task.task_id.as_str()).await,
            None => return Said::Gone,
        };
        match message {
            Ok(FromWarden::Grew(growth)) => {
                if let NewOutput::InFolder { stdout_bytes, stderr_bytes } = growth {
                    self.told = (stdout_bytes, stderr_bytes);
                }
                Said::Grew
            }
            Ok(FromWarden::Spilled(spilled)) => Said::Spilled(spilled),
            Ok(FromWarden::Report(report)) => Said::Report(report),
            Ok(FromWarden::Measured(resources)) => Said::Measured(resources),
            Ok(FromWarden::InputTaken { bytes, refusal }) => {
                Said::InputTaken(InputTaken { bytes, refusal })
            }
            Ok(FromWarden::Met(met)) => Said::Met(met),
            Ok(FromWarden::Stopped { survivors }) => Said::Stopped(survivors),
            Ok(FromWarden::Ended(ended)) if !self.is_over() => {
                self.heard = Some(ended);
                self.settle().await;
                Said::Ended
            }
            Ok(FromWarden::Ended(_)) => Said::Ended,
            Ok(
                FromWarden::Hello { .. }
                | FromWarden::StartFailed(_)
                | FromWarden::NotHeld
                | FromWarden::Adopted(_)
                | FromWarden::Confined(_)
                | FromWarden::ProgramHeld(_)
                | FromWarden::NameHeld(_)
                | FromWarden::ConnectedLater(_),
            )
            | Err(_) => {
                self.gone().await;
                Said::Gone
            }
        }
    }

    /// The warden is gone, or has another task: what it left says what became of the run.
    async fn gone(&mut self) {
        let settled = async {
            let task = self.tasks.read_again(self.task.clone()).await?;
            self.tasks.settle_if_gone(task).await
        };
        match Box::pin(settled).await {
            Ok(task) => self.task = task,
            Err(error) => tracing::warn!(%error, "the ledger cannot be read"),
        }
        if !self.is_over() {
            let (warden, id) = (&self.task.warden, &self.task.task_id);
            let outcome = Box::pin(self.tasks.outcome_without_warden(warden, id)).await;
            self.take(&outcome);
        }
        // Last, so that a call that is cut off before tries again.
        self.channel = None;
    }

    /// Writes the end that was heard into the ledger, if its own engine does not.
    async fn settle(&mut self) {
        let Some(ended) = self.heard.clone() else { return };
        let mut outcome = Outcome::of(&ended);
        let id = self.task.task_id.clone();
        let small = small_output(ended.kept);
        let settled = async {
            let task = self.tasks.recorded_by_its_engine(self.task.clone()).await?;
            if task.status.is_final() {
                return Ok(task);
            }
            let is_stored = small.is_none();
            let missed = Tasks::missed_check(&task);
            if let Some(missed) = missed {
                outcome.warnings.extend(missed.warnings(false).await);
            }
            self.tasks.finish(&id, &outcome, small).await?;
            if is_stored {
                Box::pin(self.tasks.bring(&task.warden, &id)).await;
            }
            if outcome.background_pids.is_empty() {
                self.tasks.forget_there(&task.warden, &id, is_stored);
            }
            self.tasks.read_again(task).await
        };
        match Box::pin(settled).await {
            Ok(task) => self.task = task,
            Err(error) => tracing::warn!(%error, "the outcome is not in the ledger yet"),
        }
        if !self.is_over() {
            self.take(&outcome);
        }
        if self.has_left_nothing() {
            // It may serve another task next, without a word about this one.
            self.channel = None;
        }
        self.heard = None;
    }

    /// Takes an outcome over that could not be read back.
    fn take(&mut self, outcome: &Outcome) {
        let (status, reason) = Status::of(outcome);
        self.task.status = status;
        self.task.reason = reason.map(str::to_owned);
        self.task.outcome = Some(outcome.clone());
        self.task.updated_at_ms = now_ms();
    }
}
