//! Artifacts: the complete stored bytes of a stream, and the folder that holds them.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use legwork_warden::{
    folder::{EXIT, Stream, TIMELINE, TimelineRow},
    record::{ExitRecord, RecordError},
};

/// Bytes copied at a time.
const COPY_BYTES: usize = 64 * 1024;

/// The folder of one task.
#[derive(Debug, Clone)]
pub struct TaskFolder {
    path: PathBuf,
}

impl TaskFolder {
    /// The folder at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what the folder holds; a stream that brought nothing has no file, and reads as empty.
    pub fn open(&self) -> io::Result<TaskOutput> {
        Ok(TaskOutput {
            stdout: self.artifact(Stream::Stdout)?,
            stderr: self.artifact(Stream::Stderr)?,
            timeline: self.timeline()?,
        })
    }

    fn artifact(&self, stream: Stream) -> io::Result<Artifact> {
        let path = self.path.join(stream.file_name());
        match File::open(&path) {
            Ok(file) => {
                let bytes = file.metadata()?.len();
                Ok(Artifact { path: Some(path), source: Source::File(file), bytes, lines: 0 })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Artifact::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads the exit record.
    pub fn exit_record(&self) -> io::Result<Result<ExitRecord, RecordError>> {
        Ok(ExitRecord::from_bytes(&std::fs::read(self.path.join(EXIT))?))
    }

    fn timeline(&self) -> io::Result<Vec<TimelineRow>> {
        match std::fs::read(self.path.join(TIMELINE)) {
            Ok(bytes) => Ok(rows(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn rows(bytes: &[u8]) -> Vec<TimelineRow> {
    let (rows, _) = bytes.as_chunks::<{ TimelineRow::BYTES }>();
    rows.iter().map(TimelineRow::from_bytes).collect()
}

/// The output of a run that was too small and too short for a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmallOutput {
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// All of stderr.
    pub stderr: Vec<u8>,
    /// The rows of the timeline, as they are stored.
    pub timeline: Vec<u8>,
}

/// Everything that a task printed, wherever it is kept.
#[derive(Debug, Default)]
pub struct TaskOutput {
    /// What went to stdout.
    pub stdout: Artifact,
    /// What went to stderr.
    pub stderr: Artifact,
    timeline: Vec<TimelineRow>,
}

impl From<&SmallOutput> for TaskOutput {
    fn from(small: &SmallOutput) -> Self {
        Self {
            stdout: Artifact::of_bytes(small.stdout.clone()),
            stderr: Artifact::of_bytes(small.stderr.clone()),
            timeline: rows(&small.timeline),
        }
    }
}

/// The stored bytes of one stream.
#[derive(Debug, Default)]
pub struct Artifact {
    path: Option<PathBuf>,
    source: Source,
    bytes: u64,
    lines: u64,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    Nothing,
    File(File),
    Bytes(Vec<u8>),
}

impl Artifact {
    fn of_bytes(content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        Self { path: None, source: Source::Bytes(content), bytes, lines: 0 }
    }

    /// The same, with the totals of the exit record: what came later is not part of the outcome.
    #[must_use]
    pub fn with_totals(mut self, bytes: u64, lines: u64) -> Self {
        self.bytes = self.bytes.min(bytes);
        self.lines = lines;
        self
    }

    /// Its file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its newlines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Reads a piece; shorter only where the stream is.
    pub fn read(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let length = length.min(self.bytes.saturating_sub(offset));
        let length = usize::try_from(length).map_err(io::Error::other)?;
        match &self.source {
            Source::Nothing => Ok(Vec::new()),
            Source::File(file) => read_file(file, offset, length),
            Source::Bytes(content) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                let rest = content.get(start..).unwrap_or_default();
                Ok(rest.get(..length).unwrap_or(rest).to_vec())
            }
        }
    }
}

fn read_file(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(piece)
}

/// Writes a task's output again, each stream to its own writer, in the order in which it came.
pub fn replay(
    output: &TaskOutput,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> io::Result<()> {
    let (mut out_done, mut err_done) = (0, 0);
    // A row begins a stretch of its stream; the stretch ends where the stream's next row begins.
    let growths = || {
        output.timeline.iter().filter_map(|row| match row {
            TimelineRow::Grew { stream, offset, .. } => Some((*stream, *offset)),
            TimelineRow::Resized { .. } => None,
        })
    };
    for (place, (stream, _)) in growths().enumerate() {
        let next = growths().skip(place + 1).find(|(later, _)| *later == stream);
        let end = next.map_or(u64::MAX, |(_, offset)| offset);
        match stream {
            Stream::Stdout => out_done = copy(&output.stdout, out_done, end, stdout)?,
            Stream::Stderr => err_done = copy(&output.stderr, err_done, end, stderr)?,
        }
    }
    copy(&output.stdout, out_done, u64::MAX, stdout)?;
    copy(&output.stderr, err_done, u64::MAX, stderr)?;
    Ok(())
}

/// Copies a stretch and says where it ended.
fn copy(artifact: &Artifact, from: u64, to: u64, sink: &mut dyn Write) -> io::Result<u64> {
    let mut at = from;
    while at < to {
        let piece = artifact.read(at, (to - at).min(COPY_BYTES as u64))?;
        if piece.is_empty() {
            break;
        }
        sink.write_all(&piece)?;
        at += piece.len() as u64;
    }
    // Before the other stream goes on: both may be the same terminal.
    sink.flush()?;
    Ok(at)
}

#[cfg(test)]
impl Artifact {
    /// An artifact with the given content, as if it were in a file.
    pub(super) fn of(content: &[u8]) -> Self {
        let lines = content.split(|byte| *byte == b'\n').count() as u64 - 1;
        Self { path: Some("/artifact".into()), lines, ..Self::of_bytes(content.to_vec()) }
    }
}
