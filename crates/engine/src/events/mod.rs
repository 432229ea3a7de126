//! One ordered stream of what happens on a state folder: tasks, their output, and questions, by
//! whichever process.
//!
//! The [`Hub`] of a process holds the newest events, numbered. [`Events`] is one reader's place
//! among them: it waits without a lock, and a reader who is too slow is told so ([`Lagged`])
//! instead of making anybody wait or memory grow. Of a task's growing output only the newest word
//! is kept, so that a slow reader gets the totals as they are now.
//!
//! The hub is fed only while somebody reads, and for a moment after that, so that a reader who
//! comes back misses nothing; without readers an event costs nothing. Who feeds it is the ledger
//! (`store/ledger/feed`), from the daybook and the questions, and [`growth`] from the tasks'
//! folders. The kernel tells them when to look.

pub(crate) mod growth;
mod hub;
mod ring;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Serialize, Serializer};

pub use self::hub::Events;
pub(crate) use self::hub::Hub;
use crate::{
    id::TaskId,
    model::{question::Reply, status::Status},
};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its place in the stream: a reader who has it goes on after it.
    pub cursor: EventCursor,
    /// When it happened, in milliseconds since 1970.
    pub at_ms: i64,
    /// The workspace that it is about, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// What it is.
    #[serde(flatten)]
    pub what: EventKind,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A task was registered, and its command is about to start.
    TaskStarted {
        /// The task.
        task_id: TaskId,
        /// Whether it has a terminal.
        tty: bool,
    },
    /// A task waits in a queue, for this reason; or it did, and its command runs now.
    TaskStanding {
        /// The task.
        task_id: TaskId,
        /// The status that it has now: `queued` or `running`.
        status: Status,
        /// Why it waits, in the word of the scheduler.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A task is being stopped.
    TaskCancelling {
        /// The task.
        task_id: TaskId,
    },
    /// A task is over, and its outcome recorded.
    TaskEnded {
        /// The task.
        task_id: TaskId,
        /// The status that it has now.
        status: Status,
        /// Why, where that is not plain.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// All that it has printed to stdout, or to its terminal.
        stdout_bytes: u64,
        /// All that it has printed to stderr.
        stderr_bytes: u64,
    },
    /// A task was taken off the list: it never started, or it was removed after its time.
    TaskRemoved {
        /// The task.
        task_id: TaskId,
    },
    /// A task has printed more. Several in a short time are told as one.
    OutputGrew {
        /// The task.
        task_id: TaskId,
        /// All that it has printed to stdout, or to its terminal.
        stdout_bytes: u64,
        /// All that it has printed to stderr.
        stderr_bytes: u64,
    },
    /// A task is blocked reading its input.
    WaitingForInput {
        /// The task.
        task_id: TaskId,
    },
    /// Somebody has to answer whether a command may run.
    QuestionOpened {
        /// The question.
        approval_id: String,
    },
    /// A question was answered.
    QuestionAnswered {
        /// The question.
        approval_id: String,
        /// The answer.
        decision: Reply,
        /// When it was opened, in milliseconds since 1970.
        opened_at_ms: i64,
    },
    /// A question was not answered in time.
    QuestionExpired {
        /// The question.
        approval_id: String,
        /// When it was opened, in milliseconds since 1970.
        opened_at_ms: i64,
    },
    /// Connections of a task to a host were refused. Told by the engine that records the end of the
    /// task, in its own process, once it is recorded.
    ConnectionRefused {
        /// The task.
        task_id: TaskId,
        /// The name, or the address.
        host: String,
        /// The port.
        port: u16,
        /// The rule that refuses them.
        rule: String,
    },
    /// A call was refused because a limit of this engine is reached.
    LimitReached {
        /// The setting that is the limit.
        limit: &'static str,
    },
}

impl EventKind {
    /// Whether only readers who look at tasks live want it.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::OutputGrew { .. } | Self::WaitingForInput { .. })
    }

    /// The task that it is about.
    pub fn task_id(&self) -> Option<&TaskId> {
        match self {
            Self::TaskStarted { task_id, .. }
            | Self::TaskCancelling { task_id }
            | Self::TaskStanding { task_id, .. }
            | Self::TaskEnded { task_id, .. }
            | Self::TaskRemoved { task_id }
            | Self::OutputGrew { task_id, .. }
            | Self::ConnectionRefused { task_id, .. }
            | Self::WaitingForInput { task_id } => Some(task_id),
            Self::QuestionOpened { .. }
            | Self::QuestionAnswered { .. }
            | Self::QuestionExpired { .. }
            | Self::LimitReached { .. } => None,
        }
    }

    /// The question that it is about.
    pub fn approval_id(&self) -> Option<&str> {
        match self {
            Self::QuestionOpened { approval_id }
            | Self::QuestionAnswered { approval_id, .. }
            | Self::QuestionExpired { approval_id, .. } => Some(approval_id),
            _ => None,
        }
    }
}

/// What a reader wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Tasks and questions as they come and go. Costs nothing while nothing happens.
    Changes,
    /// Also the growth of output, and waits for input at a terminal: folders of running tasks are
    /// watched, and some of their wardens asked. The ends of tasks that have lost their engine are
    /// recorded, too. The stream goes on for half a minute without its last reader, who may come
    /// back and has missed nothing.
    Live,
}

/// A place in the stream of one process. As text it can travel, and another process on the same
/// state folder goes on from it, for as long as the daybook is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCursor {
    /// Names the stream: every process has its own. None has 0: what is told again has no number.
    stream: u64,
    /// Goes up by at least one with every event.
    sequence: u64,
    /// The same place for other processes, where that is known.
    lasting: Option<Lasting>,
}

/// A place that means the same in every process, and after the death of the one that told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lasting {
    /// Names the daybook.
    pub book: u64,
    /// Where its last entry ends that was told.
    pub offset: u64,
    /// What was known of the questions.
    pub questions: QuestionMark,
}

/// Tells two states of the ledger's questions apart: the place of the newest, and the sum of the
/// places of those that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct QuestionMark {
    pub newest: u64,
    pub over: u64,
}

impl EventCursor {
    /// The place of an event that is told again.
    pub(crate) fn again(lasting: Lasting) -> Self {
        Self { stream: 0, sequence: 0, lasting: Some(lasting) }
    }

    /// The place for other processes.
    pub(crate) fn lasting(&self) -> Option<Lasting> {
        self.lasting
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{}", self.stream, self.sequence)?;
        let Some(Lasting { book, offset, questions }) = self.lasting else { return Ok(()) };
        write!(formatter, "-{book:016x}-{offset}-{}-{}", questions.newest, questions.over)
    }
}

/// A text that is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the cursor of an event")]
pub struct NoEventCursor;

impl FromStr for EventCursor {
    type Err = NoEventCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NoEventCursor);
        let number = |text: &str| text.parse::<u64>().map_err(|_| NoEventCursor);
        let parts: Vec<&str> = text.split('-').collect();
        let (stream, sequence, lasting) = match parts.as_slice() {
            [stream, sequence] => (stream, sequence, None),
            [stream, sequence, book, offset, newest, over] => {
                let questions = QuestionMark { newest: number(newest)?, over: number(over)? };
                let lasting = Lasting { book: name(book)?, offset: number(offset)?, questions };
                (stream, sequence, Some(lasting))
            }
            _ => return Err(NoEventCursor),
        };
        let cursor = Self { stream: name(stream)?, sequence: number(sequence)?, lasting };
        // Other spellings of the same numbers are none of ours.
        if cursor.to_string() == text { Ok(cursor) } else { Err(NoEventCursor) }
    }
}

impl Serialize for EventCursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Events were missed: whoever reads must look anew at what it knows. What happens from here on is
/// told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("events were missed: look anew")]
pub struct Lagged {
    /// The place from which the reader goes on.
    pub cursor: EventCursor,
}
