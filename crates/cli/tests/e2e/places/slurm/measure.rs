//! Figures of a cluster, for docs/scale.md: `just measure-places` prints them. Nothing is asserted.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{Cluster, all_is_clean};
use crate::{
    common::{Scratch, eventually, text},
    harness::watch::Times,
    places::serving,
};

/// How many tasks are measured; nothing is without the variable.
fn size() -> Option<usize> {
    env_number("LEGWORK_MEASURE_PLACES")
}

fn env_number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What something takes, ten times.
fn timed(mut work: impl FnMut()) -> Duration {
    let once = || {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    median(std::iter::repeat_with(once).take(10).collect())
}

/// Memory and descriptors of a process.
fn used(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kilobytes, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

#[test]
fn figures_of_a_cluster() {
    let Some(size) = size() else { return };
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = format!("[limits]\ntasks_max = {}\n{}", size + 10, cluster.place(&[]));
    let mut wire = serving(&scratch, &configuration, &cluster.variables());
    let own = timed(|| assert!(cluster.ask("srun", &["true"]).status.success()));
    let mut call = |place: &str| {
        let input = json!({ "cmd": "true", "login": false, "place": place,
                            "duplicate_policy": "start_new" });
        timed(|| drop(wire.tool("ExecCommand", &input)))
    };
    let (here, there) = (call("local"), call("there"));
    eprintln!("srun true {own:?}; a call here {here:?}, on Slurm {there:?}");
    let bound = own + here;
    eprintln!("ratio to both together: {:.2}", there.as_secs_f64() / bound.as_secs_f64());
    let begin = Instant::now();
    for _ in 0..size {
        let words = ["--parsable", "--output=/dev/null", "--wrap=true"];
        assert!(cluster.ask("sbatch", &words).status.success());
    }
    let submitted = begin.elapsed();
    eventually_empty(&cluster);
    eprintln!("{size} jobs of sbatch: submitted in {submitted:?}, ended in {:?}", begin.elapsed());
    let (begin, mut tasks, mut most) = (Instant::now(), Vec::new(), (0, 0));
    for number in 0..size {
        let cmd = format!("echo {number}");
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
        tasks.push(super::task_of(&wire.tool("ExecCommand", &input)));
        most = most.max(used(wire.child.id()));
    }
    let submitted = begin.elapsed();
    let listed = timed(|| drop(wire.tool("TaskList", &json!({}))));
    for task in &tasks {
        wire.tool("TaskWait", &json!({ "task_ids": [task], "timeout_ms": 600_000 }));
        most = most.max(used(wire.child.id()));
    }
    let ended = begin.elapsed();
    let (kilobytes, descriptors) = most;
    eprintln!("{size} tasks: submitted in {submitted:?}, ended in {ended:?}; TaskList {listed:?}");
    eprintln!("the head: at most {kilobytes} kB and {descriptors} descriptors");
    let well = scratch.tasks().iter().filter(|task| task["status"] == "completed").count();
    eprintln!("the newest {well} in `ps` completed; first prints {}", {
        text(&scratch.printed(&json!(tasks[0]))).trim().to_owned()
    });
    all_is_clean(&cluster);
}

/// Processor time of a process so far.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    // Hundredths of a second in user and kernel.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// `LEGWORK_MEASURE_QUEUED` says how many tasks wait in the queue.
#[test]
fn figures_of_a_long_queue() {
    let Some(size) = env_number("LEGWORK_MEASURE_QUEUED") else { return };
    let scratch = Scratch::with(Times::at_most(Duration::from_secs(30 * 60)));
    let Some(cluster) = Cluster::start() else { return };
    let place = cluster.place(&["--hold"]);
    let configuration = format!("[limits]\ntasks_max = {}\n{place}", size + 10);
    let mut wire = serving(&scratch, &configuration, &cluster.variables());
    let begin = Instant::now();
    for number in 0..size {
        let cmd = format!("echo {number}");
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
        wire.tool("ExecCommand", &input);
    }
    eprintln!("{size} tasks registered in {:?}", begin.elapsed());
    while cluster.jobs().len() < size {
        wire.tool("TaskList", &json!({}));
        std::thread::sleep(Duration::from_secs(1));
    }
    eprintln!("all in the queue after {:?}", begin.elapsed());
    let squeue = timed(|| assert!(!cluster.jobs().is_empty()));
    let listed = timed(|| drop(wire.tool("TaskList", &json!({}))));
    eprintln!("squeue {squeue:?}; TaskList {listed:?}");
    let (kilobytes, descriptors) = used(wire.child.id());
    let before = processor_time(wire.child.id());
    std::thread::sleep(Duration::from_secs(10));
    let spent = processor_time(wire.child.id()).saturating_sub(before);
    eprintln!("the head: {kilobytes} kB, {descriptors} descriptors, {spent:?} of 10 s at rest");
    // Nobody stops them one by one: their jobs end with the cluster.
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
    eventually("they are forgotten", || fs::remove_dir_all(scratch.state.path()).ok());
    fs::create_dir(scratch.state.path()).unwrap();
}

fn eventually_empty(cluster: &Cluster) {
    eventually("no job is left", || cluster.jobs().is_empty().then_some(()));
}
