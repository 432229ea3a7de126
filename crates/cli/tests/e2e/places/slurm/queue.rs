//! Jobs that wait, and what can become of them before they begin.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::process::ExitStatusExt,
    process::Command,
};

use rustix::process::Signal;
use serde_json::json;

use super::{Cluster, all_is_clean, faults::Held};
use crate::{
    common::{Scratch, eventually, is_alive, open, signal},
    mcp::Wire,
    places::{There, names_in, recorded, serving, task_of},
};

/// A task whose job waits until it is released.
struct Waiting<'a> {
    scratch: &'a Scratch,
    wire: Wire,
    task: String,
    /// The number of its job.
    job: String,
    witness: String,
}

impl<'a> Waiting<'a> {
    fn submit(scratch: &'a Scratch, cluster: &Cluster) -> Self {
        let mut wire = serving(scratch, &cluster.place(&["--hold"]), &cluster.variables());
        let witness = scratch.file("witness");
        let cmd = format!("echo ran >> {witness}");
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
        let task = task_of(&wire.tool("ExecCommand", &input));
        let job = eventually("it is in the queue", || cluster.jobs().pop());
        Self { scratch, wire, task, job, witness }
    }

    /// It has ended like this, and never ran.
    #[track_caller]
    fn assert_never_ran(&mut self, status: &str, reason: &str) {
        let input = json!({ "task_ids": [self.task], "timeout_ms": 25_000 });
        self.wire.tool("TaskWait", &input);
        let record = recorded(self.scratch, &self.task);
        let said = (record["status"].as_str(), record["reason"].as_str());
        assert_eq!(said, (Some(status), Some(reason)), "{record:#}");
        assert!(!fs::exists(&self.witness).unwrap(), "it ran");
    }
}

#[test]
fn a_job_that_is_cancelled_in_the_queue_never_begins() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut waiting = Waiting::submit(&scratch, &cluster);
    assert!(cluster.ask("scancel", &[&waiting.job]).status.success());
    waiting.assert_never_ran("interrupted", "cancelled_by_scheduler");
    all_is_clean(&cluster);
}

#[test]
fn a_task_that_is_stopped_while_the_controller_is_down_leaves_no_job() {
    let scratch = Scratch::new();
    let Some(mut cluster) = Cluster::start() else { return };
    let mut waiting = Waiting::submit(&scratch, &cluster);
    cluster.stop_controller();
    let stop = json!({ "name": "TaskStop", "arguments": { "task_id": waiting.task } });
    let said = waiting.wire.request("tools/call", &stop).to_string();
    assert!(said.contains("place_unreachable"), "{said}");
    cluster.start_controller();
    waiting.assert_never_ran("cancelled", "stopped");
    all_is_clean(&cluster);
}

#[test]
fn a_process_that_is_killed_while_it_stops_a_waiting_task_leaves_nothing_there() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut waiting = Waiting::submit(&scratch, &cluster);
    let mut stop = scratch.legwork("stop");
    stop.envs(cluster.variables()).env("LEGWORK_FAILPOINT", "engine-after-outcome");
    let output = stop.arg(&waiting.task).output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::KILL.as_raw()), "{output:?}");
    waiting.assert_never_ran("cancelled", "stopped");
    all_is_clean(&cluster);
}

#[test]
fn a_waiting_task_that_no_engine_has_is_gone_when_its_stop_has_ended() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut waiting = Waiting::submit(&scratch, &cluster);
    signal(waiting.wire.child.id(), Signal::KILL);
    waiting.wire.child.wait().unwrap();
    let mut stop = scratch.legwork("stop");
    let output = stop.envs(cluster.variables()).arg(&waiting.task).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names_in(&format!("{}/jobs", cluster.posts())), [""; 0]);
    all_is_clean(&cluster);
}

#[test]
fn a_job_that_finds_no_room_in_its_folder_begins_nothing() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let posts = cluster.posts();
    fs::create_dir_all(&posts).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1m", "none", &posts];
    assert!(Command::new("mount").args(mount).status().unwrap().success());
    let mut waiting = Waiting::submit(&scratch, &cluster);
    let mut all =
        OpenOptions::new().create(true).append(true).open(format!("{posts}/all")).unwrap();
    while all.write_all(&[1; 4096]).is_ok() {}
    assert!(cluster.ask("scontrol", &["release", &waiting.job]).status.success());
    waiting.assert_never_ran("interrupted", "scheduler_failed");
    eventually("no job is left", || cluster.jobs().is_empty().then_some(()));
    assert!(Command::new("umount").arg("--lazy").arg(&posts).status().unwrap().success());
}

#[test]
fn a_shared_folder_that_is_away_while_a_task_is_adopted_loses_no_record() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    signal(held.wire.child.id(), Signal::KILL);
    held.wire.child.wait().unwrap();
    let (posts, away) = (cluster.posts(), cluster.file("away"));
    fs::rename(&posts, &away).unwrap();
    open(&held.gate);
    let ends =
        || (!is_alive(fs::read_to_string(&held.pid).ok()?.trim().parse().ok()?)).then_some(());
    eventually("the command ends meanwhile", ends);
    eventually("and so does its job", || cluster.jobs().is_empty().then_some(()));
    held.wire = serving(&scratch, &cluster.configuration(&scratch), &cluster.variables());
    // More than once as long as it takes to conclude something from a folder that is there.
    let input = json!({ "task_ids": [held.task], "timeout_ms": 10_000 });
    let waited = held.wire.tool("TaskWait", &input);
    assert!(waited.contains("Wait timed out"), "{waited}");
    let _ = fs::remove_dir_all(&posts);
    fs::rename(&away, &posts).unwrap();
    held.assert_true_end();
    all_is_clean(&cluster);
}
