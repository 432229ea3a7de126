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
mod relief;
mod stream;
mod tool;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use legwork_gate::Level;

pub use self::{
    answer::{Answer, Envelope, EnvelopeStatus, StartedTask, Success, ToolResult},
    command::{Command, CommandFuture},
    finished::Finished,
    handle::TaskHandle,
    options::Options,
    relief::{Discarded, Relief},
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
        Caller, ConnectionCheck, Request, Trust,
        place::{LOCAL_PLACE, PlaceReport, PlaceSettings},
        question::{Answered, Approval, Reply},
        sandbox::{HeldRule, SandboxReport},
    },
    output::{Mask, SharedMask, TaskOutput},
    place::Place,
    state::StateFolder,
    store::{
        ledger::{Answerer, Task, TaskFilter},
        retention::{CleanUp, Collected, Retention},
        usage::{RecordSizes, Usage, record_sizes},
    },
    task::{
        Checker, ForeignShell, ForeignVerdict, Submitted, Tasks, adopt::keep_adopting,
        input::TypedText, observe::Observer, place_error, places::out_of_reach, run::Run,
        sandbox_facts,
    },
};

/// Runs commands and knows the tasks of its state folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    tasks: Arc<Tasks>,
    registry: Arc<Registry>,
    hint: fn(&ToolError) -> Option<String>,
    for_the_user: fn(&ToolError, &StateFolder) -> Option<String>,
    /// The program that is told where the audit log ends.
    told_of_audit: Arc<[String]>,
}

impl Engine {
    /// The tools.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Limits of what is shown and waited for.
    pub fn settings(&self) -> &Settings {
        &self.tasks.judge.settings
    }

    /// Waits until nothing of what was started here depends on this process any more: before a
    /// program ends whose commands are to go on. It takes two seconds at most, and mostly none.
    pub async fn handed_over(&self) {
        self.tasks.handed_over().await;
    }

    /// What no answer may show.
    pub fn mask(&self) -> Arc<Mask> {
        self.tasks.mask.get()
    }

    /// The same as it grows with the secrets that commands are given.
    pub fn shared_mask(&self) -> SharedMask {
        self.tasks.mask.clone()
    }

    /// What this engine has counted, with those that share its meters.
    pub fn meters(&self) -> &Meters {
        &self.tasks.store.meters
    }

    /// The wardens that are ready for commands of this engine, and those that have one.
    pub fn wardens(&self) -> WardenCount {
        self.tasks.wardens()
    }

    /// The layers that sandboxes of this engine are known to lack on this machine, for callers of
    /// any trust. Nothing is started to find out.
    pub fn missing_layers(&self) -> Vec<String> {
        self.tasks.missing_layers()
    }

    /// The state folder.
    pub fn state(&self) -> &StateFolder {
        &self.tasks.store.state
    }

    /// The workspace, as a real path.
    pub fn workspace(&self) -> &Path {
        self.tasks.workspace()
    }

    /// Makes this engine one that stays: starts what the first command would otherwise wait for,
    /// and takes over the commands whose engine is gone, now and later. Sandboxes are made ready
    /// for callers of this trust. Returns the spawner's process id, where there is one.
    pub async fn warm_up(&self, trust: Trust) -> Result<Option<u32>, ToolError> {
        self.tasks.store.ledger.stay();
        tokio::spawn(keep_adopting(Arc::downgrade(&self.tasks)));
        self.tasks.send_heads(self.told_of_audit.to_vec());
        let usual = self.tasks.judge.wanted(trust);
        self.tasks.place.warm_up(usual).await.map_err(|error| place_error(&error.into()))
    }

    /// Whether a command of a caller of this trust could start now: the ledger takes records, and a
    /// warden with its sandbox is ready. Nothing is started.
    pub async fn ready(&self, trust: Trust) -> Result<(), ToolError> {
        self.tasks.ready(trust).await
    }

    /// The places that commands can run at besides this machine.
    pub fn places(&self) -> impl Iterator<Item = &PlaceSettings> {
        self.tasks.places.configured().map(|place| place.settings())
    }

    /// The place that commands run at whose caller does not say.
    pub fn default_place(&self) -> &str {
        self.tasks.places.default_name()
    }

    /// Connects to a place, and returns what it says of itself.
    pub async fn check_place(&self, name: &str) -> Result<PlaceReport, ToolError> {
        let known = self.tasks.places.configured().find(|place| place.settings().name == name);
        let Some(place) = known else {
            let problem = format!("there is no place `{name}`");
            return Err(ToolError::new(ErrorKind::InvalidToolInput, problem)
                .hint("it has to be in the configuration, as `[place.NAME]`"));
        };
        let report = place.report().await.map_err(|error| out_of_reach(&error))?;
        let wanted = self.tasks.judge.wanted(Trust::TrustedOperator);
        let at: Arc<dyn Place> = place.clone();
        let sandbox = self.tasks.sandbox_at(&at, wanted).await?;
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
        self.tasks.judge.requires_protection()
    }

    /// What commands of this trust are confined by on this machine; an error if that is less than
    /// is required.
    pub async fn protection(&self, trust: Trust) -> Result<Arc<SandboxReport>, ToolError> {
        self.tasks.protection(trust).await
    }

    /// The level that commands of this trust are confined to, unless a rule says otherwise. Nothing
    /// is started to find out what this machine enforces of it.
    pub fn level(&self, trust: Trust) -> Level {
        self.tasks.judge.wanted(trust).level
    }

    /// The sandbox that is in force for callers of this trust, in words for a model.
    pub async fn sandbox_told(&self, trust: Trust) -> Result<String, ToolError> {
        Ok(sandbox_facts::told(&*self.protection(trust).await?))
    }

    /// Facts about the paths that a failed command complains about, in the sandbox that it had.
    pub(crate) async fn sandbox_facts(
        &self,
        sandbox: &SandboxReport,
        trust: Trust,
        complaints: &str,
    ) -> Vec<String> {
        self.tasks.sandbox_facts(sandbox, trust, complaints).await
    }

    /// How the rules that deny programs, or ask about them, are held for callers of this trust on
    /// this machine.
    pub async fn held_rules(&self, trust: Trust) -> Result<Vec<HeldRule>, ToolError> {
        let sandbox = self.tasks.sandbox(self.tasks.judge.wanted(trust)).await?;
        let enforcement = sandbox.as_ref().map(|sandbox| &sandbox.enforcement);
        let rules = self.tasks.judge.program_rules().into_iter();
        Ok(rules.map(|rule| HeldRule::new(rule, enforcement)).collect())
    }

    /// What would be said of a connection that commands of callers of this trust make by name.
    pub fn check_connection(
        &self,
        trust: Trust,
        host: &str,
        port: u16,
    ) -> Result<ConnectionCheck, ToolError> {
        self.tasks.judge.check_connection(trust, host, port).map_err(|problem| {
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
        self.tasks.checker(request, trust).await
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
        match self.tasks.judge_foreign(request, shell, can_ask, caller).await {
            Ok(ForeignVerdict::Deny(error)) => Ok(ForeignVerdict::Deny(self.told(error))),
            Ok(verdict) => Ok(verdict),
            Err(error) => Err(self.told(error)),
        }
    }

    /// Takes a request through plan, gate and ledger to a running command.
    pub async fn submit(&self, request: Request, caller: &Caller) -> Result<Submitted, ToolError> {
        self.tasks.submit(request, caller).await
    }

    /// Starts a command, also where an equal one is running.
    pub async fn start(&self, request: Request, caller: &Caller) -> Result<Run, ToolError> {
        self.tasks.start_new(request, caller).await
    }

    /// The tasks of all workspaces, newest first; those that only seem to run are settled before.
    pub async fn tasks(&self, finished_too: bool, limit: u32) -> Result<Vec<Task>, ToolError> {
        self.tasks.all(finished_too, limit).await
    }

    /// The tasks that are wanted, of all workspaces, newest first, and how many there are in all;
    /// those that only seem to run are settled before.
    pub async fn tasks_matching(
        &self,
        filter: TaskFilter,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.tasks.matching(filter, limit).await
    }

    /// When a running task will be stopped because it has lost its engine
    /// ([`Options::orphan_ttl`]), in milliseconds since 1970; none if it has one, or is
    /// [kept](Request::kept).
    pub fn alone_until_ms(&self, task: &Task) -> Option<i64> {
        self.tasks.alone_until_ms(task)
    }

    /// The processes that a finished task left behind and that still run: their pids and command
    /// lines, without secrets. [`Observer::stop`] ends them.
    pub fn background_processes(&self, task: &Task) -> Vec<(u32, String)> {
        let mask = self.mask();
        let shown = |(pid, command): (u32, String)| (pid, mask.text(&command).into_owned());
        self.tasks.left_by(task).into_iter().map(shown).collect()
    }

    /// Finished tasks of all workspaces that have [left processes
    /// behind](Self::background_processes), newest first; of the latest 200.
    pub async fn tasks_left_running(&self) -> Result<Vec<Task>, ToolError> {
        self.tasks.left_running(None).await
    }

    /// For each id, how many of its first characters are enough to tell it from all others.
    pub async fn distinct_chars(&self, ids: Vec<TaskId>) -> Result<Vec<usize>, ToolError> {
        self.tasks.distinct_chars(ids).await
    }

    /// The tasks of this engine's workspace, newest first, and how many there are in all.
    pub async fn tasks_here(
        &self,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.tasks.here(finished_too, limit).await
    }

    /// The task of this id, if it is one of this engine's workspace.
    pub async fn task_here(&self, id: &str) -> Result<Task, ToolError> {
        self.tasks.one_here(id).await
    }

    /// The task whose id begins with this text; `@` is the newest.
    pub async fn task(&self, prefix: &str) -> Result<Task, ToolError> {
        self.tasks.one(prefix).await
    }

    /// What a task has printed so far, wherever it is kept.
    pub async fn output(&self, id: &TaskId) -> Result<TaskOutput, ToolError> {
        self.tasks.output(id).await
    }

    /// Looks at a task through its warden, whoever started it.
    pub async fn observe(&self, task: Task) -> Result<Observer, ToolError> {
        Observer::of(self.tasks.clone(), task).await
    }

    /// Lets input through to a task, or says why not: what is code there is noted, and judged in
    /// strict mode.
    pub(crate) async fn admit_input(
        &self,
        task: &Task,
        input: TypedText<'_>,
        caller: &Caller,
    ) -> Result<(), ToolError> {
        self.tasks.admit_input(task, input, caller).await
    }

    /// Lets a caller type on a task's terminal key by key with [`Observer::input`], or says why
    /// not: in strict mode what a shell reads is judged in whole lines, unless a person types.
    /// Where the input is code, the audit log notes who begins to type.
    pub async fn admit_typing(
        &self,
        task: &Task,
        caller: &Caller,
        is_person: bool,
    ) -> Result<(), ToolError> {
        self.tasks.admit_typing(task, caller, is_person).await
    }

    /// The questions that wait for an answer, oldest first.
    pub async fn approvals(&self) -> Result<Vec<Approval>, ToolError> {
        self.tasks.judge.questions().await
    }

    /// Whether the program that asked still runs: an answer reaches it at once.
    pub fn is_asking(&self, approval: &Approval) -> bool {
        self.tasks.judge.is_asking(approval)
    }

    /// The answers that can be given to a question now, the safest first. One for the session is
    /// not among them when the program that asked is gone.
    pub fn replies(&self, approval: &Approval) -> Vec<Reply> {
        self.tasks.judge.replies(approval)
    }

    /// Answers the question whose id begins with this text; the first answer counts.
    pub async fn answer(&self, prefix: &str, answered: Answered) -> Result<Approval, ToolError> {
        let question = self.tasks.judge.answer(prefix, answered).await?;
        if !self.is_asking(&question) {
            self.tasks.pass_on(&question).await?;
        }
        self.tasks.settle_tried(&question).await?;
        Ok(question)
    }

    /// Says that somebody is here who answers questions, until the result is dropped: callers who
    /// have to ask wait.
    pub fn watch_approvals(&self) -> Result<Answerer, ToolError> {
        self.tasks.judge.watch()
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
        let events = self.tasks.store.ledger.events(after, interest).await?;
        if interest == Interest::Live {
            self.tasks.attend();
        }
        Ok(events)
    }

    /// Removes what is past its time, or says what would be.
    pub async fn collect(
        &self,
        retention: Retention,
        wanted: CleanUp,
    ) -> Result<Collected, ToolError> {
        self.tasks.collect(retention, wanted).await
    }

    /// Removes what is past its time, now and every few hours, beside whatever else goes on: a
    /// little at a time, and only one process.
    pub fn tidy_up(&self) {
        self.tasks.tidy_up();
    }

    /// What the state folder takes on the disk.
    pub async fn usage(&self) -> Result<Usage, ToolError> {
        self.tasks.usage().await
    }

    /// The lengths of the files that records are kept in.
    pub fn record_sizes(&self) -> RecordSizes {
        record_sizes(self.state())
    }

    /// Checks the whole ledger; one that is damaged is rebuilt.
    pub async fn check_ledger(&self) -> Result<(), ToolError> {
        Ok(self.tasks.store.ledger.check().await?)
    }

    /// The journals of applies that could be neither finished nor undone, because somebody has
    /// changed what they had moved. Each says where what it replaced is kept.
    pub fn stuck_applies(&self) -> Vec<PathBuf> {
        self.tasks.stuck_applies()
    }

    /// Stops every command that a caller of this engine still waits for, and waits for their ends.
    ///
    /// Promoted tasks go on, and so do processes that ended commands left behind.
    pub async fn stop_all(&self, grace: Duration) {
        self.tasks.stop_all(grace).await;
    }
}
