//! A ring buffer of the newest events, numbered. Of older events it knows only that they are gone.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Event, EventCursor, EventKind, Lasting};
use crate::id::TaskId;

/// The newest events. Nothing in here waits or tells.
#[derive(Debug)]
pub(super) struct Ring {
    stream: u64,
    /// By number. Numbers are missing where a newer word of the same task took the place of an
    /// older one.
    events: BTreeMap<u64, Arc<Event>>,
    /// The number of the newest word about the output of each task.
    grown: HashMap<TaskId, u64>,
    /// The number of the newest event.
    newest: u64,
    /// The highest number that readers can no longer get: whoever has seen less has missed
    /// something.
    lost: u64,
    /// The lowest number from which on live events are complete.
    live_from: u64,
    /// Where other processes are who have heard everything up to here, where that is known.
    pub(super) lasting: Option<Lasting>,
    events_max: usize,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextEvent {
    /// The next event.
    Next(Arc<Event>),
    /// Nothing new.
    Nothing,
    /// What it wants next is not there any more.
    Lost,
}

impl Ring {
    pub(super) fn new(stream: u64, events_max: usize) -> Self {
        let (events, grown) = (BTreeMap::new(), HashMap::new());
        Self { stream, events, grown, newest: 0, lost: 0, live_from: 0, lasting: None, events_max }
    }

    /// Adds an event.
    pub(super) fn push(&mut self, at_ms: i64, workspace: Option<Arc<str>>, what: EventKind) {
        self.newest += 1;
        match &what {
            EventKind::OutputGrew { task_id, .. } => {
                if let Some(older) = self.grown.insert(task_id.clone(), self.newest) {
                    self.events.remove(&older);
                }
            }
            EventKind::TaskEnded { task_id, .. } | EventKind::TaskRemoved { task_id } => {
                self.grown.remove(task_id);
            }
            _ => {}
        }
        let cursor =
            EventCursor { stream: self.stream, sequence: self.newest, lasting: self.lasting };
        let event = Event { cursor, at_ms, workspace, what };
        self.events.insert(self.newest, Arc::new(event));
        while self.events.len() > self.events_max {
            let Some((number, dropped)) = self.events.pop_first() else { return };
            self.lost = number;
            if let EventKind::OutputGrew { task_id, .. } = &dropped.what
                && self.grown.get(task_id) == Some(&number)
            {
                self.grown.remove(task_id);
            }
        }
    }

    /// Something happened that nobody can name: every reader has missed it.
    pub(super) fn lose(&mut self) {
        self.newest += 1;
        self.lost = self.newest;
        self.events.clear();
        self.grown.clear();
    }

    /// From here on live events come, which did not before.
    pub(super) fn begin_live(&mut self) {
        self.live_from = self.newest;
    }

    /// The event that comes after this number.
    pub(super) fn after(&self, seen: u64) -> NextEvent {
        if seen < self.lost {
            return NextEvent::Lost;
        }
        let next = self.events.range(seen.saturating_add(1)..).next();
        next.map_or(NextEvent::Nothing, |(_, event)| NextEvent::Next(event.clone()))
    }

    /// The number that a cursor stands for, if everything after it can be told.
    pub(super) fn place(&self, after: EventCursor, live: bool) -> Option<u64> {
        let least = if live { self.lost.max(self.live_from) } else { self.lost };
        let is_here =
            after.stream == self.stream && (least..=self.newest).contains(&after.sequence);
        is_here.then_some(after.sequence)
    }

    /// The number of the newest event.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The highest number that cannot be told any more.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// The cursor of a number.
    pub(super) fn cursor(&self, sequence: u64) -> EventCursor {
        let before = self.events.range(..=sequence).next_back();
        let lasting = match before {
            _ if sequence >= self.newest => self.lasting,
            Some((_, event)) => event.cursor.lasting,
            None => None,
        };
        EventCursor { stream: self.stream, sequence, lasting }
    }

    /// The newest words about the output of tasks.
    pub(super) fn growth(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.grown.values().filter_map(|number| self.events.get(number))
    }
}

#[cfg(test)]
impl Ring {
    /// How many events are kept.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
