//! The processes that use a state folder: each of ours holds one of its folders open.

use std::{
    collections::HashSet,
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, getppid, getuid, pidfd_open, pidfd_send_signal};

use crate::render::say;

/// The time that each kind may take to end, until it is killed, and until that is given up.
const PATIENCE: Duration = Duration::from_secs(15);
const KILLED: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// How long nobody wonders what is waited for.
const QUIET: Duration = Duration::from_secs(1);

/// A process that uses the state folder.
#[derive(Debug)]
pub(super) struct Using {
    pid: Pid,
    kind: Kind,
    /// The words it was started with, or the task that it supervises.
    what: String,
    /// True for this program, false for one that embeds the library.
    pub is_ours: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Server,
    Warden,
    Spawner,
}

impl fmt::Display for Using {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid.as_raw_nonzero();
        match self.kind {
            Kind::Server => write!(formatter, "`{}` (process {pid})", self.what),
            Kind::Warden if self.what.is_empty() => {
                write!(formatter, "an idle supervisor (process {pid})")
            }
            Kind::Warden => write!(formatter, "the task {} (process {pid})", self.what),
            Kind::Spawner => write!(formatter, "what starts supervisors (process {pid})"),
        }
    }
}

impl Using {
    /// True if it is no server and has no task.
    pub(super) fn is_helper(&self) -> bool {
        self.is_ours && self.kind != Kind::Server && self.what.is_empty()
    }

    /// True if we are a descendant of it.
    pub(super) fn is_above_us(&self) -> bool {
        let mut above = getppid();
        while let Some(pid) = above {
            if pid == self.pid {
                return true;
            }
            above = parent(pid);
        }
        false
    }
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let number = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Pid::from_raw(number)
}

/// The processes of this user that use a state folder.
pub(super) fn using(state: &Path) -> Vec<Using> {
    let number = |name: &str| {
        let found = fs::metadata(state.join(name)).ok()?;
        Some((found.dev(), found.ino()))
    };
    let folders: HashSet<(u64, u64)> =
        ["tasks", "wardens"].into_iter().filter_map(number).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let is_own = entry.metadata().is_ok_and(|it| it.uid() == getuid().as_raw());
        (is_own && Some(pid) != Pid::from_raw(std::process::id().cast_signed())).then_some(pid)
    });
    let mut found: Vec<Using> = pids.filter_map(|pid| look(pid, &folders)).collect();
    found.sort_by_key(|process| process.pid.as_raw_nonzero());
    found
}

/// Looks at a process; none if it has none of these folders open.
fn look(pid: Pid, folders: &HashSet<(u64, u64)>) -> Option<Using> {
    let own = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let links: Vec<PathBuf> =
        fs::read_dir(own.join("fd")).ok()?.flatten().map(|entry| entry.path()).collect();
    let is_one = |link: &PathBuf| {
        let found = fs::metadata(link);
        found.is_ok_and(|it| it.is_dir() && folders.contains(&(it.dev(), it.ino())))
    };
    if !links.iter().any(is_one) {
        return None;
    }
    let name = fs::read_to_string(own.join("comm")).unwrap_or_default();
    let kind = match name.trim() {
        "legwork-warden" => Kind::Warden,
        "legwork-spawner" => Kind::Spawner,
        _ => Kind::Server,
    };
    let what = if kind == Kind::Server { arguments(&own) } else { task(&links) };
    Some(Using { pid, kind, what, is_ours: name.starts_with("legwork") })
}

/// The first words of a command line.
fn arguments(process: &Path) -> String {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&line).into_owned();
    let mut words = words.split('\0').filter(|word| !word.is_empty());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let line = words.take(2).fold(program, |line, word| format!("{line} {word}"));
    crate::render::one_line(&line, 40)
}

/// The task whose folder a supervisor has open.
fn task(links: &[PathBuf]) -> String {
    let name = |link: &PathBuf| {
        let target = fs::read_link(link).ok()?;
        let name = target.file_name()?.to_str()?;
        name.starts_with("t_").then(|| name.to_owned())
    };
    links.iter().find_map(name).unwrap_or_default()
}

/// Ends all of ours: servers, which start nothing more then; supervisors, each with its command and
/// all that it started; what is left. Those that do not end are returned.
pub(super) fn end(state: &Path) -> Vec<Using> {
    let rounds = [
        (Some(Kind::Server), Signal::TERM, PATIENCE),
        (Some(Kind::Warden), Signal::TERM, PATIENCE),
        (None, Signal::KILL, KILLED),
    ];
    for (kind, signal, patience) in rounds {
        let meant = || {
            let mut all = using(state);
            all.retain(|it| it.is_ours && kind.is_none_or(|kind| it.kind == kind));
            all
        };
        for process in meant() {
            send(&process, signal);
        }
        wait_for(meant, patience);
    }
    using(state)
}

/// Waits until there are none, and says for what where that takes long.
fn wait_for(left: impl Fn() -> Vec<Using>, patience: Duration) {
    let begin = Instant::now();
    let mut is_said = false;
    while begin.elapsed() < patience {
        let left = left();
        let Some(first) = left.first() else { return };
        if !is_said && begin.elapsed() > QUIET {
            let more = match left.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let most = patience.as_secs();
            say(&format!("legwork: waiting up to {most} s for {first}{more} to end"));
            is_said = true;
        }
        thread::sleep(PAUSE);
    }
}

/// Signals a process, and no other that got its number meanwhile. One that is halted goes on, so
/// that it can end.
fn send(process: &Using, signal: Signal) {
    let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
    let name = format!("/proc/{}/comm", process.pid.as_raw_nonzero());
    if fs::read_to_string(name).is_ok_and(|name| name.starts_with("legwork")) {
        // One that is gone needs none.
        let _ = pidfd_send_signal(&handle, signal);
        let _ = pidfd_send_signal(&handle, Signal::CONT);
    }
}
