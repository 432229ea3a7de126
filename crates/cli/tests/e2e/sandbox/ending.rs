//! Ending a sandboxed tree leaves nothing; each test shows the tree alive first.

use std::{fs, time::Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::house::{House, OPERATOR, UNTRUSTED};
use crate::common::{eventually, fixture, is_alive, parent, signal};

/// Starts a command as a task, and returns its id.
fn promote(house: &House, cmd: &str) -> String {
    let input = json!({ "cmd": cmd, "yield_time_ms": 0, "login": false });
    let result = house.get(OPERATOR, "ExecCommand", &input);
    result["task_handle"]["task_id"].as_str().unwrap().to_owned()
}

/// All processes of the machine that work in this house's workspace.
fn inhabitants(house: &House) -> Vec<u32> {
    let workspace = house.path("workspace").canonicalize().unwrap();
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|it| it.unwrap().file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|it| it == workspace))
        .collect()
}

/// Waits until a tree of so many is there, and returns it.
fn grown(house: &House, files: &[String]) -> Vec<u32> {
    for file in files {
        let path = house.path("workspace").join(file);
        eventually(file, || path.exists().then_some(()));
    }
    let pids = inhabitants(house);
    assert!(pids.len() >= files.len() && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    pids
}

#[test]
fn hostile_trees_leave_no_survivor() {
    for house in House::each() {
        let daemons: Vec<String> = ["child", "daemon", "self"].map(str::to_owned).to_vec();
        let generations: Vec<String> = (0..=20).map(|n| n.to_string()).collect();
        for (cmd, files) in [("detached-tree .", daemons), ("refork . 20", generations)] {
            let task = promote(&house, &format!("exec {} {cmd}", fixture()));
            let pids = grown(&house, &files);
            house.get(OPERATOR, "TaskStop", &json!({ "task_id": task, "grace_ms": 100 }));
            let left: Vec<u32> = pids.into_iter().filter(|pid| is_alive(*pid)).collect();
            assert_eq!(left, [0; 0]);
            assert_eq!(inhabitants(&house), [0; 0]);
        }
    }
}

#[test]
fn a_tree_that_forks_as_fast_as_it_can_is_ended() {
    for house in House::each() {
        // A few hundred are enough, and root is held by no limit but a cgroup's.
        let house = house.with_policy("[limits]\nprocesses_max = 300\n");
        // Each process leaves two and goes: no list of them is ever complete.
        house.script("workspace/bomb.sh", "trap '' TERM HUP INT\n[ -e stop ] && exit\necho x >> count\nsleep 0.02\n./bomb.sh & exec ./bomb.sh");
        house.file("workspace/count", "");
        let task = promote(&house, "./bomb.sh");
        eventually("it has forked", || {
            (fs::metadata(house.path("workspace/count")).unwrap().len() > 20).then_some(())
        });
        house.get(OPERATOR, "TaskStop", &json!({ "task_id": task, "grace_ms": 1 }));
        fs::write(house.path("workspace/stop"), "").unwrap();
        assert_eq!(inhabitants(&house), [0; 0]);
    }
}

#[test]
fn a_killed_warden_takes_its_whole_sandbox_along() {
    for house in House::each() {
        let task = promote(&house, &format!("exec {} detached-tree .", fixture()));
        let pids = grown(&house, &["child", "daemon", "self"].map(str::to_owned));
        let warden = pids.iter().map(|pid| parent(*pid)).find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|it| it.trim() == "legwork-warden")
        });
        signal(warden.unwrap(), Signal::KILL);
        eventually("all of it is gone", || inhabitants(&house).is_empty().then_some(()));
        let status = house.get(OPERATOR, "TaskStatus", &json!({ "task_id": task }))["task"].clone();
        assert_eq!(status["status"], "interrupted", "{status:#}");
    }
}

#[test]
fn what_the_filter_refuses_is_in_the_result() {
    for house in House::each() {
        let cmd = format!("{0} probe ptrace 1; {0} probe family 17; {0} probe keyring", fixture());
        let result = house.exec(OPERATOR, &cmd);
        let told: Vec<&str> = result["denials"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["what"].as_str().unwrap())
            .collect();
        assert_eq!(told, ["ptrace", "socket of family 17", "keyctl"], "{result:#}");
        let quiet = house.exec(OPERATOR, "true");
        assert!(quiet["denials"].as_array().is_none_or(Vec::is_empty), "{quiet:#}");
    }
}

#[test]
fn a_command_that_is_refused_again_and_again_delays_nothing_and_grows_nothing() {
    let Some(house) = House::own() else { return };
    let task = promote(
        &house,
        &format!("{} ignore-term ready & exec {} probe refusals 100000000", fixture(), fixture()),
    );
    let pids = grown(&house, &["ready".to_owned()]);
    let warden = pids.iter().map(|pid| parent(*pid)).find(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|it| it.trim() == "legwork-warden")
    });
    let memory = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", warden.unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let refusals = |result: &Value| result["task"]["status"].as_str() == Some("running");
    let before = memory();
    let start = Instant::now();
    for _ in 0..20 {
        // Each asks the warden, which is busy refusing.
        assert!(refusals(&house.get(OPERATOR, "TaskStatus", &json!({ "task_id": task }))));
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    assert!(memory() < before + 512, "{before} kB, then {} kB", memory());
    house.get(OPERATOR, "TaskStop", &json!({ "task_id": task, "grace_ms": 100 }));
    assert_eq!(inhabitants(&house), [0; 0]);
    let task = house.get(OPERATOR, "TaskStatus", &json!({ "task_id": task }))["task"].clone();
    assert_eq!(task["denials"].as_array().unwrap().len(), 1, "{task:#}");
}

#[test]
fn an_untrusted_command_is_ended_like_any_other() {
    let Some(house) = House::own() else { return };
    let run = house.script("outside/run.sh", &format!("exec {} detached-tree /tmp", fixture()));
    let run = run.display().to_string();
    let house = house.with_policy(&format!("coreTools = [\"ExecCommand({run})\"]\n"));
    let input = json!({ "cmd": run, "yield_time_ms": 0, "login": false });
    let result = house.get(UNTRUSTED, "ExecCommand", &input);
    let task = result["task_handle"]["task_id"].as_str().unwrap();
    eventually("the tree is alive", || (inhabitants(&house).len() >= 3).then_some(()));
    house.get(UNTRUSTED, "TaskStop", &json!({ "task_id": task, "grace_ms": 100 }));
    assert_eq!(inhabitants(&house), [0; 0]);
}
