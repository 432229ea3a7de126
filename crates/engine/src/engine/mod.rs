//! The engine: what a host program holds, and what the tools are given.
//!
//! It opens the rooms (store, place, judge, task) and passes on what callers ask of them: calls of
//! tools in `calls`, what was changed on copies in `changes`, all else here. It knows what a tool
//! is, but no tool: those that come with the library are in `tools`.

mod answer;
mod calls;
mod changes;
mod command;
pub mod export;
mod finished;
mod handle;
mod open;
mod options;
mod removal;
mod stream;
mod tool;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use legwork_gate::Level;

pub use self::{
    answer::{Answer, Envelope, EnvelopeStatus, Success, ToolResult},
    command::{Command, CommandFuture},
    finished::Finished,
    handle::TaskHandle,
    options::Options,
    removal::StateContent,
    stream::{Chunk, OutputStream},
    tool::{Definition, Registry, Tool, ToolFuture, Turn},
};
use crate::{
    error::{ErrorKind, ToolError},
    events::{EventCursor, Events, Interest},
    id::TaskId,
    judge::config::Settings,
    meters::{Meters, WardenCount},
    model::{
        Caller, ConnectionCheck, Denial, Outcome, Request, Session, Trust,
        place::{LOCAL_PLACE, PlaceReport, PlaceSettings},
        question::{Answered, Approval, Reply},
        sandbox::{HeldRule, SandboxReport},
    },
    output::{Mask, SharedMask, TaskOutput},
    place::Place,
    state::StateFolder,
    store::{
        Store,
        ledger::{Answerer, Task, TaskFilter},
        retention::{CleanUp, Collected, Retention},
        usage::{RecordSizes, Usage, record_sizes},
    },
    task::{
        Checker, ForeignShell, ForeignVerdict, Submitted, Tasks, adopt::keep_adopting,
        input::TypedText, observe::Observer, place_error, places::out_of_reach, run::Run,
        sandbox_facts, versions::Versions,
    },
};

/// Runs commands and knows the tasks of its state folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    versions: Arc<Versions>,
    /// The version by which one call goes.
    pinned: Option<Arc<Tasks>>,
    store: Store,
    mask: SharedMask,
    workspace: Arc<Path>,
    registry: Arc<Registry>,
    hint: fn(&ToolError) -> Option<String>,
    for_the_user: fn(&ToolError, &StateFolder) -> Option<String>,
    /// The program that is told where the audit log ends.
    told_of_audit: Arc<[String]>,
}

impl Engine {
    fn of(
        versions: Arc<Versions>,
        registry: Registry,
        hint: fn(&ToolError) -> Option<String>,
        for_the_user: fn(&ToolError, &StateFolder) -> Option<String>,
        told_of_audit: Vec<String>,
    ) -> Self {
        let first = versions.latest();
        Self {
            pinned: None,
            store: first.store.clone(),
            mask: first.mask.clone(),
            workspace: first.workspace().into(),
            registry: Arc::new(registry),
            hint,
            for_the_user,
            told_of_audit: told_of_audit.into(),
            versions,
        }
    }

    /// The tasks by the configuration that was read last: for what judges nothing.
    fn latest(&self) -> Arc<Tasks> {
        self.pinned.clone().unwrap_or_else(|| self.versions.latest())
    }

    /// The tasks by the configuration as it is now.
    async fn judging(&self) -> Arc<Tasks> {
        match &self.pinned {
            Some(pinned) => pinned.clone(),
            None => self.versions.current().await,
        }
    }

    /// This engine for one call: it goes by the configuration as it is now, whatever becomes of the
    /// files meanwhile. Every other engine looks at them before each judgement.
    pub async fn for_one_call(&self) -> Self {
        Self { pinned: Some(self.judging().await), ..self.clone() }
    }

    /// The tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Limits of what is shown and waited for.
    pub fn settings(&self) -> Settings {
        self.latest().judge.settings
    }

    /// Waits until nothing of what was started here depends on this process any more: before a
    /// program ends whose commands are to go on. It takes two seconds at most, and mostly none.
    pub async fn handed_over(&self) {
        self.latest().handed_over().await;
    }

    /// What no answer may show.
    pub fn mask(&self) -> Arc<Mask> {
        self.mask.get()
    }

    /// The same as it grows with the secrets that commands are given.
    pub fn shared_mask(&self) -> SharedMask {
        self.mask.clone()
    }

    /// What this engine has counted, with those that share its meters.
    pub fn meters(&self) -> &Meters {
        &self.store.meters
    }

    /// The wardens that are ready for commands of this engine, and those that have one.
    pub fn wardens(&self) -> WardenCount {
        self.latest().wardens()
    }

    /// The layers that sandboxes of this engine are known to lack on this machine, for callers of
    /// any trust. Nothing is started to find out.
    pub fn missing_layers(&self) -> Vec<String> {
        self.latest().missing_layers()
    }

    /// The state folder.
    pub fn state(&self) -> &StateFolder {
        &self.store.state
    }

    /// The workspace, as a real path.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Makes this engine one that stays: starts what the first command would otherwise wait for,
    /// and takes over the commands whose engine is gone, now and later. Sandboxes are made ready
    /// for callers of this trust. Returns the spawner's process id, where there is one.
    pub async fn warm_up(&self, trust: Trust) -> Result<Option<u32>, ToolError> {
        self.store.ledger.stay();
        self.versions.expect(trust);
        let tasks = self.latest();
        tokio::spawn(keep_adopting(tasks.downgrade()));
        tasks.send_heads(self.told_of_audit.to_vec());
        let usual = tasks.judge.wanted(trust);
        tasks.place.warm_up(usual).await.map_err(|error| place_error(&error.into()))
    }

    /// Whether a command of a caller of this trust could start now: the ledger takes records, and a
    /// warden with its sandbox is ready. Nothing is started.
    pub async fn ready(&self, trust: Trust) -> Result<(), ToolError> {
        self.judging().await.ready(trust).await
    }

    /// The places that commands can run at besides this machine.
    pub fn places(&self) -> Vec<PlaceSettings> {
        self.latest().places.configured().map(|place| place.settings().clone()).collect()
    }

    /// The place that commands run at whose caller does not say.
    pub fn default_place(&self) -> String {
        self.latest().places.default_name().to_owned()
    }

    /// Connects to a place, and returns what it says of itself.
    pub async fn check_place(&self, name: &str) -> Result<PlaceReport, ToolError> {
        let tasks = self.judging().await;
        let known = tasks.places.configured().find(|place| place.settings().name == name);
        let Some(place) = known else {
            let problem = format!("there is no place `{name}`");
            return Err(ToolError::new(ErrorKind::InvalidToolInput, problem)
                .hint("it has to be in the configuration, as `[place.NAME]`"));
        };
        let report = place.report().await.map_err(|error| out_of_reach(&error))?;
        let wanted = tasks.judge.wanted(Trust::TrustedOperator);
        let at: Arc<dyn Place> = place.clone();
        let sandbox = tasks.sandbox_at(&at, wanted).await?;
        Ok(PlaceReport {
            name: name.to_owned(),
            host: report.hello.host,
            workspace: report.hello.workspace,
            state: report.hello.state,
            processors: report.hello.processors,
            memory_bytes: report.hello.memory_bytes,
            opened_in: report.opened_in,
            answered_in: report.answered_in,
            is_same_program: report.is_same_program,
            wardens: report.leftovers.wardens,
            tasks: report.leftovers.tasks,
            sandbox: sandbox.map(|sandbox| sandbox.report.clone()).unwrap_or_default(),
            lacks: report.lacks,
        })
    }

    /// Whether nothing is started with less than the whole sandbox.
    pub fn requires_protection(&self) -> bool {
        self.latest().judge.requires_protection()
    }

    /// A folder of the workspace in which repositories are neither guarded nor watched, because
    /// there are too many folders; there may be others.
    pub async fn unsearched(&self) -> Option<PathBuf> {
        self.latest().place.unsearched().await
    }

    /// What commands of this trust are confined by on this machine; an error if that is less than
    /// is required.
    pub async fn protection(&self, trust: Trust) -> Result<Arc<SandboxReport>, ToolError> {
        self.judging().await.protection(trust).await
    }

    /// The level that commands of this trust are confined to, unless a rule says otherwise. Nothing
    /// is started to find out what this machine enforces of it.
    pub fn level(&self, trust: Trust) -> Level {
        self.latest().judge.wanted(trust).level
    }

    /// The sandbox that is in force for callers of this trust, in words for a model.
    pub async fn sandbox_told(&self, trust: Trust) -> Result<String, ToolError> {
        Ok(sandbox_facts::told(&*self.protection(trust).await?))
    }

    /// What the sandbox kept from a command, as far as the command complains of it on this machine:
    /// paths, if it has failed, and processes of other tasks.
    pub(crate) async fn sandbox_facts(
        &self,
        run: &Run,
        outcome: &Outcome,
        caller: &Caller,
        complaints: &str,
    ) -> Vec<Denial> {
        // What this machine's sandbox does says nothing about another's.
        if run.is_far() || complaints.is_empty() {
            return Vec::new();
        }
        let tasks = self.latest();
        let mut facts = tasks.process_facts(run.sandbox(), caller, complaints).await;
        if outcome.exit_status != Some(0) {
            facts.extend(tasks.path_facts(run.sandbox(), caller.trust, complaints).await);
        }
        facts
    }

    /// Ends what the commands of a session have left running, if its caller could not end it.
    pub async fn end_session(&self, session: &Session) {
        self.latest().end_session(session).await;
    }

    /// How the rules that deny programs, or ask about them, are held for callers of this trust on
    /// this machine.
    pub async fn held_rules(&self, trust: Trust) -> Result<Vec<HeldRule>, ToolError> {
        let tasks = self.judging().await;
        let sandbox = tasks.sandbox(tasks.judge.wanted(trust)).await?;
        let enforcement = sandbox.as_ref().map(|sandbox| &sandbox.enforcement);
        let rules = tasks.judge.program_rules().into_iter();
        Ok(rules.map(|rule| HeldRule::new(rule, enforcement)).collect())
    }

    /// What would be said of a connection that commands of callers of this trust make by name.
    pub async fn check_connection(
        &self,
        trust: Trust,
        host: &str,
        port: u16,
    ) -> Result<ConnectionCheck, ToolError> {
        let tasks = self.judging().await;
        tasks.judge.check()?;
        tasks.judge.check_connection(trust, host, port).map_err(|problem| {
            ToolError::new(ErrorKind::InvalidToolInput, format!("`{host}`: {problem}"))
        })
    }

    /// Judges what a tool would be asked to run, by the function and in the circumstances in which
    /// it is judged before it runs. Nothing is run.
    pub async fn checker(&self, tool: &str, trust: Trust) -> Result<Checker, ToolError> {
        let definition = self.registry.get(tool).map(Tool::definition);
        let argv = definition.is_some_and(|definition| definition.takes_argv);
        let mut request =
            if argv { Request::program(["true"]) } else { Request::script("true") }.tool(tool);
        request = request.place(LOCAL_PLACE);
        if let Some(definition) = definition {
            request = request.manners(definition.manners);
        }
        if let Some(shell) = definition.and_then(|definition| definition.shell) {
            request = request.shell(shell);
        }
        self.judging().await.checker(request, trust).await
    }

    /// Judges a command that another program would run, such as the own shell of a coding agent, by
    /// the same rules and answers as a command of this engine, and notes the verdict. Nothing is
    /// run and nothing waited for: where the program cannot ask a person itself, a question is
    /// opened whose answer counts for the next equal command.
    pub async fn judge_foreign(
        &self,
        request: Request,
        shell: ForeignShell,
        can_ask: bool,
        caller: &Caller,
    ) -> Result<ForeignVerdict, ToolError> {
        match self.judging().await.judge_foreign(request, shell, can_ask, caller).await {
            Ok(ForeignVerdict::Deny(error)) => Ok(ForeignVerdict::Deny(self.told(error))),
            Ok(verdict) => Ok(verdict),
            Err(error) => Err(self.told(error)),
        }
    }

    /// Takes a request through plan, gate and ledger to a running command.
    pub async fn submit(&self, request: Request, caller: &Caller) -> Result<Submitted, ToolError> {
        self.judging().await.submit(request, caller).await
    }

    /// Starts a command, also where an equal one is running.
    pub async fn start(&self, request: Request, caller: &Caller) -> Result<Run, ToolError> {
        self.judging().await.start_new(request, caller).await
    }

    /// The tasks of all workspaces, newest first; those that only seem to run are settled before.
    pub async fn tasks(&self, finished_too: bool, limit: u32) -> Result<Vec<Task>, ToolError> {
        self.latest().all(finished_too, limit).await
    }

    /// The tasks that are wanted, of all workspaces, newest first, and how many there are in all;
    /// those that only seem to run are settled before.
    pub async fn tasks_matching(
        &self,
        filter: TaskFilter,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.latest().matching(filter, limit).await
    }

    /// When a running task will be stopped because it has lost its engine
    /// ([`Options::orphan_ttl`]), in milliseconds since 1970; none if it has one, or is
    /// [kept](Request::kept).
    pub fn alone_until_ms(&self, task: &Task) -> Option<i64> {
        self.latest().alone_until_ms(task)
    }

    /// The processes that a finished task left behind and that still run: their pids and command
    /// lines, without secrets. [`Controls::stop`](crate::Controls::stop) ends them.
    pub fn background_processes(&self, task: &Task) -> Vec<(u32, String)> {
        let mask = self.mask();
        let shown = |(pid, command): (u32, String)| (pid, mask.text(&command).into_owned());
        self.latest().left_by(task).into_iter().map(shown).collect()
    }

    /// Finished tasks of all workspaces that have [left processes
    /// behind](Self::background_processes), newest first; of the latest 200.
    pub async fn tasks_left_running(&self) -> Result<Vec<Task>, ToolError> {
        self.latest().left_running(None).await
    }

    /// For each id, how many of its first characters are enough to tell it from all others.
    pub async fn distinct_chars(&self, ids: Vec<TaskId>) -> Result<Vec<usize>, ToolError> {
        self.latest().distinct_chars(ids).await
    }

    /// The tasks of this engine's workspace, newest first, and how many there are in all.
    pub async fn tasks_here(
        &self,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.latest().here(finished_too, limit).await
    }

    /// The task of this id, if it is one of this engine's workspace.
    pub async fn task_here(&self, id: &str) -> Result<Task, ToolError> {
        self.latest().one_here(id).await
    }

    /// The task whose id begins with this text; `@` is the newest.
    pub async fn task(&self, prefix: &str) -> Result<Task, ToolError> {
        self.latest().one(prefix).await
    }

    /// What a task has printed so far, wherever it is kept.
    pub async fn output(&self, id: &TaskId) -> Result<TaskOutput, ToolError> {
        self.latest().output(id).await
    }

    /// Looks at a task through its warden, whoever started it.
    pub async fn observe(&self, task: Task) -> Result<Observer, ToolError> {
        Observer::of(self.latest(), task).await
    }

    /// Lets input through to a task, or says why not: what is code there is noted, and judged in
    /// strict mode.
    pub(crate) async fn admit_input(
        &self,
        task: &Task,
        input: TypedText<'_>,
        caller: &Caller,
    ) -> Result<(), ToolError> {
        self.judging().await.admit_input(task, input, caller).await
    }

    /// Lets a caller type on a task's terminal key by key with
    /// [`Controls::input`](crate::Controls::input), or says why not: in strict mode what a shell
    /// reads is judged in whole lines, unless a person types. Where the input is code, the audit
    /// log notes who begins to type.
    pub async fn admit_typing(
        &self,
        task: &Task,
        caller: &Caller,
        is_first: bool,
    ) -> Result<(), ToolError> {
        self.judging().await.admit_typing(task, caller, is_first).await
    }

    /// The questions that wait for an answer, oldest first.
    pub async fn approvals(&self) -> Result<Vec<Approval>, ToolError> {
        self.latest().judge.questions().await
    }

    /// Whether the program that asked still runs: an answer reaches it at once.
    pub fn is_asking(&self, approval: &Approval) -> bool {
        self.latest().judge.is_asking(approval)
    }

    /// The answers that can be given to a question now, the safest first. One for the session is
    /// not among them when the program that asked is gone.
    pub fn replies(&self, approval: &Approval) -> Vec<Reply> {
        self.latest().judge.replies(approval)
    }

    /// Answers the question whose id begins with this text; the first answer counts.
    pub async fn answer(&self, prefix: &str, answered: Answered) -> Result<Approval, ToolError> {
        let question = self.latest().judge.answer(prefix, answered).await?;
        // It may have saved a rule.
        let tasks = self.judging().await;
        if !tasks.judge.is_asking(&question) {
            tasks.pass_on(&question).await?;
        }
        tasks.settle_tried(&question).await?;
        Ok(question)
    }

    /// Says that somebody is here who answers questions, of one workspace or of all, until the
    /// result is dropped: callers there who have to ask wait.
    pub fn watch_approvals(&self, workspace: Option<&str>) -> Result<Answerer, ToolError> {
        self.latest().judge.watch(workspace)
    }

    /// The stream of what happens on the state folder, in this process and in others: after an
    /// event, or from now on.
    ///
    /// ```no_run
    /// # async fn follow(engine: &legwork::Engine) -> Result<(), legwork::ToolError> {
    /// let mut events = engine.events(None, legwork::Interest::Changes).await?;
    /// loop {
    ///     match events.next().await {
    ///         Ok(event) => println!("{:?}", event.what),
    ///         Err(lagged) => println!("look anew, then go on from {}", lagged.cursor),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn events(
        &self,
        after: Option<EventCursor>,
        interest: Interest,
    ) -> Result<Events, ToolError> {
        let events = self.store.ledger.events(after, interest).await?;
        if interest == Interest::Live {
            self.latest().attend();
        }
        Ok(events)
    }

    /// Removes what is past its time, or says what would be.
    pub async fn collect(
        &self,
        retention: Retention,
        wanted: CleanUp,
    ) -> Result<Collected, ToolError> {
        self.latest().collect(retention, wanted).await
    }

    /// Removes what is past its time, now and every few hours, beside whatever else goes on: a
    /// little at a time, and only one process.
    pub fn tidy_up(&self) {
        self.latest().tidy_up();
    }

    /// What the state folder takes on the disk.
    pub async fn usage(&self) -> Result<Usage, ToolError> {
        self.latest().usage().await
    }

    /// The lengths of the files that records are kept in.
    pub fn record_sizes(&self) -> RecordSizes {
        record_sizes(self.state())
    }

    /// Checks the whole ledger; one that is damaged is rebuilt.
    pub async fn check_ledger(&self) -> Result<(), ToolError> {
        Ok(self.store.ledger.check().await?)
    }

    /// The journals of applies that could be neither finished nor undone, because somebody has
    /// changed what they had moved. Each says where what it replaced is kept.
    pub fn stuck_applies(&self) -> Vec<PathBuf> {
        self.latest().stuck_applies()
    }

    /// Stops every command that a caller of this engine still waits for, and waits for their ends.
    ///
    /// Promoted tasks go on, and so do processes that ended commands left behind.
    pub async fn stop_all(&self, grace: Duration) {
        self.latest().stop_all(grace).await;
    }
}
