//! The limits of a command: cgroups where they can be made, the kernel's limits of each process
//! besides.
//!
//! What is limited is the whole tree, so a cgroup is the right means for processes and memory, and
//! the only one that tells whether a limit was met. Where none can be made, the kernel's limits of
//! each process stand in as far as they go, and what that leaves open is reported. Processor time
//! is summed up by the warden; open files and file sizes are limits of each process by nature.

mod cpu;
mod groups;
mod places;

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::process::Pid;

use self::{cpu::CpuWatch, groups::TaskGroup};
use super::{cgroup::Cgroup, libcs::LimitNumber, spawner::Setup};
use crate::{
    protocol::{EndCause, Limits, StartFailure, StartStage},
    record::{CommandEnd, LimitsInForce},
};

pub(super) use self::{
    groups::Pids,
    places::{LimitsPlace, LimitsPlaces},
};

/// Processes of ours that are counted with a command's: the warden.
const OURS: u64 = 1;

/// The same with a sandbox: its init, and of the next one the init, the process in it, and who
/// makes that.
const OURS_SANDBOXED: u64 = 5;

/// Whether limits of whole trees can be held here.
pub fn probe() -> Result<(), String> {
    let places = LimitsPlaces::find();
    let name = format!("probe-{}", std::process::id());
    let named = |limit: &str, problem: String| format!("{limit}: {problem}");
    let processes = places.pids.as_ref().map_err(Clone::clone).and_then(|place| {
        let cgroup = places.of_wardens().and_then(|base| Cgroup::create(&base, &name).ok());
        let made = Pids::create(place, &name, cgroup.as_ref()).map(drop);
        if let Some(cgroup) = cgroup {
            cgroup.remove();
        }
        made.map_err(|error| error.to_string())
    });
    places.forget(&name);
    let memory = places.memory.as_ref().map_err(Clone::clone).and_then(|place| {
        TaskGroup::create(place, &name, u64::from(u32::MAX), None)
            .map(drop)
            .map_err(|error| error.to_string())
    });
    let problems: Vec<String> = [
        processes.map_err(|problem| named("processes_max", problem)).err(),
        memory.map_err(|problem| named("memory_bytes_max", problem)).err(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// What holds the limits of a warden's commands, one after the other.
#[derive(Debug)]
pub(super) struct Limiter<'a> {
    setup: &'a Setup,
    warden: &'a str,
    pids: Result<Pids, String>,
    /// The warden's cgroup of version 2.
    cgroup: Option<PathBuf>,
    /// How many processes and threads the user had when that was first of interest.
    user_tasks: Option<u64>,
}

/// Least memory of a cgroup until a sandboxed command has executed: more than its arguments may
/// take. Whoever is killed for memory before that takes the warden along, whose memory it uses.
const START_BYTES: u64 = 16 * 1024 * 1024;

/// What the child enters between its birth and its program, prepared so that it allocates nothing.
#[derive(Debug, Default)]
pub(super) struct PreparedLimits {
    entrance: Option<OwnedFd>,
    rlimits: Vec<(LimitNumber, libc::rlimit)>,
}

/// The limits of one run.
#[derive(Debug)]
pub(super) struct Held {
    limits: Limits,
    group: Option<TaskGroup>,
    /// Memory that counts once the command has executed.
    tighter: Option<u64>,
    cpu: Option<CpuWatch>,
    pub report: LimitsInForce,
}

/// What the kernel knows of a run that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LimitFindings {
    pub ended_by: Option<EndCause>,
    pub process_limit_hit: bool,
    pub oom_killed: bool,
}

impl<'a> Limiter<'a> {
    /// Enters the cgroup that counts processes, if there is one.
    pub(super) fn new(
        setup: &'a Setup,
        warden: &'a str,
        pids: Result<Pids, String>,
        cgroup: Option<&Cgroup>,
    ) -> Self {
        let pids = pids.and_then(|pids| match pids.enter() {
            Ok(()) => Ok(pids),
            Err(error) => Err(error.to_string()),
        });
        let cgroup = cgroup.map(|cgroup| cgroup.path().to_owned());
        Self { setup, warden, pids, cgroup, user_tasks: None }
    }

    /// Makes ready what a command with these limits needs, in a sandbox or not.
    pub(super) fn prepare(&mut self, limits: &Limits, sandboxed: bool) -> (PreparedLimits, Held) {
        let mut prepared = PreparedLimits::default();
        let mut report = LimitsInForce::default();
        let (mut group, mut tighter) = (None, None);
        let ours = if sandboxed { OURS_SANDBOXED } else { OURS };
        self.limit_processes(limits, ours, &mut prepared, &mut report);
        if let Some(bytes) = limits.memory_bytes_max {
            let first = if sandboxed { bytes.max(START_BYTES) } else { bytes };
            match self.limit_memory(first, limits.processes_max) {
                Ok((entrance, made)) => {
                    report.cgroup_limits = true;
                    prepared.entrance = Some(entrance);
                    group = Some(made);
                    tighter = (bytes < first).then_some(bytes);
                }
                Err(problem) => limit_address_space(bytes, &problem, &mut prepared, &mut report),
            }
        }
        let open_files = self.setup.open_files;
        let most = limits.open_files_max.map(|most| most.min(open_files.current.unwrap_or(most)));
        prepared.add(libc::RLIMIT_NOFILE, most);
        prepared.add(libc::RLIMIT_FSIZE, limits.file_bytes_max);
        // The warden, who knows the whole tree, comes first; this holds even if somebody stops it.
        let cpu_seconds = limits.cpu_ms_max.map(|limit| limit.div_ceil(1000).saturating_add(1));
        prepared.add(libc::RLIMIT_CPU, cpu_seconds);
        report.rlimits = !prepared.rlimits.is_empty();
        let cpu = limits.cpu_ms_max.map(|limit| self.watch_cpu(limit));
        (prepared, Held { limits: *limits, group, tighter, cpu, report })
    }

    /// The same without the cgroup that could not be entered.
    pub(super) fn prepare_without_group(
        &mut self,
        limits: &Limits,
        sandboxed: bool,
        errno: i32,
    ) -> (PreparedLimits, Held) {
        let without = Limits { memory_bytes_max: None, ..*limits };
        let (mut prepared, mut held) = self.prepare(&without, sandboxed);
        let problem = io::Error::from_raw_os_error(errno).to_string();
        let bytes = limits.memory_bytes_max.unwrap_or(u64::MAX);
        limit_address_space(bytes, &problem, &mut prepared, &mut held.report);
        held.report.rlimits = true;
        (prepared, held)
    }

    fn limit_processes(
        &mut self,
        limits: &Limits,
        ours: u64,
        prepared: &mut PreparedLimits,
        report: &mut LimitsInForce,
    ) {
        let most = limits.processes_max.map(|most| most.saturating_add(ours));
        let set = match &mut self.pids {
            Ok(pids) => pids.set(most).map_err(|error| error.to_string()),
            Err(problem) => Err(problem.clone()),
        };
        let Some(processes) = limits.processes_max else { return };
        let Err(problem) = set else {
            report.cgroup_limits = true;
            return;
        };
        if rustix::process::geteuid().is_root() {
            let without = "the limit of a user's processes does not hold root";
            report.missing.push(format!("processes_max: {problem}; {without}"));
            return;
        }
        let present = *self.user_tasks.get_or_insert_with(user_tasks);
        prepared.add(libc::RLIMIT_NPROC, Some(beside_others(processes, present)));
        let instead = "all processes of the user are counted instead of the command's";
        report.missing.push(format!("processes_max: {problem}; {instead}"));
    }

    fn limit_memory(
        &self,
        bytes: u64,
        processes_max: Option<u64>,
    ) -> Result<(OwnedFd, TaskGroup), String> {
        let place = self.setup.places.memory.as_ref().map_err(Clone::clone)?;
        TaskGroup::create(place, self.warden, bytes, processes_max)
            .and_then(|group| Ok((group.entrance()?, group)))
            .map_err(|error| error.to_string())
    }

    fn watch_cpu(&self, limit_ms: u64) -> CpuWatch {
        let stat = self.cgroup.as_ref().and_then(|path| File::open(path.join("cpu.stat")).ok());
        CpuWatch::begin(Duration::from_millis(limit_ms), stat)
    }

    /// What the kernel knows of a run whose command has ended like this.
    pub(super) fn found(&mut self, held: &Held, end: CommandEnd) -> LimitFindings {
        let refused = self.pids.as_mut().is_ok_and(Pids::has_refused);
        let group = held.group.as_ref();
        let oom_killed = group.is_some_and(TaskGroup::has_killed);
        let ended_by = match end {
            CommandEnd::Exited(0) => None,
            _ if oom_killed => Some(EndCause::OomKilled),
            CommandEnd::Signaled(libc::SIGXFSZ) if held.limits.file_bytes_max.is_some() => {
                Some(EndCause::FileSizeLimit)
            }
            CommandEnd::Signaled(libc::SIGXCPU | libc::SIGKILL)
                if held.cpu.as_ref().is_some_and(|cpu| cpu.is_spent(group)) =>
            {
                Some(EndCause::CpuLimit)
            }
            _ => None,
        };
        let refused = refused || group.is_some_and(TaskGroup::has_refused);
        let process_limit_hit = refused && held.limits.processes_max.is_some();
        LimitFindings { ended_by, process_limit_hit, oom_killed }
    }

    /// Leaves and removes what nobody else will.
    pub(super) fn leave(&self) {
        if let Ok(pids) = &self.pids {
            pids.leave_and_remove();
        }
    }
}

impl PreparedLimits {
    /// Whether the child is to enter a cgroup.
    pub(super) fn enters_group(&self) -> bool {
        self.entrance.is_some()
    }

    /// Lets a process that is there already enter the cgroup, if there is one.
    pub(super) fn enter_as(&self, pid: Pid) -> Result<(), StartFailure> {
        let Some(entrance) = &self.entrance else { return Ok(()) };
        let number = pid.as_raw_pid().to_string();
        rustix::io::write(entrance, number.as_bytes()).map(drop).map_err(|errno| StartFailure {
            stage: StartStage::Limits,
            errno: errno.raw_os_error(),
        })
    }

    /// The same for a process that has entered the cgroup already.
    pub(super) fn once_entered(&self) -> Self {
        Self { entrance: None, rlimits: self.rlimits.clone() }
    }

    /// Lowers a limit of each process; one that is lower already stays.
    fn add(&mut self, resource: LimitNumber, limit: Option<u64>) {
        let Some(limit) = limit else { return };
        let mut now = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the pointer is to a local.
        unsafe { libc::getrlimit(resource, &raw mut now) };
        let lowered =
            libc::rlimit { rlim_cur: now.rlim_cur.min(limit), rlim_max: now.rlim_max.min(limit) };
        self.rlimits.push((resource, lowered));
    }
}

/// Enters the limits; an error is that of the system call.
///
/// # Safety
///
/// Called in a child that shares the warden's memory: it makes system calls only, and `prepared`
/// must outlive the call.
pub(super) unsafe fn apply(prepared: &PreparedLimits) -> Result<(), libc::c_int> {
    // SAFETY: valid descriptors and pointers, all of `prepared`.
    unsafe {
        if let Some(entrance) = &prepared.entrance
            && libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1
        {
            return Err(last_errno());
        }
        for (resource, limit) in &prepared.rlimits {
            if libc::setrlimit(*resource, &raw const *limit) != 0 {
                return Err(last_errno());
            }
        }
    }
    Ok(())
}

fn last_errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Held {
    /// The command has executed: its own limit of memory counts from here on.
    pub(super) fn tighten(&mut self) {
        let Some((bytes, group)) = self.tighter.take().zip(self.group.as_ref()) else { return };
        if let Err(error) = group.limit_memory(bytes) {
            self.report.missing.push(format!("memory_bytes_max: {error}"));
        }
    }

    /// When the processor time is to be looked at again.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.cpu.as_ref().map(|cpu| cpu.look_at)
    }

    /// Memory that the tree has now, where a cgroup counts it.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.group.as_ref().and_then(TaskGroup::memory_bytes)
    }

    /// Most memory that the tree had at a time, where a cgroup counts it.
    pub(super) fn memory_peak_bytes(&self) -> Option<u64> {
        self.group.as_ref().and_then(TaskGroup::memory_peak_bytes)
    }

    /// Whether the processor time is used up, as far as that is due to be known.
    pub(super) fn is_out_of_time(&mut self, now: Instant) -> bool {
        let group = self.group.as_ref();
        self.cpu.as_mut().is_some_and(|cpu| now >= cpu.look_at && cpu.is_over(now, group))
    }
}

/// Without a cgroup for it, memory is limited by what each process may address.
fn limit_address_space(
    bytes: u64,
    problem: &str,
    prepared: &mut PreparedLimits,
    report: &mut LimitsInForce,
) {
    prepared.add(libc::RLIMIT_AS, Some(bytes));
    let instead = "each process is held to it by its addresses, not the tree by its memory";
    report.missing.push(format!("memory_bytes_max: {problem}; {instead}"));
}

/// The limit of a command where the kernel counts all processes of the user: those that are there
/// already must not be in the way. They come and go, and two commands that differ in nothing else
/// should find the same limit (`ulimit -u`), so it is rounded up by at most a quarter.
fn beside_others(processes: u64, present: u64) -> u64 {
    let step = (processes / 4).max(1);
    present.saturating_add(processes).div_ceil(step).saturating_mul(step)
}

/// Processes and threads of this user.
fn user_tasks() -> u64 {
    let user = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let own = processes.filter(|process| {
        let is_number = process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_number && process.metadata().is_ok_and(|data| data.uid() == user)
    });
    own.map(|process| fs::read_dir(process.path().join("task")).map_or(1, Iterator::count))
        .map(|count| count as u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::beside_others;

    #[test]
    fn the_limit_of_a_users_processes_does_not_follow_each_of_them() {
        let usual: Vec<u64> = (3..=1000).map(|present| beside_others(4096, present)).collect();
        assert!(usual.iter().all(|limit| *limit == 5120), "{usual:?}");
        for (processes, present) in [(30, 7), (1, 0), (0, 12), (4096, 4096), (u64::MAX, 5)] {
            let room = beside_others(processes, present).saturating_sub(present);
            assert!(room >= processes.saturating_sub(present), "{processes} {present}: {room}");
            assert!(
                room <= processes.saturating_add(processes / 4),
                "{processes} {present}: {room}"
            );
        }
    }
}
