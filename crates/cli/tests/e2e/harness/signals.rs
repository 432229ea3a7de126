//! Signals that the run was started to ignore.

use tokio::signal::unix::{SignalKind, signal};

/// Highest number of a signal that is not one of real time.
const LAST: i32 = 31;

/// Catches every signal that this run was started to ignore, as `nohup` does it and a shell for
/// what it starts in the background. Here they still have no effect, but what the tests start has
/// them at their defaults: a handler, unlike a signal that is ignored, is not inherited.
pub fn catch_ignored() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The runtime is needed to install a handler, which then stays.
    let _inside = runtime.enter();
    let ignored = ignored("self");
    for number in (1..=LAST).filter(|number| ignored & (1 << (number - 1)) != 0) {
        // Rust itself ignores SIGPIPE, and lets children have its default.
        if number != rustix::process::Signal::PIPE.as_raw() {
            drop(signal(SignalKind::from_raw(number)).unwrap());
        }
    }
}

/// The signals that a process ignores, a bit for each.
pub fn ignored(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}
