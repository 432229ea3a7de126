//! Selects lines of a task's output: the last N, those since a time, those that match (`logs -n`,
//! `--since`, `--grep`).
//!
//! All of the output goes through the mask, also what is not shown: a secret that begins before the
//! first line that is wanted would not be known by its end.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, Write},
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use legwork::{
    ErrorKind, Observer, Stream, ToolError,
    output::{Cursor, Mask, MaskedStream, TaskOutput, replay_between},
};
use regex::bytes::Regex;

use super::logs::readable;
use crate::{
    arguments::LogsOptions,
    render::{complain, now_ms},
};

/// A line that is longer is taken for several.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Which lines are wanted.
pub(super) struct WantedLines {
    last: Option<usize>,
    since_ms: Option<i64>,
    pattern: Option<Regex>,
}

impl WantedLines {
    /// What was asked for; none if everything is wanted.
    pub(super) fn of(options: &LogsOptions) -> Result<Option<Self>, String> {
        let pattern = options.grep.as_deref().map(Regex::new).transpose();
        let pattern = pattern.map_err(|error| format!("--grep: {error}"))?;
        let wanted = Self { last: options.lines, since_ms: options.since, pattern };
        let all = wanted.last.is_none() && wanted.since_ms.is_none() && wanted.pattern.is_none();
        Ok((!all).then_some(wanted))
    }

    /// Where in the output the time begins that is wanted.
    fn begin(&self, started_ms: i64, output: &TaskOutput) -> io::Result<Cursor> {
        let Some(since_ms) = self.since_ms else { return Ok(Cursor::default()) };
        let after = u64::try_from(since_ms.saturating_sub(started_ms)).unwrap_or(0);
        output.at(Duration::from_millis(after))
    }
}

/// Prints the lines that are wanted, and with `follow` those that come, until the task has ended.
pub(super) async fn show(
    observer: &mut Observer,
    mask: Option<&Arc<Mask>>,
    wanted: WantedLines,
    follow: bool,
) -> Result<Option<ExitCode>, ToolError> {
    let output = readable(observer.output().await?, mask);
    let started_ms = started_ms(observer).await?;
    let begin = wanted.begin(started_ms, &output).map_err(|error| unreadable(&error))?;
    let lines = Rc::new(RefCell::new(Lines::new(wanted)));
    let filter = |stream| Filter::new(stream, mask, lines.clone());
    let (mut stdout, mut stderr) = (filter(Stream::Stdout), filter(Stream::Stderr));
    // What came before the time that is wanted goes through the mask, and no further.
    let mut printed = replay_between(&output, Cursor::default(), begin, &mut stdout, &mut stderr);
    (stdout.is_shown, stderr.is_shown) = (true, true);
    let mut done = begin;
    let mut output = output;
    loop {
        let over = observer.is_over() || !follow;
        let end = output.end();
        printed = printed
            .and_then(|()| replay_between(&output, done, end, &mut stdout, &mut stderr))
            .and_then(|()| if over { stdout.finish().and(stderr.finish()) } else { Ok(()) })
            .and_then(|()| lines.borrow_mut().release());
        done = end;
        match std::mem::replace(&mut printed, Ok(())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Some(ExitCode::SUCCESS));
            }
            Err(error) => {
                return Ok(Some(complain(&format!("cannot print the output: {error}"))));
            }
            Ok(()) if over => return Ok(None),
            Ok(()) => {}
        }
        observer.changed(done.stdout, done.stderr).await;
        output = readable(observer.output().await?, mask);
    }
}

/// When the command started, or a little later; it was registered before.
async fn started_ms(observer: &mut Observer) -> Result<i64, ToolError> {
    let ran = |duration_ms: u64| i64::try_from(duration_ms).unwrap_or(i64::MAX);
    if let Some(outcome) = &observer.task().outcome {
        return Ok(observer.task().updated_at_ms.saturating_sub(ran(outcome.duration_ms)));
    }
    let report = observer.report().await?;
    let known = report.map(|report| now_ms().saturating_sub(ran(report.duration_ms)));
    Ok(known.unwrap_or(observer.task().created_at_ms))
}

fn unreadable(error: &io::Error) -> ToolError {
    let problem = format!("cannot read the output: {error}");
    ToolError::new(ErrorKind::ToolExecutionFailed, problem)
}

/// The lines of both streams, in order.
struct Lines {
    wanted: WantedLines,
    /// The last ones that are wanted, until all that was there has been seen.
    held: VecDeque<(Stream, Vec<u8>)>,
    is_released: bool,
}

impl Lines {
    fn new(wanted: WantedLines) -> Self {
        Self { wanted, held: VecDeque::new(), is_released: false }
    }

    fn add(&mut self, stream: Stream, line: Vec<u8>) -> io::Result<()> {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if self.wanted.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            return Ok(());
        }
        let Some(last) = self.wanted.last.filter(|_| !self.is_released) else {
            return print(stream, &line);
        };
        self.held.push_back((stream, line));
        while self.held.len() > last {
            self.held.pop_front();
        }
        Ok(())
    }

    /// Prints what was held back; from now on lines are printed as they come.
    fn release(&mut self) -> io::Result<()> {
        self.is_released = true;
        self.held.drain(..).try_for_each(|(stream, line)| print(stream, &line))?;
        io::stdout().flush()
    }
}

fn print(stream: Stream, line: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => io::stdout().write_all(line),
        // In the order in which they came, where both go to the same place.
        Stream::Stderr => io::stdout().flush().and_then(|()| io::stderr().write_all(line)),
    }
}

/// One stream on its way to its lines.
struct Filter {
    stream: Stream,
    mask: Option<MaskedStream>,
    lines: Rc<RefCell<Lines>>,
    /// A line that is not whole yet.
    partial: Vec<u8>,
    is_shown: bool,
}

impl Filter {
    fn new(stream: Stream, mask: Option<&Arc<Mask>>, lines: Rc<RefCell<Lines>>) -> Self {
        let mask = mask.cloned().map(MaskedStream::new);
        Self { stream, mask, lines, partial: Vec::new(), is_shown: false }
    }

    fn take(&mut self, shown: &[u8]) -> io::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        for piece in shown.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() > LINE_BYTES_MAX {
                let line = std::mem::take(&mut self.partial);
                self.lines.borrow_mut().add(self.stream, line)?;
            }
        }
        Ok(())
    }

    /// Takes what is left, at the stream's end.
    fn finish(&mut self) -> io::Result<()> {
        let rest = self.mask.as_mut().map(MaskedStream::finish).unwrap_or_default();
        self.take(&rest)?;
        if self.partial.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.partial);
        self.lines.borrow_mut().add(self.stream, line)
    }
}

impl Write for Filter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shown = self.mask.as_mut().map(|mask| mask.feed(bytes));
        self.take(shown.as_deref().unwrap_or(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
