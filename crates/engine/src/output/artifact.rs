//! Artifacts: the complete stored bytes of a stream, and the folder that holds them.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use legwork_warden::{
    folder::{EXIT, SPEC, Stream, TERMINAL, TIMELINE, TimelineRow},
    record::{ExitRecord, RecordError},
};

use super::cursor::{Cursor, Selection};

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
    ///
    /// What is written later is not seen: this is a snapshot of a log that may grow.
    pub fn open(&self) -> io::Result<TaskOutput> {
        let terminal = self.artifact(TERMINAL)?;
        let is_terminal = terminal.path.is_some();
        let (stdout, stderr) = if is_terminal {
            (terminal, Artifact::default())
        } else {
            (self.artifact(Stream::Stdout.file_name())?, self.artifact(Stream::Stderr.file_name())?)
        };
        // Last, because a row is written before the bytes that it orders.
        let timeline = self.artifact(TIMELINE)?;
        Ok(TaskOutput { stdout, stderr, timeline, is_terminal })
    }

    fn artifact(&self, name: &str) -> io::Result<Artifact> {
        let path = self.path.join(name);
        match File::open(&path) {
            Ok(file) => {
                let bytes = file.metadata()?.len();
                Ok(Artifact { path: Some(path), source: Source::File(file), bytes, lines: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Artifact::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads what the engine has noted about the task.
    pub(crate) fn note(&self) -> io::Result<Vec<u8>> {
        std::fs::read(self.path.join(SPEC))
    }

    /// Reads the exit record.
    pub fn exit_record(&self) -> io::Result<Result<ExitRecord, RecordError>> {
        Ok(ExitRecord::from_bytes(&std::fs::read(self.path.join(EXIT))?))
    }
}

/// Reads stored rows; a half one at the end is none.
pub(super) fn rows(bytes: &[u8]) -> Vec<TimelineRow> {
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
    /// The stored rows of the timeline, read when they are needed: there can be a million.
    pub(super) timeline: Artifact,
    is_terminal: bool,
}

impl TaskOutput {
    /// Whether it came from a terminal: one stream, in the place of stdout.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

impl From<&SmallOutput> for TaskOutput {
    fn from(small: &SmallOutput) -> Self {
        Self {
            stdout: Artifact::of_bytes(small.stdout.clone()),
            stderr: Artifact::of_bytes(small.stderr.clone()),
            timeline: Artifact::of_bytes(small.timeline.clone()),
            is_terminal: false,
        }
    }
}

/// The stored bytes of one stream.
#[derive(Debug, Default)]
pub struct Artifact {
    path: Option<PathBuf>,
    source: Source,
    bytes: u64,
    lines: Option<u64>,
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
        Self { path: None, source: Source::Bytes(content), bytes, lines: None }
    }

    /// The same, with the totals of the exit record: what came later is not part of the outcome.
    #[must_use]
    pub fn with_totals(mut self, bytes: u64, lines: u64) -> Self {
        self.bytes = self.bytes.min(bytes);
        self.lines = Some(lines);
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

    /// Its newlines, where the exit record has counted them.
    pub fn lines(&self) -> Option<u64> {
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
    for stretch in output.stretches(Selection::Both, Cursor::default())? {
        match stretch.stream {
            Stream::Stdout => copy(&output.stdout, stretch.from, stretch.to, stdout)?,
            Stream::Stderr => copy(&output.stderr, stretch.from, stretch.to, stderr)?,
        }
    }
    Ok(())
}

/// Copies a stretch.
fn copy(artifact: &Artifact, from: u64, to: u64, sink: &mut dyn Write) -> io::Result<()> {
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
    sink.flush()
}

#[cfg(test)]
impl Artifact {
    /// An artifact with the given content, as if it were in a file.
    pub(super) fn of(content: &[u8]) -> Self {
        let lines = content.split(|byte| *byte == b'\n').count() as u64 - 1;
        Self {
            path: Some("/artifact".into()),
            lines: Some(lines),
            ..Self::of_bytes(content.to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stored rows of a timeline.
    fn stored(rows: &[(Stream, u64)]) -> Vec<u8> {
        let row = |(stream, offset): &(Stream, u64)| {
            TimelineRow::Grew { stream: *stream, offset: *offset, time_us: 0 }.to_bytes()
        };
        rows.iter().flat_map(row).collect()
    }

    /// A writer that shares its place with another one, as two streams share a terminal.
    struct Shared<'a>(&'a std::cell::RefCell<Vec<u8>>);

    impl Write for Shared<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_is_written_again_in_the_order_in_which_it_came() {
        let timeline = stored(&[
            (Stream::Stdout, 0),
            (Stream::Stderr, 0),
            (Stream::Stdout, 2),
            (Stream::Stderr, 1),
        ]);
        let small = SmallOutput { stdout: b"abcd".into(), stderr: b"XYZ".into(), timeline };
        let screen = std::cell::RefCell::new(Vec::new());
        replay(&TaskOutput::from(&small), &mut Shared(&screen), &mut Shared(&screen)).unwrap();
        assert_eq!(screen.into_inner(), b"abXcdYZ");
    }

    #[test]
    fn a_terminal_stands_in_the_place_of_stdout() {
        let folder = tempfile::tempdir().unwrap();
        let task = TaskFolder::new(folder.path().to_owned());
        assert!(!task.open().unwrap().is_terminal());
        std::fs::write(folder.path().join(TERMINAL), "both").unwrap();
        std::fs::write(folder.path().join(Stream::Stderr.file_name()), "stray").unwrap();
        let output = task.open().unwrap();
        assert!(output.is_terminal());
        assert_eq!((output.stdout.bytes(), output.stderr.bytes()), (4, 0));
        assert_eq!(output.stdout.path(), Some(&*folder.path().join(TERMINAL)));
    }

    #[test]
    fn an_opened_output_does_not_grow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(Stream::Stdout.file_name());
        std::fs::write(&path, "before").unwrap();
        let output = TaskFolder::new(folder.path().to_owned()).open().unwrap();
        std::fs::write(&path, "before and after").unwrap();
        assert_eq!(output.stdout.read(0, 100).unwrap(), b"before");
    }
}
