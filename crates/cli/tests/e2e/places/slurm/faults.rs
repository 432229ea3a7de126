//! What can go wrong with a cluster, and what a task says afterwards.

use std::{fs, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Cluster, all_is_clean, run};
use crate::{
    common::{Scratch, eventually, fixture, is_alive, open, signal, text},
    mcp::Wire,
    places::{There, recorded, serving, task_of, with},
};

/// A command on a cluster that waits for its gate, and counts its starts.
pub struct Held<'a> {
    scratch: &'a Scratch,
    pub wire: Wire,
    pub task: String,
    pub gate: String,
    starts: String,
    pub pid: String,
}

impl<'a> Held<'a> {
    /// Starts it on the first node, and waits until it runs.
    pub fn start(scratch: &'a Scratch, cluster: &Cluster, options: &[&str]) -> Self {
        Self::submit(scratch, cluster, options, 0).running()
    }

    /// The same for one that somebody waits for, if only for a moment: `srun` starts it.
    pub fn awaited(scratch: &'a Scratch, cluster: &Cluster) -> Self {
        Self::submit(scratch, cluster, &[], 1).running()
    }

    fn running(self) -> Self {
        eventually("it runs", || fs::read_to_string(&self.pid).ok().filter(|pid| !pid.is_empty()));
        self
    }

    /// Starts it, and waits for its end for some milliseconds.
    fn submit(scratch: &'a Scratch, cluster: &Cluster, options: &[&str], wait_ms: u64) -> Self {
        let options: Vec<&str> = ["--nodelist=n1"].iter().chain(options).copied().collect();
        let mut wire = serving(scratch, &cluster.place(&options), &cluster.variables());
        let [gate, starts, pid] = ["gate", "starts", "pid"].map(|name| scratch.file(name));
        let f = fixture();
        let cmd = format!(
            "echo start >> {starts}; echo $$ > {pid}; echo before; {f} wait-then-exit {gate} 0; \
             seq 1 3000; exit 5"
        );
        let input =
            json!({ "cmd": cmd, "login": false, "yield_time_ms": wait_ms, "place": "there" });
        let task = task_of(&wire.tool("ExecCommand", &input));
        Self { scratch, wire, task, gate, starts, pid }
    }

    /// Its record, once it is over. It was started once at most, and nothing of it runs.
    fn end(&mut self) -> Value {
        let input = json!({ "task_ids": [self.task], "timeout_ms": 100_000 });
        self.wire.tool("TaskWait", &input);
        let record = recorded(self.scratch, &self.task);
        let starts = fs::read_to_string(&self.starts).unwrap_or_default();
        assert!(starts.lines().count() <= 1, "{starts}");
        if let Ok(pid) = fs::read_to_string(&self.pid) {
            let pid = pid.trim().parse().unwrap();
            eventually("nothing is left running", || (!is_alive(pid)).then_some(()));
        }
        record
    }

    /// It has ended by itself, with all that it has to print.
    #[track_caller]
    pub fn assert_true_end(&mut self) {
        open(&self.gate);
        let record = self.end();
        assert_eq!(record["outcome"]["exit_status"], 5, "{record:#}");
        let printed = text(&self.scratch.printed(&json!(self.task)));
        assert!(printed.starts_with("before\n1\n2\n") && printed.ends_with("\n3000\n"));
        assert_eq!(fs::read_to_string(&self.starts).unwrap(), "start\n");
    }

    /// It was ended by Slurm, which kills the step and ends the job at the same time: whether the
    /// warden can record a stop, or the signal that its command got, before it is killed itself is
    /// a race. Whichever it is, no exit code is invented.
    #[track_caller]
    pub fn assert_ended(&mut self) {
        let record = self.end();
        let said = (record["status"].as_str().unwrap(), record["reason"].as_str());
        let is_signalled = record["outcome"]["signal"].is_number();
        assert!(
            matches!(said, ("interrupted", Some(_))) || (said.0 == "failed" && is_signalled),
            "{record:#}"
        );
        assert_eq!(record["outcome"]["exit_status"], Value::Null, "{record:#}");
    }

    /// Its warden has stopped it for the scheduler, and has recorded that.
    #[track_caller]
    pub fn assert_stopped(&mut self) {
        let record = self.end();
        let said = (record["status"].as_str(), record["reason"].as_str());
        assert_eq!(said, (Some("interrupted"), Some("stopped_by_scheduler")), "{record:#}");
        assert_eq!(record["outcome"]["exit_status"], Value::Null, "{record:#}");
    }
}

#[test]
fn a_controller_that_is_killed_within_a_second_of_its_answer_starts_nothing_twice() {
    let scratch = Scratch::new();
    let Some(mut cluster) = Cluster::start() else { return };
    let mut held = Held::submit(&scratch, &cluster, &[], 0);
    eventually("the controller has it", || (!cluster.jobs().is_empty()).then_some(()));
    cluster.kill_controller();
    cluster.start_controller();
    open(&held.gate);
    let record = held.end();
    // Which of these it is nobody can know: the controller saves its jobs up to five seconds after
    // it has taken them. It was forgotten, or killed by its node, or saved; whichever is said.
    match record["status"].as_str().unwrap() {
        "failed" => assert_eq!(record["outcome"]["exit_status"], 5, "{record:#}"),
        "interrupted" => assert!(record["reason"].is_string(), "{record:#}"),
        other => panic!("{other}: {record:#}"),
    }
}

#[test]
fn a_controller_that_is_restarted_changes_nothing() {
    let scratch = Scratch::new();
    let Some(mut cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    cluster.stop_controller();
    // Nobody waits for a controller to see a list.
    assert_eq!(recorded(&scratch, &held.task)["status"], "running");
    cluster.start_controller();
    held.assert_true_end();
    all_is_clean(&cluster);
}

#[test]
fn a_nodes_daemon_that_is_killed_and_restarted_loses_no_command() {
    let scratch = Scratch::new();
    let Some(mut cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    cluster.kill_node(0);
    cluster.start_node(0);
    held.assert_true_end();
    all_is_clean(&cluster);
}

#[test]
fn a_lost_node_ends_its_tasks_and_leaves_nothing_running() {
    let scratch = Scratch::new();
    let Some(mut cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    cluster.lose_node(0);
    // The post sees that long before the controller does.
    held.assert_stopped();
}

#[test]
fn a_step_daemon_that_is_gone_takes_its_command_along() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    let steps = cluster.step_daemons(0);
    assert!(!steps.is_empty());
    for pid in steps {
        signal(pid, Signal::KILL);
    }
    held.assert_stopped();
}

#[test]
fn an_operator_who_cancels_a_job_stops_its_task() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    for job in cluster.jobs() {
        assert!(cluster.ask("scancel", &[&job]).status.success());
    }
    held.assert_stopped();
    all_is_clean(&cluster);
}

#[test]
fn the_schedulers_time_limit_stops_a_task() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &["--time=1"]);
    for job in cluster.jobs() {
        let update = ["update", &format!("JobId={job}"), "EndTime=now+1"];
        assert!(cluster.ask("scontrol", &update).status.success());
    }
    held.assert_stopped();
}

#[test]
fn a_job_that_is_out_of_memory_says_what_is_known() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let configuration = cluster.place(&["--mem=100M"]);
    // One process, beside which ours are small: the kernel ends the biggest one.
    let hungry = ["dd", "if=/dev/zero", "of=/dev/null", "bs=600M", "count=1"];
    let output = run(&scratch, &cluster, &configuration, &hungry).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    let task = scratch.tasks().pop().unwrap();
    assert_eq!((&task["status"], &task["outcome"]["signal"]), (&json!("failed"), &json!(9)));
    all_is_clean(&cluster);
}

#[test]
fn an_engine_that_is_killed_at_any_step_of_a_submission_starts_nothing_twice() {
    let Some(cluster) = Cluster::start() else { return };
    let points = [
        ("engine-before-row", None),
        ("engine-after-row", Some("unknown_to_scheduler")),
        ("engine-before-submission", Some("unknown_to_scheduler")),
        // Nobody has told the post what to do.
        ("engine-started-srun", Some("scheduler_failed")),
        ("engine-ordered-srun", Some("")),
        ("engine-after-submission", Some("")),
    ];
    for (point, expected) in points {
        let scratch = Scratch::new();
        let configuration = cluster.configuration(&scratch);
        let starts = scratch.file("starts");
        let cmd = format!("echo start >> {starts}; exit 3");
        let input = json!({ "cmd": cmd, "login": false, "place": "there" }).to_string();
        let mut call = with(&scratch, "call", &configuration);
        call.envs(cluster.variables()).env("LEGWORK_FAILPOINT", point);
        let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
        assert!(!output.status.success(), "{point}: {output:?}");
        let mut wire = serving(&scratch, &configuration, &cluster.variables());
        let Some(reason) = expected else {
            assert_eq!(scratch.tasks(), Vec::<Value>::new(), "{point}");
            continue;
        };
        let task = scratch.tasks()[0]["task_id"].clone();
        wire.tool("TaskWait", &json!({ "task_ids": [task], "timeout_ms": 28_000 }));
        let record = recorded(&scratch, task.as_str().unwrap());
        let lines = fs::read_to_string(&starts).unwrap_or_default().lines().count();
        if reason.is_empty() {
            assert_eq!(record["outcome"]["exit_status"], 3, "{point}: {record:#}");
            assert_eq!(lines, 1, "{point}");
        } else {
            assert_eq!(record["reason"], reason, "{point}: {record:#}");
            assert_eq!(lines, 0, "{point}");
        }
    }
}

#[test]
fn a_shared_folder_that_is_gone_for_a_while_loses_nothing() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let mut held = Held::start(&scratch, &cluster, &[]);
    let (posts, away) = (cluster.posts(), cluster.file("away"));
    fs::rename(&posts, &away).unwrap();
    // A look while it is gone: nothing is concluded from that.
    let known = held.wire.tool("TaskStatus", &json!({ "task_id": held.task }));
    assert!(!known.contains("interrupted"), "{known}");
    open(&held.gate);
    let ends =
        || (!is_alive(fs::read_to_string(&held.pid).ok()?.trim().parse().ok()?)).then_some(());
    eventually("the command ends meanwhile", ends);
    let _ = fs::remove_dir_all(&posts);
    fs::rename(&away, &posts).unwrap();
    held.assert_true_end();
}

#[test]
fn a_shared_folder_that_is_full_cuts_output_and_says_so() {
    let scratch = Scratch::new();
    let Some(cluster) = Cluster::start() else { return };
    let posts = cluster.posts();
    fs::create_dir_all(&posts).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=2m", "none", &posts];
    assert!(Command::new("mount").args(mount).status().unwrap().success());
    let configuration = cluster.configuration(&scratch);
    let script = "seq 1 2000000; exit 6";
    let output = run(&scratch, &cluster, &configuration, &["sh", "-c", script]).output();
    let output = output.unwrap();
    let task = scratch.tasks().pop().unwrap();
    eventually("no job is left", || cluster.jobs().is_empty().then_some(()));
    assert!(Command::new("umount").arg("--lazy").arg(&posts).status().unwrap().success());
    assert_eq!(task["outcome"]["exit_status"], 6, "{task:#}");
    let whole = Command::new("seq").args(["1", "2000000"]).output().unwrap().stdout;
    // What was kept stands where it was printed; the rest is a hole with a note.
    assert_eq!(output.stdout.get(..100_000), whole.get(..100_000));
    let came = &task["outcome"]["stdout"];
    let bytes = came["bytes"].as_u64().unwrap() + came["dropped_bytes"].as_u64().unwrap();
    assert_eq!(bytes, whole.len() as u64, "{task:#}");
}
