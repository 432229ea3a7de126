//! The driver of a run: owns the warden's channel from the start of a command until it is over.
//!
//! It passes orders on, writes the progress that callers read, and has every end recorded before it
//! is told. It may call the store, the judge's questions and the warden's place.

use std::{io, sync::Arc};

use legwork_warden::{
    failpoint::Failpoint,
    protocol::{FromWarden, KeptOutput, Order, RunEnd, ToWarden},
};
use tokio::sync::{mpsc, watch};

use super::{
    Tasks,
    adopt::record_again,
    delayed::DelayedStart,
    names::note_later,
    programs::ProgramQuestions,
    progress::{Ended, Ending, Progress, small_output},
};
use crate::{
    error::ErrorKind,
    id::TaskId,
    model::{Denial, Outcome, network::NETWORK_LAYER, status::Status},
    place::{TamperCheck, Warden},
    store::audit::AuditEntry,
    trace::{Trace, TraceSpan},
};

/// Drives one warden until its run is over and nothing is left below it.
pub(super) struct RunDriver {
    pub tasks: Arc<Tasks>,
    pub task_id: TaskId,
    pub warden: Warden,
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub progress: watch::Sender<Progress>,
    /// Sees at the end what the command has brought that others run or trust.
    pub tamper_check: Option<TamperCheck>,
    pub questions: ProgramQuestions,
    pub traced: RunTrace,
}

/// What a driver does after a message.
enum Next {
    /// Listens to the warden further.
    Listen,
    /// Gives the warden back to its place: it is as clean as before.
    GiveBack,
    /// Lets go of the warden, which ends it, or leaves what it could not hand over in its care.
    LetGo,
}

impl RunDriver {
    /// Drives it; a command that is to be started later is started first.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep what it is given twice")]
    pub(super) fn drive(mut self, delayed: Option<DelayedStart>) -> impl Future<Output = ()> {
        async move {
            if let Some(delayed) = delayed {
                let starting = delayed.start(&mut self.warden, &mut self.orders, &self.progress);
                for order in starting.await {
                    self.give(order).await;
                }
            }
            loop {
                match self.next().await {
                    Next::Listen => {}
                    Next::GiveBack => {
                        self.tasks.place_of(&self.warden.name).give_back(self.warden);
                        break;
                    }
                    Next::LetGo => break,
                }
            }
            self.tasks.leave(&self.task_id);
        }
    }

    /// Waits for what comes next, an order or a word of the warden, and sees to it.
    async fn next(&mut self) -> Next {
        let message = tokio::select! {
            message = self.warden.channel.receive(self.task_id.as_str()) => message,
            Some(order) = self.orders.recv() => {
                self.give(order).await;
                return Next::Listen;
            }
        };
        match message {
            Ok(message) => self.hear(message).await,
            Err(error) => self.lose(error.kind()).await,
        }
    }

    /// Gives an order to the warden; one that is gone is noticed by whoever listens to it.
    async fn give(&mut self, order: Order) {
        give(&self.tasks, &self.task_id, &mut self.warden, order).await;
    }

    async fn hear(&mut self, message: FromWarden) -> Next {
        let (tasks, task_id) = (&self.tasks, &self.task_id);
        match message {
            FromWarden::Ended(ended) => return self.end(ended).await,
            FromWarden::StartFailed(failure) => {
                self.traced.run.fail(SPAWN_FAILED);
                tasks.record_failed_start(task_id, &failure).await;
                let end = Some(Ending::NeverStarted(failure));
                self.progress.send_modify(|progress| progress.end = end);
                self.warden.set_free();
                return Next::GiveBack;
            }
            FromWarden::ProgramHeld(held) => self.questions.ask(tasks, held),
            FromWarden::NameHeld(held) => self.questions.ask_about_name(tasks, held),
            FromWarden::ConnectedLater(all) => note_later(tasks, task_id, &all).await,
            message => {
                if matches!(message, FromWarden::Spilled(true)) {
                    tasks.place_of(&self.warden.name).note_stored(task_id);
                }
                self.progress.send_if_modified(|progress| progress.hear(message));
            }
        }
        Next::Listen
    }

    /// The command has ended: that is recorded, then told.
    async fn end(&mut self, ended: Box<RunEnd>) -> Next {
        Failpoint::EngineHeardEnd.pass();
        self.warden.set_free();
        let reusable = ended.reusable;
        self.gather(&ended).await;
        let mut outcome = Outcome::of(&ended);
        self.complete(&mut outcome).await;
        let span = self.traced.ended(&outcome);
        let committed = self.record(Ended::with(outcome, small_output(ended.kept)), span).await;
        Failpoint::EngineBeforeFarewell.pass();
        if !committed {
            // Letting go of it makes the warden store what it has, again and again.
            return Next::LetGo;
        }
        if reusable {
            self.warden.owe_committed(self.task_id.as_str());
            // One that was adopted would give the next command the environment of a dead engine:
            // letting go of it ends it.
            let may_serve = self.warden.ours || self.warden.once;
            return if may_serve { Next::GiveBack } else { Next::LetGo };
        }
        let task = self.task_id.to_string();
        let committed = ToWarden::Order { task, order: Order::Committed };
        match self.warden.channel.send(&committed).await {
            Ok(()) => Next::Listen,
            Err(_) => Next::LetGo,
        }
    }

    /// The warden is gone, or the way to it: it is reached again where only the connection was
    /// lost; else what it left is recorded.
    async fn lose(&mut self, problem: io::ErrorKind) -> Next {
        if matches!(self.progress.borrow().end, Some(Ending::Ended(_))) {
            return Next::LetGo;
        }
        let name = &self.warden.name;
        if problem == io::ErrorKind::NotConnected
            && let Some(again) = self.tasks.rejoin(&self.task_id, name).await
        {
            self.warden = again;
            return Next::Listen;
        }
        let mut outcome = self.tasks.outcome_without_warden(name, &self.task_id).await;
        self.compare(&mut outcome).await;
        let span = self.traced.ended(&outcome);
        self.settle(Ended::with(outcome, None), span).await;
        Next::LetGo
    }

    /// Adds to an outcome what the warden does not know: what was brought that others run or trust,
    /// and who refused what.
    async fn complete(&mut self, outcome: &mut Outcome) {
        self.compare(outcome).await;
        self.questions.explain(outcome);
    }

    /// Adds what was brought that others run or trust.
    async fn compare(&mut self, outcome: &mut Outcome) {
        if let Some(check) = self.tamper_check.take() {
            let leaves = !outcome.background_pids.is_empty();
            outcome.warnings = check.warnings(leaves).await;
        }
    }

    /// Brings what a command elsewhere has left to this machine, before anybody hears of its end.
    async fn gather(&mut self, ended: &RunEnd) {
        let warden = &self.warden.name;
        if !Tasks::is_far(warden) {
            return;
        }
        if matches!(ended.kept, KeptOutput::Folder) {
            self.tasks.bring(warden, &self.task_id).await;
        }
        let (place, pids) = (self.tasks.place_of(warden), &ended.record.background_pids);
        if !pids.is_empty()
            && let Some(learning) = place.learn_processes(pids)
        {
            learning.await;
        }
    }

    /// Records how a run ended, and what it printed; says whether that is committed.
    async fn record(&mut self, ended: Ended, span: TraceSpan) -> bool {
        let is_stored = ended.small.is_none();
        if is_stored {
            self.tasks.place.note_stored(&self.task_id);
        }
        note_refused(&self.tasks, &self.task_id, &ended.outcome).await;
        let is_alone = ended.outcome.background_pids.is_empty();
        let committed = self.settle(ended, span).await;
        if committed && is_alone {
            self.tasks.forget_there(&self.warden.name, &self.task_id, is_stored);
        }
        committed
    }

    /// Commits an outcome, then tells whoever waits; says whether it is committed.
    ///
    /// If the commit fails the answer is given all the same: the warden keeps the outcome until it
    /// is on disk, and the ledger is set right from there later.
    async fn settle(&mut self, ended: Ended, mut span: TraceSpan) -> bool {
        let task_id = &self.task_id;
        let committed = self.tasks.finish(task_id, &ended.outcome, ended.small.clone()).await;
        if let Err(error) = &committed {
            span.fail(ErrorKind::StateUnavailable.as_str());
            tracing::warn!(%task_id, %error, "the outcome is not in the ledger yet");
            tokio::spawn(record_again(self.tasks.downgrade(), task_id.clone()));
        }
        // Before anybody hears of the end, so that it is not forgotten in a farewell.
        drop(span);
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(Ending::Ended(ended));
        });
        committed.is_ok()
    }
}

/// Gives an order to a warden; one that is gone is noticed by whoever listens to it.
pub(super) async fn give(tasks: &Tasks, task_id: &TaskId, warden: &mut Warden, order: Order) {
    if matches!(order, Order::Stop { .. }) {
        let _ = tasks.store.ledger.cancelling(task_id).await;
    }
    let task = task_id.to_string();
    let _ = warden.channel.send(&ToWarden::Order { task, order }).await;
}

/// Notes the programs that a rule has kept the command from executing.
async fn note_refused(tasks: &Tasks, task_id: &TaskId, outcome: &Outcome) {
    let is_program = |denial: &&Denial| denial.rule.is_some() && denial.layer != NETWORK_LAYER;
    for denial in outcome.denials.iter().filter(is_program) {
        let entry = AuditEntry::new("program_refused")
            .own("task_id", task_id)
            .own("layer", &denial.layer)
            .with("rule", denial.rule.as_deref())
            .with("what", denial.what.as_str());
        tasks.store.note(entry).await;
    }
}

/// The part of a run in the trace of its call.
#[derive(Debug, Default)]
pub(super) struct RunTrace {
    trace: Option<Trace>,
    /// Until the command has ended.
    run: TraceSpan,
}

impl RunTrace {
    pub(super) fn begin(trace: Option<Trace>, id: &TaskId) -> Self {
        let mut run = trace.as_ref().map(|trace| trace.begin("run")).unwrap_or_default();
        run.set("legwork.task.id", || id.to_string());
        Self { trace, run }
    }

    /// The command has ended; what follows is the record of it.
    pub(super) fn ended(&mut self, outcome: &Outcome) -> TraceSpan {
        let mut run = std::mem::take(&mut self.run);
        let (status, reason) = Status::of(outcome);
        run.set("legwork.task.status", || status.as_str());
        if let Some(code) = outcome.exit_status {
            run.set("process.exit.code", || i64::from(code));
        }
        if let Some(reason) = reason {
            run.set("legwork.task.reason", || reason.to_owned());
        }
        if outcome.lost.is_some() {
            run.fail(LOST);
        }
        drop(run);
        self.trace.as_ref().map(|trace| trace.begin("settle")).unwrap_or_default()
    }
}

/// The errors of a run in a trace.
const SPAWN_FAILED: &str = "spawn_failed";
const LOST: &str = "outcome_unknown";
