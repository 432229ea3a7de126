//! What a command may use: held by the kernel, named in the result, and reported where it cannot be
//! held.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Scratch, announced, eventually, fixture, in_namespace, is_alive, parent, parts, program,
    signal, text, without_cgroups_here,
};
use crate::harness::stage::{self, NOBODY};

/// Whether this machine can limit whole trees; where it cannot, that must be reported, and nothing
/// is left to test.
fn has_cgroup_limits(scratch: &Scratch) -> bool {
    let output = scratch.legwork("doctor").arg("--json").output().unwrap();
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    let layers = doctor["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["name"] == "cgroup_limits").unwrap();
    if layer["available"] == false {
        assert!(!layer["reason"].as_str().unwrap().is_empty());
        skips::skip(without_cgroups_here());
    }
    layer["available"] == true
}

/// The folders of cgroups that are named after a warden, in all hierarchies.
fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found = Vec::new();
    for line in own.lines().filter(|line| line.contains("/legwork-")) {
        let (controllers, path) = line.split_once(':').unwrap().1.split_once(':').unwrap();
        let kind = if controllers.is_empty() { " - cgroup2 " } else { " - cgroup " };
        let is_meant = |mount: &&str| mount.contains(kind) && mount.ends_with(controllers);
        let mount = mounts.lines().find(is_meant).unwrap().split(' ').nth(4).unwrap();
        found.push(Path::new(mount).join(path.trim_start_matches('/')));
    }
    found
}

/// A script without cgroups: what an ordinary user or a container has.
fn without_cgroups(scratch: &Scratch, policy: &str) -> Option<Command> {
    let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" \"$@\"";
    let mut command = in_namespace(script)?;
    let file = scratch.file("policy.toml");
    fs::write(&file, policy).unwrap();
    command.arg(program()).current_dir(scratch.workspace.path());
    command
        .args(["call", "--mode", "open", "--policy", &file, "--state"])
        .arg(scratch.state.path());
    Some(command)
}

/// The same as an ordinary user; none where the tests are run by one that cannot become another.
fn as_nobody(scratch: &Scratch, policy: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skips::skip("only root can become an ordinary user");
        return None;
    }
    let file = scratch.file("policy.toml");
    fs::write(&file, policy).unwrap();
    for folder in [scratch.state.path(), scratch.workspace.path()] {
        std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(program()).current_dir(scratch.workspace.path());
    command
        .args(["call", "--mode", "open", "--policy", &file, "--state"])
        .arg(scratch.state.path());
    command.env("HOME", scratch.workspace.path()).env("SHELL", "/bin/sh");
    Some(command)
}

fn exec(mut command: Command, cmd: &str) -> Value {
    let input = json!({ "cmd": cmd, "login": false }).to_string();
    result(&command.args(["ExecCommand", "--json", &input]).output().unwrap())
}

fn result(output: &Output) -> Value {
    let envelope: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"));
    assert_eq!(envelope["status"], "success", "{envelope:#}");
    envelope["result"].clone()
}

/// The reasons why limits were missing for the newest task.
fn missing(scratch: &Scratch) -> String {
    scratch.tasks()[0]["outcome"]["limits"]["missing"].to_string()
}

#[test]
fn a_command_over_its_memory_is_oom_killed_and_not_plainly_137() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) {
        return;
    }
    let policy = "[limits]\nmemory_bytes_max = 52428800";
    let hog = format!("exec {} hog 314572800", fixture());
    let result = scratch.limited(policy, &hog);
    assert_eq!((&result["ended_by"], &result["signal"]), (&json!("oom_killed"), &json!(9)));
    assert_eq!(result["flags"], json!(["oom_killed"]));
    let status = scratch.status(result["task_id"].as_str().unwrap());
    assert_eq!((&status["status"], &status["reason"]), (&json!("failed"), &json!("oom_killed")));
    assert_eq!(status["sandbox"]["enforced"], json!(["cgroup_limits"]));
    assert_eq!(status["sandbox"]["missing"], json!([]));
    // A shell whose child was killed says 137 too, and a command that does so by itself is
    // believed.
    let result = scratch.limited(policy, &format!("{} hog 314572800; exit $?", fixture()));
    assert_eq!((&result["ended_by"], &result["exit_status"]), (&json!("oom_killed"), &json!(137)));
    let result = scratch.limited(policy, &format!("{} hog 10000000; exit 137", fixture()));
    assert_eq!((result.get("ended_by"), &result["exit_status"]), (None, &json!(137)));
    assert_eq!(result["stdout_preview"], "held 10000000");
    // One that gets over it has not been ended by it.
    let result = scratch.limited(policy, &format!("{} hog 314572800 || true", fixture()));
    assert_eq!((result.get("ended_by"), &result["flags"]), (None, &json!(["oom_killed"])));
}

#[test]
fn the_cgroups_of_a_task_go_with_it_also_when_its_warden_is_killed() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) {
        return;
    }
    let policy = "[limits]\nmemory_bytes_max = 104857600\nprocesses_max = 50";
    for kill_warden in [false, true] {
        let ready = scratch.file("ready");
        let mut run = scratch.guarded("run", "open", Some(policy));
        let mut engine = run.args(["--", fixture(), "ignore-term", &ready]).spawn().unwrap();
        let pid = announced(&ready);
        fs::remove_file(&ready).unwrap();
        let (warden, mut cgroups) = (parent(pid), cgroups_of(pid));
        assert!(cgroups.iter().any(|folder| folder.join("pids.max").exists()), "{cgroups:?}");
        assert!(cgroups.iter().any(|folder| folder.join("memory.events").exists()
            || folder.join("memory.oom_control").exists()));
        cgroups.extend(cgroups_of(warden));
        let memory = |pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert_ne!(memory(pid), memory(warden), "the warden is not in the command's cgroup");
        signal(if kill_warden { warden } else { pid }, Signal::KILL);
        engine.wait().unwrap();
        eventually("the cgroups are removed", || {
            (!is_alive(pid) && !cgroups.iter().any(|folder| folder.exists())).then_some(())
        });
    }
}

#[test]
fn the_processor_time_of_a_whole_tree_is_limited() {
    let policy = "[limits]\ncpu_ms_max = 400";
    let burn = format!("exec {} burn-in-children", fixture());
    let check = |scratch: &Scratch, result: &Value| {
        assert_eq!((&result["ended_by"], &result["signal"]), (&json!("cpu_limit"), &json!(15)));
        let task = &scratch.tasks()[0];
        assert_eq!((&task["status"], &task["reason"]), (&json!("failed"), &json!("cpu_limit")));
        assert!(task["outcome"]["limits"]["enforced"].to_string().contains("rlimits"), "{task:#}");
    };
    let scratch = Scratch::new();
    check(&scratch, &scratch.limited(policy, &burn));
    let scratch = Scratch::new();
    if let Some(command) = without_cgroups(&scratch, policy) {
        check(&scratch, &exec(command, &burn));
    }
    // Waiting costs nothing.
    let result = scratch.limited(policy, "sleep 0.6; echo done");
    assert_eq!((result.get("ended_by"), &result["stdout_preview"]), (None, &json!("done")));
}

/// The processes of a bomb, when it has stopped growing.
fn grown(scratch: &Scratch) -> Vec<u32> {
    let folder = scratch.workspace.path();
    let announced = || -> Vec<u32> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("bomb-")?.parse().ok()).collect()
    };
    // Each announces itself when it is through; what they could not fork is announced before.
    let mut last = 0;
    eventually("the bomb has gone off", || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let now = announced().len();
        (now > 0 && std::mem::replace(&mut last, now) == now).then_some(())
    });
    announced()
}

/// Lets a bomb go off, stops it, and returns how many processes it had.
fn bombed(scratch: &Scratch, mut command: Command) -> usize {
    let cmd = format!("exec {} bomb .", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0 }).to_string();
    let started = result(&command.args(["ExecCommand", "--json", &input]).output().unwrap());
    let pids = grown(scratch);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "the tree is not alive");
    let stop = json!({ "task_id": started["task_handle"]["task_id"], "grace_ms": 100 });
    let stopped = scratch.get("TaskStop", &stop);
    assert_eq!(stopped["survivors"], json!([]));
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    pids.len()
}

#[test]
fn a_fork_bomb_is_contained_and_can_be_stopped() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) {
        return;
    }
    let policy = "[limits]\nprocesses_max = 40";
    let processes = bombed(&scratch, scratch.guarded("call", "open", Some(policy)));
    assert!((20..=40).contains(&processes), "{processes}");
    assert!(scratch.workspace.path().join("refused").exists());
    let outcome = &scratch.tasks()[0]["outcome"];
    assert_eq!(outcome["flags"], json!(["process_limit_hit"]));
    assert_eq!(outcome["limits"], json!({ "enforced": ["cgroup_limits"] }));
    // The next command of the same limit is not told of what was before it.
    let result = scratch.limited(policy, "echo fine");
    assert_eq!((result.get("flags"), &result["stdout_preview"]), (None, &json!("fine")));
}

#[test]
fn without_a_limit_of_processes_that_is_said_and_a_bomb_can_be_stopped() {
    let scratch = Scratch::new();
    let Some(command) = without_cgroups(&scratch, "") else { return };
    assert_eq!(bombed(&scratch, command), 128, "root is held by nothing but a cgroup");
    let reasons = missing(&scratch);
    assert!(reasons.contains("processes_max: "), "{reasons}");
    assert!(reasons.contains("does not hold root"), "{reasons}");
    let task = scratch.tasks()[0]["task_id"].as_str().unwrap().to_owned();
    let sandbox = &scratch.status(&task)["sandbox"];
    assert_eq!(sandbox["missing"][0]["layer"], "cgroup_limits", "{sandbox}");
    let shown = scratch.legwork("show").arg("@").output().unwrap();
    assert!(text(&shown.stdout).contains("Not limited:  processes_max"), "{shown:?}");
}

#[test]
fn an_ordinary_user_is_held_as_far_as_the_kernel_allows_and_told_what_is_missing() {
    let scratch = Scratch::new();
    let policy = "[limits]\nprocesses_max = 30\nmemory_bytes_max = 104857600";
    let Some(command) = as_nobody(&scratch, policy) else { return };
    let processes = bombed(&scratch, command);
    // All processes of the user count, and those of other tests may end meanwhile.
    assert!(processes <= 45, "{processes}");
    assert!(scratch.workspace.path().join("refused").exists());
    let reasons = missing(&scratch);
    assert!(reasons.contains("all processes of the user are counted"), "{reasons}");
    assert!(reasons.contains("memory_bytes_max: "), "{reasons}");
    assert!(reasons.contains("each process is held to it by its addresses"), "{reasons}");
    let Some(command) = as_nobody(&scratch, policy) else { return };
    let result = exec(command, &format!("{} hog 314572800; echo $?", fixture()));
    assert!(!result["stdout_preview"].as_str().unwrap().contains("held"), "{result:#}");
    assert_eq!(scratch.tasks()[0]["outcome"]["limits"]["enforced"], json!(["rlimits"]));
}

#[test]
fn files_are_limited_in_number_and_size() {
    let scratch = Scratch::new();
    let policy = "[limits]\nopen_files_max = 17\nfile_bytes_max = 100000";
    let write = |bytes| format!("exec {} write big {bytes}", fixture());
    let result = scratch.limited(policy, &write(200_000));
    assert_eq!((&result["ended_by"], &result["signal"]), (&json!("file_size_limit"), &json!(25)));
    assert_eq!(fs::metadata(scratch.file("big")).unwrap().len(), 100_000);
    let result = scratch.limited(policy, &write(90_000));
    assert_eq!((result.get("ended_by"), &result["exit_status"]), (None, &json!(0)));
    // The same signal from somebody else is no limit of ours.
    let result = scratch.limited("", &format!("exec {} signal 25", fixture()));
    assert_eq!((result.get("ended_by"), &result["signal"]), (None, &json!(25)));
    let result = scratch.limited(policy, "ulimit -Sn; ulimit -Hn");
    assert_eq!(result["stdout_preview"], "17\n17");
    // What is printed is kept by the warden, which has no such limit.
    let result = scratch.limited(policy, &format!("{} flood 300000", fixture()));
    assert_eq!(result["artifacts"][0]["bytes"], 300_000);
}

#[test]
fn a_limit_that_ended_a_run_is_named_and_its_code_is_the_commands_own() {
    let scratch = Scratch::new();
    let mut run = scratch.guarded("run", "open", Some("[limits]\nfile_bytes_max = 10"));
    let output = run.args(["--", fixture(), "write", "big", "20"]).output().unwrap();
    let (code, _, complaint) = parts(&output);
    assert_eq!(code, Some(128 + 25));
    assert!(complaint.contains("legwork: ") && complaint.contains("file_bytes_max"), "{complaint}");
    let mut call = scratch.guarded("call", "open", Some("[limits]\ncpu_ms_max = 100"));
    let input = json!({ "command": "while :; do :; done" }).to_string();
    let output = call.args(["run_shell_command", "--json", &input]).output().unwrap();
    let ran = result(&output);
    assert!(ran["error"].as_str().unwrap().contains("cpu_ms_max"), "{ran:#}");
    let mut call = scratch.guarded("call", "open", Some("[limits]\nfile_bytes_max = 10"));
    let input = json!({ "command": fixture(), "args": ["write", "big", "20"] }).to_string();
    let output = call.args(["execute_command", "--json", &input]).output().unwrap();
    let ran = result(&output);
    assert_eq!((&ran["return_code"], &ran["ended_by"]), (&json!(-25), &json!("file_size_limit")));
}

#[test]
fn a_command_that_may_not_even_have_its_own_process_is_refused() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) {
        return;
    }
    let mut call = scratch.guarded("call", "open", Some("[limits]\nprocesses_max = 0"));
    let input = json!({ "cmd": "touch started", "login": false }).to_string();
    let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["kind"], "limit_exceeded", "{envelope:#}");
    assert!(!scratch.workspace.path().join("started").exists());
    assert_eq!(scratch.tasks()[0]["reason"], "spawn_failed");
}

#[test]
fn limits_hold_in_a_sandbox_too() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) || !stage::is_seen_in_sandboxes() {
        return;
    }
    let policy = "[limits]\nmemory_bytes_max = 52428800\nopen_files_max = 5\nprocesses_max = 40\n\
                  cpu_ms_max = 2000\n[sandbox]\nwritable = []";
    let run = |cmd: &str| {
        let mut call = scratch.guarded("call", "guarded", Some(policy));
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        result(&call.args(["ExecCommand", "--json", &input]).output().unwrap())
    };
    let hogged = run(&format!("exec {} hog 314572800", fixture()));
    assert_eq!((&hogged["ended_by"], &hogged["signal"]), (&json!("oom_killed"), &json!(9)));
    let sandbox = &scratch.status(hogged["task_id"].as_str().unwrap())["sandbox"];
    let enforced = sandbox["enforced"].to_string();
    for layer in ["rlimits", "cgroup_limits"] {
        assert!(enforced.contains(layer), "{sandbox}");
    }
    assert_eq!(run("ulimit -n")["stdout_preview"], "5");
    let burnt = run(&format!("exec {} burn-in-children", fixture()));
    assert_eq!(burnt["ended_by"], "cpu_limit");
    // A bomb that ends by itself, as soon as each of its processes was refused a child or has had
    // seven.
    let bomb = "b() { i=0; while [ $i -lt 7 ]; do b2 & i=$((i+1)); done; wait; }; \
                b2() { i=0; while [ $i -lt 7 ]; do sleep 1 & i=$((i+1)); done; wait; }; b";
    let bombed = run(bomb);
    let flags = bombed["flags"].as_array().unwrap();
    // A shell that is refused a child ends, and may leave others behind.
    assert!(flags.contains(&json!("process_limit_hit")), "{bombed:#}");
}

#[test]
fn wall_clock_limits_of_the_configuration_hold_for_every_tool() {
    let scratch = Scratch::new();
    let result = scratch.limited("[limits]\nwall_ms_max = 200", "exec sleep 100");
    assert_eq!(result["ended_by"], "timeout");
    let mut call = scratch.guarded("call", "open", Some("[limits]\nwall_ms_max = 200"));
    let input = json!({ "command": "exec sleep 100" }).to_string();
    let output = call.args(["run_shell_command", "--json", &input]).output().unwrap();
    let ran = self::result(&output);
    assert!(ran["error"].as_str().unwrap().ends_with("the limit of 200 ms"), "{ran:#}");
}

#[test]
fn a_project_can_tighten_a_limit_and_not_loosen_it() {
    let scratch = Scratch::new();
    let user = "[limits]\nopen_files_max = 50\n";
    for (project, expected) in [("40", "40"), ("60", "50")] {
        let folder = scratch.state.path().join("legwork");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), user).unwrap();
        fs::write(scratch.file(".legwork.toml"), format!("[limits]\nopen_files_max = {project}"))
            .unwrap();
        let result = scratch.result("ulimit -n");
        assert_eq!(result["stdout_preview"], expected);
    }
}

#[test]
fn a_plain_command_is_held_to_a_number_of_processes_by_default() {
    let scratch = Scratch::new();
    if !has_cgroup_limits(&scratch) {
        return;
    }
    let ready = scratch.file("ready");
    let task = scratch.promote(&format!("exec {} ignore-term {ready}", fixture()), &json!({}));
    let groups = cgroups_of(announced(&ready));
    let limits = groups.iter().filter_map(|group| fs::read_to_string(group.join("pids.max")).ok());
    assert_eq!(limits.collect::<Vec<_>>(), ["4097\n"], "the warden is one of them");
    assert_eq!(scratch.status(&task)["sandbox"]["enforced"], json!(["cgroup_limits"]));
}
