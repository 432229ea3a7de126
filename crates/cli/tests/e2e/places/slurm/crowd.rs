//! Many tasks on a cluster of which everything dies in turn; `just places` runs it.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Cluster, all_is_clean};
use crate::{
    common::{Scratch, eventually, text},
    harness::watch::Times,
    mcp::Wire,
    places::{names_in, serving, task_of},
};

/// How many tasks a crowd has; there is none without the variable, which `just places` sets.
fn size() -> Option<usize> {
    std::env::var("LEGWORK_CROWD").ok()?.parse().ok()
}

/// A crowd of tasks: each has a number, which says what it does.
struct Crowd<'a> {
    scratch: &'a Scratch,
    /// A file for each task, to which its command adds a line when it starts.
    starts: String,
    /// The tasks, by their numbers.
    tasks: Vec<String>,
}

impl<'a> Crowd<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        let starts = scratch.file("starts");
        fs::create_dir(&starts).unwrap();
        Self { scratch, starts, tasks: Vec::new() }
    }

    /// Submits the next task. It takes a moment, so that some run whenever something dies.
    fn submit(&mut self, wire: &mut Wire) {
        let (number, starts) = (self.tasks.len(), &self.starts);
        let cmd = format!(
            "echo start >> {starts}/{number}; seq 1 {number}; sleep 0.{}; exit {}",
            number % 10,
            code_of(number)
        );
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
        self.tasks.push(task_of(&wire.tool("ExecCommand", &input)));
    }

    /// How many have started.
    fn started(&self) -> usize {
        names_in(&self.starts).len()
    }

    /// What is recorded of each, in the order of their numbers.
    fn records(&self) -> Vec<Value> {
        let mut ps = self.scratch.legwork("ps");
        let limit = self.tasks.len().to_string();
        let output = ps.args(["--json", "--limit", &limit]).output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let known = listed["tasks"].as_array().unwrap().iter();
        let known: BTreeMap<&str, &Value> =
            known.map(|record| (record["task_id"].as_str().unwrap(), record)).collect();
        self.tasks.iter().map(|task| known[task.as_str()].clone()).collect()
    }

    /// It has ended with its own code and all of its output, or is lost with a reason and with
    /// no wrong byte; it was started once at most. Says how it ended.
    fn judge(&self, number: usize, record: &Value) -> String {
        let witness = fs::read_to_string(format!("{}/{number}", self.starts)).unwrap_or_default();
        let starts = witness.lines().count();
        assert!(starts <= 1, "{number} ran {starts} times: {record:#}");
        let printed = text(&self.scratch.printed(&record["task_id"]));
        let expected: String = (1..=number).map(|line| format!("{line}\n")).collect();
        let (status, outcome) = (record["status"].as_str().unwrap(), &record["outcome"]);
        if outcome["exit_status"].is_number() {
            assert!(matches!(status, "completed" | "failed"), "{record:#}");
            assert_eq!(outcome["exit_status"], code_of(number), "{record:#}");
            assert_eq!((printed, starts), (expected, 1), "{number}: {record:#}");
            return "its own code".into();
        }
        assert!(expected.starts_with(&printed), "{number} printed {printed:?}: {record:#}");
        if status == "failed" {
            // Its node has killed it, and its warden was quick enough to see that.
            assert_eq!(outcome["signal"], 9, "{record:#}");
            return "signal 9".into();
        }
        let reason = record["reason"].as_str();
        assert!(matches!((status, reason), ("interrupted", Some(_))), "{record:#}");
        format!("{status} ({})", reason.unwrap())
    }
}

fn code_of(number: usize) -> usize {
    number % 7
}

#[test]
fn a_crowd_of_tasks_outlives_three_dead_controllers_and_a_lost_node() {
    let Some(size) = size() else { return };
    let begin = Instant::now();
    let scratch = Scratch::with(Times::at_most(Duration::from_secs(40 * 60)));
    let Some(mut cluster) = Cluster::start() else { return };
    let configuration = format!("[limits]\ntasks_max = {}\n{}", size + 10, cluster.place(&[]));
    let mut wire = serving(&scratch, &configuration, &cluster.variables());
    let mut crowd = Crowd::new(&scratch);
    for quarter in 1..=4 {
        let started = crowd.started();
        while crowd.tasks.len() < size * quarter / 4 {
            crowd.submit(&mut wire);
        }
        // Some of them run by then, some wait, and some are being submitted.
        eventually("some are at work", || {
            cluster.resume_nodes();
            (crowd.started() > started).then_some(())
        });
        if quarter < 4 {
            cluster.kill_controller();
            cluster.start_controller();
        } else {
            eventually("some are on that node", || {
                cluster.resume_nodes();
                (!cluster.step_daemons(1).is_empty()).then_some(())
            });
            cluster.lose_node(1);
        }
        eprintln!("{} submitted after {:?}", crowd.tasks.len(), begin.elapsed());
    }
    for task in &crowd.tasks {
        let input = json!({ "task_ids": [task], "timeout_ms": 5_000 });
        while wire.tool("TaskWait", &input).contains("Wait timed out") {
            cluster.resume_nodes();
        }
    }
    eprintln!("all have ended after {:?}", begin.elapsed());
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for (number, record) in crowd.records().iter().enumerate() {
        *ends.entry(crowd.judge(number, record)).or_default() += 1;
    }
    eprintln!("how they ended: {ends:?}");
    assert!(ends.contains_key("its own code"), "some came through");
    all_is_clean(&cluster);
    eventually("no step is left", || cluster.step_daemons(1).is_empty().then_some(()));
    eprintln!("and nothing is left after {:?}", begin.elapsed());
}
