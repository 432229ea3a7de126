//! `legwork run` and `legwork sh`: like the command itself, but supervised and recorded.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    process::ExitCode,
};

use legwork::{
    Caller, DuplicatePolicy, EndedBy, ErrorKind, Outcome, Outputs, Program, Request, Run,
    RunControl, Stdin, Stream, Submitted, ToolError, output::Tail,
};
use rustix::{fs::fstat, process::Signal};

use crate::{
    OUR_FAILURE,
    arguments::{Place, RunCommon, RunOptions, ShOptions},
    render::{DENIED, NOT_FOUND, complain, complain_of},
    signals::Caught,
};

/// The signals that are passed on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Exit code for a command that was stopped by its time limit.
const TIMED_OUT: u8 = 124;

pub(crate) async fn run(options: RunOptions) -> ExitCode {
    perform("run", Program::Argv(options.command), options.common).await
}

pub(crate) async fn sh(options: ShOptions) -> ExitCode {
    let program = Program::Script {
        text: options.script,
        shell: options.shell,
        login: options.login,
    };
    perform("sh", program, options.common).await
}

async fn perform(tool: &'static str, program: Program, common: RunCommon) -> ExitCode {
    let engine = match (Place {
        workspace: None,
        state: common.state,
    })
    .open()
    {
        Ok(engine) => engine,
        Err(error) => return complain_of(&error),
    };
    let request = Request {
        tool,
        program,
        workdir: None,
        stdin: own_stdin(),
        outputs: own_outputs(),
        duplicates: DuplicatePolicy::StartNew,
        wall_ms_max: common.timeout.map(|seconds| seconds.saturating_mul(1000)),
    };
    // Signals are caught before the command exists, so that none falls between.
    let mut signals = Caught::new(&PASSED_ON);
    let mut run = match engine.submit(request, &Caller::operator(tool)).await {
        Ok(Submitted::Started(run)) => run,
        Ok(Submitted::AlreadyRunning(_)) => return complain("an equal command is running"),
        Err(error) => return refused(&error),
    };
    let control = run.control();
    let mut copier = Copier::new(&run, control.clone());
    let ended = {
        let follow = follow(&mut run, &mut copier);
        tokio::pin!(follow);
        loop {
            tokio::select! {
                ended = &mut follow => break ended,
                number = signals.next() => control.signal(number),
            }
        }
    };
    match ended {
        Ok(outcome) => code_of(&outcome),
        Err(error) => refused(&error),
    }
}

/// Copies the output as it comes, until the command has ended and all of it is out.
async fn follow(run: &mut Run, copier: &mut Copier) -> Result<std::sync::Arc<Outcome>, ToolError> {
    while !run
        .grown(copier.stdout.offset(), copier.stderr.offset())
        .await
    {
        copier.copy().await;
    }
    let outcome = run.outcome().await?;
    copier.copy().await;
    Ok(outcome)
}

/// Copies both streams to our own.
struct Copier {
    stdout: Tail,
    stderr: Tail,
    stdout_open: bool,
    stderr_open: bool,
    control: RunControl,
}

impl Copier {
    fn new(run: &Run, control: RunControl) -> Self {
        Self {
            stdout: Tail::new(run.folder(), Stream::Stdout),
            stderr: Tail::new(run.folder(), Stream::Stderr),
            stdout_open: true,
            stderr_open: true,
            control,
        }
    }

    async fn copy(&mut self) {
        let out = copy_stream(&mut self.stdout, Stream::Stdout, &mut self.stdout_open).await;
        let err = copy_stream(&mut self.stderr, Stream::Stderr, &mut self.stderr_open).await;
        if out.is_err() || err.is_err() {
            // Nobody reads any more: the command would have been told so by this signal.
            self.control.signal(Signal::PIPE.as_raw());
        }
    }
}

async fn copy_stream(tail: &mut Tail, stream: Stream, open: &mut bool) -> io::Result<()> {
    loop {
        let piece = tail.next_piece()?;
        if piece.is_empty() {
            return Ok(());
        }
        if *open {
            // In a thread: a reader that is slow must not keep signals from being passed on.
            let written = tokio::task::spawn_blocking(move || match stream {
                Stream::Stdout => write_through(&mut io::stdout().lock(), &piece),
                Stream::Stderr => write_through(&mut io::stderr().lock(), &piece),
            });
            if let Err(error) = written
                .await
                .map_err(io::Error::other)
                .and_then(|done| done)
            {
                *open = false;
                return Err(error);
            }
        }
    }
}

fn write_through(sink: &mut dyn Write, piece: &[u8]) -> io::Result<()> {
    sink.write_all(piece)?;
    sink.flush()
}

/// Our own stdin, handed to the command as it is; none if it is closed.
fn own_stdin() -> Stdin {
    io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_or(Stdin::Null, Stdin::Given)
}

/// One stream if our stdout and stderr are the same file: only then is the order of both exact.
fn own_outputs() -> Outputs {
    let same = |out: rustix::fs::Stat, err: rustix::fs::Stat| {
        (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
    };
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(out), Ok(err)) if same(out, err) => Outputs::Merged,
        _ => Outputs::Separate,
    }
}

fn code_of(outcome: &Outcome) -> ExitCode {
    let code = match (outcome.ended_by, outcome.exit_status, outcome.signal) {
        (Some(EndedBy::Timeout), _, _) => i32::from(TIMED_OUT),
        (_, Some(code), _) => code,
        (_, None, Some(signal)) => 128 + signal,
        (_, None, None) => {
            let reason = outcome.lost.as_deref().unwrap_or("unknown");
            return complain(&format!(
                "what became of the command cannot be known ({reason})"
            ));
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(OUR_FAILURE))
}

/// A command that did not start, with the code that a shell would give.
fn refused(error: &ToolError) -> ExitCode {
    let ours = complain_of(error);
    let detail = |name| error.details.as_ref().and_then(|details| details.get(name));
    let missing = detail("reason").is_some_and(|reason| reason == "not_found")
        || detail("errno").is_some_and(|errno| *errno == rustix::io::Errno::NOENT.raw_os_error());
    match error.kind {
        ErrorKind::CommandSpawnFailed if missing => ExitCode::from(NOT_FOUND),
        ErrorKind::CommandSpawnFailed => ExitCode::from(DENIED),
        _ => ours,
    }
}
