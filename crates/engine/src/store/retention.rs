//! Retention: tasks that are over are removed when they are old, or when all of them take too much
//! room.
//!
//! The oldest go first, and never one that runs or has left processes behind. A task's folder is
//! first given a name that nobody looks for, then its row is removed, then the folder: wherever
//! that is cut off, a task is there as a whole or has lost its output as a whole, and the next
//! clean-up finishes the work. What is old is old by the wall clock, which is believed only so far
//! (`clock`).

mod clock;
mod record;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use serde::Serialize;

use self::{
    clock::Moment,
    record::{Record, Removed},
};
use crate::{
    clock::now_ms,
    id::TaskId,
    model::is_zero,
    place::Place,
    platform::{FlockOperation, flock},
    state::{
        REMOVED, StateFolder,
        aside::{remove, remove_all, set_aside_at_ms},
    },
    store::ledger::{History, LedgerError, OldTask, private_file},
    store::usage::{folder_bytes, folder_sizes, ledger_bytes},
    trial::{Trials, trial_bytes},
};

const DAY_MS: u64 = 24 * 3600 * 1000;
const HOUR_MS: i64 = 3600 * 1000;

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

/// What somebody wants who asks for a clean-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// Whether nothing is touched.
    pub dry_run: bool,
    /// Whether the wall clock is right, although it went ahead since the last clean-up.
    pub trust_clock: bool,
}

/// How a clean-up is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A little, beside other work; the rest is left for the next time.
    Quiet,
    /// Everything, now, for somebody who asked.
    Asked(CleanUp),
}

impl Manner {
    /// How much time it may take.
    fn time(self) -> Duration {
        match self {
            Self::Quiet => Duration::from_secs(20),
            Self::Asked(_) => Duration::MAX,
        }
    }

    /// How long it waits between two steps.
    fn pause(self) -> Duration {
        match self {
            Self::Quiet => Duration::from_millis(20),
            Self::Asked(_) => Duration::ZERO,
        }
    }

    fn is_dry(self) -> bool {
        matches!(self, Self::Asked(CleanUp { dry_run: true, .. }))
    }
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
    /// Trials whose tasks are removed, or that were never finished.
    #[serde(skip_serializing_if = "is_zero")]
    pub trials: u64,
    /// Temporary folders of workspaces.
    pub temporary_folders: u64,
    /// What was damaged and had been set aside.
    pub set_aside: u64,
    /// What the ledger and the folders take now.
    pub kept_bytes: u64,
    /// By how much the wall clock went ahead since the last clean-up, where it is not believed for
    /// that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// Tasks that are past their time by that clock, and stay.
    #[serde(skip_serializing_if = "is_zero")]
    pub kept_in_doubt: u64,
}

/// Cleans up; none if another process is doing that.
pub(crate) fn collect(
    state: &Arc<StateFolder>,
    place: &Arc<dyn Place>,
    retention: Retention,
    manner: Manner,
) -> Result<Option<Collected>, LedgerError> {
    let lock = private_file(&state.path().join("gc.lock"))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let history = History::open(state.clone())?;
    let mut record = Record::read(state);
    record.evidence.see(Moment::now(&place.boot_id()), history.newest()?);
    let doubt_ms = record.evidence.doubt_ms();
    let now_ms = match manner {
        Manner::Asked(CleanUp { trust_clock, .. }) if trust_clock || doubt_ms.is_none() => {
            Some(now_ms())
        }
        _ => record.evidence.agreed_ms(),
    };
    let mut collected = Collected { dry_run: manner.is_dry(), ..Collected::default() };
    if matches!(manner, Manner::Asked(CleanUp { trust_clock: false, .. })) {
        collected.clock_ahead_ms = doubt_ms;
    }
    let mut collection = Collection {
        state,
        place: &**place,
        history,
        record,
        manner,
        retention,
        now_ms,
        latest_ms: i64::MIN,
        folders: HashMap::new(),
        until: Instant::now().checked_add(manner.time()),
        collected,
    };
    let done = if manner.is_dry() { collection.look() } else { collection.run() };
    done.map(|()| Some(collection.collected))
}

/// What is older than this is past its time.
fn cutoff(now_ms: i64, days: u64) -> i64 {
    now_ms.saturating_sub(i64::try_from(days.saturating_mul(DAY_MS)).unwrap_or(i64::MAX))
}

struct Collection<'a> {
    state: &'a StateFolder,
    place: &'a dyn Place,
    history: History,
    record: Record,
    manner: Manner,
    retention: Retention,
    /// The time, as far as it is believed; without one nothing is old.
    now_ms: Option<i64>,
    /// When the latest of the tasks was registered that have been looked at.
    latest_ms: i64,
    /// What each task's folder takes.
    folders: HashMap<String, u64>,
    until: Option<Instant>,
    collected: Collected,
}

impl Collection<'_> {
    fn run(&mut self) -> Result<(), LedgerError> {
        // Of a clean-up that was cut off.
        self.record.note(self.state);
        self.remove_leftovers()?;
        self.collected.restored = self.history.restore()? as u64;
        if let Some(now_ms) = self.now_ms {
            self.collected.approvals = self.history.remove_approvals(now_ms)?;
        }
        let Retention { days, bytes_max } = self.retention;
        let asked = self.manner != Manner::Quiet;
        let unnoted = self.record.removed.take().unwrap_or_default();
        self.record.removed = Some(Removed { asked, days, bytes_max, ..unnoted });
        let removed = self.look();
        self.record.note(self.state);
        removed
    }

    /// Looks for what is past its time, and removes it, unless nothing is to be touched.
    fn look(&mut self) -> Result<(), LedgerError> {
        self.folders = folder_sizes(self.state)?;
        let folders: u64 = self.folders.values().sum();
        self.collected.kept_bytes = ledger_bytes(self.state) + folders;
        self.remove_tasks()?;
        if self.collected.tasks > 0 && !self.collected.dry_run {
            self.history.renew()?;
        }
        self.remove_trials();
        self.collected.sockets = self.place.clear_dead(self.collected.dry_run);
        self.remove_temporary();
        self.remove_set_aside();
        Ok(())
    }

    /// What is older than this is removed.
    fn cutoff_ms(&self) -> i64 {
        self.now_ms.map_or(i64::MIN, |now_ms| cutoff(now_ms, self.retention.days))
    }

    fn is_time_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Removes tasks, oldest first, until the rest is young and small enough.
    fn remove_tasks(&mut self) -> Result<(), LedgerError> {
        // Whoever asked is told of everything that is past its time.
        let young_ms = match self.collected.clock_ahead_ms {
            Some(_) => cutoff(now_ms(), self.retention.days),
            None => self.cutoff_ms(),
        };
        let mut beyond = i64::MIN;
        loop {
            let tasks = self.history.oldest(beyond, u32::try_from(BATCH).unwrap_or(u32::MAX))?;
            let Some(last) = tasks.last() else { return Ok(()) };
            beyond = last.sequence;
            let removed: Vec<OldTask> = tasks.into_iter().filter(|task| self.goes(task)).collect();
            self.remove(&removed)?;
            // Whatever comes later was registered later.
            let all_young = self.latest_ms >= young_ms;
            let is_small = self.collected.kept_bytes <= self.retention.bytes_max;
            if (all_young && is_small) || self.is_time_up() {
                return Ok(());
            }
            std::thread::sleep(self.manner.pause());
        }
    }

    /// Whether a task is to be removed; if so, it counts as removed.
    fn goes(&mut self, task: &OldTask) -> bool {
        // It came after all that were looked at before, whatever the clock said when it did.
        let changed_ms = task.updated_at_ms.max(self.latest_ms);
        if task.created_at_ms <= self.now_ms.unwrap_or_else(now_ms) {
            self.latest_ms = self.latest_ms.max(task.created_at_ms);
        }
        let is_old = changed_ms < self.cutoff_ms();
        let is_too_much = self.collected.kept_bytes > self.retention.bytes_max;
        if task.is_over && !is_old && self.collected.clock_ahead_ms.is_some() {
            let in_doubt = changed_ms < cutoff(now_ms(), self.retention.days);
            self.collected.kept_in_doubt += u64::from(in_doubt && !is_too_much);
        }
        if !task.is_over || !(is_old || is_too_much) {
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
        if let Some(removed) = &mut self.record.removed {
            removed.add(task.task_id.as_str(), is_old);
        }
        true
    }

    fn remove(&mut self, tasks: &[OldTask]) -> Result<(), LedgerError> {
        if self.collected.dry_run || tasks.is_empty() {
            return Ok(());
        }
        // If this is cut off, the next clean-up notes it.
        self.record.write(self.state);
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
        self.history.tell_removed(tasks);
        for folder in moved {
            remove_all(&folder)?;
        }
        Ok(())
    }

    /// Removes folders that an earlier clean-up was cut off at.
    fn remove_leftovers(&mut self) -> io::Result<()> {
        for path in entries(&self.state.path().join("tasks")) {
            if name(&path).starts_with(REMOVED) {
                self.collected.bytes += folder_bytes(&path);
                remove_all(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the trials of tasks that are gone, and then the oldest until the rest is small
    /// enough: what they changed is worth less than the records of what was done.
    fn remove_trials(&mut self) {
        let trials = Trials::of(self.state.path());
        let mut kept = Vec::new();
        for (name, path) in trials.names() {
            let task = TaskId::parse(&name).and_then(|id| self.history.find(&id).ok().flatten());
            let changed_ms = changed_ms(&path);
            // One that is being made has no task yet.
            let is_left = self.now_ms.is_some_and(|now_ms| changed_ms + HOUR_MS < now_ms);
            match task {
                None if is_left => self.remove_trial(&trials, &name),
                task => {
                    let is_over = task.is_some_and(|task| task.is_over && !task.left_something);
                    kept.push((changed_ms, name, is_over, trial_bytes(&path)));
                }
            }
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(.., bytes)| bytes).sum();
        for (_, name, _, own) in kept.iter().filter(|(_, _, is_over, _)| *is_over) {
            if bytes > self.retention.bytes_max {
                self.remove_trial(&trials, name);
                bytes = bytes.saturating_sub(*own);
            }
        }
    }

    fn remove_trial(&mut self, trials: &Trials, name: &str) {
        let removed = self.collected.dry_run || trials.remove_folder(name).is_ok();
        self.collected.trials += u64::from(removed);
    }

    /// Removes the temporary folders of workspaces in which nothing has changed for long.
    fn remove_temporary(&mut self) {
        for path in entries(&self.state.path().join("tmp")) {
            let newest = entries(&path).chain([path.clone()]).map(|path| changed_ms(&path)).max();
            if newest.is_some_and(|changed_ms| changed_ms < self.cutoff_ms()) {
                let removed = self.collected.dry_run || remove_all(&path).is_ok();
                self.collected.temporary_folders += u64::from(removed);
            }
        }
    }

    /// Removes what was damaged and set aside long ago.
    fn remove_set_aside(&mut self) {
        let recent = self.state.path().join("recent");
        for path in entries(self.state.path()).chain(entries(&recent)) {
            let is_old = set_aside_at_ms(name(&path)).is_some_and(|at_ms| at_ms < self.cutoff_ms());
            if is_old && self.unlink(&path) {
                self.collected.set_aside += 1;
            }
        }
    }

    fn unlink(&self, path: &Path) -> bool {
        self.collected.dry_run || remove(path).is_ok()
    }
}

/// What is in a folder; nothing if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// When a file was changed; now if that cannot be known.
fn changed_ms(path: &Path) -> i64 {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or_else(now_ms)
}
