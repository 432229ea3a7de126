//! From a grant to a running command: warden, ledger, process, in this order.

use std::{
    env,
    future::poll_fn,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    sync::{Arc, atomic::AtomicBool},
    task::Poll,
};

use legwork_gate::{Explanation, Grant, Level, Mode, Verdict};
use legwork_warden::{
    failpoint::Failpoint,
    protocol::{self, Spec},
};
use tokio::sync::{mpsc, watch};

use crate::{
    engine::{Inner, MEMORY_BYTES_MAX, Running, Submitted},
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::status::Status,
    model::{Caller, DuplicatePolicy, Outcome, Outputs, Stdin, Trust},
    place::local::Warden,
    place::sandbox::{Cage, Wanted},
    store::audit::Entry,
    store::ledger::{LedgerError, Registered, Task, now_ms, write_note},
    task::failures::{place_error, too_many_tasks, unprotected},
    task::plan::{Kind, Plan},
    task::run::{self, Progress, Run, RunControl},
};

/// What commands are told about their terminals: what the screen understands.
const TERM: &str = "xterm-256color";

impl Inner {
    /// Starts a granted plan: warden, ledger, process, in this order.
    async fn start(
        self: Arc<Self>,
        id: TaskId,
        grant: Grant<Plan>,
        caller: Caller,
    ) -> Result<Submitted, ToolError> {
        let wanted = self.wanted_by(grant.plan(), grant.explanation());
        let mut warden = self.pool.take(wanted).await.map_err(|error| place_error(&error))?;
        let cage = self.confine(&mut warden, wanted).await?;
        if let Some(cage) =
            cage.as_ref().filter(|cage| self.sandboxing.required() && !cage.is_whole())
        {
            self.pool.give_back(warden);
            return Err(unprotected(&cage.report));
        }
        let mut task = self.row(grant.plan(), &id, &warden.name, &caller);
        task.sandbox = cage.as_ref().map(|cage| cage.report.clone()).unwrap_or_default();
        let note: Arc<[u8]> = write_note(&task).into();
        let task = Arc::new(task);
        Failpoint::EngineBeforeRow.pass();
        let registered = self.register(task, note.clone(), grant.plan().duplicates).await?;
        if let Some(running) = registered {
            return Ok(Submitted::AlreadyRunning(running));
        }
        Failpoint::EngineAfterRow.pass();
        let plan = grant.into_plan();
        let mut spec = self.spec(&plan, &id, cage.as_deref(), note.to_vec());
        self.shorten_login(&plan, wanted, &mut spec);
        let watch = cage.and_then(|_| self.sandboxing.watch(wanted));
        let mut with = vec![plan.workdir.descriptor.as_fd()];
        if let Stdin::Given(stdin) = &plan.stdin {
            with.push(stdin.as_fd());
        }
        if let Err(error) = warden.start(spec, &with).await {
            // Whether it got the frame cannot be known, but its end is: the row says so.
            let _ = Box::pin(self.finish(&id, &Outcome::lost("warden_lost"), None)).await;
            return Err(place_error(&error.into()));
        }
        Failpoint::EngineAfterStart.pass();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (sender, progress) = watch::channel(Progress::default());
        let control = RunControl::new(orders);
        let promoted = Arc::new(AtomicBool::new(false));
        let running = Running {
            control: control.clone(),
            progress: progress.clone(),
            promoted: promoted.clone(),
        };
        self.hold(id.clone(), running);
        tokio::spawn(run::drive(self.clone(), id.clone(), warden, inbox, sender, watch));
        let folder = self.state.task(&id);
        let program = plan.program.display().to_string();
        Ok(Submitted::Started(Run::new(id, program, folder, control, progress, promoted)))
    }

    /// Starts a granted plan, in a task of its own unless that is done at once: a caller who leaves in the middle drops a
    /// run that is whole.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        id: TaskId,
        grant: Grant<Plan>,
        caller: &Caller,
    ) -> Result<Submitted, ToolError> {
        let mut start = Box::pin(self.clone().start(id, grant, caller.clone()));
        if let Poll::Ready(started) =
            poll_fn(|context| Poll::Ready(start.as_mut().poll(context))).await
        {
            return started;
        }
        tokio::spawn(start).await.unwrap_or_else(|error| {
            Err(ToolError::new(ErrorKind::ToolExecutionFailed, error.to_string()))
        })
    }

    /// An equal task that runs: it needs no second approval.
    pub(crate) async fn equal_running(&self, plan: &Plan) -> Result<Option<Box<Task>>, ToolError> {
        if plan.duplicates != DuplicatePolicy::ReuseRunning {
            return Ok(None);
        }
        let found = async {
            match self.ledger.equal(&plan.fingerprint).await? {
                Some(task) => self.settle_if_gone(task).await.map(Some),
                None => Ok(None),
            }
        };
        let found = found.await.map_err(|error: LedgerError| ToolError::state(&error))?;
        Ok(found.filter(|task| task.status.may_be_joined()).map(Box::new))
    }

    /// Notes a verdict before anything follows from it; what cannot be noted does not run.
    pub(crate) async fn note_verdict(
        &self,
        entry: Entry,
        verdict: &Verdict<Plan>,
    ) -> Result<(), ToolError> {
        let (name, explanation) = match verdict {
            Verdict::Allow(grant) => ("allow", grant.explanation()),
            Verdict::Ask(question) => ("ask", question.explanation()),
            Verdict::Deny(denial) => ("deny", &denial.explanation),
        };
        let entry = entry
            .own("verdict", name)
            .with("rule", explanation.rule.as_str())
            .with("reason", explanation.reason.as_str());
        self.audit.append(entry, &self.mask()).await.map_err(|error| ToolError::state(&error))
    }

    /// Registers a task, or finds the equal one that really runs.
    async fn register(
        &self,
        task: Arc<Task>,
        note: Arc<[u8]>,
        duplicates: DuplicatePolicy,
    ) -> Result<Option<Box<Task>>, ToolError> {
        let unless_equal = duplicates == DuplicatePolicy::ReuseRunning;
        let tasks_max = self.settings.tasks_max;
        let mut settled_all = false;
        loop {
            let registered =
                self.ledger.register(task.clone(), note.clone(), unless_equal, tasks_max).await;
            match registered.map_err(|error| ToolError::state(&error))? {
                Registered::New => return Ok(None),
                Registered::Equal(equal) => {
                    let settled = Box::pin(self.settle_if_gone(*equal)).await;
                    let settled = settled.map_err(|error| ToolError::state(&error))?;
                    if !settled.status.is_final() {
                        return Ok(Some(Box::new(settled)));
                    }
                }
                Registered::Full(running) if settled_all => {
                    return Err(too_many_tasks(running, tasks_max));
                }
                // Some of them may only seem to run.
                Registered::Full(_) => {
                    let settled = Box::pin(self.settle_all()).await;
                    settled.map_err(|error| ToolError::state(&error))?;
                    settled_all = true;
                }
            }
        }
    }

    fn row(&self, plan: &Plan, id: &TaskId, warden: &str, caller: &Caller) -> Task {
        let (shell, login) = match &plan.kind {
            Kind::Script { shell, login } => (Some(shell.clone()), *login),
            Kind::Argv(_) => (None, false),
        };
        Task {
            task_id: id.clone(),
            tool: plan.tool.to_owned(),
            status: Status::Running,
            reason: None,
            command: plan.text.clone(),
            description: plan.description.clone(),
            workdir: plan.workdir.path.display().to_string(),
            shell,
            login,
            tty: matches!(plan.outputs, Outputs::Terminal(_)),
            workspace: self.workspace.path.display().to_string(),
            asked_by: caller.name.clone(),
            trust: caller.trust.as_str().to_owned(),
            created_at_ms: now_ms(),
            updated_at_ms: now_ms(),
            outcome: None,
            sandbox: Arc::default(),
            warden: warden.to_owned(),
            boot_id: self.boot_id.clone(),
            fingerprint: plan.fingerprint,
        }
    }

    fn spec(&self, plan: &Plan, id: &TaskId, cage: Option<&Cage>, note: Vec<u8>) -> Spec {
        let stdin = match plan.stdin {
            Stdin::Null => protocol::Stdin::Null,
            Stdin::Given(_) => protocol::Stdin::Given,
            Stdin::Open => protocol::Stdin::Open,
        };
        let outputs = match plan.outputs {
            Outputs::Separate => protocol::Outputs::Separate,
            Outputs::Merged => protocol::Outputs::Merged,
            Outputs::Terminal(size) => protocol::Outputs::Terminal(size),
        };
        Spec {
            task: id.to_string(),
            program: plan.program.as_os_str().as_bytes().to_vec(),
            argv: plan.argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: environment(plan, cage),
            stdin,
            outputs,
            memory_bytes_max: plan.memory_bytes_max.min(MEMORY_BYTES_MAX),
            wall_ms_max: plan.wall_ms_max,
            limits: plan.limits,
            orphan_ttl_ms: u64::try_from(self.orphan_ttl.as_millis()).unwrap_or(u64::MAX),
            sandbox: self.sandboxed(cage),
            note,
        }
    }

    /// The sandbox that a warden is to start a command in.
    pub(crate) fn sandboxed(&self, cage: Option<&Cage>) -> Option<protocol::Sandboxed> {
        cage.map(|cage| protocol::Sandboxed {
            enforced: cage.enforcement.enforced.clone(),
            artifacts: self.sandboxing.recent.shown(),
        })
    }

    /// What this caller's commands are confined to, unless a rule says otherwise.
    pub(crate) fn wanted(&self, trust: Trust) -> Wanted {
        self.sandboxing.wanted(trust, self.policy.mode())
    }

    /// What this command is confined to.
    pub(crate) fn wanted_by(&self, plan: &Plan, explanation: &Explanation) -> Wanted {
        match self.policy.mode() {
            Mode::Open => plan.wanted,
            _ => plan.wanted.at(explanation.sandbox),
        }
    }

    /// What this machine makes of a sandbox; a warden is asked the first time.
    pub(crate) async fn cage(
        self: &Arc<Self>,
        wanted: Wanted,
    ) -> Result<Option<Arc<Cage>>, ToolError> {
        if wanted.level == Level::None {
            return Ok(None);
        }
        if let Some(known) = self.sandboxing.known(wanted) {
            return Ok(Some(known));
        }
        let mut warden = self.pool.take(wanted).await.map_err(|error| place_error(&error))?;
        let cage = self.confine(&mut warden, wanted).await?;
        self.pool.give_back(warden);
        Ok(cage)
    }

    /// Makes a warden have the right sandbox ready.
    pub(crate) async fn confine(
        &self,
        warden: &mut Warden,
        wanted: Wanted,
    ) -> Result<Option<Arc<Cage>>, ToolError> {
        if wanted.level == Level::None {
            return Ok(None);
        }
        if warden.confined == Some(wanted)
            && let Some(known) = self.sandboxing.known(wanted)
        {
            return Ok(Some(known));
        }
        let profile = self.sandboxing.profile(wanted);
        // Rare, and long: what is boxed here and below keeps the way of a usual start short.
        let enforcement = Box::pin(warden.confine(wanted, &profile)).await;
        let enforcement = enforcement.map_err(|error| place_error(&error.into()))?;
        Ok(Some(self.sandboxing.learn(wanted, enforcement)))
    }
}

/// What of our own environment even a caller gets who is not trusted.
const BARE: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"];

/// The engine's own, with what is different for this command.
fn environment(plan: &Plan, cage: Option<&Cage>) -> protocol::Environment {
    let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let mut set = vec![pair("PWD", plan.workdir.path.as_os_str().as_bytes())];
    set.extend(plan.environment.iter().map(|(name, value)| pair(name, value.as_bytes())));
    let mut unset = Vec::new();
    if matches!(plan.outputs, Outputs::Terminal(_)) {
        // What our own terminal is, if we have one, says nothing about the command's.
        set.push(pair("TERM", TERM.as_bytes()));
        unset = ["LINES", "COLUMNS"].map(|name| name.as_bytes().to_vec()).to_vec();
    }
    if cage.is_some() && env::var_os("TMPDIR").is_some() {
        // Wherever that is, it cannot be written; `/tmp` can.
        set.push(pair("TMPDIR", b"/tmp"));
    }
    let bare = plan.is_untrusted();
    if bare {
        let known = BARE.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
        let missing = known.filter(|(name, _)| !set.iter().any(|(set, _)| set == name.as_bytes()));
        let more: Vec<_> = missing.map(|(name, value)| pair(name, value.as_bytes())).collect();
        set.extend(more);
    }
    protocol::Environment { inherited: !bare, set, unset }
}
