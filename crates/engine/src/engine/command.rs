//! `Command`: a builder with which a host program runs a command of its own.

use std::{
    ffi::{OsStr, OsString},
    future::{Future, IntoFuture},
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use legwork_warden::{folder::WindowSize, protocol::Limits};

use super::{
    Engine,
    finished::{Finished, Texts},
    handle::TaskHandle,
};
use crate::{
    error::{ErrorKind, ToolError},
    model::{Caller, Confinement, DuplicatePolicy, Outputs, Program, Request, Stdin},
    task::Submitted,
};

/// A command of the host program: put together, then awaited or started.
///
/// [`Engine::sh`] and [`Engine::program`] begin one. Awaited, it runs to its end and gives a
/// [`Finished`]; [`Command::start`] gives a [`TaskHandle`] while it runs. It is judged, confined,
/// supervised and recorded as any other command of the engine. Dropping the future before its end
/// stops the command.
#[derive(Debug)]
#[must_use = "a command does nothing until it is awaited or started"]
pub struct Command {
    engine: Engine,
    request: Request,
    caller: Option<Caller>,
    text_bytes_max: Option<u64>,
    masked: bool,
    /// The first thing that was asked for and makes no sense.
    problem: Option<ToolError>,
}

/// A command that runs to its end.
pub type CommandFuture = Pin<Box<dyn Future<Output = Result<Finished, ToolError>> + Send>>;

impl Engine {
    /// A script for the user's shell, or for `sh`.
    ///
    /// Whatever comes from elsewhere must not be pasted into it: pass it as a variable
    /// ([`Command::env`]), or run the program itself ([`Engine::program`]).
    pub fn sh(&self, script: impl Into<String>) -> Command {
        self.own_command(Request::script(script))
    }

    /// A program, run without a shell: each argument reaches it as it is.
    pub fn program(&self, program: impl Into<OsString>) -> Command {
        self.own_command(Request::program([program.into()]))
    }

    /// Any request, to be awaited or started as those of [`Engine::sh`] and [`Engine::program`]
    /// are.
    pub fn command(&self, request: Request) -> Command {
        let engine = self.clone();
        let (caller, text_bytes_max, problem) = (None, None, None);
        Command { engine, request, caller, text_bytes_max, masked: false, problem }
    }

    /// The host program's own: it is its business where that runs, and how often.
    fn own_command(&self, request: Request) -> Command {
        let request = request.confined_to(Confinement::None).duplicates(DuplicatePolicy::StartNew);
        self.command(request)
    }

    /// A handle of a task, whoever started it: by its id, by a beginning that only its id has, or
    /// the newest one by `@`. Dropping the handle changes nothing.
    ///
    /// It is held by this program, as an operator; [`Engine::attach_as`] is for another caller.
    pub async fn attach(&self, task_id: impl AsRef<str>) -> Result<TaskHandle, ToolError> {
        self.attach_as(task_id, &this_program()).await
    }

    /// The same for this caller. One who may not act on the task
    /// ([`Observer::controls`](crate::Observer::controls)) can wait for it and read it.
    pub async fn attach_as(
        &self,
        task_id: impl AsRef<str>,
        caller: &Caller,
    ) -> Result<TaskHandle, ToolError> {
        let observer = self.observe(self.task(task_id.as_ref()).await?).await?;
        Ok(TaskHandle::of(self.clone(), observer, caller.clone(), self.texts(None, false)))
    }

    fn texts(&self, bytes_max: Option<u64>, masked: bool) -> Texts {
        Texts { bytes_max: bytes_max.unwrap_or(self.settings().complete_bytes_max), masked }
    }
}

impl Command {
    /// Adds an argument of a program. A script takes none.
    pub fn arg(self, argument: impl Into<OsString>) -> Self {
        self.args([argument])
    }

    /// Adds arguments of a program. A script takes none.
    pub fn args<W: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = W>) -> Self {
        match &mut self.request.program {
            Program::Argv(argv) => argv.extend(arguments.into_iter().map(Into::into)),
            Program::Script { .. } => self.misuse("arguments", "they belong into its text"),
        }
        self
    }

    /// Chooses the shell of a script, by name or path. A program has none.
    pub fn shell(mut self, shell: impl Into<String>) -> Self {
        self.only_for_a_script("shell");
        self.request = self.request.shell(shell);
        self
    }

    /// Says whether the shell of a script is a login shell, which reads the user's profile; by
    /// default it is not. A program has no shell.
    pub fn login(mut self, is_login: bool) -> Self {
        self.only_for_a_script("login");
        self.request = self.request.login(is_login);
        self
    }

    /// Sets a variable. One whose name looks secret is masked wherever it is printed.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request = self.request.env(name, value);
        self
    }

    /// Sets variables.
    pub fn envs<N: Into<String>, V: Into<String>>(
        self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        variables.into_iter().fold(self, |command, (name, value)| command.env(name, value))
    }

    /// Chooses the folder to run in: relative to the workspace, or absolute. By default the
    /// workspace.
    pub fn workdir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.request = self.request.workdir(folder);
        self
    }

    /// Stops it, and everything that it started, after this time; that is a result, not an error
    /// ([`Finished::timed_out`]).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.request = self.request.timeout(limit);
        self
    }

    /// Chooses what it reads: text, bytes or a file, [`Stdin::Null`] (the default), or
    /// [`Stdin::Open`] for input that is sent later ([`TaskHandle::send`]).
    pub fn stdin(mut self, stdin: impl Into<Stdin>) -> Self {
        self.request = self.request.stdin(stdin);
        self
    }

    /// Gives it a terminal of this size, with open input.
    pub fn tty(mut self, size: WindowSize) -> Self {
        self.request = self.request.outputs(Outputs::Terminal(size)).stdin(Stdin::Open);
        self
    }

    /// Gives it one stream for stdout and stderr: everything is in stdout, in the exact order.
    pub fn merged(mut self) -> Self {
        self.request = self.request.outputs(Outputs::Merged);
        self
    }

    /// Limits what it may use, where that is less than what is configured.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.request = self.request.limits(limits);
        self
    }

    /// Does not start it if an equal one is running, but joins that one: the same program,
    /// arguments and folder, whatever its variables and its stdin are.
    pub fn join_running(mut self) -> Self {
        self.request = self.request.duplicates(DuplicatePolicy::ReuseRunning);
        self
    }

    /// Says what it is for: a person who is asked about it sees that.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.request = self.request.description(text);
        self
    }

    /// Names the tool for which it is run: the rules of a policy may name it, and the ledger has
    /// it.
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.request = self.request.tool(name);
        self
    }

    /// Says who asks. By default that is an operator with the name of this program, of whom nobody
    /// can be asked.
    pub fn caller(mut self, caller: &Caller) -> Self {
        self.caller = Some(caller.clone());
        self
    }

    /// Chooses how much of each stream [`Finished`] has as text. By default
    /// [`Settings::complete_bytes_max`](crate::Settings::complete_bytes_max), which is 1 MiB.
    pub fn text_bytes_max(mut self, bytes: u64) -> Self {
        self.text_bytes_max = Some(bytes);
        self
    }

    /// Masks secrets in the texts of [`Finished`] and in [`TaskHandle::output`], as they are in all
    /// that tools show. By default the host program has what was printed, exactly.
    pub fn masked(mut self) -> Self {
        self.masked = true;
        self
    }

    /// Starts it, and gives a handle while it runs; dropping that stops the command.
    pub async fn start(self) -> Result<TaskHandle, ToolError> {
        let Self { engine, request, caller, text_bytes_max, masked, problem } = self;
        if let Some(problem) = problem {
            return Err(problem);
        }
        let caller = caller.unwrap_or_else(this_program);
        let texts = engine.texts(text_bytes_max, masked);
        match engine.submit(request, &caller).await? {
            Submitted::Started(run) => Ok(TaskHandle::own(engine, run, caller, texts)),
            Submitted::AlreadyRunning(task) => {
                let observer = engine.observe(*task).await?;
                Ok(TaskHandle::of(engine, observer, caller, texts))
            }
        }
    }

    fn only_for_a_script(&mut self, what: &str) {
        if matches!(self.request.program, Program::Argv(_)) {
            self.misuse(what, "it is run without a shell");
        }
    }

    fn misuse(&mut self, what: &str, why: &str) {
        let whose = match self.request.program {
            Program::Argv(_) => "a program",
            Program::Script { .. } => "a script",
        };
        let problem = format!("{whose} takes no {what}: {why}");
        self.problem.get_or_insert(ToolError::new(ErrorKind::InvalidToolInput, problem));
    }
}

impl IntoFuture for Command {
    type Output = Result<Finished, ToolError>;
    type IntoFuture = CommandFuture;

    /// Runs the command to its end; dropping the future before stops it.
    fn into_future(self) -> CommandFuture {
        Box::pin(async move { self.start().await?.wait().await })
    }
}

/// This program as a caller: an operator with its name.
fn this_program() -> Caller {
    let first = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&first).file_name().and_then(OsStr::to_str);
    Caller::operator(name.unwrap_or("host"))
}
