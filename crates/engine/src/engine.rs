//! The engine: takes requests, and brings each to a run, an equal running task, or a typed error.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_gate::{Policy, Verdict, judge};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    adopt::keep_adopting,
    approval::{Answered, Approval, Decision},
    audit::{Audit, Entry},
    config::{Config, Settings},
    error::{ErrorKind, ToolError},
    failures::{denied, place_error, unprotected},
    id::{TaskId, random},
    ledger::{Ledger, LedgerError, Rebuilt, Task},
    login::Logins,
    model::{Caller, Request, Trust},
    observe::Observer,
    output::{Mask, TaskOutput},
    place::Place,
    plan::{Plan, Workspace},
    pool::Pool,
    run::{Progress, Run, RunControl},
    sandbox::{SandboxReport, SandboxSettings, Sandboxing},
    settle::boot_id,
    state::{StateError, StateFolder},
    tools::{Answer, RUNNERS, Registry},
};

/// Most bytes of output that a warden holds in memory.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// How long a command may take to disappear after it was killed.
pub(crate) const DEATH: Duration = Duration::from_secs(3);

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that commands run in by default.
    pub workspace: PathBuf,
    /// Folders that commands may run in besides the workspace.
    pub roots: Vec<PathBuf>,
    /// The state folder; the default place when absent.
    pub state: Option<PathBuf>,
    /// How long a command may run on without any engine before its warden stops it.
    pub orphan_ttl: Duration,
    /// The rules by which commands are judged.
    pub policy: Policy,
    /// Limits of what is shown and waited for.
    pub settings: Settings,
    /// What commands are confined to, unless the policy's mode is open.
    pub sandbox: SandboxSettings,
    /// Whether the task tools know the tasks of all workspaces, as the user's own command line does.
    pub all_workspaces: bool,
    /// Told when the ledger had to be rebuilt, at the start or later.
    pub on_rebuilt: fn(&Rebuilt),
}

impl Options {
    /// What was configured, for this workspace.
    pub fn configured(workspace: impl Into<PathBuf>, config: Config) -> Self {
        let mut options = Self::new(workspace);
        options.roots = config.roots;
        options.orphan_ttl = config.orphan_ttl.unwrap_or(options.orphan_ttl);
        (options.policy, options.settings) = (config.policy, config.settings);
        options.sandbox = config.sandbox;
        options
    }

    /// The defaults, for this workspace.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            roots: Vec::new(),
            state: None,
            orphan_ttl: Duration::from_secs(600),
            policy: Policy::default(),
            settings: Settings::default(),
            sandbox: SandboxSettings::default(),
            all_workspaces: false,
            on_rebuilt: |rebuilt| tracing::warn!("{}", rebuilt.message()),
        }
    }
}

/// What became of a request.
#[derive(Debug)]
pub enum Submitted {
    /// It was started.
    Started(Run),
    /// An equal command is running already.
    AlreadyRunning(Box<Task>),
}

/// Runs commands and knows the tasks of its state folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    registry: Arc<Registry>,
}

/// What the drivers of running commands need of the engine.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) orphan_ttl: Duration,
    all_workspaces: bool,
    pub(crate) workspace: Workspace,
    roots: Vec<PathBuf>,
    pub(crate) boot_id: String,
    /// Names this engine, for approvals that last as long as it does.
    pub(crate) session: String,
    pub(crate) state: Arc<StateFolder>,
    pub(crate) ledger: Ledger,
    pub(crate) audit: Audit,
    pub(crate) pool: Arc<Pool>,
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) sandboxing: Arc<Sandboxing>,
    pub(crate) logins: Logins,
    /// What no answer, event or note may show; grows with the secrets that commands are given.
    mask: RwLock<Arc<Mask>>,
    running: Mutex<HashMap<TaskId, Running>>,
}

/// A run whose channel this engine holds.
#[derive(Debug)]
pub(crate) struct Running {
    pub control: RunControl,
    pub progress: watch::Receiver<Progress>,
    /// Set when nobody waits for it any more, and it goes on as a task.
    pub promoted: Arc<AtomicBool>,
}

impl Engine {
    /// Opens the state folder, with the tools that come with the library; starts nothing yet.
    pub fn open(options: Options) -> Result<Self, ToolError> {
        Self::open_with(options, Registry::builtin())
    }

    /// The same, with tools of the caller's choice.
    pub fn open_with(options: Options, registry: Registry) -> Result<Self, ToolError> {
        let Options {
            workspace,
            roots,
            state,
            orphan_ttl,
            policy,
            settings,
            sandbox,
            all_workspaces,
            on_rebuilt,
        } = options;
        let workspace = Workspace::open(&workspace).map_err(|error| {
            let shown = workspace.display();
            ToolError::new(
                ErrorKind::WorkdirNotFound,
                format!("the workspace `{shown}` cannot be used: {error}"),
            )
            .hint("name an existing folder")
        })?;
        let state = state
            .map_or_else(StateFolder::default_path, Ok)
            .and_then(|path| StateFolder::open(&path))
            .map(Arc::new)
            .map_err(|error: StateError| ToolError::state(&error))?;
        let ledger =
            Ledger::open(state.clone(), on_rebuilt).map_err(|error| ToolError::state(&error))?;
        let audit = Audit::open(&state.audit()).map_err(|error| ToolError::state(&error))?;
        // A root that does not exist cannot be entered either.
        let given = roots.iter().filter_map(|root| root.canonicalize().ok());
        let roots: Vec<PathBuf> = [workspace.path.clone()].into_iter().chain(given).collect();
        let sandboxing = Arc::new(Sandboxing::new(sandbox, &roots, state.path()));
        let inner = Inner {
            orphan_ttl,
            all_workspaces,
            workspace,
            roots,
            boot_id: boot_id(),
            session: random("s_").unwrap_or_default(),
            pool: Pool::new(Place::new(state.clone()), sandboxing.clone()),
            sandboxing,
            logins: Logins::default(),
            state,
            ledger,
            audit,
            policy,
            settings,
            mask: RwLock::new(Arc::new(Mask::of_environment())),
            running: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), registry: Arc::new(registry) })
    }

    /// The tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Limits of what is shown and waited for.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// What no answer may show.
    pub fn mask(&self) -> Arc<Mask> {
        self.inner.mask()
    }

    /// The state folder.
    pub fn state(&self) -> &StateFolder {
        &self.inner.state
    }

    /// The workspace, as a real path.
    pub fn workspace(&self) -> &Path {
        &self.inner.workspace.path
    }

    /// Makes this engine one that stays: starts what the first command would otherwise wait for, and takes over
    /// the commands whose engine is gone, now and later. Sandboxes are made ready for callers of this trust.
    /// Returns the spawner's process id.
    pub async fn warm_up(&self, trust: Trust) -> Result<u32, ToolError> {
        self.inner.pool.expect(self.inner.wanted(trust));
        self.inner.logins.begin();
        self.inner.ledger.stay();
        tokio::spawn(keep_adopting(Arc::downgrade(&self.inner)));
        self.inner.pool.warm_up().await.map_err(|error| place_error(&error.into()))
    }

    /// Whether nothing is started with less than the whole sandbox.
    pub fn requires_protection(&self) -> bool {
        self.inner.sandboxing.required()
    }

    /// What commands of this trust are confined by on this machine; an error if that is less than is required.
    pub async fn protection(&self, trust: Trust) -> Result<Arc<SandboxReport>, ToolError> {
        let wanted = self.inner.wanted(trust);
        match self.inner.cage(wanted).await? {
            Some(cage) if self.inner.sandboxing.required() && !cage.is_whole() => {
                Err(unprotected(&cage.report))
            }
            Some(cage) => Ok(cage.report.clone()),
            None => Ok(Arc::default()),
        }
    }

    /// Calls a tool by name.
    pub async fn call(&self, tool: &str, input: Value, caller: &Caller) -> Answer {
        let named = input.get("task_id").and_then(Value::as_str).map(str::to_owned);
        let mut answer = self.registry.call(self, tool, input, caller).await;
        if answer.error().is_none()
            && RUNNERS.contains(&tool)
            && let Some(cage) = self.inner.sandboxing.known(self.inner.wanted(caller.trust))
        {
            answer = answer.lacking(&cage.report.missing);
        }
        self.note_call(tool, named, caller, &answer).await;
        answer
    }

    /// Notes what a verdict does not: calls that were refused, and those that change a task.
    async fn note_call(&self, tool: &str, task: Option<String>, caller: &Caller, answer: &Answer) {
        let entry = match answer.error() {
            Some(error) => Entry::new("refused")
                .with("kind", serde_json::to_value(error.kind).unwrap_or_default())
                .with("message", error.message.as_str()),
            None if task.is_some() && self.registry.changes_something(tool) => {
                Entry::new("request").with("summary", answer.envelope().summary_text.clone())
            }
            None => return,
        };
        self.inner.note(entry.with("tool", tool).with("task_id", task).by(caller)).await;
    }

    /// Takes a request through plan, gate and ledger to a running command.
    pub async fn submit(&self, request: Request, caller: &Caller) -> Result<Submitted, ToolError> {
        let inner = &self.inner;
        inner.learn(&request.environment);
        let wanted = inner.wanted(caller.trust);
        let whole = inner.cage(wanted).await?.is_some_and(|cage| cage.is_whole());
        let mut request = request;
        request.tighten(&inner.settings.task_limits);
        let trust = caller.trust;
        let plan = Plan::resolve(request, &inner.workspace, &inner.roots, trust, (wanted, whole))?;
        let id = TaskId::random().map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })?;
        let entry = Entry::new("verdict")
            .own("task_id", &id)
            .own("tool", plan.tool)
            .by(caller)
            .command(&plan.text)
            .with("workdir", plan.workdir.path.display().to_string());
        let verdict = judge(&inner.policy, plan);
        inner.note_verdict(entry, &verdict).await?;
        match verdict {
            Verdict::Allow(grant) => inner.begin(id, grant, caller).await,
            Verdict::Ask(question) => {
                if let Some(running) = inner.equal_running(question.plan()).await? {
                    return Ok(Submitted::AlreadyRunning(running));
                }
                let grant = inner.ask(question, caller).await?;
                inner.begin(id, grant, caller).await
            }
            Verdict::Deny(denial) => Err(denied(denial)),
        }
    }

    /// The tasks of all workspaces, newest first; those that only seem to run are settled before.
    pub async fn tasks(&self, finished_too: bool, limit: u32) -> Result<Vec<Task>, ToolError> {
        self.listed(None, finished_too, limit).await.map(|(tasks, _)| tasks)
    }

    /// The tasks of this engine's workspace, newest first, and how many there are in all.
    pub async fn tasks_here(
        &self,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        let workspace = self.inner.visible_workspace();
        self.listed(workspace.as_deref(), finished_too, limit).await
    }

    async fn listed(
        &self,
        workspace: Option<&str>,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        let inner = &self.inner;
        let listed = async {
            inner.settle_all().await?;
            let tasks = inner.ledger.list(workspace, finished_too, limit).await?;
            Ok((tasks, inner.ledger.count(workspace, finished_too).await?))
        };
        listed.await.map_err(|error: LedgerError| ToolError::state(&error))
    }

    /// The task of this id, if it is one of this engine's workspace.
    pub async fn task_here(&self, id: &str) -> Result<Task, ToolError> {
        let found = self.inner.find(id).await.map_err(|error| ToolError::state(&error))?;
        let workspace = self.inner.visible_workspace();
        let is_meant = |task: &Task| {
            let here = workspace.as_ref().is_none_or(|workspace| *workspace == task.workspace);
            here && task.task_id.as_str() == id
        };
        found.into_iter().find(is_meant).ok_or_else(|| {
            ToolError::new(ErrorKind::UnknownTask, format!("no task has the id `{id}`"))
                .detail("task_id", id)
                .hint("TaskList shows the tasks of this workspace")
        })
    }

    /// The questions that wait for an answer, oldest first.
    pub async fn approvals(&self) -> Result<Vec<Approval>, ToolError> {
        self.inner.ledger.open_approvals().await.map_err(|error| ToolError::state(&error))
    }

    /// Answers the question whose id begins with this text; the first answer counts.
    pub async fn answer(&self, prefix: &str, answered: Answered) -> Result<Approval, ToolError> {
        let open = self.approvals().await?;
        let mut meant = open.into_iter().filter(|one| one.approval_id.starts_with(prefix));
        let unknown = |problem: String| {
            ToolError::new(ErrorKind::InvalidToolInput, problem)
                .hint("`legwork approvals` lists the open questions")
        };
        let approval = match (meant.next(), meant.next()) {
            (Some(approval), None) => approval,
            (Some(_), Some(_)) => {
                return Err(unknown(format!("more than one question begins with `{prefix}`")));
            }
            (None, _) => return Err(unknown(format!("no open question has the id `{prefix}`"))),
        };
        let (id, decision) = (&approval.approval_id, answered.decision);
        if decision == Decision::AllowRule && approval.proposed_rule.is_none() {
            // Before it is answered, so that it can still be.
            return Err(approval.save_rule().err().unwrap_or_else(|| unknown("no rule".into())));
        }
        let written = self.inner.ledger.answer_approval(id, &answered).await;
        match written.map_err(|error| ToolError::state(&error))? {
            Some(approval) => {
                if decision == Decision::AllowRule {
                    approval.save_rule()?;
                }
                Ok(approval)
            }
            None => Err(unknown(format!("the question `{id}` was answered just now, or is over"))),
        }
    }

    /// Says that somebody is here who answers questions, for the next few seconds.
    pub async fn watch_approvals(&self) -> Result<(), ToolError> {
        self.inner
            .ledger
            .note_watcher(&self.inner.session)
            .await
            .map_err(|error| ToolError::state(&error))
    }

    /// Looks at a task through its warden, whoever started it.
    pub async fn observe(&self, task: Task) -> Result<Observer, ToolError> {
        Observer::of(self.inner.clone(), task).await
    }

    /// The task whose id begins with this text; `@` is the newest.
    pub async fn task(&self, prefix: &str) -> Result<Task, ToolError> {
        let found = match prefix {
            "@" => self.inner.ledger.list(None, true, 1).await,
            _ => self.inner.find(prefix).await,
        };
        let mut found = found.map_err(|error| ToolError::state(&error))?.into_iter();
        let unknown = |problem: String| {
            ToolError::new(ErrorKind::UnknownTask, problem).hint("`legwork ps` lists the tasks")
        };
        match (found.next(), found.next()) {
            (Some(task), None) => {
                self.inner.settle_if_gone(task).await.map_err(|error| ToolError::state(&error))
            }
            (Some(_), Some(_)) => {
                Err(unknown(format!("more than one task begins with `{prefix}`")))
            }
            (None, _) if prefix == "@" => Err(unknown("there is no task yet".into())),
            (None, _) => Err(unknown(format!("no task has the id `{prefix}`"))),
        }
    }

    /// What a task has printed so far, wherever it is kept.
    pub async fn output(&self, id: &TaskId) -> Result<TaskOutput, ToolError> {
        self.inner.output(id).await
    }

    /// Stops every command that a caller of this engine still waits for, and waits for their ends.
    ///
    /// Promoted tasks go on, and so do processes that ended commands left behind.
    pub async fn stop_all(&self, grace: Duration) {
        self.inner.logins.close().await;
        let mut waiting = Vec::new();
        for run in self.inner.running.lock().unwrap_or_else(PoisonError::into_inner).values() {
            let waited_for = !run.promoted.load(Ordering::Relaxed);
            if waited_for && run.progress.borrow().end.is_none() {
                run.control.stop(rustix::process::Signal::TERM.as_raw(), grace);
                waiting.push(run.progress.clone());
            }
        }
        let all_ended = async {
            for mut progress in waiting {
                let _ = progress.wait_for(|progress| progress.end.is_some()).await;
            }
        };
        // A process that the kernel does not let die is not waited for.
        let _ = tokio::time::timeout(grace + DEATH, all_ended).await;
        // Whoever comes next would do it, too.
        if let Err(error) = self.inner.ledger.post().await {
            tracing::warn!(%error, "the newest tasks are in the daybook only");
        }
    }
}

impl Inner {
    /// What no answer, event or note may show.
    pub(crate) fn mask(&self) -> Arc<Mask> {
        self.mask.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of the secrets that a command is given besides the inherited ones.
    pub(crate) fn learn(&self, environment: &[(&str, &str)]) {
        if let Some(more) = self.mask().with(environment) {
            *self.mask.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(more);
        }
    }

    /// The workspace whose tasks may be known; none if all may.
    fn visible_workspace(&self) -> Option<String> {
        (!self.all_workspaces).then(|| self.workspace.path.display().to_string())
    }

    /// Remembers a run whose channel this engine holds.
    pub(crate) fn hold(&self, id: TaskId, running: Running) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, running);
    }

    /// Whether a run's channel is held by this engine.
    pub(crate) fn is_ours(&self, id: &TaskId) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Whether a caller waits for a command right now.
    pub(crate) fn is_waited_for(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .values()
            .any(|run| !run.promoted.load(Ordering::Relaxed) && run.progress.borrow().end.is_none())
    }

    /// Forgets the channel of a run that is over.
    pub(crate) fn leave(&self, id: &TaskId) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
