//! The daybook: starts and ends of tasks, in the order in which they happened, before they are
//! posted to the ledger.
//!
//! An entry is one small write under a lock: as safe from the end of any process as a commit, at a
//! tenth of its price. Entries are *posted* to the ledger together, some time later, or as soon as
//! somebody wants to read it; the ledger says up to where that is done. Every task that is open is
//! in the daybook, so that a start need not ask the ledger whether an equal one runs, or how many
//! do. When it has grown, it is begun anew with the tasks that are still open.

mod entry;
mod header;
mod page;
mod telling;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use legwork_warden::failpoint::Failpoint;

pub(super) use self::{
    entry::{DaybookEntry, Start, TaskEnd, What},
    header::Generation,
    page::Page,
};
use self::{
    entry::{Next, next, standing},
    header::HEADER_BYTES,
};
use super::{
    LedgerError, deadline, note,
    opened::{Damage, FileId, PATIENCE, private_file},
    schema::SCHEMA_VERSION,
    task::Task,
};
use crate::{
    events::Hub,
    id::TaskId,
    model::status::Status,
    platform::{FileExt, FlockOperation, flock, look_at, look_of, replace},
    state::aside::{FileKind, set_aside_strange, strange},
};

/// How often a daybook is opened that is begun anew meanwhile.
const OPENS_MAX: u32 = 10;

/// A daybook that has grown by this much since it was begun is begun anew: each program that opens
/// it reads it whole.
const GROWN_BYTES: u64 = 256 * 1024;

/// The same for a program that runs one command: reading more than this takes longer than it may.
const GROWN_BYTES_BRIEFLY: u64 = 64 * 1024;

/// How somebody waits for the daybook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all.
    No,
    /// Until then.
    Until(Instant),
}

impl Wait {
    /// For as long as for the ledger.
    pub(super) fn patiently() -> Self {
        Self::Until(deadline())
    }
}

/// The daybook, as one process sees it.
#[derive(Debug)]
pub(super) struct Daybook {
    path: PathBuf,
    file: File,
    id: FileId,
    generation: Generation,
    /// Where what was carried over ends.
    carried: u64,
    /// Up to where its entries have been read.
    read: u64,
    /// Up to where they are known to be in the ledger.
    posted: u64,
    /// Whether the ledger knew this daybook when it was opened.
    known: bool,
    /// The tasks that are not over.
    open: HashMap<TaskId, Open>,
    /// The entries beyond that place, each with the place where it ends.
    pending: VecDeque<(u64, Arc<DaybookEntry>)>,
    /// The one that comes next, if its last entry says that all is in the ledger.
    next: Option<Generation>,
    /// Who is told what happens, while anybody wants to know.
    hub: Option<Arc<Hub>>,
    buffer: Vec<u8>,
}

/// A task that is not over.
#[derive(Debug)]
struct Open {
    start: Arc<DaybookEntry>,
    status: Status,
    /// Why it waits, if it does.
    reason: Option<String>,
}

impl Open {
    /// The task as it was registered; none if it does not read back.
    fn row(&self) -> Option<Cow<'_, Task>> {
        match &self.start.what {
            What::Start(start) => start.row(),
            _ => None,
        }
    }
}

/// Entries that are not in the ledger yet.
#[derive(Debug)]
pub(super) struct Batch {
    pub id: FileId,
    pub generation: Generation,
    pub entries: Vec<(u64, Arc<DaybookEntry>)>,
}

impl Daybook {
    /// Opens the daybook and reads it; none if there is none. `posted` is what the ledger says of
    /// it.
    pub(super) fn open(
        path: &Path,
        posted: impl Fn(&Generation) -> rusqlite::Result<Option<u64>>,
    ) -> Result<Option<Self>, LedgerError> {
        for _ in 1..OPENS_MAX {
            match Self::open_once(path, &posted) {
                // Whoever begins it anew holds the lock that was waited for.
                Err(LedgerError::Replaced) => {}
                opened => return opened,
            }
        }
        Self::open_once(path, &posted)
    }

    fn open_once(
        path: &Path,
        posted: impl Fn(&Generation) -> rusqlite::Result<Option<u64>>,
    ) -> Result<Option<Self>, LedgerError> {
        let Some(mut book) = Self::unread(path)? else { return Ok(None) };
        let posted = posted(&book.generation)?;
        (book.known, book.posted) = (posted.is_some(), posted.unwrap_or(book.posted));
        book.locked(Wait::Until(Instant::now() + PATIENCE), |_| Ok(()))?;
        Ok(Some(book))
    }

    /// What can be read of a daybook that nobody writes to meanwhile, as if nothing of it were
    /// posted.
    pub(super) fn readable(path: &Path) -> Option<Self> {
        let mut book = Self::unread(path).ok().flatten()?;
        // What was read before stays, whatever is wrong with the rest.
        let _ = book.read_to_end();
        Some(book)
    }

    fn unread(path: &Path) -> Result<Option<Self>, LedgerError> {
        if let Some(problem) = strange(path, FileKind::File) {
            return Err(damaged(&format!("it {problem}")));
        }
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = look_of(&file)?;
        // As after a power cut.
        if found.bytes == 0 {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        let read = file.read_exact_at(&mut header, 0).ok().and_then(|()| header::read(&header));
        let (generation, carried) = read.ok_or_else(|| damaged("its first bytes"))?;
        Ok(Some(Self {
            path: path.to_owned(),
            id: FileId::from(found),
            file,
            generation,
            carried,
            read: HEADER_BYTES as u64,
            // What was carried over is in the ledger, unless the power was cut.
            posted: HEADER_BYTES as u64,
            known: false,
            open: HashMap::new(),
            pending: VecDeque::new(),
            next: None,
            hub: None,
            buffer: Vec::new(),
        }))
    }

    /// Begins a daybook with these open tasks, in the place of any that is there.
    pub(super) fn begin(
        path: &Path,
        generation: Generation,
        open: Vec<Task>,
    ) -> Result<(), LedgerError> {
        let mut bytes = vec![0; HEADER_BYTES];
        for task in open {
            let entry =
                |what| DaybookEntry { task: task.task_id.clone(), at_ms: task.updated_at_ms, what };
            let cancelling = (task.status == Status::Cancelling).then(|| entry(What::Cancelling));
            let standing = standing(&task).map(|standing| entry(What::Standing(standing)));
            let note = note::write(&task).into();
            let start = entry(What::Start(Start::new(Arc::new(task.clone()), note)));
            for entry in [start].into_iter().chain(cancelling).chain(standing) {
                entry.write(&mut bytes).ok_or_else(too_long)?;
            }
        }
        let header = header::write(generation, bytes.len() as u64);
        if let Some(place) = bytes.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        let new = path.with_extension("db-daybook.new");
        set_aside_strange(&new, FileKind::File)?;
        let file = private_file(&new)?;
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)?;
        Failpoint::EngineBeforeNewDaybook.pass();
        drop(file);
        replace(&new, path)?;
        Ok(())
    }

    /// One of the tasks that are known not to be over, other than these, which has this fingerprint
    /// and may be joined.
    pub(super) fn equal(&self, fingerprint: &[u8; 32], passed_over: &[TaskId]) -> Option<Task> {
        let others = self.open.iter().filter(|(task, _)| !passed_over.contains(task));
        others.map(|(_, open)| open).find_map(|open| {
            let What::Start(start) = &open.start.what else { return None };
            if start.fingerprint != *fingerprint || !open.status.may_be_joined() {
                return None;
            }
            let reason = open.reason.clone();
            start.row().map(|task| Task { status: open.status, reason, ..task.into_owned() })
        })
    }

    /// Takes the lock, sees what others have written, and does something with the page that is
    /// open.
    pub(super) fn locked<T>(
        &mut self,
        wait: Wait,
        work: impl FnOnce(&mut Page<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        lock(&self.file, wait)?;
        let done = self.read_on(true).and_then(|()| work(&mut Page { book: self }));
        let _ = flock(&self.file, FlockOperation::Unlock);
        done
    }

    /// Whether others must be asked for, or told, what is not in the ledger yet; entries that
    /// others have written meanwhile are seen.
    pub(super) fn is_behind(&mut self) -> Result<bool, LedgerError> {
        self.read_on(false)?;
        Ok(!self.pending.is_empty())
    }

    /// How many entries are not in the ledger.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many bytes these take.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.read.saturating_sub(self.posted)
    }

    /// What is to be posted.
    pub(super) fn batch(&self) -> Batch {
        let entries = self.pending.iter().cloned().collect();
        Batch { id: self.id, generation: self.generation, entries }
    }

    /// Takes everything in it for not posted, and reads it again, even if another daybook stands in
    /// its place.
    pub(super) fn everything(&mut self) -> Result<(), LedgerError> {
        self.posted = HEADER_BYTES as u64;
        self.read = self.posted;
        self.open.clear();
        self.pending.clear();
        // Whoever is told of what happens has heard of it.
        let hub = self.hub.take();
        let read = self.read_to_end();
        self.hub = hub;
        read
    }

    /// Reads what was written before another daybook came in its place.
    pub(super) fn read_to_end(&mut self) -> Result<(), LedgerError> {
        let end = self.file.metadata()?.len();
        self.read_to(end, false)
    }

    /// Notes that the ledger has this much.
    pub(super) fn posted(&mut self, batch: &Batch) {
        if let Some((end, _)) = batch.entries.last()
            && batch.generation == self.generation
        {
            self.posted_upto(*end);
        }
    }

    fn posted_upto(&mut self, end: u64) {
        self.posted = self.posted.max(end);
        let done = self.pending.partition_point(|(place, _)| *place <= end);
        self.pending.drain(..done);
    }

    /// Whether it should be begun anew, before or after a program that runs one command.
    pub(super) fn has_grown(&self, briefly: bool) -> bool {
        let grown = if briefly { GROWN_BYTES_BRIEFLY } else { GROWN_BYTES };
        self.read > self.carried.saturating_mul(2) + grown
    }

    /// Whether it is not the one that the ledger speaks of, or no longer holds all that the ledger
    /// says of it, as after a power cut.
    pub(super) fn is_strange(&self) -> bool {
        !self.known || self.posted > self.read
    }

    /// Whether the ledger was asked what it has of it, and knows it.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Whether another process's view, or an older one, is of this daybook.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.generation == other.generation
    }

    /// Learns what the ledger has of it from another view of it.
    pub(super) fn learn(&mut self, other: &Self) {
        self.known = other.known;
        self.posted_upto(other.posted);
    }

    /// Whether all that it has is in the ledger, by whomever it was posted.
    pub(super) fn is_closed(&self) -> bool {
        self.next.is_some()
    }

    /// Notes that the ledger knows it, and has what was carried over.
    pub(super) fn acknowledge(&mut self) {
        self.known = true;
        self.posted_upto(self.carried);
    }

    /// Which one it is, and where what was carried over ends.
    pub(super) fn beginning(&self) -> (Generation, u64) {
        (self.generation, self.carried)
    }

    /// Which one it is, and where it has been read to.
    pub(super) fn extent(&self) -> (Generation, u64) {
        (self.generation, self.read)
    }

    /// Reads what was written since; with the lock, what a writer has left half done is cut off.
    fn read_on(&mut self, locked: bool) -> Result<(), LedgerError> {
        let found = look_at(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LedgerError::Replaced,
            _ => error.into(),
        })?;
        if FileId::from(found) != self.id {
            return Err(LedgerError::Replaced);
        }
        let end = found.bytes;
        if end == self.read {
            return Ok(());
        }
        self.read_to(end, locked)
    }

    fn read_to(&mut self, end: u64, locked: bool) -> Result<(), LedgerError> {
        let unread = end.checked_sub(self.read).ok_or_else(|| damaged("what was there is gone"))?;
        let mut bytes = vec![0; usize::try_from(unread).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.read).map_err(|error| match error.kind() {
            // It was cut off meanwhile, because it was torn.
            io::ErrorKind::UnexpectedEof if !locked => LedgerError::Busy,
            _ => error.into(),
        })?;
        let mut rest = bytes.as_slice();
        loop {
            match next(rest) {
                Next::DaybookEntry(entry, length) => {
                    self.read += length as u64;
                    self.enter(Arc::new(entry));
                    rest = rest.get(length..).unwrap_or_default();
                }
                Next::Nothing if rest.is_empty() || !locked => return Ok(()),
                Next::Nothing => {
                    tracing::warn!(bytes = rest.len(), "an entry that was cut off is removed");
                    return Ok(self.file.set_len(self.read)?);
                }
                // Perhaps it was only being written: with the lock there is no doubt.
                Next::Damage if !locked => return Err(LedgerError::Busy),
                Next::Damage => return Err(damaged("an entry")),
                Next::Unknown => return Err(LedgerError::TooNew(SCHEMA_VERSION + 1)),
            }
        }
    }

    /// Takes note of an entry that ends where has been read to.
    fn enter(&mut self, entry: Arc<DaybookEntry>) {
        if self.hub.is_some() && self.read > self.carried {
            self.tell(&entry);
        }
        self.next = None;
        match &entry.what {
            What::Closed(next) => self.next = Some(*next),
            What::Start(_) => {
                let (start, status) = (entry.clone(), Status::Running);
                let open = Open { start, status, reason: None };
                self.open.insert(entry.task.clone(), open);
            }
            What::Cancelling => {
                if let Some(open) = self.open.get_mut(&entry.task) {
                    open.status = Status::Cancelling;
                }
            }
            What::Standing(standing) => {
                let open = self.open.get_mut(&entry.task);
                if let Some(open) = open.filter(|open| open.status.may_be_joined()) {
                    open.status = standing.status;
                    open.reason.clone_from(&standing.reason);
                }
            }
            What::TaskEnd(_) | What::Forget => drop(self.open.remove(&entry.task)),
            What::Anchor(_) => {}
        }
        if self.read > self.posted {
            self.pending.push_back((self.read, entry));
        }
    }
}

/// A name for a new daybook.
pub(super) fn new_generation() -> Result<Generation, LedgerError> {
    let mut generation = Generation::default();
    getrandom::fill(&mut generation).map_err(io::Error::other)?;
    Ok(generation)
}

/// Takes the lock of a daybook.
pub(super) fn lock(file: &File, wait: Wait) -> Result<(), LedgerError> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(error.into());
            }
            Err(_) if matches!(wait, Wait::Until(until) if Instant::now() < until) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return Err(LedgerError::Busy),
        }
    }
}

fn damaged(what: &str) -> LedgerError {
    LedgerError::Unsound(Damage::Daybook(what.to_owned()))
}

fn too_long() -> LedgerError {
    io::Error::other("an entry is too long for the daybook").into()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_daybook_that_is_begun_anew_while_it_is_opened_is_opened_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db-daybook");
        Daybook::begin(&path, [0; 16], Vec::new()).unwrap();
        let turns = Cell::new(0);
        let opened = Daybook::open(&path, |_| {
            // Between the file and its lock.
            if turns.replace(turns.get() + 1) < 2 {
                Daybook::begin(&path, [1; 16], Vec::new()).unwrap();
            }
            Ok(None)
        });
        let book = opened.unwrap().unwrap();
        assert_eq!(book.id, FileId::at(&path).unwrap());
        assert_eq!(turns.get(), 3);
    }
}
