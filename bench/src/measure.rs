//! Time, CPU and memory of processes and their trees.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Kernel ticks a second, as `/proc` counts CPU time.
const TICKS: f64 = 100.0;

/// Runs something and says how long it took, in microseconds.
pub fn micros(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

/// The median.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The smallest.
pub fn minimum(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The value that this share of the samples stays below.
pub fn percentile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let place = (sorted.len() as f64 * share) as usize;
    sorted[place.min(sorted.len() - 1)]
}

/// A raw spawn: `posix_spawn` with both outputs captured, as any caller must, and a wait.
pub fn spawn(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
}

/// Pids of a process and everything below it.
pub fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut place = 0;
    while let Some(pid) = found.get(place).copied() {
        place += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.filter_map(Result::ok) {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

/// CPU seconds of a process and of all its descendants, the dead ones included.
pub fn cpu_of_tree(root: u32) -> f64 {
    tree(root).into_iter().map(cpu).sum()
}

fn cpu(pid: u32) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0.0;
    };
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return 0.0;
    };
    // utime, stime, and those of the children that were waited for.
    let ticks: f64 =
        fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS
}

/// CPU seconds of this process and of the children that it waited for.
pub fn own_cpu() -> f64 {
    cpu(std::process::id())
}

/// A field of `/proc/PID/FILE`, in kB.
pub fn memory_kb(pid: u32, file: &str, field: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

/// Proportional memory of a whole tree, in kB.
pub fn pss_of_tree(root: u32) -> f64 {
    tree(root).into_iter().map(|pid| memory_kb(pid, "smaps_rollup", "Pss:")).sum()
}

/// Waits until something is so; a benchmark that waits too long is broken.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
