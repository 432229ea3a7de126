//! Measures the processor time of a whole process tree, no more often than the limit could have
//! been reached.

use std::{
    fs::File,
    mem::MaybeUninit,
    time::{Duration, Instant},
};

use super::groups::{TaskGroup, cpu_time};
use crate::linux::tree;

/// The shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Watches the processor time of one command and all its descendants.
///
/// The warden's cgroup knows it exactly. Without one it is what ended children have left and what
/// live ones show; only what a process ignores of its own children is not in there.
#[derive(Debug)]
pub(super) struct CpuWatch {
    limit: Duration,
    /// The `cpu.stat` of the warden's cgroup: its own time and the tree's.
    stat: Option<File>,
    before: Duration,
    processors: u32,
    pub look_at: Instant,
}

impl CpuWatch {
    /// Begins before the command does.
    pub(super) fn begin(limit: Duration, stat: Option<File>) -> Self {
        let stat = stat.filter(|stat| cpu_time(stat).is_some());
        let processors = processors();
        let look_at = Instant::now() + pause(limit, processors);
        let mut watch = Self { limit, stat, before: Duration::ZERO, processors, look_at };
        watch.before = watch.counted(None);
        watch
    }

    /// Looks, and says whether the limit is reached; the next look is due when it could be.
    pub(super) fn is_over(&mut self, now: Instant, group: Option<&TaskGroup>) -> bool {
        let left = self.limit.saturating_sub(self.spent(group));
        self.look_at = now + pause(left, self.processors);
        left.is_zero()
    }

    /// What the tree has used.
    pub(super) fn spent(&self, group: Option<&TaskGroup>) -> Duration {
        self.counted(group).saturating_sub(self.before)
    }

    /// Whether it is known to have used up what it may.
    pub(super) fn is_spent(&self, group: Option<&TaskGroup>) -> bool {
        self.spent(group) >= self.limit
    }

    fn counted(&self, group: Option<&TaskGroup>) -> Duration {
        match self.stat.as_ref().and_then(cpu_time) {
            Some(all) => {
                let elsewhere = group.and_then(TaskGroup::cpu_time).unwrap_or_default();
                all.saturating_sub(used(libc::RUSAGE_SELF)) + elsewhere
            }
            None => used(libc::RUSAGE_CHILDREN) + tree::cpu_time(),
        }
    }
}

/// As long as it takes at least to use up what is left.
fn pause(left: Duration, processors: u32) -> Duration {
    (left / processors).clamp(PAUSE_MIN, PAUSE_MAX)
}

fn processors() -> u32 {
    // SAFETY: only asks for a number.
    let known = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(known).unwrap_or(1).max(1)
}

/// Time on processors, of this process or of its collected children.
fn used(whose: libc::c_int) -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `rusage` is plain data for which zero is valid, and the pointer is to a local.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_utime, usage.ru_stime]
        .map(|time| {
            let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
            seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        })
        .iter()
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_at_no_sooner_than_the_time_could_be_used_up() {
        assert_eq!(pause(Duration::from_secs(8), 4), Duration::from_secs(2));
        assert_eq!(pause(Duration::from_millis(8), 4), PAUSE_MIN);
        assert_eq!(pause(Duration::from_secs(1 << 40), 1), PAUSE_MAX);
    }
}
