//! Copies a task's stdout and stderr to ours while they grow, byte for byte or with secrets masked.

use std::{
    io::{self, Write},
    sync::Arc,
};

use legwork::{
    Stream,
    output::{Artifact, Mask, MaskedStream, TaskOutput},
};

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 256 * 1024;

/// Copies both streams to our own.
pub(super) struct Copier {
    pub stdout: Sink,
    pub stderr: Sink,
}

/// One of our streams, with how much of the command's went there.
pub(super) struct Sink {
    stream: Stream,
    /// How far the command's stream has been passed on.
    pub written: u64,
    mask: Option<MaskedStream>,
    /// What was dropped before it could be.
    skipped: u64,
    open: bool,
}

/// Why a stream cannot be written to any more.
pub(super) struct Failure {
    pub stream: Stream,
    pub error: io::Error,
}

impl Failure {
    /// What to say about it; a reader that went away is no problem.
    pub(super) fn problem(&self) -> Option<String> {
        let gone = self.error.kind() == io::ErrorKind::BrokenPipe;
        (!gone).then(|| format!("{}: {}", self.stream.file_name(), self.error))
    }
}

impl Copier {
    /// Copies the exact bytes.
    pub(super) fn new() -> Self {
        Self::masked(None)
    }

    /// Copies the bytes with the secrets among them masked, if there is a mask.
    pub(super) fn masked(mask: Option<&Arc<Mask>>) -> Self {
        let masked = || mask.cloned().map(MaskedStream::new);
        let sink = |stream| Sink { stream, written: 0, skipped: 0, mask: masked(), open: true };
        Self { stdout: sink(Stream::Stdout), stderr: sink(Stream::Stderr) }
    }

    /// Writes what a mask has held back; returns the streams that failed.
    pub(super) async fn finish(&mut self) -> Vec<Failure> {
        let mut failures = Vec::new();
        for sink in [&mut self.stdout, &mut self.stderr] {
            let rest = sink.mask.as_mut().map(MaskedStream::finish).unwrap_or_default();
            if let Err(error) = sink.pass_on(rest).await {
                failures.push(Failure { stream: sink.stream, error });
            }
        }
        failures
    }

    /// Copies what is there and not copied yet; returns the streams that failed.
    pub(super) async fn copy(&mut self, output: &TaskOutput) -> Vec<Failure> {
        let mut failures = Vec::new();
        loop {
            self.stdout.skip_gap(&output.stdout);
            self.stderr.skip_gap(&output.stderr);
            let stdout = output.stdout.read(self.stdout.written, PIECE_BYTES).unwrap_or_default();
            let stderr = output.stderr.read(self.stderr.written, PIECE_BYTES).unwrap_or_default();
            if stdout.is_empty() && stderr.is_empty() {
                return failures;
            }
            failures.extend(self.write(stdout, stderr).await);
        }
    }

    /// Writes a piece of each; returns the streams that failed.
    pub(super) async fn write(&mut self, stdout: Vec<u8>, stderr: Vec<u8>) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (sink, piece) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
            if let Err(error) = sink.write(piece).await {
                failures.push(Failure { stream: sink.stream, error });
            }
        }
        failures
    }
}

impl Sink {
    /// Goes on behind what was dropped.
    fn skip_gap(&mut self, artifact: &Artifact) {
        let next = artifact.skip(self.written);
        if next > self.written
            && let Some(mask) = &mut self.mask
        {
            mask.skip_gap();
        }
        self.skipped += next - self.written;
        self.written = next;
    }

    /// How much was not passed on, of all that came.
    pub(super) fn missed(&self, came: u64) -> u64 {
        self.skipped + came.saturating_sub(self.written)
    }

    async fn write(&mut self, piece: Vec<u8>) -> io::Result<()> {
        self.written += piece.len() as u64;
        let shown = match &mut self.mask {
            Some(mask) => mask.feed(&piece),
            None => piece,
        };
        self.pass_on(shown).await
    }

    async fn pass_on(&mut self, piece: Vec<u8>) -> io::Result<()> {
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
