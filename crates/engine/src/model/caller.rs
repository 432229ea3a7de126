//! Who asks for a command, and how far that caller is trusted.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use legwork_gate::Trust;
use tokio::sync::mpsc;

use super::question::SharedAsker;
use crate::trace::{Trace, TraceSpan};

/// Of this many tasks a caller's place in the output is remembered.
const SHOWN_MAX: usize = 256;

/// So many tasks that a caller has started are remembered as its own.
const STARTED_MAX: usize = 1024;

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
    /// What it has been shown and has started: the same for all calls of one connection.
    pub session: Session,
    /// Whether this is the person at the machine, at a terminal or on the page: they can start
    /// anything themselves, so that no sandbox narrows what they may do with a task.
    pub is_person: bool,
    /// The place of this call in a trace, if it is traced.
    pub trace: Option<Trace>,
}

/// What one connection of a caller knows of tasks: how much of their output it has been shown, and
/// which ones it has started. Cheap to clone, and shared by the clones.
#[derive(Debug, Clone, Default)]
pub struct Session {
    shown: Arc<Mutex<ShownTasks>>,
    started: Arc<Mutex<VecDeque<String>>>,
    ends_what_is_left: bool,
}

/// The tasks with bytes of stdout and stderr, the one that was shown last at the end.
type ShownTasks = VecDeque<(String, (u64, u64))>;

impl Session {
    /// Another connection of the same caller: it has been shown nothing, and what it starts belongs
    /// to both.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { shown: Arc::default(), ..self.clone() }
    }

    /// This session for a caller who can stop no task: what its commands leave running ends with it
    /// ([`Engine::end_session`](crate::Engine::end_session)).
    #[must_use]
    pub fn ending_what_is_left(self) -> Self {
        Self { ends_what_is_left: true, ..self }
    }

    /// Whether what its commands leave running ends with it.
    pub(crate) fn ends_what_is_left(&self) -> bool {
        self.ends_what_is_left
    }

    /// The tasks that were started here, as far as they are remembered.
    pub(crate) fn all_started(&self) -> Vec<String> {
        self.started().iter().cloned().collect()
    }

    /// Bytes of stdout and stderr that were shown of a task, if any.
    pub(crate) fn shown_of(&self, task: &str) -> Option<(u64, u64)> {
        let tasks = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().find(|(known, _)| known == task).map(|(_, bytes)| *bytes)
    }

    /// Remembers how much was shown of a task.
    pub(crate) fn note_shown(&self, task: &str, bytes: (u64, u64)) {
        let mut tasks = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|(known, _)| known != task);
        if tasks.len() >= SHOWN_MAX {
            tasks.pop_front();
        }
        tasks.push_back((task.to_owned(), bytes));
    }

    /// Whether a task was started here.
    pub(crate) fn has_started(&self, task: &str) -> bool {
        self.started().iter().any(|started| started == task)
    }

    /// Remembers that a task was started here.
    pub(crate) fn note_started(&self, task: &str) {
        let mut started = self.started();
        if started.len() >= STARTED_MAX {
            started.pop_front();
        }
        started.push_back(task.to_owned());
    }

    fn started(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
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
            session: Session::default(),
            is_person: false,
            trace: None,
        }
    }

    /// The person at this machine, through the face of this name.
    pub fn person(name: impl Into<String>) -> Self {
        Self { is_person: true, ..Self::operator(name) }
    }
}
