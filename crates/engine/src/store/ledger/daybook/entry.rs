//! An entry of the daybook: what happened to one task, as it is written and read back.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    id::TaskId,
    model::{
        Total,
        status::{Status, TaskStanding},
    },
    output::SmallOutput,
    store::{
        anchor::AuditHead,
        ledger::{note, task::Task},
    },
};

use super::header::Generation;

/// Bytes before the body of an entry: its length, the same with every bit turned over, and a
/// checksum. So a length that was altered is not taken for that of an entry which was cut off.
const FRAME_BYTES: usize = 12;

/// What happened to a task.
#[derive(Debug)]
pub(in crate::store::ledger) struct DaybookEntry {
    pub task: TaskId,
    pub at_ms: i64,
    pub what: What,
}

/// What can happen to one.
#[derive(Debug, Clone)]
pub(in crate::store::ledger) enum What {
    /// It was registered.
    Start(Start),
    /// It is being stopped.
    Cancelling,
    /// It is over.
    TaskEnd(Arc<TaskEnd>),
    /// It never was.
    Forget,
    /// It waits in a queue for this reason, or for another one than before; or its command runs.
    Standing(TaskStanding),
    /// Of no task: where the audit log ends.
    Anchor(AuditHead),
    /// Of no task: all before it is in the ledger, and this daybook comes in the place of this one.
    Closed(Generation),
}

/// A task that was registered.
#[derive(Debug, Clone)]
pub(in crate::store::ledger) struct Start {
    pub fingerprint: [u8; 32],
    pub trust: String,
    /// All that is known of it, as it is written.
    note: Arc<[u8]>,
    /// The same, if it was not another process that wrote it.
    given: Option<Arc<Task>>,
}

/// How a task ended, and its output if that is nowhere else.
#[derive(Debug)]
pub(in crate::store::ledger) struct TaskEnd {
    pub status: Status,
    pub reason: Option<String>,
    /// As JSON.
    pub outcome: String,
    pub output: Option<Arc<SmallOutput>>,
}

impl Start {
    pub(in crate::store::ledger) fn new(task: Arc<Task>, note: Arc<[u8]>) -> Self {
        let (fingerprint, trust) = (task.fingerprint, task.trust.clone());
        Self { fingerprint, trust, note, given: Some(task) }
    }

    /// The task as it was registered; none if it does not read back.
    pub(in crate::store::ledger) fn row(&self) -> Option<Cow<'_, Task>> {
        match &self.given {
            Some(task) => Some(Cow::Borrowed(task)),
            None => note::read(&self.note).map(Cow::Owned),
        }
    }
}

impl TaskEnd {
    /// What was printed to both streams; nothing where that does not read back.
    pub(super) fn printed_bytes(&self) -> (u64, u64) {
        #[derive(Default, Deserialize)]
        struct Printed {
            stdout: Total,
            stderr: Total,
        }
        let printed: Printed = serde_json::from_str(&self.outcome).unwrap_or_default();
        (printed.stdout.came(), printed.stderr.came())
    }
}

/// Where a task stands that waits in a queue; none of any other.
pub(super) fn standing(task: &Task) -> Option<TaskStanding> {
    let waits = task.status == Status::Queued;
    waits.then(|| TaskStanding { status: task.status, reason: task.reason.clone() })
}

/// What stands before the bytes of a note or an output.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    task: &'a str,
    at_ms: i64,
    #[serde(borrow)]
    what: Kind<'a>,
}

/// The kinds of entries. Their order is part of the format.
#[derive(Serialize, Deserialize)]
enum Kind<'a> {
    Start {
        fingerprint: [u8; 32],
        trust: &'a str,
    },
    Cancelling,
    TaskEnd {
        status: &'a str,
        reason: Option<&'a str>,
        outcome: &'a str,
        /// How many bytes of the two streams follow; the rest is the timeline.
        output: Option<(u64, u64)>,
    },
    Forget,
    Standing {
        status: &'a str,
        reason: Option<&'a str>,
    },
    Anchor,
    Closed {
        next: Generation,
    },
}

impl DaybookEntry {
    /// The last one of a daybook.
    pub(super) fn closed(next: Generation) -> Self {
        Self { task: String::new().into(), at_ms: 0, what: What::Closed(next) }
    }

    /// Adds the entry to what is about to be written.
    pub(super) fn write(&self, buffer: &mut Vec<u8>) -> Option<()> {
        let start = buffer.len();
        buffer.extend([0; FRAME_BYTES]);
        let what = match &self.what {
            What::Start(start) => {
                Kind::Start { fingerprint: start.fingerprint, trust: &start.trust }
            }
            What::Cancelling => Kind::Cancelling,
            What::TaskEnd(end) => Kind::TaskEnd {
                status: end.status.as_str(),
                reason: end.reason.as_deref(),
                outcome: &end.outcome,
                output: end
                    .output
                    .as_ref()
                    .map(|output| (output.stdout.len() as u64, output.stderr.len() as u64)),
            },
            What::Forget => Kind::Forget,
            What::Anchor(_) => Kind::Anchor,
            What::Closed(next) => Kind::Closed { next: *next },
            What::Standing(standing) => Kind::Standing {
                status: standing.status.as_str(),
                reason: standing.reason.as_deref(),
            },
        };
        let head = Head { task: self.task.as_str(), at_ms: self.at_ms, what };
        *buffer = postcard::to_extend(&head, std::mem::take(buffer)).ok()?;
        match &self.what {
            What::Start(start) => buffer.extend_from_slice(&start.note),
            What::TaskEnd(end) => {
                if let Some(output) = &end.output {
                    for bytes in [&output.stdout, &output.stderr, &output.timeline] {
                        buffer.extend_from_slice(bytes);
                    }
                }
            }
            What::Anchor(head) => {
                *buffer = postcard::to_extend(head, std::mem::take(buffer)).ok()?;
            }
            What::Cancelling | What::Forget | What::Standing(_) | What::Closed(_) => {}
        }
        let body = buffer.get(start + FRAME_BYTES..)?;
        let (length, checksum) = (u32::try_from(body.len()).ok()?, crc32fast::hash(body));
        let frame = buffer.get_mut(start..start + FRAME_BYTES)?;
        frame.copy_from_slice(&[length, !length, checksum].map(u32::to_le_bytes).concat());
        Some(())
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (head, rest) = postcard::take_from_bytes::<Head<'_>>(body).ok()?;
        let what = match head.what {
            Kind::Start { fingerprint, trust } => What::Start(Start {
                fingerprint,
                trust: trust.to_owned(),
                note: rest.into(),
                given: None,
            }),
            Kind::Cancelling => What::Cancelling,
            Kind::TaskEnd { status, reason, outcome, output } => What::TaskEnd(Arc::new(TaskEnd {
                status: Status::from_name(status)?,
                reason: reason.map(str::to_owned),
                outcome: outcome.to_owned(),
                output: match output {
                    Some(lengths) => Some(Arc::new(split(rest, lengths)?)),
                    None => None,
                },
            })),
            Kind::Forget => What::Forget,
            Kind::Anchor => What::Anchor(postcard::from_bytes(rest).ok()?),
            Kind::Closed { next } => What::Closed(next),
            Kind::Standing { status, reason } => What::Standing(TaskStanding {
                status: Status::from_name(status)?,
                reason: reason.map(str::to_owned),
            }),
        };
        Some(Self { task: head.task.to_owned().into(), at_ms: head.at_ms, what })
    }
}

fn split(bytes: &[u8], (stdout, stderr): (u64, u64)) -> Option<SmallOutput> {
    let (stdout, rest) = bytes.split_at_checked(usize::try_from(stdout).ok()?)?;
    let (stderr, timeline) = rest.split_at_checked(usize::try_from(stderr).ok()?)?;
    let [stdout, stderr, timeline] = [stdout, stderr, timeline].map(<[u8]>::to_vec);
    Some(SmallOutput { stdout, stderr, timeline })
}

/// What stands at the beginning of some bytes of the daybook.
pub(super) enum Next {
    /// An entry, of so many bytes.
    DaybookEntry(DaybookEntry, usize),
    /// Nothing, or the beginning of an entry that is not all there.
    Nothing,
    /// Something that no writer leaves, however it ends.
    Damage,
    /// A whole entry that says what this program does not know.
    Unknown,
}

/// Takes the first entry out of these bytes, which go on to the end of the file.
pub(super) fn next(bytes: &[u8]) -> Next {
    let Some((frame, rest)) = bytes.split_first_chunk::<FRAME_BYTES>() else {
        return Next::Nothing;
    };
    let mut numbers = frame.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number));
    let mut number = || numbers.next().unwrap_or_default();
    let (length, turned, checksum) = (number(), number(), number());
    if length != !turned {
        // After a power cut there may be room for what was never written.
        let is_empty = bytes.iter().all(|byte| *byte == 0);
        return if is_empty { Next::Nothing } else { Next::Damage };
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some(body) = rest.get(..length) else { return Next::Nothing };
    if crc32fast::hash(body) != checksum {
        let is_last = body.len() == rest.len();
        return if is_last { Next::Nothing } else { Next::Damage };
    }
    DaybookEntry::read(body)
        .map_or(Next::Unknown, |entry| Next::DaybookEntry(entry, FRAME_BYTES + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<DaybookEntry> {
        let output = SmallOutput {
            stdout: b"out\0".into(),
            stderr: vec![0xff; 300],
            timeline: b"rows".into(),
        };
        let end = |output| {
            let (reason, outcome) = (Some("why".to_owned()), "{}".to_owned());
            What::TaskEnd(Arc::new(TaskEnd { status: Status::Failed, reason, outcome, output }))
        };
        let noted = Start {
            fingerprint: [7; 32],
            trust: "some".into(),
            note: (*b"a note").into(),
            given: None,
        };
        let all = [
            What::Start(noted),
            What::Cancelling,
            end(None),
            end(Some(Arc::new(output))),
            What::Forget,
            What::Anchor(AuditHead { log: 7, length: 300, hash: "cafe".into() }),
            What::Closed([9; 16]),
            What::Standing(TaskStanding {
                status: Status::Queued,
                reason: Some("Resources".into()),
            }),
            What::Standing(TaskStanding { status: Status::Running, reason: None }),
        ];
        all.into_iter()
            .map(|what| DaybookEntry { task: "t_a".to_owned().into(), at_ms: -1, what })
            .collect()
    }

    fn written(entries: &[DaybookEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in entries {
            entry.write(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn entries_read_back_as_they_were() {
        let entries = entries();
        let bytes = written(&entries);
        let mut rest = bytes.as_slice();
        for entry in entries {
            let Next::DaybookEntry(read, length) = next(rest) else { panic!("{rest:?}") };
            assert_eq!(format!("{read:?}"), format!("{entry:?}"));
            rest = &rest[length..];
        }
        assert!(matches!(next(rest), Next::Nothing));
    }

    #[test]
    fn an_entry_that_is_torn_anywhere_is_none() {
        for entry in entries() {
            let bytes = written(&[entry]);
            for end in 0..bytes.len() {
                assert!(matches!(next(&bytes[..end]), Next::Nothing), "{end}");
            }
            // Room that was made and never filled.
            assert!(matches!(next(&[0; 100]), Next::Nothing));
        }
    }

    #[test]
    fn an_entry_of_a_newer_program_is_neither_damage_nor_torn() {
        let body = [3, b't', b'_', b'a', 0, 99];
        let length = u32::try_from(body.len()).unwrap();
        let frame = [length, !length, crc32fast::hash(&body)].map(u32::to_le_bytes).concat();
        assert!(matches!(next(&[frame, body.to_vec()].concat()), Next::Unknown));
    }

    #[test]
    fn no_changed_byte_is_taken_for_an_entry() {
        for entry in entries() {
            let whole = written(&[entry]);
            for place in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[place] ^= 0x40;
                // With more behind it, as in the middle of a daybook.
                bytes.extend(&whole);
                assert!(matches!(next(&bytes), Next::Damage), "{place}");
            }
        }
    }
}
