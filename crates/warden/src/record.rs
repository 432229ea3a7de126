//! The exit record: how a command ended, written once, with a checksum, in space reserved ahead.
//!
//! Layout: magic (8 bytes), body length (`u32` LE), CRC-32 of the body (`u32` LE), postcard body,
//! zeros up to [`RECORD_BYTES`]. A record that is torn, altered or not yet written reads as an error,
//! never as an outcome.

use serde::{Deserialize, Serialize};

use crate::protocol::EndedBy;

/// Size of the record's file: reserved when the folder is made, so that a full disk cannot lose it.
pub const RECORD_BYTES: usize = 4096;

/// Most pids of background processes that a record lists.
pub const BACKGROUND_PIDS_MAX: usize = 256;

const MAGIC: &[u8; 8] = b"LWEXIT01";
const PREFIX_BYTES: usize = 16;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The task's id.
    pub task: String,
    /// Process id of the command.
    pub pid: u32,
    /// Exit code or signal.
    pub end: End,
    /// What of ours ended it, if anything did.
    pub ended_by: Option<EndedBy>,
    /// Wall-clock time of the end, in milliseconds since 1970.
    pub ended_at_ms: u64,
    /// From the start of the process to its end, by the monotonic clock.
    pub duration_ms: u64,
    /// What it wrote to stdout.
    pub stdout: StreamTotal,
    /// What it wrote to stderr.
    pub stderr: StreamTotal,
    /// Descendants that were alive when the command ended.
    pub background_pids: Vec<u32>,
    /// Whether something still held a pipe open when the command ended.
    pub leaked_handles: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// What came through one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTotal {
    /// Bytes stored in the artifact.
    pub bytes: u64,
    /// Newlines among them.
    pub lines: u64,
    /// Bytes that were read but could not be stored.
    pub dropped_bytes: u64,
}

/// Why there is no outcome in a record's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The space is reserved and nothing has been written.
    #[error("the exit record has not been written")]
    Empty,
    /// The content is torn or altered.
    #[error("the exit record is damaged")]
    Damaged,
}

impl ExitRecord {
    /// The record as the bytes of its file.
    ///
    /// The list of background pids is cut to what fits; everything else is of bounded size.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut record = self.clone();
        record.background_pids.truncate(BACKGROUND_PIDS_MAX);
        // A record of bounded fields always serialises; an empty body would read as damaged.
        let body = postcard::to_stdvec(&record).unwrap_or_default();
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.resize(RECORD_BYTES, 0);
        bytes
    }

    /// Reads a record back.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(RecordError::Empty);
        }
        Self::parse(bytes).ok_or(RecordError::Damaged)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (prefix, rest) = bytes.split_at_checked(PREFIX_BYTES)?;
        let (magic, numbers) = prefix.split_first_chunk::<8>()?;
        let (length, checksum) = numbers.split_first_chunk::<4>()?;
        let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
        let body = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        if magic != MAGIC || crc32fast::hash(body) != checksum {
            return None;
        }
        postcard::from_bytes(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ExitRecord {
        ExitRecord {
            task: format!("t_{}", "a".repeat(26)),
            pid: u32::MAX,
            end: End::Exited(7),
            ended_by: Some(EndedBy::Timeout),
            ended_at_ms: u64::MAX,
            duration_ms: u64::MAX,
            stdout: StreamTotal { bytes: u64::MAX, lines: u64::MAX, dropped_bytes: u64::MAX },
            stderr: StreamTotal::default(),
            background_pids: vec![u32::MAX; 5000],
            leaked_handles: true,
        }
    }

    #[test]
    fn the_largest_record_fits_its_reserved_space() {
        let bytes = record().to_bytes();
        assert_eq!(bytes.len(), RECORD_BYTES);
        let read = ExitRecord::from_bytes(&bytes).unwrap();
        assert_eq!(read.background_pids.len(), BACKGROUND_PIDS_MAX);
        assert_eq!(read.end, End::Exited(7));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let bytes = record().to_bytes();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for place in 0..used {
            let mut altered = bytes.clone();
            altered[place] ^= 0x10;
            assert_eq!(ExitRecord::from_bytes(&altered), Err(RecordError::Damaged), "{place}");
        }
    }

    #[test]
    fn every_torn_prefix_is_found() {
        let bytes = record().to_bytes();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for kept in 1..used {
            let mut torn = bytes.clone();
            torn[kept..].fill(0);
            assert_eq!(ExitRecord::from_bytes(&torn), Err(RecordError::Damaged), "{kept}");
        }
        assert_eq!(ExitRecord::from_bytes(&[0; RECORD_BYTES]), Err(RecordError::Empty));
    }
}
