//! The exit record: how a command ended, written once, with a checksum, in space reserved ahead.
//!
//! Layout: magic (8 bytes), body length (`u32` LE), CRC-32 of the body (`u32` LE), postcard body,
//! zeros up to [`RECORD_BYTES`]. A record that is torn, altered or not yet written reads as an
//! error, never as an outcome. The magic ends with the number of the body's layout.

use serde::{Deserialize, Serialize};

use crate::{
    network::{ConnectionTotal, OTHER_NAMES},
    protocol::EndCause,
};

/// Size of the record's file: reserved when the folder is made, so that a full disk cannot lose it.
pub const RECORD_BYTES: usize = 4096;

/// Most pids of background processes that a record lists.
pub const BACKGROUND_PIDS_MAX: usize = 256;

/// Most limits that a record lists as missing, and most bytes of the reason of each.
const MISSING_MAX: usize = 4;
const REASON_BYTES_MAX: usize = 300;

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
    pub end: CommandEnd,
    /// What of ours ended it, if anything did.
    pub ended_by: Option<EndCause>,
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
    /// Whether the kernel refused it a process because of its limit.
    pub process_limit_hit: bool,
    /// Whether the kernel killed a process of it because of its limit of memory.
    pub oom_killed: bool,
    /// Whether output was dropped because the disk had little room left.
    pub low_disk: bool,
    /// The error with which output could not be written.
    pub store_errno: Option<i32>,
    /// Which limits held it, and which could not.
    pub limits: LimitsInForce,
    /// What it used, where that is known.
    pub used: Option<UsedResources>,
    /// What its connections by name came to.
    pub connections: Vec<ConnectionTotal>,
}

/// What a command and everything below it used, as far as it had ended when the command did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedResources {
    /// Time on processors in the programs themselves.
    pub user_us: u64,
    /// Time on processors in the kernel, for them.
    pub system_us: u64,
    /// Most memory that one process had at a time: of the biggest one.
    pub process_peak_bytes: u64,
    /// Most memory that all had together, where a cgroup counts that.
    pub tree_peak_bytes: Option<u64>,
}

/// Which layers hold the limits of a command, and which limits cannot be held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsInForce {
    /// The kernel's limits of each process hold some.
    pub rlimits: bool,
    /// A cgroup holds some, for the whole tree.
    pub cgroup_limits: bool,
    /// What a cgroup would hold and none does: the limit's name, and why.
    pub missing: Vec<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
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
    /// Newlines that came, dropped ones too.
    pub lines: u64,
    /// Bytes that were read and are not stored, or not any more.
    pub dropped_bytes: u64,
}

impl StreamTotal {
    /// Bytes that came: where the stream ends, counted from its beginning.
    pub fn came(&self) -> u64 {
        self.bytes + self.dropped_bytes
    }
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
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.packed();
        bytes.resize(RECORD_BYTES, 0);
        bytes
    }

    /// The record as the bytes of its file, without the zeros at the end.
    ///
    /// The lists are cut to what fits; everything else is of bounded size.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let mut record = self.clone();
        record.background_pids.truncate(BACKGROUND_PIDS_MAX);
        record.limits.missing.truncate(MISSING_MAX);
        for reason in &mut record.limits.missing {
            let end = (0..=REASON_BYTES_MAX).rev().find(|place| reason.is_char_boundary(*place));
            reason.truncate(end.unwrap_or(0));
        }
        // A record of bounded fields always serialises; an empty body would read as damaged.
        let mut body = postcard::to_stdvec(&record).unwrap_or_default();
        while body.len() > RECORD_BYTES - PREFIX_BYTES && record.leave_out_connection() {
            body = postcard::to_stdvec(&record).unwrap_or_default();
        }
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Takes the last name out of the connections: what came of it is added to that of the others
    /// with the same verdict. False is that there is none.
    fn leave_out_connection(&mut self) -> bool {
        let is_named =
            |total: &ConnectionTotal| total.host != OTHER_NAMES || !total.rule.is_empty();
        let Some(place) = self.connections.iter().rposition(is_named) else { return false };
        let one = self.connections.remove(place);
        let is_alike =
            |total: &&mut ConnectionTotal| !is_named(total) && total.verdict == one.verdict;
        match self.connections.iter_mut().find(is_alike) {
            Some(others) => others.add(&one),
            None => self.connections.push(ConnectionTotal {
                host: OTHER_NAMES.to_owned(),
                port: 0,
                rule: String::new(),
                reason: String::new(),
                ..one
            }),
        }
        true
    }

    /// Reads a record back, from its file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let bytes = bytes.get(..RECORD_BYTES).unwrap_or(bytes);
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
    use crate::network::ConnectionVerdict;

    fn record() -> ExitRecord {
        ExitRecord {
            task: format!("t_{}", "a".repeat(26)),
            pid: u32::MAX,
            end: CommandEnd::Exited(7),
            ended_by: Some(EndCause::Timeout),
            ended_at_ms: u64::MAX,
            duration_ms: u64::MAX,
            stdout: StreamTotal { bytes: u64::MAX, lines: u64::MAX, dropped_bytes: u64::MAX },
            stderr: StreamTotal::default(),
            background_pids: vec![u32::MAX; 5000],
            leaked_handles: true,
            process_limit_hit: true,
            oom_killed: true,
            low_disk: true,
            store_errno: Some(i32::MAX),
            limits: LimitsInForce {
                rlimits: true,
                cgroup_limits: true,
                missing: vec!["ä".repeat(1000); 50],
            },
            used: Some(UsedResources {
                user_us: u64::MAX,
                system_us: u64::MAX,
                process_peak_bytes: u64::MAX,
                tree_peak_bytes: Some(u64::MAX),
            }),
            connections: (0..200).map(connection).collect(),
        }
    }

    fn connection(place: u16) -> ConnectionTotal {
        let refused = place % 2 == 1;
        ConnectionTotal {
            host: format!("{}.test", "n".repeat(240)),
            port: place,
            verdict: if refused { ConnectionVerdict::Refused } else { ConnectionVerdict::Allowed },
            rule: "r".repeat(100),
            reason: "why".repeat(100),
            count: 1,
            bytes_out: 10,
            bytes_in: 1 << 40,
        }
    }

    #[test]
    fn the_largest_record_fits_its_reserved_space_and_every_connection_counts() {
        let bytes = record().to_bytes();
        assert_eq!(bytes.len(), RECORD_BYTES);
        let read = ExitRecord::from_bytes(&bytes).unwrap();
        let named = read.connections.iter().take_while(|it| it.host != OTHER_NAMES).count();
        assert_eq!(read.connections[..named], record().connections[..named]);
        let verdicts = |verdict| read.connections.iter().filter(move |it| it.verdict == verdict);
        for verdict in [ConnectionVerdict::Refused, ConnectionVerdict::Allowed] {
            assert_eq!(verdicts(verdict).map(|it| it.count).sum::<u64>(), 100);
            assert_eq!(verdicts(verdict).map(|it| it.bytes_out).sum::<u64>(), 1000);
            assert_eq!(verdicts(verdict).filter(|it| it.host == OTHER_NAMES).count(), 1);
        }
        assert_eq!(read.background_pids.len(), BACKGROUND_PIDS_MAX);
        assert_eq!(read.end, CommandEnd::Exited(7));
        assert_eq!(read.limits.missing, vec!["ä".repeat(REASON_BYTES_MAX / 2); MISSING_MAX]);
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
