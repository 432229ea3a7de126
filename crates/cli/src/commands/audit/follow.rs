//! Reads the audit log line by line, and waits for new lines (`audit show -f`).

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use serde_json::Value;

use crate::platform::FileWatch;

/// Bytes that are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The log, read up to some place.
pub(super) struct Log {
    file: Option<File>,
    /// What was read of a line that has no end yet.
    partial: Vec<u8>,
    /// Tells when the file grows.
    growth: Option<FileWatch>,
}

impl Log {
    /// Opens the log, and has its growth told from now on.
    pub(super) fn open(path: &Path, follow: bool) -> io::Result<Self> {
        let growth = follow.then(|| FileWatch::of_file(path));
        let file = match File::open(path) {
            Ok(file) => Some(file),
            // Nothing has been noted yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { file, partial: Vec::new(), growth: growth.transpose()? })
    }

    /// Reads what is new; a line that is no entry is passed over.
    pub(super) fn read(&mut self, mut take: impl FnMut(Value)) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if file.metadata()?.len() < file.stream_position()? {
            // A torn line was cut off: what follows stands where it began.
            file.seek(SeekFrom::End(0))?;
            self.partial.clear();
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = file.read(&mut buffer)?;
            let piece = buffer.get(..read).unwrap_or_default();
            if piece.is_empty() {
                return Ok(());
            }
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                self.partial.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    let entry = serde_json::from_slice(&self.partial);
                    self.partial.clear();
                    entry.into_iter().for_each(&mut take);
                }
            }
        }
    }

    /// Waits until there is more.
    pub(super) async fn grown(&mut self) -> io::Result<()> {
        let Some(growth) = &mut self.growth else { return std::future::pending().await };
        growth.changed().await
    }
}
