//! `legwork logs`: what a task has written, each stream to its own.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use legwork::{
    Observer, Stream, ToolError,
    output::{Artifact, TaskOutput, replay},
};
use rustix::process::Signal;
use serde_json::json;

use super::{copy::Copier, run::code_of_task};
use crate::{
    arguments::LogsOptions,
    render::{complain, complain_of},
    signals::Caught,
};

/// Bytes of a piece that is printed as JSON.
const PIECE_BYTES: u64 = 64 * 1024;

pub(crate) async fn logs(options: LogsOptions) -> ExitCode {
    let found = async {
        let engine = options.state.open()?;
        let task = engine.task(&options.task).await?;
        engine.observe(task).await
    };
    let mut observer = match found.await {
        Ok(observer) => observer,
        Err(error) => return complain_of(&error),
    };
    if options.json {
        return ended(print_json(&mut observer, options.follow).await, &observer, options.follow);
    }
    if options.follow {
        return ended(follow(&mut observer).await, &observer, true);
    }
    match observer.output().await {
        Ok(output) => show(&output),
        Err(error) => complain_of(&error),
    }
}

/// The exit code: that of the task if it was followed to its end.
fn ended(
    done: Result<Option<ExitCode>, ToolError>,
    observer: &Observer,
    followed: bool,
) -> ExitCode {
    match done {
        Err(error) => complain_of(&error),
        Ok(Some(code)) => code,
        Ok(None) if followed => code_of_task(observer.task()),
        Ok(None) => ExitCode::SUCCESS,
    }
}

fn show(output: &TaskOutput) -> ExitCode {
    let mut stdout = BufWriter::new(io::stdout().lock());
    match replay(output, &mut stdout, &mut io::stderr().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("the output cannot be shown: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Copies what comes until the task has ended; an exit code if that was not the reason to stop.
async fn follow(observer: &mut Observer) -> Result<Option<ExitCode>, ToolError> {
    let mut signals = Caught::new(&[Signal::INT, Signal::TERM, Signal::HUP]);
    let mut copier = Copier::new();
    loop {
        let over = observer.is_over();
        let failures = copier.copy(&observer.output().await?).await;
        if let Some(failure) = failures.first() {
            let gone = Some(ExitCode::SUCCESS);
            return Ok(failure.problem().map(|problem| complain(&problem)).or(gone));
        }
        if over {
            return Ok(None);
        }
        tokio::select! {
            _ = observer.changed(copier.stdout.written, copier.stderr.written) => {}
            number = signals.next() => {
                return Ok(Some(ExitCode::from(128 + u8::try_from(number).unwrap_or(0))));
            }
        }
    }
}

/// The same as lines of JSON.
async fn print_json(observer: &mut Observer, follow: bool) -> Result<Option<ExitCode>, ToolError> {
    let (mut stdout, mut stderr) = (0, 0);
    loop {
        let over = observer.is_over();
        let output = observer.output().await?;
        let printed = print_pieces(Stream::Stdout, &output.stdout, &mut stdout)
            .and_then(|()| print_pieces(Stream::Stderr, &output.stderr, &mut stderr));
        if let Err(error) = printed {
            let gone = error.kind() == io::ErrorKind::BrokenPipe;
            let problem = (!gone).then(|| complain(&format!("stdout: {error}")));
            return Ok(problem.or(Some(ExitCode::SUCCESS)));
        }
        if over || !follow {
            return Ok(None);
        }
        observer.changed(stdout, stderr).await;
    }
}

fn print_pieces(stream: Stream, artifact: &Artifact, done: &mut u64) -> io::Result<()> {
    while let Ok(piece) = artifact.read(*done, PIECE_BYTES)
        && !piece.is_empty()
    {
        let text = String::from_utf8_lossy(&piece);
        let line = json!({ "stream": stream.file_name(), "offset": *done, "text": text });
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}")?;
        stdout.flush()?;
        *done += piece.len() as u64;
    }
    Ok(())
}
