//! The event hub of a process: keeps the newest events, serves their readers, and says when readers
//! come or go.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Notify, watch};

use super::{
    Event, EventCursor, EventKind, Interest, Lagged, Lasting, QuestionMark,
    ring::{NextEvent, Ring},
};
use crate::id::TaskId;

/// Events that are kept for readers who are slow or come back.
const EVENTS_MAX: usize = 4096;

/// The stream of a process.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Mutex<Shared>,
    /// Whether it is fed: so that nobody makes an event for nobody.
    fed: AtomicBool,
    /// The number of the newest event, for those who wait for another.
    newest: watch::Sender<u64>,
    /// How many readers look at tasks live.
    live_readers: watch::Sender<usize>,
    /// For whoever feeds: somebody came or went, or there is something to look at.
    nudge: Notify,
}

#[derive(Debug)]
struct Shared {
    ring: Ring,
    readers: usize,
    /// Whether live events come.
    live: bool,
}

impl Default for Hub {
    fn default() -> Self {
        let shared = Shared { ring: Ring::new(0, EVENTS_MAX), readers: 0, live: false };
        Self {
            shared: Mutex::new(shared),
            fed: AtomicBool::new(false),
            newest: watch::Sender::new(0),
            live_readers: watch::Sender::new(0),
            nudge: Notify::new(),
        }
    }
}

impl Hub {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether events are wanted at all.
    pub(crate) fn is_fed(&self) -> bool {
        self.fed.load(Ordering::Acquire)
    }

    /// Tells all readers of something; nothing if there are none.
    pub(crate) fn tell(&self, at_ms: i64, workspace: Option<Arc<str>>, what: EventKind) {
        if !self.is_fed() {
            return;
        }
        let newest = {
            let mut shared = self.shared();
            shared.ring.push(at_ms, workspace, what);
            shared.ring.newest()
        };
        self.newest.send_replace(newest);
    }

    /// What is told from now on comes from here in the daybook.
    pub(crate) fn stand_at(&self, book: u64, offset: u64) {
        let mut shared = self.shared();
        if let Some(lasting) = &mut shared.ring.lasting {
            (lasting.book, lasting.offset) = (book, offset);
        }
    }

    /// What is told from now on is told with this being known of the questions.
    pub(crate) fn mark_questions(&self, questions: QuestionMark) {
        let mut shared = self.shared();
        if let Some(lasting) = &mut shared.ring.lasting {
            lasting.questions = questions;
        }
    }

    /// The place up to which everything has been told.
    pub(crate) fn told(&self) -> EventCursor {
        let shared = self.shared();
        shared.ring.cursor(shared.ring.newest())
    }

    /// Tells all readers that something happened which nobody can name.
    pub(crate) fn lose(&self) {
        let newest = {
            let mut shared = self.shared();
            shared.ring.lose();
            shared.ring.newest()
        };
        self.newest.send_replace(newest);
    }

    /// Asks whoever feeds to look.
    pub(crate) fn nudge(&self) {
        if self.is_fed() {
            self.nudge.notify_one();
        }
    }

    /// Waits until whoever feeds is asked to look. Safe to cancel.
    pub(crate) async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// A reader, who has yet to be given a place; from now on whoever feeds goes on.
    ///
    /// It keeps the source of the stream.
    pub(crate) fn join(
        self: &Arc<Self>,
        interest: Interest,
        source: Arc<dyn Any + Send + Sync>,
    ) -> Events {
        let live = interest == Interest::Live;
        let mut shared = self.shared();
        shared.readers += 1;
        let seen = shared.ring.newest();
        drop(shared);
        self.live_readers.send_modify(|readers| *readers += usize::from(live));
        self.nudge.notify_one();
        let (hub, newest) = (self.clone(), self.newest.subscribe());
        let at = EventCursor { stream: 0, sequence: 0, lasting: None };
        let earlier = VecDeque::new();
        Events { hub, newest, seen, at, earlier, lagged: false, live, source }
    }

    /// From now on it is fed, and everything that happens is told.
    pub(crate) fn begin(&self, stream: u64, lasting: Lasting) {
        let mut shared = self.shared();
        if shared.ring.newest() == 0 {
            shared.ring = Ring::new(stream, EVENTS_MAX);
        }
        // What came while nobody listened is not known.
        shared.ring.lose();
        shared.ring.lasting = Some(lasting);
        shared.live = false;
        self.fed.store(true, Ordering::Release);
    }

    /// Ends the feeding if nobody reads any more; says whether it has ended.
    pub(crate) fn end_if_unread(&self) -> bool {
        let shared = self.shared();
        if shared.readers == 0 {
            self.fed.store(false, Ordering::Release);
        }
        shared.readers == 0
    }

    /// Ends the feeding, whoever reads.
    pub(crate) fn end(&self) {
        self.fed.store(false, Ordering::Release);
    }

    /// Whether anybody reads.
    #[cfg(test)]
    pub(super) fn is_read(&self) -> bool {
        self.shared().readers > 0
    }

    /// Whether anybody looks at tasks live.
    pub(crate) fn is_read_live(&self) -> bool {
        *self.live_readers.borrow() > 0
    }

    /// How many look at tasks live, from now on.
    pub(crate) fn live_readers(&self) -> watch::Receiver<usize> {
        self.live_readers.subscribe()
    }

    /// Live events come from now on, or no longer.
    pub(crate) fn set_live(&self, live: bool) {
        let mut shared = self.shared();
        if live && !shared.live {
            shared.ring.begin_live();
        }
        shared.live = live;
    }

    /// What came after this number, for one who does not count as a reader; none if something was
    /// lost.
    pub(crate) fn since(&self, seen: &mut u64) -> Option<Vec<Arc<Event>>> {
        let shared = self.shared();
        let mut events = Vec::new();
        loop {
            match shared.ring.after(*seen) {
                NextEvent::Next(event) => {
                    *seen = event.cursor.sequence;
                    events.push(event);
                }
                NextEvent::Nothing => return Some(events),
                NextEvent::Lost => {
                    *seen = shared.ring.newest();
                    return None;
                }
            }
        }
    }
}

/// A reader of the stream: gets every event once, in order, or is told that it missed some.
#[derive(Debug)]
pub struct Events {
    hub: Arc<Hub>,
    newest: watch::Receiver<u64>,
    /// The number of the last event that it got of this stream.
    seen: u64,
    /// The place of the last event that it got.
    at: EventCursor,
    /// What happened before this stream, or was told in another one.
    earlier: VecDeque<Arc<Event>>,
    /// Whether it has missed something that it was not told of.
    lagged: bool,
    live: bool,
    #[expect(dead_code, reason = "held for as long as somebody reads")]
    source: Arc<dyn Any + Send + Sync>,
}

impl Events {
    /// Takes its place: after this event, or here. From here on everything that happens is told.
    pub(crate) fn begin(mut self, after: Option<EventCursor>) -> Self {
        let shared = self.hub.shared();
        let is_complete = shared.live || !self.live;
        let place =
            after.map(|cursor| shared.ring.place(cursor, self.live).filter(|_| is_complete));
        // Whoever names no place is told what happened since it came, if it was fed by then.
        self.seen = place.flatten().unwrap_or(self.seen.max(shared.ring.lost()));
        self.lagged = place == Some(None);
        self.at = shared.ring.cursor(self.seen);
        drop(shared);
        self
    }

    /// Whether the place that was asked for is none of this stream.
    pub(crate) fn is_lost(&self) -> bool {
        self.lagged
    }

    /// Takes a place of another stream: first all that happened since is told, then what comes
    /// after `told` in this stream. `lagged` says that something else happened between the two.
    pub(crate) fn resume(
        &mut self,
        after: EventCursor,
        earlier: Vec<Event>,
        told: EventCursor,
        lagged: bool,
    ) {
        let shared = self.hub.shared();
        let cursor = earlier.last().map_or(after, |last| last.cursor);
        self.earlier = earlier.into_iter().map(Arc::new).collect();
        if self.live {
            // Nobody says again how much a task had printed by then. That has no place of its own:
            // its number in this stream is older than what is told here.
            let growth = shared.ring.growth();
            let again = growth.map(|event| Arc::new(Event { cursor, ..(**event).clone() }));
            self.earlier.extend(again);
        }
        (self.seen, self.at, self.lagged) = (told.sequence, after, lagged);
    }

    /// The next event, in order. An error says that some were missed, and the reader goes on behind
    /// them. Safe to cancel.
    pub async fn next(&mut self) -> Result<Arc<Event>, Lagged> {
        loop {
            // Before the look, so that whatever comes after it wakes us up.
            self.newest.mark_unchanged();
            match self.look() {
                NextEvent::Next(event) => return Ok(event),
                NextEvent::Lost => return Err(Lagged { cursor: self.cursor() }),
                // The sender is in the hub, which is ours.
                NextEvent::Nothing => drop(self.newest.changed().await),
            }
        }
    }

    /// Waits for an event about this task, or until some were missed. Safe to cancel.
    pub(crate) async fn of_task(&mut self, task: &TaskId) {
        while let Ok(event) = self.next().await {
            if event.what.task_id() == Some(task) {
                return;
            }
        }
    }

    /// Waits for an event about this question, or until some were missed. Safe to cancel.
    pub(crate) async fn of_question(&mut self, approval_id: &str) {
        while let Ok(event) = self.next().await {
            if event.what.approval_id() == Some(approval_id) {
                return;
            }
        }
    }

    /// The place of the last event that it got.
    pub fn cursor(&self) -> EventCursor {
        self.at
    }

    fn look(&mut self) -> NextEvent {
        if let Some(event) = self.earlier.pop_front() {
            self.at = event.cursor;
            return NextEvent::Next(event);
        }
        let shared = self.hub.shared();
        loop {
            let found = if self.lagged { NextEvent::Lost } else { shared.ring.after(self.seen) };
            match &found {
                NextEvent::Next(event) => {
                    (self.seen, self.at) = (event.cursor.sequence, event.cursor);
                    if event.what.is_live() && !self.live {
                        continue;
                    }
                }
                NextEvent::Lost => {
                    (self.seen, self.lagged) = (shared.ring.newest(), false);
                    self.at = shared.ring.cursor(self.seen);
                }
                NextEvent::Nothing => {}
            }
            return found;
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut shared = self.hub.shared();
        shared.readers = shared.readers.saturating_sub(1);
        drop(shared);
        let less = |readers: &mut usize| *readers = readers.saturating_sub(usize::from(self.live));
        self.hub.live_readers.send_modify(less);
        self.hub.nudge();
    }
}
