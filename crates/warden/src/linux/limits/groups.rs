//! The cgroups that hold limits: the warden's own for the number of processes, a task's for its
//! memory.
//!
//! A warden enters the one that counts processes once, when it is forked, and each command inherits
//! it at no cost. Memory is another matter: there only the command's tree may be in it, or the
//! warden could be what the kernel kills.
//!
//! Moving a process makes the kernel wait for all processors, which takes milliseconds. A thread
//! that moves itself does not, and a process with one thread is moved by that all the same; but
//! only version 1 moves threads. In version 2 a warden is born where it belongs.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use super::places::LimitsPlace;
use crate::linux::cgroup::{self, Cgroup};

/// The file of version 1 by which a thread enters.
const THREADS: &str = "tasks";

/// The file of version 2 by which a process enters.
const PROCESSES: &str = "cgroup.procs";

/// The cgroup that counts the processes of a warden and its command.
#[derive(Debug)]
pub(in crate::linux) struct Pids {
    folder: PathBuf,
    /// Where to go before it is removed; none if it is the warden's cgroup of version 2.
    home: Option<PathBuf>,
    events: File,
    /// What `pids.max` is.
    max: Option<u64>,
    /// Refusals that were known before.
    refusals: u64,
}

impl Pids {
    /// Makes it, or takes the warden's cgroup of version 2 if that is where processes are counted.
    pub(in crate::linux) fn create(
        place: &LimitsPlace,
        warden: &str,
        cgroup: Option<&Cgroup>,
    ) -> io::Result<Self> {
        let (folder, home) = match (place, cgroup) {
            (LimitsPlace::First(base), _) => {
                let folder = base.join(cgroup::name_of(warden));
                fs::create_dir(&folder)?;
                (folder, Some(base.clone()))
            }
            (LimitsPlace::Second(_), Some(cgroup)) => (cgroup.path().to_owned(), None),
            (LimitsPlace::Second(_), None) => return Err(io::ErrorKind::NotFound.into()),
        };
        let events = open(&folder, "pids.events", false).inspect_err(|_| {
            if home.is_some() {
                let _ = fs::remove_dir(&folder);
            }
        })?;
        Ok(Self { folder, home, events, max: None, refusals: 0 })
    }

    /// Moves the calling process in, which has one thread, unless it was born there.
    pub(in crate::linux) fn enter(&self) -> io::Result<()> {
        match self.home {
            Some(_) => fs::write(self.folder.join(THREADS), "0"),
            None => Ok(()),
        }
    }

    /// Lets this many processes be, ours among them.
    pub(super) fn set(&mut self, max: Option<u64>) -> io::Result<()> {
        if self.max != max {
            fs::write(self.folder.join("pids.max"), value(max))?;
            self.max = max;
        }
        Ok(())
    }

    /// Whether a process was refused since this was last asked.
    pub(super) fn has_refused(&mut self) -> bool {
        let now = counter(&self.events, "max").unwrap_or(self.refusals);
        now > std::mem::replace(&mut self.refusals, now)
    }

    /// Leaves and removes it, where nobody else will.
    pub(in crate::linux) fn leave_and_remove(&self) {
        if let Some(home) = &self.home {
            let _ = fs::write(home.join(THREADS), "0");
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// The cgroup of one task, which only its command enters; dropping it removes it.
#[derive(Debug)]
pub(super) struct TaskGroup {
    folder: PathBuf,
    /// The file by which a process with one thread enters.
    door: &'static str,
    /// The file that counts what the kernel killed.
    kills: File,
    /// In version 2, the file that counts refused processes: the command is not among the warden's
    /// any more.
    refusals: Option<File>,
}

/// The limit of memory in version 2.
const MEMORY_MAX: &str = "memory.max";

impl TaskGroup {
    /// Makes it with its limits.
    pub(super) fn create(
        place: &LimitsPlace,
        warden: &str,
        memory_bytes_max: u64,
        processes_max: Option<u64>,
    ) -> io::Result<Self> {
        let (folder, kills, is_second) = match place {
            LimitsPlace::First(base) => {
                (base.join(cgroup::name_of(warden)), "memory.oom_control", false)
            }
            LimitsPlace::Second(base) => {
                (base.join(cgroup::name_of_task(warden)), "memory.events", true)
            }
        };
        fs::create_dir(&folder)?;
        let set = || {
            if is_second {
                set_second(&folder, memory_bytes_max, processes_max)
            } else {
                set_first(&folder, memory_bytes_max)
            }?;
            let refusals = if is_second { open(&folder, "pids.events", false).ok() } else { None };
            Ok((open(&folder, kills, false)?, refusals))
        };
        match set() {
            Ok((kills, refusals)) => {
                let door = if is_second { PROCESSES } else { THREADS };
                Ok(Self { folder, door, kills, refusals })
            }
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    /// Limits its memory anew.
    pub(super) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        if self.is_second() {
            fs::write(self.folder.join(MEMORY_MAX), bytes.to_string())
        } else {
            set_first(&self.folder, bytes)
        }
    }

    /// The file by which a process with one thread enters.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(open(&self.folder, self.door, true)?.into())
    }

    /// Whether the kernel has killed for memory in it.
    pub(super) fn has_killed(&self) -> bool {
        counter(&self.kills, "oom_kill").is_some_and(|kills| kills > 0)
    }

    /// Whether a process was refused in it.
    pub(super) fn has_refused(&self) -> bool {
        self.refusals.as_ref().and_then(|file| counter(file, "max")).is_some_and(|max| max > 0)
    }

    /// Memory of what is in it.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.number(if self.is_second() { "memory.current" } else { "memory.usage_in_bytes" })
    }

    /// Most memory that was in it at a time; kernels before 5.19 do not count that in version 2.
    pub(super) fn memory_peak_bytes(&self) -> Option<u64> {
        self.number(if self.is_second() { "memory.peak" } else { "memory.max_usage_in_bytes" })
    }

    fn is_second(&self) -> bool {
        self.door == PROCESSES
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    /// Time on processors of what is in it, where that is not in the warden's cgroup.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        self.refusals.as_ref()?;
        cpu_time(&open(&self.folder, "cpu.stat", false).ok()?)
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        // One that still has members stays, and is swept when they are gone.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn set_first(folder: &Path, memory_bytes_max: u64) -> io::Result<()> {
    let value = memory_bytes_max.to_string();
    fs::write(folder.join("memory.limit_in_bytes"), &value)?;
    // Memory and swap together; a kernel without that has no swap to limit.
    let with_swap = folder.join("memory.memsw.limit_in_bytes");
    if fs::exists(&with_swap)? { fs::write(with_swap, value) } else { Ok(()) }
}

fn set_second(folder: &Path, memory_bytes_max: u64, processes_max: Option<u64>) -> io::Result<()> {
    fs::write(folder.join(MEMORY_MAX), memory_bytes_max.to_string())?;
    // All or nothing: half a tree is of no use to anybody.
    fs::write(folder.join("memory.oom.group"), "1")?;
    let swap = folder.join("memory.swap.max");
    if fs::exists(&swap)? {
        fs::write(swap, "0")?;
    }
    match processes_max {
        Some(_) => fs::write(folder.join("pids.max"), value(processes_max)),
        None => Ok(()),
    }
}

/// A limit as the kernel reads it.
fn value(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max".into(), |limit| limit.to_string())
}

fn open(folder: &Path, name: &str, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(!write).write(write).custom_flags(libc::O_CLOEXEC).open(folder.join(name))
}

/// The number behind a name in a file of such lines.
fn counter(file: &File, name: &str) -> Option<u64> {
    let mut buffer = [0; 512];
    let read = file.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Time on processors, from a file `cpu.stat`.
pub(super) fn cpu_time(stat: &File) -> Option<Duration> {
    counter(stat, "usage_usec").map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), "oom 5\noom_kill_disable 1\noom_kill 3\nmax 9\n")
            .unwrap();
        let file = open(folder.path(), "x", false).unwrap();
        assert_eq!(counter(&file, "oom_kill"), Some(3));
        assert_eq!(counter(&file, "oom"), Some(5));
        assert_eq!(counter(&file, "kill"), None);
    }

    #[test]
    fn the_files_of_version_2_get_the_limits() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path();
        fs::write(folder.join("memory.swap.max"), "max").unwrap();
        set_second(folder, 1000, Some(7)).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(["memory.max", "memory.oom.group"].map(read), ["1000", "1"]);
        assert_eq!(["memory.swap.max", "pids.max"].map(read), ["0", "7"]);
    }
}
