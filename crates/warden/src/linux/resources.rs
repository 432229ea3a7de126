//! Measures what a command uses: the kernel's account of each child that is collected, and of those
//! that live.

use std::{mem::MaybeUninit, time::Duration};

use rustix::process::Pid;

use super::tree;
use crate::{
    protocol::LiveResources,
    record::{CommandEnd, UsedResources},
};

/// A child that has ended and was collected.
#[derive(Debug)]
pub(super) struct CollectedChild {
    pub pid: Pid,
    pub end: CommandEnd,
    /// What it used, with all that it had collected itself.
    pub used: UsedResources,
}

/// Collects a child that has ended; none if all that are left run, an error if none is left.
///
/// The kernel hands out its account in the same call.
pub(super) fn collect_child() -> rustix::io::Result<Option<CollectedChild>> {
    let (mut status, mut account) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to locals, and `rusage` is plain data for which zero is valid.
    let (pid, account) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, account.as_mut_ptr());
        (pid, account.assume_init())
    };
    if pid < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ECHILD);
        return Err(rustix::io::Errno::from_raw_os_error(errno));
    }
    let end = if libc::WIFEXITED(status) {
        CommandEnd::Exited(libc::WEXITSTATUS(status))
    } else {
        CommandEnd::Signaled(libc::WTERMSIG(status))
    };
    let collected = |pid| CollectedChild { pid, end, used: used_resources(&account) };
    Ok(Pid::from_raw(pid).map(collected))
}

/// An account of the kernel in our units.
fn used_resources(account: &libc::rusage) -> UsedResources {
    UsedResources {
        user_us: microseconds(account.ru_utime),
        system_us: microseconds(account.ru_stime),
        // The kernel counts it in units of 1024 bytes.
        process_peak_bytes: u64::try_from(account.ru_maxrss).unwrap_or(0).saturating_mul(1024),
        tree_peak_bytes: None,
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    let [seconds, rest] = [time.tv_sec, time.tv_usec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000).saturating_add(rest)
}

impl UsedResources {
    /// Adds what another process of the tree used.
    pub(super) fn add(&mut self, other: &Self) {
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.process_peak_bytes = self.process_peak_bytes.max(other.process_peak_bytes);
    }

    /// What the tree uses at this moment: this has ended, and what lives is looked at, but what
    /// `ours` says is none of it.
    pub(super) fn with_living(&self, ours: impl Fn(u32) -> bool) -> LiveResources {
        let living = tree::resources(ours);
        let plus = |ended: u64, living: Duration| {
            ended.saturating_add(u64::try_from(living.as_micros()).unwrap_or(u64::MAX))
        };
        LiveResources {
            user_us: plus(self.user_us, living.user),
            system_us: plus(self.system_us, living.system),
            memory_bytes: living.memory_bytes,
            processes: living.processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_adds_up_and_the_biggest_process_stays() {
        let of = |user_us, process_peak_bytes| UsedResources {
            user_us,
            system_us: 1,
            process_peak_bytes,
            tree_peak_bytes: None,
        };
        let mut all = UsedResources::default();
        for one in [of(5, 300), of(u64::MAX, 200)] {
            all.add(&one);
        }
        assert_eq!((all.user_us, all.system_us, all.process_peak_bytes), (u64::MAX, 2, 300));
    }
}
