//! Artifacts: the complete stored bytes of a stream, and the folder that holds them.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::{
    folder::{EXIT, SPEC, Stream, TERMINAL, TIMELINE, TimelineRow},
    gaps::{GAPS_AT, GAPS_BYTES, Gap, Gaps},
    record::{ExitRecord, RECORD_BYTES, RecordError},
};

use super::cursor::{Cursor, Selection};
use crate::{plain_file, platform::FileExt};

/// Bytes copied at a time.
const COPY_BYTES: usize = 64 * 1024;

/// How far from a gap the end of a cut line is looked for: as long as a secret can be.
const CUT_BYTES_MAX: u64 = 12 * 1024;

/// What private keys begin and end with.
const KEY_BEGINS: &[u8] = b"-----BEGIN";
const KEY_ENDS: &[u8] = b"-----END";

/// How often gaps are read that are just being written.
const TORN_READS_MAX: usize = 100;

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
        let notes = open_if_there(&self.path.join(EXIT))?.map(|file| Notes(Arc::new(file)));
        let terminal =
            self.artifact(TERMINAL, notes.as_ref().map(|notes| (notes, Stream::Stdout)))?;
        let is_terminal = terminal.path.is_some();
        let stream = |stream: Stream| {
            self.artifact(stream.file_name(), notes.as_ref().map(|notes| (notes, stream)))
        };
        let (stdout, stderr) = if is_terminal {
            (terminal, Artifact::default())
        } else {
            (stream(Stream::Stdout)?, stream(Stream::Stderr)?)
        };
        // Last, because a row is written before the bytes that it orders.
        let timeline = self.artifact(TIMELINE, None)?;
        Ok(TaskOutput { stdout, stderr, timeline, is_terminal })
    }

    fn artifact(&self, name: &str, notes: Option<(&Notes, Stream)>) -> io::Result<Artifact> {
        let path = self.path.join(name);
        let Some(file) = open_if_there(&path)? else { return Ok(Artifact::default()) };
        let stored = file.metadata()?.len();
        // After the size: what is gone of that much is noted by now.
        let notes = notes.map(|(notes, stream)| (notes.clone(), stream));
        let gap = match &notes {
            Some((notes, stream)) => notes.lost(*stream, stored, notes.gap(*stream)?)?,
            None => None,
        };
        let bytes = stored.max(gap.map_or(0, |gap| gap.to));
        let source = Source::File(file, notes);
        let mut artifact =
            Artifact { path: Some(path), source, bytes, lines: None, gap, shown_gap: None };
        artifact.shown_gap = artifact.widened()?;
        Ok(artifact)
    }

    /// Reads what the engine has noted about the task.
    pub(crate) fn note(&self) -> io::Result<Vec<u8>> {
        self.read(SPEC)
    }

    /// Reads the exit record.
    pub fn exit_record(&self) -> io::Result<Result<ExitRecord, RecordError>> {
        Ok(ExitRecord::from_bytes(&self.read(EXIT)?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        plain_file::open(&self.path.join(name))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match plain_file::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a warden has noted behind its exit record.
#[derive(Debug, Clone)]
struct Notes(Arc<File>);

impl Notes {
    /// What is not kept of a stream, as of now.
    fn gap(&self, stream: Stream) -> io::Result<Option<Gap>> {
        for _ in 0..TORN_READS_MAX {
            let read = read_file(&self.0, GAPS_AT, GAPS_BYTES)?;
            if let Some(gaps) = Gaps::from_bytes(&read) {
                return Ok(gaps.of(stream));
            }
            // It is just being written.
            std::thread::yield_now();
        }
        let problem = "what is missing of the output cannot be read: its notes are damaged";
        Err(io::Error::new(io::ErrorKind::InvalidData, problem))
    }
}

impl Notes {
    /// The gap, and with it what was recorded and is not in the file: the record is synced, the
    /// output is not, and the power may have failed.
    fn lost(&self, stream: Stream, stored: u64, gap: Option<Gap>) -> io::Result<Option<Gap>> {
        let Ok(record) = ExitRecord::from_bytes(&read_file(&self.0, 0, RECORD_BYTES)?) else {
            return Ok(gap);
        };
        let came = match stream {
            Stream::Stdout => record.stdout.came(),
            Stream::Stderr => record.stderr.came(),
        };
        let known = stored.max(gap.map_or(0, |gap| gap.to));
        let from = gap.map_or(stored, |gap| gap.from);
        Ok(if came > known { Some(Gap { from, to: came }) } else { gap })
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
    timeline: Artifact,
    is_terminal: bool,
}

impl TaskOutput {
    /// The same as if the lines that were cut by gaps had been dropped too: what is masked is read
    /// in whole lines.
    #[must_use]
    pub fn in_whole_lines(mut self) -> Self {
        self.stdout = self.stdout.in_whole_lines();
        self.stderr = self.stderr.in_whole_lines();
        self
    }

    /// The stored rows of the timeline.
    pub(crate) fn timeline(&self) -> &Artifact {
        &self.timeline
    }

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

/// The stored bytes of one stream, each at its offset in the stream.
#[derive(Debug, Default)]
pub struct Artifact {
    path: Option<PathBuf>,
    source: Source,
    bytes: u64,
    lines: Option<u64>,
    gap: Option<Gap>,
    /// The gap and the lines that it cuts.
    shown_gap: Option<Gap>,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    Nothing,
    File(File, Option<(Notes, Stream)>),
    Bytes(Vec<u8>),
}

impl Artifact {
    fn of_bytes(content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        Self {
            path: None,
            source: Source::Bytes(content),
            bytes,
            lines: None,
            gap: None,
            shown_gap: None,
        }
    }

    /// The same, with the totals of the exit record: what came later is not part of the outcome.
    #[must_use]
    pub fn with_totals(mut self, came_bytes: u64, lines: u64) -> Self {
        self.bytes = self.bytes.min(came_bytes);
        let end = self.bytes;
        let within = |gap: Gap| Gap { from: gap.from.min(end), to: gap.to.min(end) };
        (self.gap, self.shown_gap) = (self.gap.map(within), self.shown_gap.map(within));
        self.lines = Some(lines);
        self
    }

    /// Its file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where it ends: how many bytes came.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.bytes - self.dropped_bytes()
    }

    /// How many of them are not.
    pub fn dropped_bytes(&self) -> u64 {
        self.gap.map_or(0, |gap| gap.bytes())
    }

    /// What is not kept.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// The same with the lines that were cut by it: half a secret cannot be told from other text.
    pub fn shown_gap(&self) -> Option<Gap> {
        self.shown_gap
    }

    /// The same artifact as if the lines that were cut by its gap had been dropped too.
    #[must_use]
    pub fn in_whole_lines(mut self) -> Self {
        self.gap = self.shown_gap;
        self
    }

    /// The gap, wide enough to leave only whole lines on both sides, and no private key without its
    /// beginning.
    fn widened(&self) -> io::Result<Option<Gap>> {
        let Some(gap) = self.gap else { return Ok(None) };
        let head = gap.from.min(CUT_BYTES_MAX);
        let head = self.read(gap.from - head, head)?;
        let whole = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let tail = self.read(gap.to, CUT_BYTES_MAX)?;
        let key = find(&tail, KEY_ENDS)
            .filter(|end| find(tail.get(..*end).unwrap_or_default(), KEY_BEGINS).is_none());
        let rest = tail.get(key.unwrap_or(0)..).unwrap_or_default();
        let line =
            rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |place| place + 1);
        let cut = (head.len() - whole) as u64;
        let hidden = (key.unwrap_or(0) + line) as u64;
        Ok(Some(Gap { from: gap.from - cut, to: gap.to + hidden }))
    }

    /// The first place from here on that is not in the gap.
    pub fn skip(&self, offset: u64) -> u64 {
        match self.gap {
            Some(gap) if (gap.from..gap.to).contains(&offset) => gap.to,
            _ => offset,
        }
    }

    /// Its newlines, where the exit record has counted them.
    pub fn lines(&self) -> Option<u64> {
        self.lines
    }

    /// Reads a piece; shorter only where the stream ends or the gap begins.
    pub fn read(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let length = length.min(self.bytes.saturating_sub(offset));
        let length = length.min(before(self.gap, offset));
        let length = usize::try_from(length).map_err(io::Error::other)?;
        match &self.source {
            Source::Nothing => Ok(Vec::new()),
            Source::File(file, notes) => {
                let mut piece = read_file(file, offset, length)?;
                if let Some((notes, stream)) = notes {
                    // What was dropped while it was read is noted by now, and may have been read as
                    // zeros.
                    let kept = before(notes.gap(*stream)?, offset);
                    piece.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
                }
                Ok(piece)
            }
            Source::Bytes(content) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                let rest = content.get(start..).unwrap_or_default();
                Ok(rest.get(..length).unwrap_or(rest).to_vec())
            }
        }
    }
}

/// How far it is from an offset to a gap; nothing if it is inside.
fn before(gap: Option<Gap>, offset: u64) -> u64 {
    match gap {
        Some(gap) if offset < gap.to => gap.from.saturating_sub(offset),
        _ => u64::MAX,
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
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
    replay_between(output, Cursor::default(), output.end(), stdout, stderr)
}

/// The same from one place to another, neither beyond the output's end.
pub fn replay_between(
    output: &TaskOutput,
    from: Cursor,
    to: Cursor,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> io::Result<()> {
    for stretch in output.stretches(Selection::Both, from, Artifact::gap)? {
        match stretch.stream {
            Stream::Stdout => {
                copy(&output.stdout, stretch.from, stretch.to.min(to.stdout), stdout)?;
            }
            Stream::Stderr => {
                copy(&output.stderr, stretch.from, stretch.to.min(to.stderr), stderr)?;
            }
        }
    }
    Ok(())
}

/// Copies a stretch.
fn copy(artifact: &Artifact, from: u64, to: u64, sink: &mut dyn Write) -> io::Result<()> {
    let mut at = from;
    loop {
        at = artifact.skip(at);
        let piece = artifact.read(at, to.saturating_sub(at).min(COPY_BYTES as u64))?;
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
    /// The same with a gap, as if it had never been stored there.
    pub(super) fn with_gap(mut self, from: u64, to: u64) -> Self {
        self.gap = Some(Gap { from, to });
        self.shown_gap = self.widened().unwrap();
        self
    }

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
    fn what_is_dropped_while_it_is_read_is_not_read_as_zeros() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(Stream::Stdout.file_name()), "head----tail").unwrap();
        let note = |gap: Option<Gap>| {
            let mut exit = vec![0; usize::try_from(GAPS_AT).unwrap()];
            exit.extend(Gaps { stdout: gap, stderr: None }.to_bytes());
            std::fs::write(folder.path().join(EXIT), exit).unwrap();
        };
        note(None);
        let task = TaskFolder::new(folder.path().to_owned());
        let before = task.open().unwrap().stdout;
        note(Some(Gap { from: 4, to: 8 }));
        assert_eq!(before.read(0, 100).unwrap(), b"head", "noted after it was opened");
        assert_eq!(before.read(6, 100).unwrap(), b"");
        let after = task.open().unwrap().stdout;
        assert_eq!((after.bytes(), after.kept_bytes(), after.dropped_bytes()), (12, 8, 4));
        assert_eq!((after.skip(3), after.skip(4), after.skip(8)), (3, 8, 8));
        assert_eq!(after.read(8, 100).unwrap(), b"tail");
        let mut copied = Vec::new();
        copy(&after, 0, 12, &mut copied).unwrap();
        assert_eq!(copied, b"headtail");
        // The end is what is missing: the stream is longer than its file.
        note(Some(Gap { from: 12, to: 20 }));
        let cut = task.open().unwrap().stdout;
        assert_eq!((cut.bytes(), cut.kept_bytes()), (20, 12));
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
