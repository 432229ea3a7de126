//! Starts a granted command: takes a warden, registers the task in the ledger, starts the process,
//! in this order.

use std::{
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use legwork_gate::{Decision, Grant, Level, ProgramRule, Question, Subject as _};
use legwork_warden::{
    exec::ExecRule,
    failpoint::Failpoint,
    protocol::{self, Spec, StartFailure, StartStage},
};
use tokio::sync::{mpsc, watch};

use super::{
    Running, Submitted, Tasks,
    delayed::DelayedStart,
    drive::{RunDriver, RunTrace},
    failures::{place_error, too_many_tasks},
    over,
    places::{no_warden, out_of_reach, pass_input},
    plan::{Plan, PlanKind},
    programs::ProgramQuestions,
    progress::Progress,
    rights::{Reach, TRIAL},
    run::{Run, RunControl},
};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::{APPROVED_UNCONFINED, outside},
    model::{
        Caller, DuplicatePolicy, Outcome, Outputs,
        question::SharedAsker,
        sandbox::{SandboxReport, Wanted},
        status::Status,
    },
    place::{LoginWish, Look, MEMORY_BYTES_MAX, Place, Sandbox, TamperCheck, Warden},
    platform::{AsFd, OsStrExt, OwnedFd, file_bytes, is_file},
    store::ledger::{Registered, Task, write_note},
    trace::Trace,
};

/// Most bytes of a stdin that go along with a job.
const JOB_INPUT_BYTES_MAX: u64 = 512 * 1024;

/// What commands are told about their terminals: what the screen understands.
const TERM: &str = "xterm-256color";

impl Tasks {
    /// Starts a granted plan: warden, ledger, process, in this order.
    async fn start(
        self: Arc<Self>,
        id: TaskId,
        grant: Grant<Plan>,
        caller: Caller,
    ) -> Result<Submitted, ToolError> {
        if grant.plan().place().jobs().is_some() {
            return self.enqueue(id, grant, caller).await;
        }
        let began = Instant::now();
        let is_trial = grant.plan().is_trial;
        let planned = grant.plan().wanted;
        let by_rule = || self.judge.wanted_by(planned, grant.explanation());
        let wanted = if is_trial { planned } else { by_rule() };
        let place = grant.plan().place().clone();
        if wanted.level == Level::None && place.name().is_none() {
            // Only commands in the sandbox have the folders of its own `/tmp`.
            grant.plan().check_folder(&*place)?;
        }
        let ready = if is_trial { place.ready_to_try(wanted, &id) } else { place.ready(wanted) };
        let (mut warden, sandbox) = ready.await.map_err(|error| no_warden(&*place, &error))?;
        if let Some(Err(error)) = sandbox.as_ref().map(|sandbox| self.check(sandbox)) {
            place.give_back(warden);
            return Err(error);
        }
        // Beside what follows; it has to be through before the command starts.
        let checked = sandbox.as_ref().filter(|_| !is_trial);
        let looking = checked.and_then(|_| place.tamper_check(wanted, &warden.name));
        let mut task = self.row(grant.plan(), &id, &warden.name, &caller);
        let report = report_of(sandbox.as_deref(), &grant, wanted);
        task.sandbox = report.clone();
        let note: Arc<[u8]> = write_note(&task).into();
        let task = Arc::new(task);
        Failpoint::EngineBeforeRow.pass();
        let registered = self.register(task, note.clone(), grant.plan().duplicates, &caller).await;
        if let Some(other) = registered.map(|it| it.map(Submitted::AlreadyRunning)).transpose() {
            // It has got nothing, and is as clean as before.
            place.give_back(warden);
            return other;
        }
        caller.session.note_started(id.as_str());
        Failpoint::EngineAfterRow.pass();
        let said = grant.explanation().note.clone();
        let plan = into_plan(grant, wanted);
        let mut spec = self.spec(&plan, &id, sandbox.as_deref(), note.to_vec());
        // What a profile writes belongs to the trial, too.
        let wish = self.login_wish(&plan, wanted).filter(|_| !is_trial);
        let preamble = wish.and_then(|wish| place.shorten_login(wish, &mut spec));
        let tamper_check = match looking {
            Some(looking) => Some(looking.await),
            None => None,
        };
        let promoted = Arc::new(AtomicBool::new(false));
        warden.attend(id.as_str(), promoted.clone());
        let named = plan.named();
        let mut delayed = None;
        if let Some(preamble) = preamble {
            delayed = Some(DelayedStart::new(spec, plan, preamble));
        } else if let Err(error) = self.hand_over(&*place, &mut warden, spec, &plan).await {
            Box::pin(self.not_handed_over(&*place, &mut warden, &id, error)).await?;
        }
        self.store.meters.starts.note_since(began);
        Failpoint::EngineAfterStart.pass();
        let driven = (warden, delayed);
        let handles =
            self.drive(&id, driven, promoted.clone(), tamper_check, caller.asker, caller.trace);
        let run = Run::new(id, named, place, handles, promoted, self.attention.begin(), report);
        Ok(Submitted::Started(run.approved_with(said)))
    }

    /// A command that its warden may not have got: an error, unless that is known later.
    async fn not_handed_over(
        &self,
        place: &dyn Place,
        warden: &mut Warden,
        id: &TaskId,
        error: io::Error,
    ) -> Result<(), ToolError> {
        if place.name().is_none() {
            // Whether it got the frame cannot be known, but its end is: the row says so.
            let _ = self.finish(id, &Outcome::lost("warden_lost"), None).await;
            return Err(place_error(&error.into()));
        }
        if is_unknown(&error) {
            // Whether it was started is known when the place can be reached again.
            return Ok(());
        }
        // The post says that it was not started.
        let errno = error.raw_os_error().unwrap_or_default();
        let failure = StartFailure { stage: StartStage::WorkingDirectory, errno };
        warden.set_free();
        self.record_failed_start(id, &failure).await;
        Err(out_of_reach(&error))
    }

    /// Lets a warden start a command, with the descriptors that go along or with what stands for
    /// them elsewhere.
    async fn hand_over(
        self: &Arc<Self>,
        place: &dyn Place,
        warden: &mut Warden,
        mut spec: Spec,
        plan: &Plan,
    ) -> io::Result<()> {
        let mut given = plan.given.as_ref();
        // What comes bit by bit cannot be sent ahead.
        let passed = given.filter(|given| place.name().is_some() && !is_file(given));
        if passed.is_some() {
            (spec.stdin, given) = (protocol::StdinSource::Open, None);
        }
        let task = spec.task.clone();
        if place.name().is_none() {
            return start_with(warden, spec, plan.workdir.handle.as_deref(), given).await;
        }
        place.start(&warden.name, spec, &plan.workdir, given).await?;
        if let Some(input) = passed {
            let input = input.try_clone()?;
            if let Some(task) = self.store.ledger.find(&task).await.ok().and_then(|mut it| it.pop())
            {
                tokio::spawn(pass_input(self.clone(), task, input));
            }
        }
        Ok(())
    }

    /// Lets a task of its own drive a warden that has a command, or gets one, until that is over.
    pub(super) fn drive(
        self: &Arc<Self>,
        id: &TaskId,
        (warden, delayed): (Warden, Option<DelayedStart>),
        promoted: Arc<AtomicBool>,
        tamper_check: Option<TamperCheck>,
        asker: Option<SharedAsker>,
        trace: Option<Trace>,
    ) -> (RunControl, watch::Receiver<Progress>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (sender, progress) = watch::channel(Progress::begin(&warden.name, delayed.is_some()));
        let control = RunControl::new(orders);
        let handles = (control.clone(), progress.clone());
        let questions = ProgramQuestions::new(id.clone(), control.clone(), asker, promoted.clone());
        self.hold(id.clone(), Running { control, progress, promoted });
        let driver = RunDriver {
            tasks: self.clone(),
            task_id: id.clone(),
            warden,
            orders: inbox,
            progress: sender,
            tamper_check,
            questions,
            traced: RunTrace::begin(trace, id),
        };
        // It is four kilobytes large, and the runtime moves what it is given around.
        tokio::spawn(Box::pin(driver.drive(delayed)));
        handles
    }

    /// Starts a granted plan, in a task of its own unless that is done at once: a caller who leaves
    /// in the middle drops a run that is whole.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        id: TaskId,
        grant: Grant<Plan>,
        caller: &Caller,
    ) -> Result<Submitted, ToolError> {
        let span = caller.span("start");
        let mut start = Box::pin(self.clone().start(id, grant, caller.clone()));
        if let Poll::Ready(started) =
            poll_fn(|context| Poll::Ready(start.as_mut().poll(context))).await
        {
            return over(span, started);
        }
        let started = tokio::spawn(start).await.unwrap_or_else(|error| {
            Err(ToolError::new(ErrorKind::ToolExecutionFailed, error.to_string()))
        });
        over(span, started)
    }

    /// An equal task that runs, and that its caller may join: it needs no second approval.
    pub(crate) async fn equal_running(
        &self,
        question: &Question<Plan>,
        caller: &Caller,
    ) -> Result<Option<Box<Task>>, ToolError> {
        let plan = question.plan();
        let own =
            Reach::new(caller.trust, self.judge.wanted_by(plan.wanted, question.explanation()));
        if plan.duplicates != DuplicatePolicy::ReuseRunning {
            return Ok(None);
        }
        let mut passed_over = Vec::new();
        while let Some(task) = self.store.ledger.equal(&plan.fingerprint, &passed_over).await? {
            let task = Box::pin(self.settle_if_gone(task)).await?;
            if task.status.may_be_joined() && Self::may_join(caller, own, &task) {
                return Ok(Some(Box::new(task)));
            }
            passed_over.push(task.task_id);
        }
        Ok(None)
    }

    /// The login that a command asks for, if it does. With a terminal or an open stdin it can only
    /// be a real one: a profile may look at a terminal, or read what is meant for the command.
    fn login_wish<'a>(&'a self, plan: &'a Plan, wanted: Wanted) -> Option<LoginWish<'a>> {
        let is_login = matches!(plan.kind, PlanKind::Script { login: true, .. });
        let is_plain =
            plan.stdin == protocol::StdinSource::Null && plan.outputs == Outputs::Separate;
        is_login.then(|| LoginWish {
            is_plain,
            program: &plan.program,
            script: &plan.text,
            workdir: &plan.workdir,
            wanted,
            attention: &self.attention,
        })
    }

    /// Registers a task, or finds the equal one that really runs and that its caller may join.
    pub(super) async fn register(
        &self,
        task: Arc<Task>,
        note: Arc<[u8]>,
        duplicates: DuplicatePolicy,
        caller: &Caller,
    ) -> Result<Option<Box<Task>>, ToolError> {
        let joins = duplicates == DuplicatePolicy::ReuseRunning;
        let mut passed_over = joins.then(Vec::new);
        let tasks_max = self.judge.settings.tasks_max;
        let mut settled_all = false;
        loop {
            let registered = self
                .store
                .ledger
                .register(task.clone(), note.clone(), passed_over.clone(), tasks_max)
                .await;
            match registered? {
                Registered::New => return Ok(None),
                Registered::Equal(equal) => {
                    let settled = Box::pin(self.settle_if_gone(*equal)).await?;
                    if settled.status.is_final() {
                        continue;
                    }
                    if Self::may_join(caller, Reach::of(&task), &settled) {
                        return Ok(Some(Box::new(settled)));
                    }
                    passed_over.get_or_insert_default().push(settled.task_id);
                }
                Registered::Full(running) if settled_all => {
                    self.store.meters.refused_for_tasks.fetch_add(1, Ordering::Relaxed);
                    return Err(too_many_tasks(running, tasks_max));
                }
                // Some of them may only seem to run.
                Registered::Full(_) => {
                    Box::pin(self.settle_all()).await?;
                    settled_all = true;
                }
            }
        }
    }

    pub(super) fn row(&self, plan: &Plan, id: &TaskId, warden: &str, caller: &Caller) -> Task {
        let (shell, login) = match &plan.kind {
            PlanKind::Script { shell, login } => (Some(shell.clone()), *login),
            PlanKind::Argv(_) => (None, false),
        };
        Task {
            task_id: id.clone(),
            tool: plan.tool.clone(),
            status: Status::Running,
            reason: None,
            command: plan.text.clone(),
            description: plan.description.clone(),
            workdir: plan.workdir.path.display().to_string(),
            shell,
            login,
            tty: matches!(plan.outputs, Outputs::Terminal(_)),
            workspace: self.workspace().display().to_string(),
            asked_by: caller.name.clone(),
            trust: caller.trust.as_str().to_owned(),
            created_at_ms: now_ms(),
            updated_at_ms: now_ms(),
            outcome: None,
            sandbox: Arc::default(),
            warden: warden.to_owned(),
            boot_id: plan.place().boot_id().into_owned(),
            fingerprint: plan.fingerprint,
        }
    }

    /// What a command may not execute. What would be asked about may be tried.
    fn exec_rules(&self, plan: &Plan) -> Vec<ExecRule> {
        let rules = self.judge.rules_at_exec(plan).into_iter();
        let held = rules.filter(|rule| !plan.is_trial || rule.decision == Decision::Deny);
        held.map(exec_rule).collect()
    }

    pub(super) fn spec(
        &self,
        plan: &Plan,
        id: &TaskId,
        sandbox: Option<&Sandbox>,
        note: Vec<u8>,
    ) -> Spec {
        let outputs = match plan.outputs {
            Outputs::Separate => protocol::OutputRoute::Separate,
            Outputs::Merged => protocol::OutputRoute::Merged,
            Outputs::Terminal(size) => protocol::OutputRoute::Terminal(size),
        };
        Spec {
            task: id.to_string(),
            program: plan.program.as_os_str().as_bytes().to_vec(),
            argv: plan.argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: environment(plan.look(), plan, sandbox, &self.ground.unset),
            stdin: plan.stdin,
            outputs,
            memory_bytes_max: plan.memory_bytes_max.min(MEMORY_BYTES_MAX),
            wall_ms_max: plan.wall_ms_max,
            limits: plan.limits,
            orphan_ttl_ms: if plan.is_kept { u64::MAX } else { milliseconds(self.orphan_ttl) },
            sandbox: sandbox.map(|sandbox| protocol::Sandboxed {
                exec_rules: self.exec_rules(plan),
                on_copy: plan.is_trial,
                names: sandbox.report.network_by_name.then(|| self.judge.name_rules(plan.trust())),
                ..plan.place().sandboxed(sandbox)
            }),
            stderr_preamble: Vec::new(),
            note,
        }
    }
}

/// Whether an error leaves it open whether a command was started.
fn is_unknown(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, NotConnected, TimedOut};
    matches!(error.kind(), BrokenPipe | NotConnected | TimedOut)
}

/// The plan of a grant. What a rule lets out of the sandbox is one file with its arguments: no
/// shell may make more of it.
pub(super) fn into_plan(grant: Grant<Plan>, wanted: Wanted) -> Plan {
    let mut plan = grant.into_plan();
    let let_out = !plan.is_trial && wanted.level < plan.wanted.level;
    if let Some((program, argv)) = let_out.then(|| plan.without_shell()).flatten() {
        (plan.program, plan.argv) = (program, argv);
        plan.kind = PlanKind::Argv(Vec::new());
    }
    plan
}

/// Whether all that a descriptor gives is there already, and is little enough to go along with a
/// job.
pub(super) fn is_small_file(descriptor: &OwnedFd) -> bool {
    file_bytes(descriptor).is_some_and(|bytes| bytes <= JOB_INPUT_BYTES_MAX)
}

/// Starts a command with the descriptors that go along: its folder, and a stdin of its own.
pub(super) async fn start_with(
    warden: &mut Warden,
    spec: Spec,
    workdir: Option<&OwnedFd>,
    given: Option<&OwnedFd>,
) -> io::Result<()> {
    let with: Vec<_> = workdir.into_iter().chain(given).map(AsFd::as_fd).collect();
    warden.start(spec, &with).await
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A rule, as a warden compares with it.
pub(super) fn exec_rule(rule: ProgramRule) -> ExecRule {
    let words = |words: Vec<String>| words.into_iter().map(String::into_bytes).collect();
    ExecRule {
        id: rule.id,
        asks: rule.decision == Decision::Ask,
        program: rule.program.into_bytes(),
        args: rule.args.into_iter().map(words).collect(),
    }
}

/// What a command is confined by, or why it is not, and who gave it more than its caller's commands
/// get.
pub(super) fn report_of(
    sandbox: Option<&Sandbox>,
    grant: &Grant<Plan>,
    wanted: Wanted,
) -> Arc<SandboxReport> {
    let (plan, rule) = (grant.plan(), &grant.explanation().rule);
    let report = match sandbox {
        Some(sandbox) => sandbox.report.clone(),
        None if rule == APPROVED_UNCONFINED => Arc::new(SandboxReport::unconfined()),
        None => Arc::default(),
    };
    let outside = outside(wanted, grant.explanation()).filter(|_| sandbox.is_none());
    let granted_by = if plan.is_trial {
        Some(TRIAL.to_owned())
    } else {
        wanted.exceeds(plan.wanted).then(|| rule.clone())
    };
    if outside.is_none() && granted_by.is_none() {
        return report;
    }
    Arc::new(SandboxReport { outside, granted_by, ..(*report).clone() })
}

/// What of our own environment even a caller gets who is not trusted.
const BARE: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"];

/// The engine's own, with what is different for this command.
fn environment(
    place: &dyn Look,
    plan: &Plan,
    sandbox: Option<&Sandbox>,
    without: &[String],
) -> protocol::Environment {
    let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let mut set = vec![pair("PWD", plan.workdir.path.as_os_str().as_bytes())];
    set.extend(plan.environment.iter().map(|(name, value)| pair(name, value.as_bytes())));
    let is_set = |name: &&String| plan.environment.iter().any(|(set, _)| set == *name);
    let without = without.iter().filter(|name| !is_set(name));
    let mut unset: Vec<Vec<u8>> = without.map(|name| name.as_bytes().to_vec()).collect();
    if matches!(plan.outputs, Outputs::Terminal(_)) {
        // What our own terminal is, if we have one, says nothing about the command's.
        set.push(pair("TERM", TERM.as_bytes()));
        unset.extend(["LINES", "COLUMNS"].map(|name| name.as_bytes().to_vec()));
    }
    let holds_files = sandbox.is_some_and(|sandbox| sandbox.report.holds_files());
    if holds_files && place.variable("TMPDIR").is_some() {
        // Wherever that is, it cannot be written; `/tmp` can.
        set.push(pair("TMPDIR", b"/tmp"));
    }
    for (name, value) in sandbox.iter().flat_map(|sandbox| &sandbox.variables) {
        if !set.iter().any(|(set, _)| set == name.as_bytes()) {
            set.push(pair(name, value.as_bytes()));
        }
    }
    let bare = plan.is_untrusted();
    if bare {
        let known = BARE.iter().filter_map(|name| Some((*name, place.variable(name)?)));
        let missing = known.filter(|(name, _)| !set.iter().any(|(set, _)| set == name.as_bytes()));
        let more: Vec<_> = missing.map(|(name, value)| pair(name, value.as_bytes())).collect();
        set.extend(more);
    }
    protocol::Environment { inherited: !bare, set, unset }
}
