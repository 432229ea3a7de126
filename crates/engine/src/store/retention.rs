//! Retention: tasks that are over are removed when they are old, or when all of them take too much room.
//!
//! The oldest go first, and never one that runs or has left processes behind. A task's folder is first given a
//! name that nobody looks for, then its row is removed, then the folder: wherever that is cut off, a task is there
//! as a whole or has lost its output as a whole, and the next clean-up finishes the work.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::{
    clock::now_ms,
    place::Place,
    state::{REMOVED, StateFolder},
    store::ledger::{History, LedgerError, OldTask, SET_ASIDE, private_file},
    store::usage::{folder_bytes, folder_sizes, ledger_bytes},
};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Tasks that are removed in one step.
const BATCH: usize = 64;

/// What is kept of tasks that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// For how long.
    pub days: u64,
    /// How much room the ledger and all folders may take.
    pub bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { days: 7, bytes_max: 10 << 30 }
    }
}

/// How much is done in one go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub time: Duration,
    /// Between two steps.
    pub pause: Duration,
}

impl Effort {
    /// Everything, now.
    pub(crate) const ALL: Self = Self { time: Duration::MAX, pause: Duration::ZERO };
    /// A little, beside other work; the rest is left for the next time.
    pub(crate) const QUIET: Self =
        Self { time: Duration::from_secs(20), pause: Duration::from_millis(20) };
}

/// What a clean-up removed, or would.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Whether nothing was touched.
    pub dry_run: bool,
    /// Tasks.
    pub tasks: u64,
    /// Their folders.
    pub folders: u64,
    /// What all of it took on the disk, about.
    pub bytes: u64,
    /// Folders without a row, which have one now.
    pub restored: u64,
    /// Sockets of wardens that are gone.
    pub sockets: u64,
    /// Questions that were over.
    pub approvals: u64,
    /// Temporary folders of workspaces.
    pub temporary_folders: u64,
    /// Damaged ledgers that were set aside.
    pub set_aside: u64,
    /// What the ledger and the folders take now.
    pub kept_bytes: u64,
}

/// Cleans up; none if another process is doing that.
pub(crate) fn collect(
    state: &Arc<StateFolder>,
    place: &Arc<dyn Place>,
    retention: Retention,
    effort: Effort,
    dry_run: bool,
) -> Result<Option<Collected>, LedgerError> {
    let lock = private_file(&state.path().join("gc.lock"))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let history = History::open(state.clone())?;
    let collected = Collected { dry_run, ..Collected::default() };
    let mut collection = Collection {
        state,
        place: &**place,
        history,
        cutoff_ms: cutoff(retention.days),
        bytes_max: retention.bytes_max,
        folders: HashMap::new(),
        pause: effort.pause,
        until: Instant::now().checked_add(effort.time),
        collected,
    };
    collection.run()?;
    Ok(Some(collection.collected))
}

/// What is older than this is removed.
fn cutoff(days: u64) -> i64 {
    now_ms().saturating_sub(i64::try_from(days.saturating_mul(DAY_MS)).unwrap_or(i64::MAX))
}

struct Collection<'a> {
    state: &'a StateFolder,
    place: &'a dyn Place,
    history: History,
    cutoff_ms: i64,
    bytes_max: u64,
    /// What each task's folder takes.
    folders: HashMap<String, u64>,
    pause: Duration,
    until: Option<Instant>,
    collected: Collected,
}

impl Collection<'_> {
    fn run(&mut self) -> Result<(), LedgerError> {
        if !self.collected.dry_run {
            self.remove_leftovers()?;
            self.collected.restored = self.history.restore()? as u64;
            self.collected.approvals = self.history.remove_approvals()?;
        }
        self.folders = folder_sizes(self.state)?;
        self.collected.kept_bytes = ledger_bytes(self.state) + self.folders.values().sum::<u64>();
        self.remove_tasks()?;
        if self.collected.tasks > 0 && !self.collected.dry_run {
            self.history.renew()?;
        }
        self.collected.sockets = self.place.clear_dead(self.collected.dry_run);
        self.remove_temporary();
        self.remove_set_aside();
        Ok(())
    }

    fn is_time_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Removes tasks, oldest first, until the rest is young and small enough.
    fn remove_tasks(&mut self) -> Result<(), LedgerError> {
        let mut beyond = i64::MIN;
        loop {
            let tasks = self.history.oldest(beyond, u32::try_from(BATCH).unwrap_or(u32::MAX))?;
            let Some(last) = tasks.last() else { return Ok(()) };
            beyond = last.sequence;
            // Whatever comes later was registered later.
            let all_young = last.created_at_ms >= self.cutoff_ms;
            let removed: Vec<OldTask> = tasks.into_iter().filter(|task| self.goes(task)).collect();
            self.remove(&removed)?;
            let is_small = self.collected.kept_bytes <= self.bytes_max;
            if (all_young && is_small) || self.is_time_up() {
                return Ok(());
            }
            std::thread::sleep(self.pause);
        }
    }

    /// Whether a task is to be removed; if so, it counts as removed.
    fn goes(&mut self, task: &OldTask) -> bool {
        let is_old = task.updated_at_ms < self.cutoff_ms;
        if !task.is_over || !(is_old || self.collected.kept_bytes > self.bytes_max) {
            return false;
        }
        // When in doubt they live.
        if task.left_something && self.place.is_alive(&task.warden).unwrap_or(true) {
            return false;
        }
        let folder = self.folders.get(task.task_id.as_str()).copied();
        let bytes = task.row_bytes + folder.unwrap_or(0);
        self.collected.tasks += 1;
        self.collected.folders += u64::from(folder.is_some());
        self.collected.bytes += bytes;
        self.collected.kept_bytes = self.collected.kept_bytes.saturating_sub(bytes);
        true
    }

    fn remove(&self, tasks: &[OldTask]) -> Result<(), LedgerError> {
        if self.collected.dry_run || tasks.is_empty() {
            return Ok(());
        }
        let all = self.state.path().join("tasks");
        let mut moved = Vec::new();
        for task in tasks {
            let new = all.join(format!("{REMOVED}{}", task.task_id));
            match fs::rename(all.join(task.task_id.as_str()), &new) {
                Ok(()) => moved.push(new),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.history.remove(tasks)?;
        for folder in moved {
            fs::remove_dir_all(folder)?;
        }
        Ok(())
    }

    /// Removes folders that an earlier clean-up was cut off at.
    fn remove_leftovers(&mut self) -> io::Result<()> {
        for path in entries(&self.state.path().join("tasks")) {
            if name(&path).starts_with(REMOVED) {
                self.collected.bytes += folder_bytes(&path);
                fs::remove_dir_all(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the temporary folders of workspaces in which nothing has changed for long.
    fn remove_temporary(&mut self) {
        for path in entries(&self.state.path().join("tmp")) {
            let newest = entries(&path).chain([path.clone()]).map(|path| age(&path)).min();
            if newest.is_some_and(|age| self.is_past(age)) {
                let removed = self.collected.dry_run || fs::remove_dir_all(&path).is_ok();
                self.collected.temporary_folders += u64::from(removed);
            }
        }
    }

    /// Removes damaged ledgers that were set aside long ago.
    fn remove_set_aside(&mut self) {
        let prefix = format!("ledger.db{SET_ASIDE}");
        for path in entries(self.state.path()) {
            let Some(at_ms) = name(&path).strip_prefix(&prefix) else { continue };
            let at_ms: String = at_ms.chars().take_while(char::is_ascii_digit).collect();
            if at_ms.parse().is_ok_and(|at_ms: i64| at_ms < self.cutoff_ms) && self.unlink(&path) {
                self.collected.set_aside += 1;
            }
        }
    }

    fn is_past(&self, age: Duration) -> bool {
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        now_ms().saturating_sub(age_ms) < self.cutoff_ms
    }

    fn unlink(&self, path: &Path) -> bool {
        self.collected.dry_run || fs::remove_file(path).is_ok()
    }
}

/// What is in a folder; nothing if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// How long ago a file was changed; nothing if that cannot be known.
fn age(path: &Path) -> Duration {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    changed.and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or_default()
}
