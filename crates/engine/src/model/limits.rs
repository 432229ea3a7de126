//! The limits of tasks: what is configured, and what a request asks for; the lower one holds.

use legwork_warden::protocol::Limits;
use serde::Deserialize;

/// Processes and threads of a task, unless it is configured: more than honest work needs, and few
/// enough for a machine to bear.
const PROCESSES_MAX: u64 = 4096;

/// Output that is kept of a task, unless it is configured.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// The limits that hold for every task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// Wall-clock limit.
    pub wall_ms_max: Option<u64>,
    /// What else it may use.
    pub limits: Limits,
}

impl Default for TaskLimits {
    fn default() -> Self {
        let limits = Limits {
            processes_max: Some(PROCESSES_MAX),
            output_bytes_max: Some(OUTPUT_BYTES_MAX),
            ..Limits::default()
        };
        Self { wall_ms_max: None, limits }
    }
}

/// The section of a configuration.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Section {
    wall_ms_max: Option<u64>,
    cpu_ms_max: Option<u64>,
    processes_max: Option<u64>,
    memory_bytes_max: Option<u64>,
    open_files_max: Option<u64>,
    file_bytes_max: Option<u64>,
    output_bytes_max: Option<u64>,
    disk_free_bytes_min: Option<u64>,
    /// Of all tasks together.
    pub(crate) tasks_max: Option<u64>,
}

impl Section {
    fn limits(&self) -> Limits {
        Limits {
            cpu_ms_max: self.cpu_ms_max,
            processes_max: self.processes_max,
            memory_bytes_max: self.memory_bytes_max,
            open_files_max: self.open_files_max,
            file_bytes_max: self.file_bytes_max,
            output_bytes_max: self.output_bytes_max,
            disk_free_bytes_min: self.disk_free_bytes_min,
        }
    }

    /// What is said here takes the place of what was said before.
    pub(crate) fn over(&self, before: &TaskLimits) -> TaskLimits {
        let (new, old) = (self.limits(), &before.limits);
        TaskLimits {
            wall_ms_max: self.wall_ms_max.or(before.wall_ms_max),
            limits: both(&new, old, Option::or, Option::or),
        }
    }

    /// What is said here counts only where it is tighter than what was said before.
    pub(crate) fn tightening(&self, before: &TaskLimits) -> TaskLimits {
        TaskLimits {
            wall_ms_max: lower(self.wall_ms_max, before.wall_ms_max),
            limits: tighter(&self.limits(), &before.limits),
        }
    }
}

/// The lower one of two limits.
pub(crate) fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// The tighter one of each limit.
pub(crate) fn tighter(one: &Limits, other: &Limits) -> Limits {
    both(one, other, lower, Option::max)
}

type Choice = fn(Option<u64>, Option<u64>) -> Option<u64>;

/// Puts two together, by one rule for what may be used and another for what is left free.
fn both(one: &Limits, other: &Limits, most: Choice, least: Choice) -> Limits {
    Limits {
        cpu_ms_max: most(one.cpu_ms_max, other.cpu_ms_max),
        processes_max: most(one.processes_max, other.processes_max),
        memory_bytes_max: most(one.memory_bytes_max, other.memory_bytes_max),
        open_files_max: most(one.open_files_max, other.open_files_max),
        file_bytes_max: most(one.file_bytes_max, other.file_bytes_max),
        output_bytes_max: most(one.output_bytes_max, other.output_bytes_max),
        disk_free_bytes_min: least(one.disk_free_bytes_min, other.disk_free_bytes_min),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_can_lower_a_limit_and_not_raise_it() {
        let configured =
            Limits { cpu_ms_max: Some(10), processes_max: Some(5), ..Limits::default() };
        let asked = Limits {
            cpu_ms_max: Some(20),
            processes_max: Some(3),
            memory_bytes_max: Some(7),
            ..Limits::default()
        };
        let Limits { cpu_ms_max, processes_max, memory_bytes_max, .. } =
            tighter(&asked, &configured);
        assert_eq!((cpu_ms_max, processes_max, memory_bytes_max), (Some(10), Some(3), Some(7)));
    }
}
