//! Says what a command uses, or has used, in words for people.

use legwork::{
    LiveResources, Resources,
    gate::units::{shown_bytes, shown_ms},
};

/// What a command has used: `CPU 1.2s (1.0s user, 0.2s system), memory 310 MiB at most`.
pub(super) fn used(used: &Resources) -> String {
    let cpu = cpu(used.cpu_user_us, used.cpu_system_us);
    let memory = match used.tree_memory_peak_bytes {
        Some(tree) => format!("{} at most", shown_bytes(tree)),
        None => format!("{} at most in one process", shown_bytes(used.memory_peak_bytes)),
    };
    format!("{cpu}, memory {memory}")
}

/// What a command uses now: `CPU 1.2s (1.0s user, 0.2s system), memory 310 MiB, 3 processes`.
pub(super) fn uses(now: &LiveResources) -> String {
    let cpu = cpu(now.user_us, now.system_us);
    let processes = if now.processes == 1 { "process" } else { "processes" };
    format!("{cpu}, memory {}, {} {processes}", shown_bytes(now.memory_bytes), now.processes)
}

/// The first of these where there is little room: `CPU 1.2s, 310 MiB`.
#[cfg_attr(windows, expect(dead_code, reason = "`top` alone shows it, which is not there"))]
pub(super) fn used_briefly(used: &Resources) -> String {
    let memory = used.tree_memory_peak_bytes.unwrap_or(used.memory_peak_bytes);
    briefly(used.cpu_user_us + used.cpu_system_us, memory)
}

/// The second where there is little room.
#[cfg_attr(windows, expect(dead_code, reason = "`top` alone shows it, which is not there"))]
pub(super) fn uses_briefly(now: &LiveResources) -> String {
    briefly(now.user_us + now.system_us, now.memory_bytes)
}

fn briefly(cpu_us: u64, memory_bytes: u64) -> String {
    format!("CPU {}, {}", time(cpu_us), shown_bytes(memory_bytes))
}

fn cpu(user_us: u64, system_us: u64) -> String {
    let [all, user, system] = [user_us + system_us, user_us, system_us].map(time);
    format!("CPU {all} ({user} user, {system} system)")
}

/// A time on processors, which is often short.
fn time(microseconds: u64) -> String {
    match (microseconds + 500) / 1000 {
        milliseconds @ 0..1000 => format!("{milliseconds} ms"),
        milliseconds => shown_ms(milliseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_told_in_plain_words() {
        let ended = Resources {
            cpu_user_us: 1_000_400,
            cpu_system_us: 210_000,
            memory_peak_bytes: 310 << 20,
            tree_memory_peak_bytes: None,
        };
        let cpu = "CPU 1.2s (1.0s user, 210 ms system)";
        assert_eq!(used(&ended), format!("{cpu}, memory 310 MiB at most in one process"));
        assert_eq!(used_briefly(&ended), "CPU 1.2s, 310 MiB");
        let whole = Resources { tree_memory_peak_bytes: Some(512 << 20), ..ended };
        assert_eq!(used(&whole), format!("{cpu}, memory 512 MiB at most"));
        let now = LiveResources { user_us: 600, system_us: 0, memory_bytes: 1 << 20, processes: 1 };
        assert_eq!(uses(&now), "CPU 1 ms (1 ms user, 0 ms system), memory 1 MiB, 1 process");
        let two = LiveResources { processes: 2, ..now };
        assert!(uses(&two).ends_with("2 processes"), "{}", uses(&two));
        assert_eq!(uses_briefly(&now), "CPU 1 ms, 1 MiB");
    }
}
