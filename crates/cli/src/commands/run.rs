//! `legwork run` and `legwork sh`: run a command with our streams or terminal and return its exit
//! code, supervised and recorded.

use std::{process::ExitCode, sync::Arc, time::Duration};

use legwork::{
    Caller, Confinement, Denial, EndedBy, Engine, ErrorKind, Grown, LOCAL_PLACE, Outcome, Outputs,
    Registry, Request, Run, RunControl, Status, Stdin, Task, ToolError, TrialWish, output::Mask,
};

use super::{
    attach::{Left, take_part},
    background,
    copy::{Copier, Failure},
    remedy, trials,
};
use crate::{
    OUR_FAILURE,
    arguments::{RunCommon, RunOptions, ShOptions, StatePlace, TryOptions},
    asking,
    platform::{self, Signal},
    render::{CANCELLED, DENIED, NOT_FOUND, complain, complain_of, one_line, print, reason, say},
    signals::Caught,
    terminal,
};

/// How long a command may take to end when our terminal has gone.
const HANG_UP_GRACE: Duration = Duration::from_secs(1);

/// The signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Exit code for a command that was stopped by its time limit.
const TIMED_OUT: u8 = 124;

pub(crate) async fn run(options: RunOptions) -> ExitCode {
    perform(Request::program(options.command).tool("run"), options.common).await
}

pub(crate) async fn sh(options: ShOptions) -> ExitCode {
    // Agents whose own shell it stands for work on this machine.
    let request = Request::script(options.script).tool("sh").login(options.login);
    let mut request = request.place(LOCAL_PLACE);
    if let Some(shell) = options.shell {
        request = request.shell(shell);
    }
    perform(request, options.common).await
}

/// `legwork try`: the same on a copy, and then what it would change.
pub(crate) async fn try_on_copy(options: TryOptions) -> ExitCode {
    let request = match options.sh {
        Some(script) => Request::script(script),
        None => Request::program(options.command),
    };
    let wish = TrialWish { network: options.network };
    perform(request.tool("try").tried(wish), options.common).await
}

async fn perform(mut request: Request, common: RunCommon) -> ExitCode {
    request.wall_ms_max = common.wall_ms_max();
    if common.place.is_some() {
        request.place.clone_from(&common.place);
    }
    let place = StatePlace { workspace: None, state: common.state.clone() };
    let engine = match place.open_to_run(Registry::default(), &common.rules) {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    // A person has started it, and knows of it: it is not ended because nobody is connected.
    let request = request.confined_to(Confinement::None).kept();
    if common.detach {
        return detached(&engine, request.unawaited(), &common).await;
    }
    let terminal = terminal::size().filter(|_| terminal::is_interactive() && !common.mask);
    let request = request
        .stdin(if terminal.is_some() { Stdin::Open } else { own_stdin() })
        .outputs(terminal.map_or_else(own_outputs, Outputs::Terminal));
    // Signals are caught before the command exists, so that none falls between.
    let signals = Caught::new(&PASSED_ON);
    let is_trial = request.trial.is_some();
    let caller = caller(&request);
    let run = match engine.start(request, &caller).await {
        Ok(run) => run,
        Err(error) => return not_allowed(&engine, &error, &common).await,
    };
    let task_id = run.task_id().clone();
    let over = if terminal.is_some() {
        on_terminal(&engine, run, &caller).await
    } else {
        let mask = common.mask.then(|| engine.mask());
        on_streams(run, signals, mask.as_ref()).await
    };
    // Only then: who reads the ledger writes to it first, and that takes longer than a command.
    if over.leaves_processes {
        background::tell(&engine, task_id.as_str(), &common.state).await;
    }
    if is_trial {
        trials::tell(&engine, task_id.as_str(), &common.state).await;
    }
    // What is over at another place is forgotten there.
    engine.handed_over().await;
    over.code
}

/// What we end with.
struct Over {
    code: ExitCode,
    /// Whether the command left processes running.
    leaves_processes: bool,
}

impl From<ExitCode> for Over {
    fn from(code: ExitCode) -> Self {
        Self { code, leaves_processes: false }
    }
}

impl From<&Outcome> for Over {
    fn from(outcome: &Outcome) -> Self {
        let leaves_processes = !outcome.background_pids.is_empty();
        Self { code: code_of(outcome), leaves_processes }
    }
}

fn caller(request: &Request) -> Caller {
    let mut caller = Caller::person(request.tool.clone());
    caller.asker = asking::person();
    caller
}

/// Starts the command, says which task it is, and leaves it.
async fn detached(engine: &Engine, request: Request, common: &RunCommon) -> ExitCode {
    let caller = caller(&request);
    let started = match engine.start(request, &caller).await {
        Ok(run) => run.detach().await,
        Err(error) => return not_allowed(engine, &error, common).await,
    };
    match started {
        Ok(id) => print(&format!("{id}\n")),
        Err(error) => refused(&error),
    }
}

/// A command that may not start, with what would change that.
async fn not_allowed(engine: &Engine, error: &ToolError, common: &RunCommon) -> ExitCode {
    if asking::was_cancelled() {
        say("legwork: cancelled; nothing was run");
        return ExitCode::from(CANCELLED);
    }
    match remedy::of(engine, error, &common.rules.policy, &common.state).await {
        // It says more than the hint, which is for a caller that is a program.
        Some(remedy) => {
            say(&format!("legwork: {}\n\n{remedy}", error.message));
            ExitCode::from(DENIED)
        }
        None => refused(error),
    }
}

/// Gives the command a terminal that is joined with ours.
async fn on_terminal(engine: &Engine, mut run: Run, caller: &Caller) -> Over {
    let joined = async {
        let task = engine.task(run.task_id().as_str()).await?;
        let mut observer = engine.observe(task).await?;
        if observer.is_over() {
            return Ok(Left::Ended);
        }
        take_part(&mut observer, caller, false).await
    };
    match joined.await {
        // Our terminal went away, or somebody asked us to end: so does the command, when it is
        // dropped.
        Ok(Left::Signal(number)) => {
            run.control().signal(i32::from(number), true);
            engine.stop_all(HANG_UP_GRACE).await;
            return ExitCode::from(128 + number).into();
        }
        Ok(Left::Ended | Left::Detached) => {}
        // It is not to run on unseen. If it never started, its own error says more.
        Err(error) => {
            engine.stop_all(HANG_UP_GRACE).await;
            let start = run.ended().await.err();
            return refused(&start.unwrap_or(error)).into();
        }
    }
    match run.ended().await {
        Ok(ended) => Over::from(&*ended.outcome),
        Err(error) => refused(&error).into(),
    }
}

/// Passes the command's streams on to ours.
async fn on_streams(mut run: Run, mut signals: Caught, mask: Option<&Arc<Mask>>) -> Over {
    let control = run.control();
    let mut passing = Passing::new(control.clone(), mask);
    let ended = {
        let follow = follow(&mut run, &mut passing);
        tokio::pin!(follow);
        loop {
            tokio::select! {
                ended = &mut follow => break ended,
                number = signals.next() => control.signal(number, is_for_all(number)),
            }
        }
    };
    match ended {
        Ok(outcome) => {
            let over = Over::from(&*outcome);
            Over { code: passing.complete(&outcome).unwrap_or(over.code), ..over }
        }
        Err(error) => refused(&error).into(),
    }
}

/// Whether a signal goes to the whole process group, as it does from a terminal's keyboard.
fn is_for_all(number: i32) -> bool {
    [Signal::INT, Signal::QUIT].iter().any(|signal| signal.as_raw() == number)
}

/// Copies the output as it comes, until the command has ended and all of it is out.
async fn follow(run: &mut Run, passing: &mut Passing) -> Result<Arc<Outcome>, ToolError> {
    loop {
        let (stdout, stderr) = passing.written();
        match run.grown(stdout, stderr).await {
            Grown::Bytes { stdout, stderr } => passing.write(stdout, stderr).await,
            Grown::InFolder => passing.copy_folder(run).await,
            Grown::Ended => break,
        }
    }
    let ended = run.ended().await?;
    match run.output(&ended) {
        Ok(output) => {
            let failures = passing.copier.copy(&output).await;
            passing.note(failures);
            let failures = passing.copier.finish().await;
            passing.note(failures);
        }
        Err(error) => passing.problem = Some(format!("cannot read the output: {error}")),
    }
    Ok(ended.outcome)
}

/// Copies the output as it comes, and remembers what kept it from being passed on.
struct Passing {
    copier: Copier,
    control: RunControl,
    problem: Option<String>,
}

impl Passing {
    fn new(control: RunControl, mask: Option<&Arc<Mask>>) -> Self {
        Self { copier: Copier::masked(mask), control, problem: None }
    }

    fn written(&self) -> (u64, u64) {
        (self.copier.stdout.written, self.copier.stderr.written)
    }

    async fn copy_folder(&mut self, run: &Run) {
        // What cannot be read now is tried again with the next growth, and at the end.
        if let Ok(output) = run.stored() {
            let failures = self.copier.copy(&output).await;
            self.note(failures);
        }
    }

    async fn write(&mut self, stdout: Vec<u8>, stderr: Vec<u8>) {
        let failures = self.copier.write(stdout, stderr).await;
        self.note(failures);
    }

    fn note(&mut self, failures: Vec<Failure>) {
        for failure in failures {
            // Whoever writes next learns that nobody reads, as if there were nothing between.
            self.control.close(failure.stream);
            self.problem = failure.problem().or(self.problem.take());
        }
    }

    /// Says what is missing of the output, and fails; nothing if nothing is.
    fn complete(self, outcome: &Outcome) -> Option<ExitCode> {
        // What is not stored may have been passed on before it was dropped.
        let missed = self.copier.stdout.missed(outcome.stdout.came())
            + self.copier.stderr.missed(outcome.stderr.came());
        let lost = (missed > 0)
            .then(|| format!("{missed} bytes of output could not be stored, and are missing here"));
        self.problem.or(lost).map(|problem| complain(&problem))
    }
}

/// Our own stdin, handed to the command as it is; none if it is closed.
fn own_stdin() -> Stdin {
    platform::own_stdin().map_or(Stdin::Null, Stdin::Given)
}

/// One stream if our stdout and stderr are the same file: only then is the order of both exact.
fn own_outputs() -> Outputs {
    if platform::is_one_output() { Outputs::Merged } else { Outputs::Separate }
}

/// The exit code that a task stands for.
pub(super) fn code_of_task(task: &Task) -> ExitCode {
    let is_unknown = |outcome: &Outcome| {
        outcome.exit_status.is_none() && outcome.signal.is_none() && outcome.lost.is_none()
    };
    match &task.outcome {
        Some(outcome) if task.status == Status::Failed && is_unknown(outcome) => {
            let why = task.reason.as_deref().map(|name| format!(": {}", reason(name)));
            let id = &task.task_id;
            complain(&format!("task {id} never started{}", why.unwrap_or_default()))
        }
        Some(outcome) => code_of(outcome),
        None => complain("the command's outcome is not known yet"),
    }
}

/// The exit code that an outcome stands for; a limit that ended the command is named, and so are
/// programs that a rule has kept from being executed, connections that it has refused, and files
/// that others run or trust. What covers a program has said so itself.
fn code_of(outcome: &Outcome) -> ExitCode {
    let is_silent = |denial: &&Denial| denial.rule.is_some() && denial.layer != "covered";
    for denial in outcome.denials.iter().filter(is_silent) {
        say(&format!("legwork: {}", one_line(&denial.what, 200)));
    }
    for warning in &outcome.warnings {
        // The reason stands behind a path, which can have 4,096 bytes.
        say(&format!("legwork: warning: {}", one_line(warning, 20_000)));
    }
    let is_told = |by: &EndedBy| {
        by.is_limit() || matches!(by, EndedBy::Timeout | EndedBy::StoppedByScheduler)
    };
    if let Some(by) = outcome.ended_by.filter(is_told) {
        say(&format!("legwork: {}", by.sentence()));
    }
    let code = match (outcome.ended_by, outcome.exit_status, outcome.signal) {
        (Some(EndedBy::Timeout), _, _) => i32::from(TIMED_OUT),
        (_, Some(code), _) => code,
        (_, None, Some(signal)) => 128 + signal,
        (_, None, None) => {
            let reason = outcome.lost.as_deref().unwrap_or("unknown");
            return complain(&format!("the command's outcome is unknown ({reason})"));
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(OUR_FAILURE))
}

/// A command that did not start, with the code that a shell would give.
fn refused(error: &ToolError) -> ExitCode {
    let ours = complain_of(error);
    let detail = |name| error.details.as_ref().and_then(|details| details.get(name));
    let missing = detail("reason").is_some_and(|reason| reason == "not_found")
        || detail("errno").is_some_and(|errno| *errno == platform::NO_SUCH_FILE);
    match error.kind {
        ErrorKind::CommandSpawnFailed if missing => ExitCode::from(NOT_FOUND),
        ErrorKind::CommandSpawnFailed => ExitCode::from(DENIED),
        _ => ours,
    }
}
