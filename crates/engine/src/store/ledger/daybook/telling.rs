//! Telling others what happens: every entry, by whomever it was written, once and in order.

use std::sync::Arc;

use super::{Daybook, DaybookEntry, HEADER_BYTES, LedgerError, What};
use crate::events::{EventKind, Hub};

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
        let task_id = entry.task.clone();
        let what = match &entry.what {
            What::Start(_) => {
                let tty = registered.as_ref().is_some_and(|task| task.tty);
                EventKind::TaskStarted { task_id, tty }
            }
            What::Cancelling => EventKind::TaskCancelling { task_id },
            What::TaskEnd(end) => {
                let (status, reason) = (end.status, end.reason.clone());
                let (stdout_bytes, stderr_bytes) = end.printed_bytes();
                EventKind::TaskEnded { task_id, status, reason, stdout_bytes, stderr_bytes }
            }
            What::Forget => EventKind::TaskRemoved { task_id },
            What::Closed(_) | What::Anchor(_) => return,
        };
        let workspace = registered.map(|task| Arc::from(task.workspace.as_str()));
        hub.tell(entry.at_ms, workspace, what);
    }
}

#[cfg(test)]
impl Daybook {
    /// Whether anybody is told.
    pub(in crate::store::ledger) fn is_telling(&self) -> bool {
        self.hub.is_some()
    }
}
