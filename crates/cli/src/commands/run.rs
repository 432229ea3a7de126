//! `legwork run` and `legwork sh`: like the command itself, but supervised and recorded.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    process::ExitCode,
    sync::Arc,
};

use legwork::{
    Caller, DuplicatePolicy, EndedBy, ErrorKind, Grown, Outcome, Outputs, Program, Request, Run,
    RunControl, Stdin, Stream, Submitted, ToolError, output::TaskOutput,
};
use rustix::{fs::fstat, process::Signal};

use crate::{
    OUR_FAILURE,
    arguments::{Place, RunCommon, RunOptions, ShOptions},
    render::{DENIED, NOT_FOUND, complain, complain_of},
    signals::Caught,
};

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 256 * 1024;

/// The signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Exit code for a command that was stopped by its time limit.
const TIMED_OUT: u8 = 124;

pub(crate) async fn run(options: RunOptions) -> ExitCode {
    perform("run", Program::Argv(options.command), options.common).await
}

pub(crate) async fn sh(options: ShOptions) -> ExitCode {
    let program =
        Program::Script { text: options.script, shell: options.shell, login: options.login };
    perform("sh", program, options.common).await
}

async fn perform(tool: &'static str, program: Program, common: RunCommon) -> ExitCode {
    let engine = match (Place { workspace: None, state: common.state }).open() {
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
        memory_bytes_max: u64::MAX,
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
    let mut copier = Copier::new(control.clone());
    let ended = {
        let follow = follow(&mut run, &mut copier);
        tokio::pin!(follow);
        loop {
            tokio::select! {
                ended = &mut follow => break ended,
                number = signals.next() => control.signal(number, is_for_all(number)),
            }
        }
    };
    match ended {
        Ok(outcome) => copier.complete(&outcome).unwrap_or_else(|| code_of(&outcome)),
        Err(error) => refused(&error),
    }
}

/// Whether a signal goes to the whole process group, as it does from a terminal's keyboard.
fn is_for_all(number: i32) -> bool {
    [Signal::INT, Signal::QUIT].iter().any(|signal| signal.as_raw() == number)
}

/// Copies the output as it comes, until the command has ended and all of it is out.
async fn follow(run: &mut Run, copier: &mut Copier) -> Result<Arc<Outcome>, ToolError> {
    loop {
        match run.grown(copier.stdout.written, copier.stderr.written).await {
            Grown::Bytes { stdout, stderr } => copier.write(stdout, stderr).await,
            Grown::InFolder => copier.copy_folder(run).await,
            Grown::Ended => break,
        }
    }
    let ended = run.ended().await?;
    match run.output(&ended) {
        Ok(output) => copier.copy(&output).await,
        Err(error) => copier.problem = Some(format!("the output cannot be read: {error}")),
    }
    Ok(ended.outcome)
}

/// Copies both streams to our own.
struct Copier {
    stdout: Sink,
    stderr: Sink,
    control: RunControl,
    /// What kept output from being passed on.
    problem: Option<String>,
}

/// One of our streams, with how much of the command's went there.
struct Sink {
    stream: Stream,
    written: u64,
    open: bool,
}

impl Copier {
    fn new(control: RunControl) -> Self {
        let sink = |stream| Sink { stream, written: 0, open: true };
        Self { stdout: sink(Stream::Stdout), stderr: sink(Stream::Stderr), control, problem: None }
    }

    async fn copy_folder(&mut self, run: &Run) {
        // What cannot be read now is tried again with the next growth, and at the end.
        if let Ok(output) = run.folder().open() {
            self.copy(&output).await;
        }
    }

    async fn copy(&mut self, output: &TaskOutput) {
        loop {
            let stdout = output.stdout.read(self.stdout.written, PIECE_BYTES).unwrap_or_default();
            let stderr = output.stderr.read(self.stderr.written, PIECE_BYTES).unwrap_or_default();
            if stdout.is_empty() && stderr.is_empty() {
                return;
            }
            self.write(stdout, stderr).await;
        }
    }

    async fn write(&mut self, stdout: Vec<u8>, stderr: Vec<u8>) {
        for (sink, piece) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
            let stream = sink.stream;
            if let Err(error) = sink.write(piece).await {
                // Whoever writes next learns that nobody reads, as if there were nothing between.
                self.control.close(stream);
                if error.kind() != io::ErrorKind::BrokenPipe {
                    self.problem = Some(format!("{}: {error}", stream.file_name()));
                }
            }
        }
    }

    /// Says what is missing of the output, and fails; nothing if nothing is.
    fn complete(self, outcome: &Outcome) -> Option<ExitCode> {
        let dropped = outcome.stdout.dropped_bytes + outcome.stderr.dropped_bytes;
        let lost = (dropped > 0).then(|| {
            format!("{dropped} bytes of output could not be stored, and are not passed on")
        });
        self.problem.or(lost).map(|problem| complain(&problem))
    }
}

impl Sink {
    async fn write(&mut self, piece: Vec<u8>) -> io::Result<()> {
        self.written += piece.len() as u64;
        if piece.is_empty() || !self.open {
            return Ok(());
        }
        let stream = self.stream;
        // In a thread: a reader that is slow must not keep signals from being passed on.
        let written = tokio::task::spawn_blocking(move || match stream {
            Stream::Stdout => write_through(&mut io::stdout().lock(), &piece),
            Stream::Stderr => write_through(&mut io::stderr().lock(), &piece),
        });
        let result = written.await.map_err(io::Error::other).and_then(|done| done);
        self.open = result.is_ok();
        result
    }
}

fn write_through(sink: &mut dyn Write, piece: &[u8]) -> io::Result<()> {
    sink.write_all(piece)?;
    sink.flush()
}

/// Our own stdin, handed to the command as it is; none if it is closed.
fn own_stdin() -> Stdin {
    io::stdin().as_fd().try_clone_to_owned().map_or(Stdin::Null, Stdin::Given)
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
            return complain(&format!("what became of the command cannot be known ({reason})"));
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
