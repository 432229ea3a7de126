//! When to look: the kernel tells of changes of the daybook; where it does not, it is looked every
//! second.
//!
//! - The daybook grows: entries were written.
//! - Its time is set ([`ring`]): somebody has committed a question or an answer.
//! - Somebody closes it: a process has ended, and perhaps was killed before it could do so.
//! - Another file comes under its name: it was begun anew, or the ledger rebuilt.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::super::rebuild::DAYBOOK;
use crate::{
    id::TaskId,
    inotify::{FileChange, Inotify, ReadFlags, WatchFlags},
    platform::touch,
    state::StateFolder,
};

/// How often to look where the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What may have changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// There are entries in the daybook.
    pub entries: bool,
    /// Questions were opened or answered.
    pub questions: bool,
    /// Tasks that have a folder now.
    pub folders: Vec<TaskId>,
    /// Watches that are over because a task has printed something.
    pub grown: Vec<i32>,
    /// Everything.
    pub all: bool,
}

/// The watch on the files of a ledger.
#[derive(Debug)]
pub(super) struct LedgerWatch {
    folder: PathBuf,
    daybook: PathBuf,
    tasks: PathBuf,
    told: Option<Told>,
    /// When to look if nothing is told.
    look_at: Instant,
}

/// What the kernel tells of.
#[derive(Debug)]
struct Told {
    inotify: Inotify,
    folder: i32,
    daybook: i32,
    tasks: Option<i32>,
}

impl LedgerWatch {
    pub(super) fn new(state: &StateFolder) -> Self {
        let mut watch = Self {
            folder: state.path().to_owned(),
            daybook: state.beside_ledger(DAYBOOK),
            tasks: state.path().join("tasks"),
            told: None,
            look_at: Instant::now(),
        };
        match watch.begin() {
            Ok(told) => watch.told = Some(told),
            // Where no system of this kind tells, that is as it should be.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(error) => tracing::warn!(%error, "changes are looked for every second"),
        }
        watch
    }

    /// Begins to be told; an error if the kernel does not.
    fn begin(&self) -> io::Result<Told> {
        let inotify = Inotify::new()?;
        let folder = inotify.add(&self.folder, FOLDER)?;
        let daybook = inotify.add(&self.daybook, DAYBOOK_CHANGES)?;
        let told = Told { inotify, folder, daybook, tasks: None };
        // There are filesystems of which nothing is told.
        ring(&self.daybook);
        if told.inotify.has_changes() {
            Ok(told)
        } else {
            Err(io::Error::other("the filesystem does not tell of changes"))
        }
    }

    /// Who tells, for other watches.
    pub(super) fn inotify(&self) -> Option<&Inotify> {
        self.told.as_ref().map(|told| &told.inotify)
    }

    /// Also tells of new folders of tasks, or no longer.
    pub(super) fn watch_tasks(&mut self, wanted: bool) {
        let Some(told) = &mut self.told else { return };
        match told.tasks {
            None if wanted => told.tasks = told.inotify.add(&self.tasks, TASKS_CHANGES).ok(),
            Some(watch) if !wanted => {
                told.inotify.remove(watch);
                told.tasks = None;
            }
            _ => {}
        }
    }

    /// Waits until something may have changed. Safe to cancel.
    pub(super) async fn changed(&mut self) -> Seen {
        let Some(told) = &self.told else {
            sleep_until(self.look_at).await;
            self.look_at = Instant::now() + LOOK_EVERY;
            return Seen { all: true, ..Seen::default() };
        };
        if let Err(error) = told.inotify.changed().await {
            return self.give_up(&error);
        }
        self.read()
    }

    fn read(&mut self) -> Seen {
        let Some(told) = &self.told else { return Seen::default() };
        let mut seen = Seen::default();
        let mut another = false;
        let read = told.inotify.read(|change| told.take(&change, &mut seen, &mut another));
        if let Err(error) = read {
            return self.give_up(&error);
        }
        if another && let Err(error) = self.watch_anew() {
            return self.give_up(&error);
        }
        seen.all |= another;
        seen
    }

    /// Other files stand under the names of those that are watched.
    fn watch_anew(&mut self) -> io::Result<()> {
        let Some(told) = &mut self.told else { return Ok(()) };
        // Between two of them there may be none: then another change tells of the next.
        match told.inotify.add(&self.daybook, DAYBOOK_CHANGES) {
            Ok(new) => replace(&told.inotify, &mut told.daybook, new),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn give_up(&mut self, error: &io::Error) -> Seen {
        tracing::warn!(%error, "changes are looked for every second");
        self.told = None;
        Seen { all: true, ..Seen::default() }
    }
}

/// The watch of another file takes the place of one.
fn replace(inotify: &Inotify, watch: &mut i32, new: i32) {
    if *watch != new {
        inotify.remove(*watch);
        *watch = new;
    }
}

impl Told {
    fn take(&self, change: &FileChange<'_>, seen: &mut Seen, another: &mut bool) {
        let Some(watch) = change.watch else {
            // Too much has changed to be told, perhaps also which files there are.
            *another = true;
            return;
        };
        let is = |flags: ReadFlags| change.flags.intersects(flags);
        if watch == self.daybook {
            seen.entries |= is(ReadFlags::MODIFY);
            seen.questions |= is(ReadFlags::ATTRIB | ReadFlags::CLOSE_WRITE);
        } else if watch == self.folder {
            *another |= change.name.is_some_and(|name| name.starts_with("ledger.db"));
        } else if Some(watch) == self.tasks {
            seen.folders.extend(change.name.and_then(TaskId::parse));
        } else if !is(ReadFlags::IGNORED) {
            seen.grown.push(watch);
        }
    }
}

const FOLDER: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::ONLYDIR);
const TASKS_CHANGES: WatchFlags = WatchFlags::CREATE.union(WatchFlags::ONLYDIR);
const DAYBOOK_CHANGES: WatchFlags =
    WatchFlags::MODIFY.union(WatchFlags::CLOSE_WRITE).union(WatchFlags::ATTRIB);

/// Tells all who watch a daybook that a question was opened or answered: its file is given the time
/// of now.
pub(super) fn ring(daybook: &Path) {
    if let Err(error) = touch(daybook) {
        tracing::warn!(%error, "nobody is told of a question");
    }
}
