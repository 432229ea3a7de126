//! The life of a task: planned, judged, started, driven, observed, waited for, settled, adopted.
//!
//! It may call the judge, the store, a place and the output's readers; never a tool or a face.

pub(crate) mod adopt;
mod anchoring;
mod attend;
mod checker;
mod delayed;
mod drive;
mod failures;
mod foreign;
pub(crate) mod input;
mod listing;
mod names;
pub(crate) mod observe;
pub(crate) mod places;
mod plan;
mod programs;
pub(crate) mod progress;
mod queue;
pub(crate) mod rights;
pub(crate) mod run;
pub(crate) mod sandbox_facts;
mod settle;
mod start;
#[cfg(test)]
mod tests;
mod tidy;
pub(crate) mod trials;
mod try_first;
pub(crate) mod versions;
pub(crate) mod wait;
mod waiting;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_gate::{Explanation, Grant, Question, Subject, Verdict, written_paths};
use tokio::{sync::watch, task::AbortHandle};

pub(crate) use self::failures::{place_error, survived};
pub use self::{
    checker::Checker,
    foreign::{ForeignShell, ForeignVerdict},
};
use self::{
    failures::unprotected,
    places::{Places, no_warden},
    plan::{Plan, Surroundings},
    progress::Progress,
    run::{Run, RunControl},
    versions::Versions,
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::{Judge, denied},
    meters::WardenCount,
    model::{
        Caller, DuplicatePolicy, Request, Trust,
        sandbox::{SandboxReport, Wanted},
    },
    output::SharedMask,
    place::{Attention, Folder, Place, Sandbox},
    platform::Signal,
    store::{Store, audit::AuditEntry, ledger::Task},
    trace::TraceSpan,
};

/// How long a command may take to disappear after it was killed.
pub(crate) const DEATH: Duration = Duration::from_secs(3);

/// Every trust that a caller can have.
const TRUSTS: [Trust; 4] = [
    Trust::TrustedOperator,
    Trust::TrustedSystem,
    Trust::TrustedIntegration,
    Trust::UntrustedExternal,
];

/// Most paths that a question names which the sandbox refuses to be written.
const WRITES_MAX: usize = 20;

/// What became of a request.
#[derive(Debug)]
pub enum Submitted {
    /// It was started.
    Started(Run),
    /// An equal command is running already.
    AlreadyRunning(Box<Task>),
}

/// The tasks of one engine, and what they need: a judge, a store and a place. There is one for each
/// version of the configuration ([`Versions`]), and a call goes by one from its beginning to its
/// end; what runs is known to all of them.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    pub judge: Judge,
    pub store: Store,
    /// This machine.
    pub place: Arc<dyn Place>,
    /// Other machines.
    pub places: Arc<Places>,
    pub mask: SharedMask,
    pub ground: Arc<Ground>,
    /// How long a command may run on without any engine before its warden stops it.
    pub orphan_ttl: Duration,
    /// Who waits for a command.
    attention: Attention,
    running: Arc<Mutex<HashMap<TaskId, Running>>>,
    /// Commands that were tried, and about which a question is open that nobody here waits for.
    tried: Arc<Mutex<HashMap<TaskId, Run>>>,
    /// Who attends to waits for input, while anybody looks live.
    attendant: Arc<Mutex<Option<AbortHandle>>>,
    /// Where the current version is; nowhere if the engine is gone.
    versions: Weak<Versions>,
}

/// Where the tasks of one engine belong.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    /// The folder that commands run in by default, opened once.
    pub workspace: Folder,
    /// The workspace, and the other folders that commands may run in.
    pub roots: Vec<PathBuf>,
    /// Whether the tasks of all workspaces may be known.
    pub all_workspaces: bool,
    /// Variables of our own environment that commands do not get.
    pub unset: Vec<String>,
}

/// A run whose channel this engine holds.
#[derive(Debug)]
struct Running {
    control: RunControl,
    progress: watch::Receiver<Progress>,
    /// Set when nobody waits for it any more, and it goes on as a task.
    promoted: Arc<AtomicBool>,
}

/// Ends a span with what came of it.
fn over<T>(mut span: TraceSpan, result: Result<T, ToolError>) -> Result<T, ToolError> {
    if let Err(error) = &result {
        span.fail(error.kind.as_str());
    }
    result
}

/// The name of a verdict.
fn named<P>(verdict: &Verdict<P>) -> &'static str {
    match verdict {
        Verdict::Allow(_) => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny(_) => "deny",
    }
}

/// Lets a command be tried that would have to be asked about: nothing comes of it that cannot be
/// forgotten.
fn only_tried(question: Question<Plan>) -> Grant<Plan> {
    let explanation = question.explanation();
    let reason = format!("only tried, on a copy; otherwise: {}", explanation.reason);
    let tried = Explanation { rule: "trial".into(), reason, ..explanation.clone() };
    question.approve(tried)
}

impl Tasks {
    pub(crate) fn new(
        judge: Judge,
        store: Store,
        (place, places): (Arc<dyn Place>, Places),
        mask: SharedMask,
        ground: Ground,
        orphan_ttl: Duration,
    ) -> Self {
        Self {
            judge,
            store,
            place,
            places: Arc::new(places),
            mask,
            ground: Arc::new(ground),
            orphan_ttl,
            attention: Attention::default(),
            running: Arc::default(),
            tried: Arc::default(),
            attendant: Arc::default(),
            versions: Weak::new(),
        }
    }

    /// The same tasks by another version of the configuration.
    pub(crate) fn by(
        &self,
        judge: Judge,
        (place, places): (Arc<dyn Place>, Places),
        ground: Ground,
        orphan_ttl: Duration,
    ) -> Self {
        let (places, ground) = (Arc::new(places), Arc::new(ground));
        Self { judge, place, places, ground, orphan_ttl, ..self.clone() }
    }

    /// The workspace, as a real path.
    pub(crate) fn workspace(&self) -> &Path {
        &self.ground.workspace.path
    }

    /// Takes a request through plan, gate and ledger to a running command. A request that comes to
    /// nothing is noted.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        request: Request,
        caller: &Caller,
    ) -> Result<Submitted, ToolError> {
        self.mask.learn(&request.environment);
        let id = TaskId::random().map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })?;
        let (tool, text) = (request.tool.clone(), request.program.text());
        let is_trial = request.trial.is_some();
        match self.try_submit(id.clone(), request, caller).await {
            Ok(submitted) => Ok(submitted),
            Err(error) => {
                if is_trial {
                    // If it cannot be removed now, the clean-up does it.
                    let _ = self.forget_trial(&id).await;
                }
                let entry = AuditEntry::refused(&error).own("task_id", &id).own("tool", &tool);
                self.store.note(entry.by(caller).command(&text)).await;
                Err(ToolError { noted: true, ..error })
            }
        }
    }

    async fn try_submit(
        self: &Arc<Self>,
        id: TaskId,
        request: Request,
        caller: &Caller,
    ) -> Result<Submitted, ToolError> {
        self.judge.check()?;
        let span = caller.span("plan");
        let plan = over(span, self.plan(request, caller.trust).await)?;
        let mut span = caller.span("judge");
        let verdict = self.judged(&id, plan, caller).await;
        if let Ok(verdict) = &verdict {
            span.set("legwork.verdict", || named(verdict));
        }
        match over(span, verdict)? {
            Verdict::Allow(grant) => self.begin(id, grant, caller).await,
            Verdict::Ask(question) if question.plan().is_trial => {
                self.begin(id, only_tried(question), caller).await
            }
            Verdict::Ask(question) => {
                if let Some(running) = self.equal_running(&question, caller).await? {
                    return Ok(Submitted::AlreadyRunning(running));
                }
                let refused = self.refused_writes(&question).await?;
                let (span, may_try) = (caller.span("ask"), question.plan().place().can_try());
                // A person takes longer than a box: what is boxed keeps the way of others short.
                let asked = self.judge.ask(question, caller, refused.clone(), may_try);
                let asked = Box::pin(asked).await;
                Box::pin(self.after_question(id, over(span, asked)?, caller, refused)).await
            }
            Verdict::Deny(denial) => Err(denied(denial)),
        }
    }

    /// The paths that a command names to write to, and that its sandbox will not let it write.
    async fn refused_writes(&self, question: &Question<Plan>) -> Result<Vec<String>, ToolError> {
        let plan = question.plan();
        let wanted = self.judge.wanted_by(plan.wanted, question.explanation());
        let paths = written_paths(plan.script());
        let place = plan.place();
        if paths.is_empty() || self.sandbox_at(place, wanted).await?.is_none() {
            return Ok(Vec::new());
        }
        let paths = paths.into_iter().map(|path| plan.workdir.path.join(path));
        let refused = place.refused_writes(wanted, paths.take(WRITES_MAX).collect()).await;
        Ok(refused.iter().map(|path| path.display().to_string()).collect())
    }

    /// Whether a plan may run; the audit log has the verdict.
    async fn judged(
        &self,
        id: &TaskId,
        plan: Plan,
        caller: &Caller,
    ) -> Result<Verdict<Plan>, ToolError> {
        let entry = AuditEntry::new("verdict")
            .own("task_id", id)
            .own("tool", &plan.tool)
            .by(caller)
            .command(&plan.text)
            .with("workdir", plan.workdir.path.display().to_string());
        let entry = match plan.place().name() {
            Some(place) => entry.own("place", place),
            None => entry,
        };
        let entry = match &plan.description {
            Some(words) => entry.with("description", words.as_str()),
            None => entry,
        };
        self.judge.verdict(plan, entry).await
    }

    /// Decides everything about a request but whether it may run.
    async fn plan(&self, mut request: Request, trust: Trust) -> Result<Plan, ToolError> {
        let place = self.place_for(&request)?;
        let mut wanted = self.judge.wanted(trust);
        let whole = if let Some(wish) = request.trial {
            wanted = wanted.to_try(wish.network);
            // Where it cannot be, it is not started.
            true
        } else {
            let sandbox = self.sandbox_at(&place, wanted).await?;
            sandbox.is_some_and(|sandbox| sandbox.is_whole())
        };
        request.tighten(&self.judge.settings.task_limits);
        let around = Surroundings { trust, wanted, sandboxed: whole };
        self.plan_at(&place, request, around).await
    }

    /// Judges texts as they would be judged before they run.
    pub(crate) async fn checker(
        self: &Arc<Self>,
        request: Request,
        trust: Trust,
    ) -> Result<Checker, ToolError> {
        self.judge.check()?;
        Ok(Checker::new(self.clone(), self.plan(request, trust).await?))
    }

    /// Starts a command, also where an equal one is running.
    pub(crate) async fn start_new(
        self: &Arc<Self>,
        mut request: Request,
        caller: &Caller,
    ) -> Result<Run, ToolError> {
        request.duplicates = DuplicatePolicy::StartNew;
        match self.submit(request, caller).await? {
            Submitted::Started(run) => Ok(run),
            Submitted::AlreadyRunning(task) => Err(ToolError::new(
                ErrorKind::ToolExecutionFailed,
                format!("task {} was joined instead of a new one being started", task.task_id),
            )),
        }
    }

    /// What commands of this trust are confined by; an error if that is less than is required.
    pub(crate) async fn protection(&self, trust: Trust) -> Result<Arc<SandboxReport>, ToolError> {
        match self.sandbox(self.judge.wanted(trust)).await? {
            Some(sandbox) => {
                self.check(&sandbox)?;
                Ok(sandbox.report.clone())
            }
            None => Ok(Arc::default()),
        }
    }

    /// Whether a command of this trust could start now: the ledger takes records, and a warden with
    /// its sandbox is ready.
    pub(crate) async fn ready(&self, trust: Trust) -> Result<(), ToolError> {
        self.judge.check()?;
        self.store.ledger.is_writable().await?;
        let ready = self.place.ready(self.judge.wanted(trust)).await;
        let (warden, sandbox) = ready.map_err(|error| place_error(&error))?;
        self.place.give_back(warden);
        sandbox.map_or(Ok(()), |sandbox| self.check(&sandbox))
    }

    /// An error if a sandbox is less than is required.
    fn check(&self, sandbox: &Sandbox) -> Result<(), ToolError> {
        if self.judge.requires_protection() && !sandbox.is_whole() {
            return Err(unprotected(&sandbox.report));
        }
        Ok(())
    }

    /// The sandbox of this kind as this machine makes it; a warden is asked the first time.
    pub(crate) async fn sandbox(&self, wanted: Wanted) -> Result<Option<Arc<Sandbox>>, ToolError> {
        self.sandbox_at(&self.place, wanted).await
    }

    /// The same at a place.
    pub(crate) async fn sandbox_at(
        &self,
        place: &Arc<dyn Place>,
        wanted: Wanted,
    ) -> Result<Option<Arc<Sandbox>>, ToolError> {
        if wanted.level == legwork_gate::Level::None {
            return Ok(None);
        }
        if let Some(known) = place.known_sandbox(wanted) {
            return Ok(Some(known));
        }
        let ready = place.ready(wanted).await;
        let (warden, sandbox) = ready.map_err(|error| no_warden(&**place, &error))?;
        place.give_back(warden);
        Ok(sandbox)
    }

    /// How many wardens are ready, and how many have a command of this engine.
    pub(crate) fn wardens(&self) -> WardenCount {
        WardenCount { busy: self.running().len(), ..self.place.idle_wardens() }
    }

    /// The layers that the sandboxes which are known lack.
    pub(crate) fn missing_layers(&self) -> Vec<String> {
        let known =
            TRUSTS.map(|trust| self.place.known_sandbox(self.judge.wanted(trust))).into_iter();
        let missing = known.flatten().flat_map(|sandbox| sandbox.report.missing.clone());
        let mut layers: Vec<String> = missing.map(|missing| missing.layer).collect();
        layers.sort();
        layers.dedup();
        layers
    }

    /// Stops every command that a caller still waits for, and waits for their ends. Promoted tasks
    /// go on, and so do processes that ended commands left behind.
    pub(crate) async fn stop_all(&self, grace: Duration) {
        let mut waiting = Vec::new();
        for run in self.running().values() {
            let waited_for = !run.promoted.load(Ordering::Relaxed);
            if waited_for && run.progress.borrow().end.is_none() {
                run.control.stop(Signal::TERM.as_raw(), grace);
                waiting.push(run.progress.clone());
            }
        }
        let all_ended = async {
            for mut progress in waiting {
                let _ = progress.wait_for(|progress| progress.end.is_some()).await;
            }
            self.place.close().await;
            for place in self.places.configured() {
                place.close().await;
            }
        };
        // A process that the kernel does not let die is not waited for.
        let _ = tokio::time::timeout(grace + DEATH, all_ended).await;
        // Whoever comes next would do it, too.
        if let Err(error) = self.store.ledger.post().await {
            tracing::warn!(%error, "the newest tasks are in the daybook only");
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<TaskId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the wardens have all commands that were started here: some wait for what their
    /// login profile says. What schedulers are to forget is marked by then.
    pub(crate) async fn handed_over(&self) {
        let all: Vec<_> = self.running().values().map(|run| run.progress.clone()).collect();
        for mut progress in all {
            // A driver that is gone holds nothing.
            let _ = progress.wait_for(Progress::is_out_of_our_hands).await;
        }
        for place in self.places.configured() {
            if let Some(jobs) = place.jobs() {
                jobs.forgotten().await;
            }
        }
    }

    /// Remembers a run whose channel this engine holds.
    fn hold(&self, id: TaskId, running: Running) {
        self.running().insert(id, running);
    }

    /// Whether a run's channel is held by this engine.
    fn is_ours(&self, id: &TaskId) -> bool {
        self.running().contains_key(id)
    }

    /// Forgets the channel of a run that is over.
    fn leave(&self, id: &TaskId) {
        self.running().remove(id);
    }
}
