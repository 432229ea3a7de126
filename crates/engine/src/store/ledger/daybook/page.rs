//! The daybook while nobody else writes to it.

use std::sync::Arc;

use legwork_warden::failpoint::Failpoint;

use super::{
    Daybook, DaybookEntry, Generation, LedgerError, Open, Start, What, entry::standing, too_long,
};
use crate::{
    clock::now_ms,
    id::TaskId,
    model::status::Status,
    platform::FileExt,
    store::{
        anchor::{AuditHead, SharedHead},
        ledger::task::Task,
    },
};

/// What can be asked and written under its lock.
#[derive(Debug)]
pub(in crate::store::ledger) struct Page<'a> {
    pub(super) book: &'a mut Daybook,
}

impl Page<'_> {
    /// How many tasks are open.
    pub(in crate::store::ledger) fn open_tasks(&self) -> u64 {
        self.book.open.len() as u64
    }

    /// Their ids.
    pub(in crate::store::ledger) fn open_ids(&self) -> Vec<TaskId> {
        self.book.open.keys().cloned().collect()
    }

    /// Their ids and workspaces.
    pub(in crate::store::ledger) fn open_workspaces(&self) -> Vec<(TaskId, Arc<str>)> {
        let workspace = |open: &Open| open.row().map(|task| task.workspace.as_str().into());
        let open = self.book.open.iter();
        open.filter_map(|(task, open)| Some((task.clone(), workspace(open)?))).collect()
    }

    /// An open task that is equal and may be joined, other than these.
    pub(in crate::store::ledger) fn equal(
        &self,
        fingerprint: &[u8; 32],
        passed_over: &[TaskId],
    ) -> Option<Task> {
        self.book.equal(fingerprint, passed_over)
    }

    /// The status of a task that is open, and the trust of who asked for it.
    pub(in crate::store::ledger) fn open(&self, task: &TaskId) -> Option<(Status, &str)> {
        let open = self.book.open.get(task)?;
        match &open.start.what {
            What::Start(start) => Some((open.status, &start.trust)),
            _ => None,
        }
    }

    /// Says that all before is in the ledger, and which one comes next, for those who still have
    /// this daybook when another one stands in its place.
    pub(in crate::store::ledger) fn close(&mut self, next: Generation) -> Result<(), LedgerError> {
        self.write(vec![DaybookEntry::closed(next)], None)
    }

    /// Writes down where the audit log ends, if that is not yet.
    pub(in crate::store::ledger) fn anchor(
        &mut self,
        head: &SharedHead,
    ) -> Result<(), LedgerError> {
        let Some(pending) = head.pending() else { return Ok(()) };
        self.write(vec![anchor(&pending)], None)?;
        head.anchored(&pending);
        Ok(())
    }

    /// Writes down that a task begins, and where the audit log ends: one step for both.
    pub(in crate::store::ledger) fn begin(
        &mut self,
        task: &TaskId,
        start: Start,
        head: &SharedHead,
    ) -> Result<(), LedgerError> {
        let pending = head.pending();
        let standing = start.row().and_then(|task| standing(&task));
        let entry = |what| DaybookEntry { task: task.clone(), at_ms: now_ms(), what };
        let standing = standing.map(|standing| entry(What::Standing(standing)));
        let entries = [entry(What::Start(start))].into_iter().chain(standing);
        let entries = entries.chain(pending.as_ref().map(anchor)).collect();
        self.write(entries, Some(Failpoint::EngineInRegistration))?;
        if let Some(pending) = pending {
            head.anchored(&pending);
        }
        Ok(())
    }

    /// The daybook itself.
    pub(in crate::store::ledger) fn book(&mut self) -> &mut Daybook {
        self.book
    }

    /// Writes an entry. All of it is there, or nothing.
    pub(in crate::store::ledger) fn append(
        &mut self,
        task: TaskId,
        what: What,
        in_it: Failpoint,
    ) -> Result<(), LedgerError> {
        self.write(vec![DaybookEntry { task, at_ms: now_ms(), what }], Some(in_it))
    }

    fn write(
        &mut self,
        entries: Vec<DaybookEntry>,
        in_it: Option<Failpoint>,
    ) -> Result<(), LedgerError> {
        let book = &mut *self.book;
        book.buffer.clear();
        let mut written = Vec::with_capacity(entries.len());
        for entry in entries {
            entry.write(&mut book.buffer).ok_or_else(too_long)?;
            written.push((book.buffer.len() as u64, entry));
        }
        if let Some(in_it) = in_it.filter(|in_it| in_it.is_chosen()) {
            let half = book.buffer.get(..book.buffer.len() / 2).unwrap_or_default();
            book.file.write_all_at(half, book.read)?;
            in_it.pass();
        }
        if let Err(error) = book.file.write_all_at(&book.buffer, book.read) {
            // What is left of it would be cut off by whoever comes next, too.
            let _ = book.file.set_len(book.read);
            return Err(error.into());
        }
        book.buffer.shrink_to(KEPT_BYTES);
        let began = book.read;
        for (length, entry) in written {
            book.read = began + length;
            book.enter(Arc::new(entry));
        }
        Ok(())
    }
}

/// Says where the audit log ends.
fn anchor(head: &AuditHead) -> DaybookEntry {
    let task = String::new().into();
    DaybookEntry { task, at_ms: now_ms(), what: What::Anchor(head.clone()) }
}

/// Bytes that are kept for the next entry.
const KEPT_BYTES: usize = 16 * 1024;
