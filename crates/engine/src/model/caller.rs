//! Who asks for a command, and how far that caller is trusted.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use legwork_gate::Trust;
use tokio::sync::mpsc;

use super::question::SharedAsker;
use crate::trace::{Trace, TraceSpan};

/// Of this many tasks a caller's place in the output is remembered.
const TASKS_MAX: usize = 256;

/// Who asks, and how far it is trusted.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Trust of the caller.
    pub trust: Trust,
    /// A name for people: the MCP client, the user's terminal.
    pub name: String,
    /// Where the last line of output goes while the caller waits, a few times a second.
    pub progress: Option<mpsc::Sender<String>>,
    /// How a person can be asked, if this caller can do that.
    pub asker: Option<SharedAsker>,
    /// How long this caller waits for an answer at most, where it is known to give up.
    pub answer_within: Option<Duration>,
    /// How much of each task's output this caller has been shown: the same for all calls of one
    /// connection.
    pub seen: ShownOutput,
    /// The place of this call in a trace, if it is traced.
    pub trace: Option<Trace>,
}

/// How much of each task's output somebody has been shown. Cheap to clone, and shared by the
/// clones.
#[derive(Debug, Clone, Default)]
pub struct ShownOutput(Arc<Mutex<SeenTasks>>);

/// The tasks with bytes of stdout and stderr, the one that was shown last at the end.
type SeenTasks = VecDeque<(String, (u64, u64))>;

impl ShownOutput {
    /// Bytes of stdout and stderr that were shown of a task, if any.
    pub(crate) fn of(&self, task: &str) -> Option<(u64, u64)> {
        let tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().find(|(known, _)| known == task).map(|(_, bytes)| *bytes)
    }

    /// Remembers how much was shown of a task.
    pub(crate) fn note(&self, task: &str, bytes: (u64, u64)) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|(known, _)| known != task);
        if tasks.len() >= TASKS_MAX {
            tasks.pop_front();
        }
        tasks.push_back((task.to_owned(), bytes));
    }
}

impl Caller {
    /// This wait, or what the caller can wait.
    pub(crate) fn bounded(&self, wait: Duration) -> Duration {
        self.answer_within.map_or(wait, |most| wait.min(most))
    }

    /// Begins a span of this call; nothing if it is not traced.
    pub(crate) fn span(&self, name: &'static str) -> TraceSpan {
        self.trace.as_ref().map(|trace| trace.begin(name)).unwrap_or_default()
    }

    /// The operator of this machine, through the face of this name.
    pub fn operator(name: impl Into<String>) -> Self {
        Self {
            trust: Trust::TrustedOperator,
            name: name.into(),
            progress: None,
            asker: None,
            answer_within: None,
            seen: ShownOutput::default(),
            trace: None,
        }
    }
}
