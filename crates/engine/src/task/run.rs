//! A run: one command in progress. A driver owns the warden's channel; callers hold a [`Run`].

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_warden::protocol::{
    self, FromWarden, KeptOutput, Met, NewOutput, Order, Report, StartFailure, ToWarden, WatchFor,
};
use legwork_warden::{failpoint::Failpoint, folder::Stream};
use tokio::sync::{mpsc, watch};

use super::{
    Tasks, adopt::record_again, delayed::DelayedStart, failures::start_error, names::note_later,
    programs::ProgramQuestions,
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{Denial, Outcome, network::NETWORK_LAYER, sandbox::SandboxReport, status::Status},
    output::{SmallOutput, TaskOutput},
    place::{Attending, DROP_GRACE, Place, TamperCheck, Warden},
    platform::Signal,
    store::audit::AuditEntry,
    trace::{Trace, TraceSpan},
};

/// How far a run is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Goes up whenever a follower is told of new output.
    grown: u64,
    /// What was told last.
    growth: Option<NewOutput>,
    /// Goes up with every report.
    reported: u64,
    report: Option<Report>,
    /// Goes up whenever the command is found to wait for input, where somebody looks for that.
    waited: u64,
    /// Who has it.
    warden: Arc<str>,
    /// Whether its warden has not got it yet.
    delayed: bool,
    /// Whether it waits in a queue, and why.
    queued: Option<InQueue>,
    /// Whether the output is known to be in the task's folder.
    spilled: bool,
    /// Set when it is over.
    pub end: Option<Ending>,
}

/// A wait in a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct InQueue {
    /// Why, in the word of the scheduler.
    pub reason: Option<String>,
}

impl Progress {
    /// Answers who asks for a report of a command that has not been started yet.
    pub(super) fn report_nothing(&mut self) {
        self.reported += 1;
    }

    #[cfg(test)]
    pub(super) fn is_reported(&self) -> bool {
        self.reported > 0
    }

    /// Of a command that its warden gets now, or a little later.
    pub(super) fn begin(warden: &str, delayed: bool) -> Self {
        Self { warden: warden.into(), delayed, ..Self::default() }
    }

    /// Of a command that waits in a queue, or is about to be given to one.
    pub(super) fn queued(delayed: bool) -> Self {
        Self { delayed, queued: Some(InQueue::default()), ..Self::default() }
    }

    /// It waits in a queue, for this reason.
    pub(super) fn waits_for(&mut self, reason: Option<String>) {
        self.queued = Some(InQueue { reason });
    }

    /// It waits no longer.
    pub(super) fn runs(&mut self) {
        self.queued = None;
    }

    /// Its warden, or a scheduler, has got it.
    pub(super) fn handed_over(&mut self) {
        self.delayed = false;
    }

    /// Whether it no longer depends on this process that the command runs.
    pub(super) fn is_out_of_our_hands(&self) -> bool {
        !self.delayed || self.end.is_some()
    }
}

/// How a run was over.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Ended(Ended),
    NeverStarted(StartFailure),
    /// A scheduler, or the machine that it chose, has refused it.
    NotStarted(Box<ToolError>),
    /// It was stopped, and these processes could not be ended.
    Survived(Vec<u32>),
}

/// The end of a run: what is recorded of it, and its output if that is in no folder.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub outcome: Arc<Outcome>,
    small: Option<Arc<SmallOutput>>,
}

impl Ended {
    pub(super) fn with(outcome: Outcome, small: Option<Arc<SmallOutput>>) -> Self {
        Self { outcome: Arc::new(outcome), small }
    }

    pub(super) fn lost(reason: &str) -> Self {
        Self { outcome: Arc::new(Outcome::lost(reason)), small: None }
    }
}

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
    program: String,
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
        program: String,
        place: Arc<dyn Place>,
        (control, progress): (RunControl, watch::Receiver<Progress>),
        promoted: Arc<AtomicBool>,
        attending: Attending,
        sandbox: Arc<SandboxReport>,
    ) -> Self {
        Self {
            task_id,
            program,
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
                Err(start_error(&*self.place, &self.program, &failure))
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

/// Drives one warden until its run is over and nothing is left below it.
pub(super) async fn drive(
    tasks: Arc<Tasks>,
    task_id: TaskId,
    (mut warden, delayed): (Warden, Option<DelayedStart>),
    (mut orders, progress): (mpsc::UnboundedReceiver<Order>, watch::Sender<Progress>),
    mut tamper_check: Option<TamperCheck>,
    mut questions: ProgramQuestions,
    mut traced: RunTrace,
) {
    let order = |order| ToWarden::Order { task: task_id.to_string(), order };
    if let Some(delayed) = delayed {
        for wanted in delayed.start(&mut warden, &mut orders, &progress).await {
            give(&tasks, &task_id, &mut warden, wanted).await;
        }
    }
    loop {
        let message = tokio::select! {
            message = warden.channel.receive(task_id.as_str()) => message,
            Some(wanted) = orders.recv() => {
                give(&tasks, &task_id, &mut warden, wanted).await;
                continue;
            }
        };
        match message {
            Ok(FromWarden::Ended(ended)) => {
                Failpoint::EngineHeardEnd.pass();
                warden.set_free();
                let reusable = ended.reusable;
                gather(&tasks, &task_id, &warden.name, &ended).await;
                let mut outcome = Outcome::of(&ended);
                let known = (tamper_check.take(), &questions);
                complete(&tasks, &task_id, &mut outcome, known).await;
                let span = traced.ended(&outcome);
                let (name, kept) = (&warden.name, ended.kept);
                let committed =
                    record(&tasks, (&task_id, name), outcome, kept, &progress, span).await;
                Failpoint::EngineBeforeFarewell.pass();
                if committed && reusable {
                    warden.owe_committed(task_id.as_str());
                    // One that was adopted would give the next command the environment of a dead
                    // engine: letting go of it ends it.
                    if warden.ours || warden.once {
                        tasks.place_of(&warden.name).give_back(warden);
                    }
                    break;
                }
                if !committed || warden.channel.send(&order(Order::Committed)).await.is_err() {
                    // Letting go of it makes the warden store what it has, again and again.
                    break;
                }
            }
            Ok(FromWarden::StartFailed(failure)) => {
                traced.run.fail(SPAWN_FAILED);
                note_failed_start(&tasks, &task_id, failure, &progress).await;
                warden.set_free();
                // It is as clean as before.
                tasks.place_of(&warden.name).give_back(warden);
                break;
            }
            Ok(FromWarden::ProgramHeld(held)) => questions.ask(&tasks, held),
            Ok(FromWarden::NameHeld(held)) => questions.ask_about_name(&tasks, held),
            Ok(FromWarden::ConnectedLater(all)) => note_later(&tasks, &task_id, &all).await,
            Ok(message) => {
                if matches!(message, FromWarden::Spilled(true)) {
                    tasks.place_of(&warden.name).note_stored(&task_id);
                }
                pass_on(message, &progress);
            }
            Err(error) => {
                let lost = (&*warden.name, error.kind());
                match after_loss(&tasks, &task_id, lost, &progress, &mut traced).await {
                    Some(again) => warden = again,
                    None => break,
                }
            }
        }
    }
    tasks.leave(&task_id);
}

/// Adds to an outcome what the warden does not know: what was brought that others run or trust, who
/// refused what, and what is in a layer.
async fn complete(
    tasks: &Arc<Tasks>,
    task_id: &TaskId,
    outcome: &mut Outcome,
    (tamper_check, questions): (Option<TamperCheck>, &ProgramQuestions),
) {
    if let Some(check) = tamper_check {
        outcome.warnings = check.warnings().await;
    }
    questions.explain(outcome);
    tasks.note_outside(task_id, outcome).await;
}

/// Records that a command could not be started, and tells who waits for it.
async fn note_failed_start(
    tasks: &Arc<Tasks>,
    task_id: &TaskId,
    failure: StartFailure,
    progress: &watch::Sender<Progress>,
) {
    tasks.record_failed_start(task_id, &failure).await;
    progress.send_modify(|progress| progress.end = Some(Ending::NeverStarted(failure)));
}

/// The warden again where only the connection to it was lost; else what it left is recorded.
async fn after_loss(
    tasks: &Arc<Tasks>,
    task_id: &TaskId,
    (warden, problem): (&str, io::ErrorKind),
    progress: &watch::Sender<Progress>,
    traced: &mut RunTrace,
) -> Option<Warden> {
    if matches!(progress.borrow().end, Some(Ending::Ended(_))) {
        return None;
    }
    if problem == io::ErrorKind::NotConnected
        && let Some(again) = tasks.rejoin(task_id, warden).await
    {
        return Some(again);
    }
    let outcome = Arc::new(tasks.outcome_without_warden(warden, task_id).await);
    let span = traced.ended(&outcome);
    let ended = Ended { outcome, small: None };
    settle(tasks, task_id, ended, progress, span).await;
    None
}

/// Records how a run ended, and what it printed; says whether that is committed.
async fn record(
    tasks: &Arc<Tasks>,
    (task_id, warden): (&TaskId, &str),
    outcome: Outcome,
    kept: KeptOutput,
    progress: &watch::Sender<Progress>,
    span: TraceSpan,
) -> bool {
    if matches!(kept, KeptOutput::Folder) {
        tasks.place.note_stored(task_id);
    }
    note_refused(tasks, task_id, &outcome).await;
    let is_alone = outcome.background_pids.is_empty();
    let ended = Ended { outcome: Arc::new(outcome), small: small_output(kept) };
    let is_stored = ended.small.is_none();
    let committed = settle(tasks, task_id, ended, progress, span).await;
    if committed && is_alone {
        tasks.forget_there(warden, task_id, is_stored);
    }
    committed
}

/// Brings what a command elsewhere has left to this machine, before anybody hears of its end.
async fn gather(tasks: &Tasks, task_id: &TaskId, warden: &str, ended: &protocol::RunEnd) {
    if !Tasks::is_far(warden) {
        return;
    }
    if matches!(ended.kept, KeptOutput::Folder) {
        tasks.bring(warden, task_id).await;
    }
    let (place, pids) = (tasks.place_of(warden), &ended.record.background_pids);
    if !pids.is_empty()
        && let Some(learning) = place.learn_processes(pids)
    {
        learning.await;
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

/// Tells whoever waits what a warden said while its run goes on.
fn pass_on(message: FromWarden, progress: &watch::Sender<Progress>) {
    match message {
        FromWarden::Grew(growth) => progress.send_modify(|progress| {
            progress.grown += 1;
            progress.growth = Some(growth);
        }),
        FromWarden::Report(report) => progress.send_modify(|progress| {
            progress.reported += 1;
            progress.report = Some(*report);
        }),
        FromWarden::Met(Met::WaitingForInput) => {
            progress.send_modify(|progress| progress.waited += 1);
        }
        FromWarden::Spilled(spilled) => {
            progress.send_modify(|progress| progress.spilled = spilled);
        }
        FromWarden::Stopped { survivors } if !survivors.is_empty() => {
            give_up_on(survivors, progress);
        }
        // What only observers ask for.
        _ => {}
    }
}

/// A stop is through and these still run: the row says so, but nobody waits for them any longer.
fn give_up_on(survivors: Vec<u32>, progress: &watch::Sender<Progress>) {
    progress.send_if_modified(|progress| {
        let waited_for = progress.end.is_none();
        progress.end.get_or_insert(Ending::Survived(survivors));
        waited_for
    });
}

/// A stop that could not end everything.
pub(crate) fn survived(pids: &[u32]) -> ToolError {
    let shown: Vec<String> = pids.iter().map(u32::to_string).collect();
    ToolError::new(
        ErrorKind::ToolExecutionFailed,
        format!(
            "the command was stopped, but these processes cannot be ended: {}",
            shown.join(", ")
        ),
    )
    .detail("survivors", pids.to_vec())
    .hint("they belong to another user, or wait for a device; the task stays listed until they end")
}

pub(crate) fn small_output(kept: KeptOutput) -> Option<Arc<SmallOutput>> {
    match kept {
        KeptOutput::Folder => None,
        KeptOutput::Memory { stdout, stderr, timeline } => {
            Some(Arc::new(SmallOutput { stdout, stderr, timeline }))
        }
    }
}

/// Commits an outcome, then tells whoever waits; says whether it is committed.
///
/// If the commit fails the answer is given all the same: the warden keeps the outcome until it is
/// on disk, and the ledger is set right from there later.
async fn settle(
    tasks: &Arc<Tasks>,
    task_id: &TaskId,
    ended: Ended,
    progress: &watch::Sender<Progress>,
    mut span: TraceSpan,
) -> bool {
    let committed = tasks.finish(task_id, &ended.outcome, ended.small.clone()).await;
    if let Err(error) = &committed {
        span.fail(ErrorKind::StateUnavailable.as_str());
        tracing::warn!(%task_id, %error, "the outcome is not in the ledger yet");
        tokio::spawn(record_again(Arc::downgrade(tasks), task_id.clone()));
    }
    // Before anybody hears of the end, so that it is not forgotten in a farewell.
    drop(span);
    progress.send_modify(|progress| {
        progress.end.get_or_insert(Ending::Ended(ended));
    });
    committed.is_ok()
}
