//! A run as its caller holds it: waited for, followed, signalled, promoted; dropped, it stops.
//!
//! It gives orders to the driver of its warden and reads the progress that the driver writes. It
//! asks its place for output and processes, and never speaks with the warden itself.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_warden::{
    folder::Stream,
    protocol::{self, NewOutput, Order, Report, WatchFor},
};
use tokio::sync::{mpsc, watch};

use super::{
    failures::{Named, start_error, survived},
    progress::{Ended, Ending, InQueue, Progress},
};
use crate::{
    error::ToolError,
    id::TaskId,
    model::sandbox::SandboxReport,
    output::{SmallOutput, TaskOutput},
    place::{Attending, DROP_GRACE, Place},
    platform::Signal,
};

/// What a follower gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grown {
    /// New bytes of both streams, from the offsets on that were named.
    Bytes {
        /// Of stdout.
        stdout: Vec<u8>,
        /// Of stderr.
        stderr: Vec<u8>,
    },
    /// There is something new in the task's folder.
    InFolder,
    /// The command has ended; nothing more will come.
    Ended,
}

/// A command that was started; dropping it before the end stops the command.
#[derive(Debug)]
pub struct Run {
    task_id: TaskId,
    named: Named,
    place: Arc<dyn Place>,
    control: RunControl,
    progress: watch::Receiver<Progress>,
    /// Shared with the engine, which stops what is not.
    promoted: Arc<AtomicBool>,
    /// Counts the caller as one who waits.
    attending: Option<Attending>,
    sandbox: Arc<SandboxReport>,
    /// What the person who approved it says.
    said: Option<String>,
    /// How much output was told of, whether or not it can be read.
    told: (u64, u64),
    over: bool,
}

/// What became of a promotion.
#[derive(Debug)]
pub(crate) enum Promotion {
    /// The command goes on; how it is doing, if its warden told.
    Promoted(Option<Report>),
    /// It has ended by now, or never started.
    Over,
}

/// How long a warden may take to report at a promotion.
const PROMOTION: Duration = Duration::from_secs(2);

/// How long a warden may take to hand over what it holds in memory, if it holds anything.
const MEMORY_ANSWER: Duration = Duration::from_millis(100);

impl Run {
    pub(crate) fn new(
        task_id: TaskId,
        named: Named,
        place: Arc<dyn Place>,
        (control, progress): (RunControl, watch::Receiver<Progress>),
        promoted: Arc<AtomicBool>,
        attending: Attending,
        sandbox: Arc<SandboxReport>,
    ) -> Self {
        Self {
            task_id,
            named,
            place,
            control,
            progress,
            promoted,
            attending: Some(attending),
            sandbox,
            said: None,
            told: (0, 0),
            over: false,
        }
    }

    /// The same with what the person who approved it says.
    pub(super) fn approved_with(mut self, said: Option<String>) -> Self {
        self.said = said;
        self
    }

    /// What the person who approved it says.
    pub fn approval_note(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The task's id.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// The warden that has it, or had it.
    pub(super) fn warden(&self) -> Arc<str> {
        self.progress.borrow().warden.clone()
    }

    /// Whether it runs on another machine.
    pub fn is_far(&self) -> bool {
        self.place.name().is_some()
    }

    /// What the command is confined by.
    pub fn sandbox(&self) -> &Arc<SandboxReport> {
        &self.sandbox
    }

    /// Why it waits in a queue, if it does: the word of the scheduler where there is one.
    pub(crate) fn queued(&self) -> Option<InQueue> {
        self.progress.borrow().queued.clone()
    }

    /// What is in the task's folder by now.
    pub fn stored(&self) -> io::Result<TaskOutput> {
        self.place.output(&self.task_id)
    }

    /// Those of some processes that still run, with their command lines.
    pub(crate) fn processes(&self, pids: &[u32]) -> Vec<(u32, String)> {
        self.place.processes(pids)
    }

    /// Waits until the command has ended and that is in the ledger.
    ///
    /// An error means that it never started.
    pub async fn ended(&mut self) -> Result<Ended, ToolError> {
        let ended = self.progress.wait_for(|progress| progress.end.is_some()).await;
        let end = ended.ok().and_then(|progress| progress.end.clone());
        self.over = true;
        match end {
            Some(Ending::Ended(ended)) => Ok(ended),
            Some(Ending::NeverStarted(failure)) => {
                Err(start_error(&*self.place, &self.named, &failure))
            }
            Some(Ending::NotStarted(error)) => Err(*error),
            Some(Ending::Survived(pids)) => Err(survived(&pids)),
            // The driver always leaves an ending; if it is gone without one, nothing can be known.
            None => Ok(Ended::lost("warden_lost")),
        }
    }

    /// What a run that has ended printed, wherever it is kept.
    pub fn output(&self, ended: &Ended) -> io::Result<TaskOutput> {
        match &ended.small {
            Some(small) => Ok(TaskOutput::from(&**small)),
            None => self.stored(),
        }
    }

    /// What has been printed until the promotion, wherever it is; what cannot be read is not there.
    pub(crate) async fn output_so_far(&mut self) -> TaskOutput {
        if self.queued().is_some() {
            return TaskOutput::default();
        }
        let spilled = self.progress.borrow().spilled;
        if !spilled
            && let Ok(Grown::Bytes { stdout, stderr }) =
                tokio::time::timeout(MEMORY_ANSWER, self.grown(0, 0)).await
        {
            return TaskOutput::from(&SmallOutput { stdout, stderr, timeline: Vec::new() });
        }
        self.bring().await;
        self.stored().unwrap_or_default()
    }

    /// Waits until there is output beyond these offsets, or the command has ended.
    pub async fn grown(&mut self, stdout_bytes: u64, stderr_bytes: u64) -> Grown {
        let grown = self.has_grown(stdout_bytes, stderr_bytes).await;
        if grown == Grown::InFolder {
            self.bring().await;
        }
        grown
    }

    /// Brings what is in the task's folder to this machine, if it is not there anyway.
    async fn bring(&self) {
        if let Some(bringing) = self.place.bring(&self.task_id) {
            // What cannot be brought now is brought with the next look.
            let _ = bringing.await;
        }
    }

    async fn has_grown(&mut self, stdout_bytes: u64, stderr_bytes: u64) -> Grown {
        // What was told of already and cannot be read will not come by asking again.
        let (stdout_bytes, stderr_bytes) =
            (stdout_bytes.max(self.told.0), stderr_bytes.max(self.told.1));
        let before = self.progress.borrow_and_update().grown;
        self.control.order(Order::Follow { stdout_bytes, stderr_bytes });
        let seen = self
            .progress
            .wait_for(|progress| progress.end.is_some() || progress.grown > before)
            .await;
        match seen.as_deref() {
            Ok(Progress { end: None, growth: Some(growth), .. }) => match growth.clone() {
                NewOutput::InFolder { stdout_bytes, stderr_bytes } => {
                    self.told = (stdout_bytes, stderr_bytes);
                    Grown::InFolder
                }
                NewOutput::Bytes { stdout, stderr } => Grown::Bytes { stdout, stderr },
            },
            _ => Grown::Ended,
        }
    }

    /// Lets go of the command: it goes on as a task, its output in its folder, until somebody stops
    /// it.
    pub(crate) async fn promote(&mut self) -> Promotion {
        let before = self.progress.borrow_and_update().reported;
        self.control.order(Order::Spill);
        self.control.order(Order::Report);
        let told =
            self.progress.wait_for(|progress| progress.end.is_some() || progress.reported > before);
        let promotion = match tokio::time::timeout(PROMOTION, told).await {
            Ok(Ok(progress)) if progress.end.is_none() => {
                Promotion::Promoted(progress.report.clone())
            }
            Ok(_) => Promotion::Over,
            // A warden that does not answer holds the command all the same.
            Err(_) => Promotion::Promoted(None),
        };
        let promoted = matches!(promotion, Promotion::Promoted(_));
        self.promoted.store(promoted, Ordering::Relaxed);
        if promoted {
            self.attending = None;
        }
        promotion
    }

    /// Waits until the command has been blocked reading its input for this long.
    ///
    /// Nothing else of the run waits meanwhile: the future is its own.
    pub(crate) fn waits_for_input(&self, for_long: Duration) -> impl Future<Output = ()> + use<> {
        let (control, mut progress) = (self.control.clone(), self.progress.clone());
        async move {
            loop {
                let Progress { waited, reported, .. } = *progress.borrow_and_update();
                let watch = WatchFor { port: None, waiting_for_input: true };
                control.order(Order::Watch(watch));
                let seen = progress.wait_for(|it| it.end.is_some() || it.waited > waited).await;
                if seen.map_or(true, |progress| progress.end.is_some()) {
                    return std::future::pending().await;
                }
                tokio::time::sleep(for_long).await;
                control.order(Order::Report);
                let seen = progress.wait_for(|it| it.end.is_some() || it.reported > reported).await;
                let still = seen.is_ok_and(|progress| {
                    let report = progress.report.as_ref();
                    report.is_some_and(|report| report.waiting_for_input == Some(true))
                });
                if still {
                    return;
                }
            }
        }
    }

    /// Lets the command go on without this run, as a task that any engine on the state folder can
    /// attach to; an error if it never started.
    pub async fn detach(mut self) -> Result<TaskId, ToolError> {
        let id = self.task_id.clone();
        let _ = self.progress.wait_for(Progress::is_out_of_our_hands).await;
        match self.promote().await {
            Promotion::Promoted(_) => Ok(id),
            Promotion::Over => self.ended().await.map(|_| id),
        }
    }

    /// A handle that can signal and stop the command while this one waits.
    pub fn control(&self) -> RunControl {
        self.control.clone()
    }
}

/// Signals and stops a command.
#[derive(Debug, Clone)]
pub struct RunControl {
    orders: mpsc::UnboundedSender<Order>,
}

impl RunControl {
    pub(crate) fn new(orders: mpsc::UnboundedSender<Order>) -> Self {
        Self { orders }
    }

    /// Sends a signal to the command's process group, as a terminal does, or to its process alone.
    pub fn signal(&self, signal: i32, group: bool) {
        self.order(Order::Signal { signal, group });
    }

    /// Tells whoever writes to a stream that nobody reads it any more.
    pub fn close(&self, stream: Stream) {
        self.order(Order::Close(stream));
    }

    /// Stops the command and everything below it: the signal, the grace, then no mercy.
    pub fn stop(&self, signal: i32, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.order(Order::Stop { signal, grace_ms, because: protocol::EndCause::Stopped });
    }

    /// Lets a program be executed that waits for an answer, or not.
    pub(super) fn answer_program(&self, number: u64, allowed: bool) {
        self.order(Order::AnswerProgram { number, allowed });
    }

    /// Lets connections be made to a name that wait for an answer, or not.
    pub(super) fn answer_name(&self, number: u64, allowed: bool) {
        self.order(Order::AnswerName { number, allowed });
    }

    fn order(&self, order: Order) {
        // The driver is gone only when the run is over: then there is nothing to order.
        let _ = self.orders.send(order);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.over && !self.promoted.load(Ordering::Relaxed) {
            self.control.stop(Signal::TERM.as_raw(), DROP_GRACE);
        }
    }
}
