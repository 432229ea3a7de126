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

    /// Opens the artifact of a stream; a stream that brought nothing has none, and reads as empty.
    pub fn artifact(&self, stream: Stream) -> io::Result<Artifact> {
        let path = self.path.join(stream.file_name());
        let file = match File::open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let bytes = file
            .as_ref()
            .map(File::metadata)
            .transpose()?
            .map_or(0, |data| data.len());
        Ok(Artifact {
            path,
            file,
            bytes,
            lines: 0,
        })
    }

    /// Reads the exit record.
    pub fn exit_record(&self) -> io::Result<Result<ExitRecord, RecordError>> {
        Ok(ExitRecord::from_bytes(&std::fs::read(
            self.path.join(EXIT),
        )?))
    }

    fn timeline(&self) -> io::Result<Vec<TimelineRow>> {
        match std::fs::read(self.path.join(TIMELINE)) {
            Ok(bytes) => {
                let (rows, _) = bytes.as_chunks::<{ TimelineRow::BYTES }>();
                Ok(rows.iter().map(TimelineRow::from_bytes).collect())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The stored bytes of one stream.
#[derive(Debug)]
pub struct Artifact {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    lines: u64,
}

impl Artifact {
    /// The same, with the totals of the exit record: what came later is not part of the outcome.
    #[must_use]
    pub fn with_totals(mut self, bytes: u64, lines: u64) -> Self {
        self.bytes = self.bytes.min(bytes);
        self.lines = lines;
        self
    }

    /// Where it is stored.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its newlines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Reads a piece; shorter only where the file is.
    pub fn read(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        let length = length.min(self.bytes.saturating_sub(offset));
        let mut piece = vec![0; usize::try_from(length).map_err(io::Error::other)?];
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
}

/// Reads a stream that may still grow, piece by piece.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
}

impl Tail {
    /// From the beginning of a task's stream.
    pub fn new(folder: &TaskFolder, stream: Stream) -> Self {
        Self {
            path: folder.path.join(stream.file_name()),
            file: None,
            offset: 0,
        }
    }

    /// How far it has been read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes; none when there are none yet.
    pub fn next_piece(&mut self) -> io::Result<Vec<u8>> {
        let file = match &mut self.file {
            Some(file) => file,
            slot => match File::open(&self.path) {
                Ok(file) => slot.insert(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        let mut piece = vec![0; COPY_BYTES];
        let read = file.read_at(&mut piece, self.offset)?;
        piece.truncate(read);
        self.offset += read as u64;
        Ok(piece)
    }
}

/// Writes a task's output again, each stream to its own writer, in the order in which it came.
pub fn replay(
    folder: &TaskFolder,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> io::Result<()> {
    let out = folder.artifact(Stream::Stdout)?;
    let err = folder.artifact(Stream::Stderr)?;
    let (mut out_done, mut err_done) = (0, 0);
    let rows = folder.timeline()?;
    // A row begins a stretch of its stream; the stretch ends where the stream's next row begins.
    for (place, row) in rows.iter().enumerate() {
        let next = rows
            .iter()
            .skip(place + 1)
            .find(|later| later.stream == row.stream);
        let end = next.map_or(u64::MAX, |later| later.offset);
        match row.stream {
            Stream::Stdout => out_done = copy(&out, out_done, end, stdout)?,
            Stream::Stderr => err_done = copy(&err, err_done, end, stderr)?,
        }
    }
    copy(&out, out_done, u64::MAX, stdout)?;
    copy(&err, err_done, u64::MAX, stderr)?;
    stdout.flush()?;
    stderr.flush()
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
    Ok(at)
}

#[cfg(test)]
impl Artifact {
    /// An artifact with the given content, in a file that nobody else knows.
    pub(super) fn of(content: &[u8]) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let lines = content.split(|byte| *byte == b'\n').count() as u64 - 1;
        Self {
            path: "/artifact".into(),
            file: Some(file),
            bytes: content.len() as u64,
            lines,
        }
    }
}
