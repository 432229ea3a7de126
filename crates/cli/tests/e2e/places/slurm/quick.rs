//! Commands that somebody waits for: `srun` starts their jobs at once where there is room.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::{Cluster, all_is_clean, faults::Held};
use crate::{
    common::{Scratch, children, signal},
    places::{There, serving},
};

/// The `srun` that has started the job of a command.
fn srun_below(server: u32) -> u32 {
    let is_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--immediate")
    };
    children(server).into_iter().find(is_it).unwrap()
}

#[test]
fn a_command_that_is_waited_for_is_started_by_srun_and_another_one_by_sbatch() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = cluster.configuration(&scratch);
    let mut wire = serving(&scratch, &configuration, &cluster.variables());
    let cmd = "echo step=$SLURM_STEP_ID";
    let waited = json!({ "cmd": cmd, "login": false, "place": "there" });
    let said = wire.tool("ExecCommand", &waited);
    assert!(said.contains("step=0"), "{said}");
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
    let task = super::task_of(&wire.tool("ExecCommand", &input));
    let said = wire.tool("TaskWait", &json!({ "task_ids": [task] }));
    let printed = wire.tool("TaskOutput", &json!({ "task_id": task, "after": "start" }));
    assert!(printed.ends_with("step="), "{said}\n{printed}");
    // A step of its own shares what the command has.
    let nested =
        json!({ "cmd": "srun --immediate=5 echo nested", "login": false, "place": "there" });
    let said = wire.tool("ExecCommand", &nested);
    assert!(said.contains("nested"), "{said}");
    all_is_clean(&cluster);
}

#[test]
fn a_command_of_srun_outlives_the_engine_and_is_adopted() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::awaited(&scratch, &cluster);
    signal(held.wire.child.id(), Signal::KILL);
    held.wire.child.wait().unwrap();
    held.wire = serving(&scratch, &cluster.configuration(&scratch), &cluster.variables());
    held.assert_true_end();
    all_is_clean(&cluster);
}

#[test]
fn a_command_whose_srun_is_killed_ends_with_it() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::awaited(&scratch, &cluster);
    signal(srun_below(held.wire.child.id()), Signal::KILL);
    held.assert_ended();
    all_is_clean(&cluster);
}

#[test]
fn a_command_whose_post_is_killed_ends_with_it() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::awaited(&scratch, &cluster);
    let is_post = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.starts_with("legwork post ") && line.contains(&held.task)
    };
    let steps = cluster.step_daemons(0).into_iter();
    let post = steps.flat_map(children).find(is_post).unwrap();
    signal(post, Signal::KILL);
    held.assert_ended();
    all_is_clean(&cluster);
}

#[test]
fn an_operator_who_cancels_a_job_of_srun_stops_its_task() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::awaited(&scratch, &cluster);
    for job in cluster.jobs() {
        assert!(cluster.ask("scancel", &[&job]).status.success());
    }
    held.assert_stopped();
    all_is_clean(&cluster);
}

/// A machine that goes down takes `srun` along, and nobody tells the controller.
#[test]
fn a_job_that_has_lost_its_srun_without_a_word_is_adopted_and_given_back() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::awaited(&scratch, &cluster);
    let server = held.wire.child.id();
    let srun = srun_below(server);
    for pid in children(srun).into_iter().chain([srun, server]) {
        signal(pid, Signal::KILL);
    }
    held.wire.child.wait().unwrap();
    held.wire = serving(&scratch, &cluster.configuration(&scratch), &cluster.variables());
    held.assert_true_end();
    all_is_clean(&cluster);
}
