//! A place that is a cluster of Slurm: what commands do there, what a queue does to them, and what
//! can go wrong.

pub mod cluster;
mod crowd;
mod faults;
mod measure;
mod queue;
mod quick;

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use self::cluster::Cluster;
use super::{
    There, assert_as_here, names_in, recorded, serving,
    session::{assert_same, session},
    task_of, with,
};
use crate::common::{Scratch, eventually, fixture, open, parts, signal};

/// `legwork run --place there -- WORDS`.
fn run(scratch: &Scratch, cluster: &Cluster, configuration: &str, words: &[&str]) -> Command {
    let mut command = with(scratch, "run", configuration);
    command.envs(cluster.variables()).args(["--place", "there", "--"]).args(words);
    command
}

/// Waits until nothing is left of jobs, on the scheduler's side and ours.
fn all_is_clean(cluster: &Cluster) {
    let jobs = format!("{}/jobs", cluster.posts());
    eventually("the place is clean", || names_in(&jobs).is_empty().then_some(()));
    eventually("no job is left", || cluster.jobs().is_empty().then_some(()));
}

#[test]
fn a_session_reads_the_same_on_slurm_as_on_this_machine() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let here = session(&scratch, "", None, &[]);
    let configuration = cluster.configuration(&scratch);
    let there = session(&scratch, &configuration, Some("there"), &cluster.variables());
    assert_same(&there, &here);
    all_is_clean(&cluster);
    // Whoever reads the output later needs no cluster.
    let task = scratch.tasks().last().unwrap()["task_id"].as_str().unwrap().to_owned();
    drop(cluster);
    let printed = scratch.legwork("logs").arg(task).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
}

#[test]
fn a_command_on_slurm_is_as_one_here_in_code_streams_and_input() {
    let Some(cluster) = Cluster::start() else { return };
    let scratch = Scratch::new();
    let configuration = cluster.configuration(&scratch);
    assert_as_here(&scratch, |words| run(&scratch, &cluster, &configuration, words));
    all_is_clean(&cluster);
}

#[test]
fn a_node_that_does_not_share_the_folder_is_read_through_its_post() {
    let Some(cluster) = Cluster::unshared() else { return };
    let scratch = Scratch::new();
    let configuration = cluster.configuration(&scratch);
    assert_as_here(&scratch, |words| run(&scratch, &cluster, &configuration, words));
    for node in cluster::NODES {
        let jobs = cluster.file(&format!("posts-{node}/jobs"));
        eventually("the node is clean", || names_in(&jobs).is_empty().then_some(()));
    }
    eventually("no job is left", || cluster.jobs().is_empty().then_some(()));
}

/// Starts a command that takes a node for itself until its gate is opened.
fn hold_node(wire: &mut crate::mcp::Wire, gate: &str, code: u8) -> String {
    let cmd = format!("echo on; {} wait-then-exit {gate} {code}; exit {code}", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
    let task = task_of(&wire.tool("ExecCommand", &input));
    let until = json!({ "output_matches": "on" });
    let waited = wire.tool("TaskWait", &json!({ "task_ids": [task], "until": until }));
    assert!(waited.contains("on"), "{waited}");
    task
}

/// One node, for one job at a time.
const NARROW: [&str; 2] = ["--nodelist=n1", "--exclusive"];

#[test]
fn a_queued_task_says_so_can_be_stopped_and_begins_when_there_is_room() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = cluster.place(&NARROW);
    let mut wire = serving(&scratch, &configuration, &cluster.variables());
    let (gate, witness) = (scratch.file("gate"), scratch.file("witness"));
    let first = hold_node(&mut wire, &gate, 0);
    let exec =
        |cmd: String| json!({ "cmd": cmd, "login": false, "yield_time_ms": 500, "place": "there" });
    let told = wire.tool("ExecCommand", &exec(format!("echo one >> {witness}")));
    assert!(told.contains("\nStatus: queued"), "{told}");
    let stopped = task_of(&told);
    // The scheduler says why at its next turn.
    let known = eventually("there is a reason", || {
        let known = wire.tool("TaskStatus", &json!({ "task_id": stopped }));
        known.contains("Status: queued (").then_some(known)
    });
    assert!(known.contains("Duration: 0 ms"), "{known}");
    // An equal call joins it, and another process sees the same.
    let joined = wire.tool("ExecCommand", &exec(format!("echo one >> {witness}")));
    assert!(joined.contains("already running") && joined.contains("Status: Queued"), "{joined}");
    assert_eq!(recorded(&scratch, &stopped)["status"], "queued");
    let ended = wire.tool("TaskStop", &json!({ "task_id": stopped }));
    assert!(ended.starts_with("Task stopped") && ended.contains("cancelled (stopped)"), "{ended}");
    // One that a person stops, from another process.
    let second = task_of(&wire.tool("ExecCommand", &exec(format!("echo two >> {witness}"))));
    let mut stop = scratch.legwork("stop");
    let output = stop.envs(cluster.variables()).arg(&second).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(recorded(&scratch, &second)["status"], "cancelled");
    let last =
        task_of(&wire.tool("ExecCommand", &exec(format!("echo three >> {witness}; exit 4"))));
    open(&gate);
    let waited = wire.tool("TaskWait", &json!({ "task_ids": [last], "timeout_ms": 60_000 }));
    assert!(waited.contains("Exit status: 4"), "{waited}");
    let waited = wire.tool("TaskWait", &json!({ "task_ids": [first] }));
    assert!(waited.contains("Exit status: 0"), "{waited}");
    assert_eq!(fs::read_to_string(&witness).unwrap(), "three\n");
    all_is_clean(&cluster);
}

#[test]
fn a_new_server_adopts_what_waits_and_what_runs_on_slurm() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = cluster.place(&NARROW);
    let (gate, witness) = (scratch.file("gate"), scratch.file("witness"));
    let mut first = serving(&scratch, &configuration, &cluster.variables());
    let running = hold_node(&mut first, &gate, 7);
    let cmd = format!("echo ran >> {witness}; exit 5");
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
    let queued = task_of(&first.tool("ExecCommand", &input));
    eventually("it is in the queue", || (cluster.jobs().len() == 2).then_some(()));
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();
    let mut second = serving(&scratch, &configuration, &cluster.variables());
    open(&gate);
    for (task, code) in [(&running, 7), (&queued, 5)] {
        let waited = second.tool("TaskWait", &json!({ "task_ids": [task], "timeout_ms": 60_000 }));
        assert!(waited.contains(&format!("Exit status: {code}")), "{waited}");
    }
    let told = second.tool("TaskOutput", &json!({ "task_id": running, "after": "start" }));
    assert!(told.ends_with("\non"), "{told}");
    assert_eq!(fs::read_to_string(&witness).unwrap(), "ran\n");
    all_is_clean(&cluster);
}

#[test]
fn what_the_scheduler_refuses_is_an_error_in_its_words() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = cluster.place(&["--partition=nowhere"]);
    let output = run(&scratch, &cluster, &configuration, &["true"]).output().unwrap();
    let (code, _, said) = parts(&output);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("invalid partition"), "{said}");
    assert_eq!(scratch.tasks()[0]["status"], "failed");
    let mut check = with(&scratch, "places", &configuration);
    let output = check.envs(cluster.variables()).args(["--check", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["places"][1]["ok"], true, "{told:#}");
    assert_eq!(told["places"][1]["lacks"], json!([]), "{told:#}");
    assert!(Path::new(&cluster.posts()).is_dir());
}
