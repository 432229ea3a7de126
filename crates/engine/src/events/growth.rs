//! Growth of output, seen in the tasks' folders: told at once, and then a few times a second at
//! most.
//!
//! A watch is for one change. The folder of a task that prints all the time is looked at by the
//! clock until it pauses, and only then watched again; so neither a fast printer nor its reader
//! pays for every write.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use legwork_warden::folder::{Stream, TERMINAL};
use tokio::time::Instant;

use super::EventKind;
use crate::{
    id::TaskId,
    inotify::{Inotify, WatchFlags},
};

/// How long after a word about a task's output the next one comes at the earliest.
const EVERY: Duration = Duration::from_millis(300);

/// How often a folder is looked at that the kernel tells nothing of.
const UNTOLD_EVERY: Duration = Duration::from_secs(1);

/// Tasks that are watched at most; of more than these nobody can look at the output live.
const TASKS_MAX: usize = 4096;

/// The tasks whose output is looked at.
#[derive(Debug)]
pub(crate) struct Growth {
    folder: PathBuf,
    tasks: HashMap<TaskId, Growing>,
    watches: HashMap<i32, TaskId>,
}

/// A task whose output is looked at.
#[derive(Debug)]
struct Growing {
    /// What was told last, and when.
    told: (u64, u64),
    told_at: Option<Instant>,
    /// When it is to be looked at; none while the kernel tells of a change.
    due: Option<Instant>,
    watch: Option<i32>,
}

impl Growth {
    /// Looks at no task yet; this is the folder that has the tasks' folders.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, tasks: HashMap::new(), watches: HashMap::new() }
    }

    /// Looks at those of these tasks that have a folder: before, they print to nowhere that can be
    /// looked at.
    pub(crate) fn add<'a>(&mut self, tasks: impl Iterator<Item = &'a TaskId>, now: Instant) {
        for task in tasks {
            let is_new = !self.tasks.contains_key(task) && self.tasks.len() < TASKS_MAX;
            if !is_new || !self.folder.join(task.as_str()).is_dir() {
                continue;
            }
            let new = Growing { told: (0, 0), told_at: None, due: Some(now), watch: None };
            self.tasks.insert(task.clone(), new);
        }
    }

    /// Looks no longer at a task.
    pub(crate) fn remove(&mut self, task: &TaskId, inotify: Option<&Inotify>) {
        if let Some(watch) = self.tasks.remove(task).and_then(|growing| growing.watch) {
            self.watches.remove(&watch);
            if let Some(inotify) = inotify {
                inotify.remove(watch);
            }
        }
    }

    /// Looks no longer at those of which this is not so.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&TaskId) -> bool, inotify: Option<&Inotify>) {
        let gone: Vec<TaskId> = self.tasks.keys().filter(|task| !is_kept(task)).cloned().collect();
        for task in gone {
            self.remove(&task, inotify);
        }
    }

    /// These watches have told of a change, and are over.
    pub(crate) fn changed(&mut self, watches: &[i32], now: Instant) {
        for watch in watches {
            let task = self.watches.remove(watch);
            if let Some(growing) = task.and_then(|task| self.tasks.get_mut(&task)) {
                let earliest = growing.told_at.map_or(now, |told_at| now.max(told_at + EVERY));
                (growing.due, growing.watch) = (Some(earliest), None);
            }
        }
    }

    /// Anything may have changed.
    pub(crate) fn all_changed(&mut self, now: Instant) {
        for growing in self.tasks.values_mut() {
            growing.due = Some(now);
        }
    }

    /// When somebody is to be looked at again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.tasks.values().filter_map(|growing| growing.due).min()
    }

    /// Looks at those that are due, and tells what has grown.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        inotify: Option<&Inotify>,
        mut tell: impl FnMut(&TaskId, EventKind),
    ) {
        for (task, growing) in &mut self.tasks {
            if growing.due.is_none_or(|due| due > now) {
                continue;
            }
            let folder = self.folder.join(task.as_str());
            let mut total = totals(&folder);
            growing.due = Some(now + EVERY);
            if total == growing.told {
                if growing.watch.is_none() {
                    growing.watch = watch(&folder, inotify);
                    self.watches.extend(growing.watch.map(|watch| (watch, task.clone())));
                }
                growing.due = growing.watch.is_none().then(|| now + UNTOLD_EVERY);
                // It may have grown before the watch was there; the watch stays for what comes
                // then.
                total = totals(&folder);
            }
            if total != growing.told {
                (growing.told, growing.told_at) = (total, Some(now));
                let (stdout_bytes, stderr_bytes) = total;
                let task_id = task.clone();
                tell(task, EventKind::OutputGrew { task_id, stdout_bytes, stderr_bytes });
            }
        }
    }
}

/// Watches a folder for one change.
fn watch(folder: &Path, inotify: Option<&Inotify>) -> Option<i32> {
    let wanted =
        WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::ONESHOT | WatchFlags::ONLYDIR;
    inotify.and_then(|inotify| inotify.add(folder, wanted).ok())
}

/// How much a task has printed to stdout or its terminal, and to stderr.
fn totals(folder: &Path) -> (u64, u64) {
    let bytes = |name: &str| fs::metadata(folder.join(name)).map_or(0, |found| found.len());
    let stdout = bytes(Stream::Stdout.file_name()).max(bytes(TERMINAL));
    (stdout, bytes(Stream::Stderr.file_name()))
}
