//! `legwork logs`: prints a task's stdout and stderr to ours, with secrets masked, or exactly
//! (`--raw`).

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
    sync::Arc,
};

use legwork::{
    Observer, Stream, ToolError,
    output::{Artifact, Mask, MaskedStream, MaskedWriter, TaskOutput, replay},
};
use serde_json::{Value, json};

use super::{
    copy::Copier,
    log_lines::{self, WantedLines},
    run::code_of_task,
};
use crate::{
    arguments::LogsOptions,
    platform::Signal,
    render::{complain, complain_of, say},
    signals::Caught,
};

/// Bytes of a piece that is printed as JSON.
const PIECE_BYTES: u64 = 64 * 1024;

pub(crate) async fn logs(options: LogsOptions) -> ExitCode {
    let wanted = match WantedLines::of(&options) {
        Ok(wanted) => wanted,
        Err(problem) => return complain(&problem),
    };
    let found = async {
        let engine = options.state.with_tasks()?;
        let task = engine.task(&options.task).await?;
        engine.observe(task).await
    };
    let mut observer = match found.await {
        Ok(observer) => observer,
        Err(error) => return complain_of(&error),
    };
    let mask = (!options.raw).then(|| observer.mask());
    if let Some(wanted) = wanted {
        let shown = log_lines::show(&mut observer, mask.as_ref(), wanted, options.follow).await;
        return ended(shown, &observer, options.follow);
    }
    if options.json {
        let printed = print_json(&mut observer, mask.as_ref(), options.follow).await;
        return ended(printed, &observer, options.follow);
    }
    if options.follow {
        return ended(follow(&mut observer, mask.as_ref()).await, &observer, true);
    }
    match observer.output().await {
        Ok(output) => show(output, mask),
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

/// What is masked is read in whole lines: half a secret cannot be told from other text.
pub(super) fn readable<T>(output: TaskOutput, mask: Option<&T>) -> TaskOutput {
    if mask.is_some() { output.in_whole_lines() } else { output }
}

fn show(output: TaskOutput, mask: Option<Arc<Mask>>) -> ExitCode {
    let gaps = [("stdout", output.stdout.gap()), ("stderr", output.stderr.gap())];
    let output = &readable(output, mask.as_ref());
    let mut stdout = BufWriter::new(io::stdout().lock());
    let mut stderr = io::stderr().lock();
    let shown = match mask {
        None => replay(output, &mut stdout, &mut stderr),
        Some(mask) => {
            let mut stdout = MaskedWriter::new(mask.clone(), stdout);
            let mut stderr = MaskedWriter::new(mask, stderr);
            replay(output, &mut stdout, &mut stderr)
                .and_then(|()| stdout.finish())
                .and_then(|()| stderr.finish())
        }
    };
    match shown {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return complain(&format!("cannot print the output: {error}"));
        }
        _ => {}
    }
    for (name, gap) in gaps {
        if let Some(gap) = gap {
            let (bytes, from) = (gap.bytes(), gap.from);
            say(&format!("legwork: {bytes} bytes of {name} were dropped, from byte {from} on"));
        }
    }
    ExitCode::SUCCESS
}

/// Copies what comes until the task has ended; an exit code if that was not the reason to stop.
async fn follow(
    observer: &mut Observer,
    mask: Option<&Arc<Mask>>,
) -> Result<Option<ExitCode>, ToolError> {
    let mut signals = Caught::new(&[Signal::INT, Signal::TERM, Signal::HUP]);
    let mut copier = Copier::masked(mask);
    loop {
        let over = observer.is_over();
        let mut failures = copier.copy(&readable(observer.output().await?, mask)).await;
        if over {
            failures.extend(copier.finish().await);
        }
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
async fn print_json(
    observer: &mut Observer,
    mask: Option<&Arc<Mask>>,
    follow: bool,
) -> Result<Option<ExitCode>, ToolError> {
    let mut stdout = Pieces::new(Stream::Stdout, mask);
    let mut stderr = Pieces::new(Stream::Stderr, mask);
    loop {
        let over = observer.is_over();
        let output = readable(observer.output().await?, mask);
        let last = over || !follow;
        let printed =
            stdout.print(&output.stdout, last).and_then(|()| stderr.print(&output.stderr, last));
        if let Err(error) = printed {
            let gone = error.kind() == io::ErrorKind::BrokenPipe;
            let problem = (!gone).then(|| complain(&format!("stdout: {error}")));
            return Ok(problem.or(Some(ExitCode::SUCCESS)));
        }
        if last {
            return Ok(None);
        }
        observer.changed(stdout.done, stderr.done).await;
    }
}

/// A stream that is printed as JSON, piece by piece.
struct Pieces {
    stream: Stream,
    mask: Option<MaskedStream>,
    done: u64,
}

impl Pieces {
    fn new(stream: Stream, mask: Option<&Arc<Mask>>) -> Self {
        Self { stream, mask: mask.cloned().map(MaskedStream::new), done: 0 }
    }

    /// Prints what is new, and at the end what was held back.
    fn print(&mut self, artifact: &Artifact, last: bool) -> io::Result<()> {
        loop {
            let next = artifact.skip(self.done);
            if next > self.done {
                let (name, missing) = (self.stream.file_name(), next - self.done);
                print_line(
                    &json!({ "stream": name, "offset": self.done, "missing_bytes": missing }),
                )?;
                self.done = next;
                if let Some(mask) = &mut self.mask {
                    mask.skip_gap();
                }
            }
            let piece = artifact.read(self.done, PIECE_BYTES).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            let offset = self.done;
            self.done += piece.len() as u64;
            let shown = match &mut self.mask {
                Some(mask) => mask.feed(&piece),
                None => piece,
            };
            self.print_text(offset, &shown)?;
        }
        let rest = self.mask.as_mut().filter(|_| last).map(MaskedStream::finish);
        self.print_text(self.done, &rest.unwrap_or_default())
    }

    fn print_text(&self, offset: u64, piece: &[u8]) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(piece);
        print_line(&json!({ "stream": self.stream.file_name(), "offset": offset, "text": text }))
    }
}

fn print_line(line: &Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
