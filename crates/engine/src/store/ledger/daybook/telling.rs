//! Telling others what happens: every entry, by whomever it was written, once and in order.

use std::{collections::HashMap, sync::Arc};

use super::{
    super::task::Task,
    Daybook, DaybookEntry, HEADER_BYTES, LedgerError, What,
    entry::{Next, next},
};
use crate::{
    events::{Event, EventCursor, EventKind, Hub, Lasting, QuestionMark},
    platform::FileExt,
};

impl Daybook {
    /// From the next entry on everything is told.
    pub(in crate::store::ledger) fn tell_to(&mut self, hub: Arc<Hub>) {
        self.hub = Some(hub);
    }

    /// Goes on in the daybook that stands in the place of this one.
    pub(in crate::store::ledger) fn go_on_in(&mut self, mut new: Self) {
        if let Some(hub) = self.hub.take() {
            new.hub = Some(hub.clone());
            let follows = self.next == Some(new.generation);
            if !follows || new.tell_again().is_err() {
                // There may have been others between the two, or nobody has said what came of this
                // one.
                hub.lose();
            }
            hub.stand_at(new.name(), new.read);
        }
        *self = new;
    }

    /// Tells what was written to this daybook before anybody was told of it.
    fn tell_again(&mut self) -> Result<(), LedgerError> {
        let end = self.read;
        self.read = HEADER_BYTES as u64;
        self.open.clear();
        self.pending.clear();
        self.read_to(end, false)
    }

    /// Tells of an entry, before it is taken note of.
    pub(super) fn tell(&mut self, entry: &DaybookEntry) {
        let Some(hub) = self.hub.clone() else { return };
        if !hub.is_fed() {
            // Whoever wanted to know has left.
            self.hub = None;
            return;
        }
        let registered = match (&entry.what, self.open.get(&entry.task)) {
            (What::Start(start), _) => start.row(),
            (_, Some(open)) => open.row(),
            _ => None,
        };
        hub.stand_at(self.name(), self.read);
        if let Some(what) = event(entry, registered.as_deref()) {
            let workspace = registered.map(|task| Arc::from(task.workspace.as_str()));
            hub.tell(entry.at_ms, workspace, what);
        }
    }

    /// Its name in cursors.
    fn name(&self) -> u64 {
        let (name, _) = self.generation.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*name)
    }

    /// Where it has been read to, for other processes.
    pub(in crate::store::ledger) fn place(&self, questions: QuestionMark) -> Lasting {
        Lasting { book: self.name(), offset: self.read, questions }
    }

    /// What was written between a place and where it has been read to; none if that cannot be
    /// known.
    pub(in crate::store::ledger) fn since(&self, place: Lasting) -> Option<Vec<Event>> {
        let header = HEADER_BYTES as u64;
        let length = usize::try_from(self.read.checked_sub(header)?).ok()?;
        if place.book != self.name() || place.offset > self.read {
            return None;
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, header).ok()?;
        let (mut rest, mut end) = (bytes.as_slice(), header);
        let mut is_an_end = place.offset == header;
        let (mut workspaces, mut events) = (HashMap::new(), Vec::new());
        while let Next::DaybookEntry(entry, length) = next(rest) {
            (rest, end) = (rest.get(length..)?, end + length as u64);
            is_an_end |= end == place.offset;
            let registered = match &entry.what {
                What::Start(start) => start.row(),
                _ => None,
            };
            if let Some(task) = &registered {
                let workspace: Arc<str> = task.workspace.as_str().into();
                workspaces.insert(entry.task.clone(), workspace);
            }
            if end > place.offset.max(self.carried)
                && let Some(what) = event(&entry, registered.as_deref())
            {
                let cursor = EventCursor::again(Lasting { offset: end, ..place });
                let workspace = workspaces.get(&entry.task).cloned();
                events.push(Event { cursor, at_ms: entry.at_ms, workspace, what });
            }
        }
        (is_an_end && rest.is_empty()).then_some(events)
    }
}

/// What an entry tells; nothing if that is of no interest to others.
fn event(entry: &DaybookEntry, registered: Option<&Task>) -> Option<EventKind> {
    let task_id = entry.task.clone();
    Some(match &entry.what {
        What::Start(_) => {
            let tty = registered.is_some_and(|task| task.tty);
            EventKind::TaskStarted { task_id, tty }
        }
        What::Cancelling => EventKind::TaskCancelling { task_id },
        What::TaskEnd(end) => {
            let (status, reason) = (end.status, end.reason.clone());
            let (stdout_bytes, stderr_bytes) = end.printed_bytes();
            EventKind::TaskEnded { task_id, status, reason, stdout_bytes, stderr_bytes }
        }
        What::Standing(standing) => {
            let (status, reason) = (standing.status, standing.reason.clone());
            EventKind::TaskStanding { task_id, status, reason }
        }
        What::Forget => EventKind::TaskRemoved { task_id },
        What::Closed(_) | What::Anchor(_) => return None,
    })
}

#[cfg(test)]
impl Daybook {
    /// Whether anybody is told.
    pub(in crate::store::ledger) fn is_telling(&self) -> bool {
        self.hub.is_some()
    }
}
