//! A run: one command under way. A driver owns the warden's channel; callers hold a [`Run`].

use std::{io, sync::Arc, time::Duration};

use legwork_warden::protocol::{self, FromWarden, StartFailure, ToWarden};
use tokio::sync::{mpsc, watch};

use crate::{
    engine::{Inner, start_error},
    error::ToolError,
    id::TaskId,
    model::Outcome,
    output::TaskFolder,
    place::Channel,
};

/// How far a run is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Goes up whenever a follower is told of new output.
    grown: u64,
    /// Set when it is over.
    pub end: Option<Ending>,
}

/// How a run was over.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Ended(Arc<Outcome>),
    NeverStarted(StartFailure),
}

/// A command that was started; dropping it before the end stops the command.
#[derive(Debug)]
pub struct Run {
    task_id: TaskId,
    program: String,
    folder: TaskFolder,
    control: RunControl,
    progress: watch::Receiver<Progress>,
    stop_on_drop: bool,
}

/// The grace of a stop that no caller chose.
const DROP_GRACE: Duration = Duration::from_millis(500);

impl Run {
    pub(crate) fn new(
        task_id: TaskId,
        program: String,
        folder: TaskFolder,
        orders: mpsc::UnboundedSender<ToWarden>,
        progress: watch::Receiver<Progress>,
    ) -> Self {
        let control = RunControl { orders };
        Self {
            task_id,
            program,
            folder,
            control,
            progress,
            stop_on_drop: true,
        }
    }

    /// The task's id.
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// The task's folder.
    pub fn folder(&self) -> &TaskFolder {
        &self.folder
    }

    /// Waits until the command has ended and that is in the ledger.
    ///
    /// An error means that it never started.
    pub async fn outcome(&mut self) -> Result<Arc<Outcome>, ToolError> {
        let ended = self
            .progress
            .wait_for(|progress| progress.end.is_some())
            .await;
        let end = ended.ok().and_then(|progress| progress.end.clone());
        self.stop_on_drop = false;
        match end {
            Some(Ending::Ended(outcome)) => Ok(outcome),
            Some(Ending::NeverStarted(failure)) => Err(start_error(&self.program, &failure)),
            // The driver always leaves an ending; if it is gone without one, nothing can be known.
            None => Ok(Arc::new(Outcome::lost("warden_lost"))),
        }
    }

    /// Waits until there is output beyond these offsets, or the command has ended (then: `true`).
    pub async fn grown(&mut self, stdout_bytes: u64, stderr_bytes: u64) -> bool {
        let before = self.progress.borrow_and_update().grown;
        self.control.order(ToWarden::Follow {
            stdout_bytes,
            stderr_bytes,
        });
        let seen = self
            .progress
            .wait_for(|progress| progress.end.is_some() || progress.grown > before)
            .await;
        seen.map_or(true, |progress| progress.end.is_some())
    }

    /// A handle that can signal and stop the command while this one waits.
    pub fn control(&self) -> RunControl {
        self.control.clone()
    }
}

/// Signals and stops a command.
#[derive(Debug, Clone)]
pub struct RunControl {
    orders: mpsc::UnboundedSender<ToWarden>,
}

impl RunControl {
    /// Sends a signal to the command's process group, as a terminal would.
    pub fn signal(&self, signal: i32) {
        self.order(ToWarden::Signal { signal });
    }

    /// Stops the command and everything below it: the signal, the grace, then no mercy.
    pub fn stop(&self, signal: i32, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.order(ToWarden::Stop {
            signal,
            grace_ms,
            because: protocol::EndedBy::Stopped,
        });
    }

    fn order(&self, order: ToWarden) {
        // The driver is gone only when the run is over: then there is nothing to order.
        let _ = self.orders.send(order);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.stop_on_drop {
            self.control
                .stop(rustix::process::Signal::TERM.as_raw(), DROP_GRACE);
        }
    }
}

/// Drives one warden until its run is over and nothing is left below it.
pub(crate) async fn drive(
    inner: Arc<Inner>,
    task_id: TaskId,
    mut channel: Channel,
    mut orders: mpsc::UnboundedReceiver<ToWarden>,
    progress: watch::Sender<Progress>,
) {
    loop {
        let message = tokio::select! {
            message = channel.receive() => message,
            Some(order) = orders.recv() => {
                // A warden that is gone is noticed by the receive above.
                let _ = channel.send(&order, &[]).await;
                continue;
            }
        };
        match message {
            Ok(FromWarden::Grew) => progress.send_modify(|progress| progress.grown += 1),
            Ok(FromWarden::Ended(record)) => {
                let outcome = Outcome::from(&*record);
                if settle(&inner, &task_id, outcome, &progress).await.is_ok() {
                    let _ = channel.send(&ToWarden::Committed, &[]).await;
                }
            }
            Ok(FromWarden::StartFailed(failure)) => {
                inner.record_failed_start(&task_id, &failure).await;
                progress.send_modify(|progress| progress.end = Some(Ending::NeverStarted(failure)));
                break;
            }
            Ok(FromWarden::Hello { .. } | FromWarden::Stopped { .. }) => {}
            Err(_) => {
                if progress.borrow().end.is_none() {
                    let outcome = inner.outcome_without_warden(&task_id);
                    let _ = settle(&inner, &task_id, outcome, &progress).await;
                }
                break;
            }
        }
    }
    inner.leave(&task_id);
}

/// Commits an outcome, then tells whoever waits.
///
/// If the commit fails the answer is given all the same: the exit record in the folder is the truth, and
/// the ledger is set right from it later.
async fn settle(
    inner: &Inner,
    task_id: &TaskId,
    outcome: Outcome,
    progress: &watch::Sender<Progress>,
) -> io::Result<()> {
    let committed = inner.ledger.finish(task_id, &outcome).await;
    if let Err(error) = &committed {
        tracing::warn!(%task_id, %error, "the outcome is not in the ledger yet");
    }
    let ending = Ending::Ended(Arc::new(outcome));
    progress.send_modify(|progress| progress.end = Some(ending));
    committed.map_err(io::Error::other)
}
