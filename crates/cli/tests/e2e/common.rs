//! What the tests share: a scratch place to run in, and waiting for events.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use crate::harness::{
    stage::{fixture, program},
    windows::{by_system, given, here, inner_program, shown, unix_lines},
};
use crate::harness::{
    watch::{Times, Watch},
    windows,
};

/// How long an event may take before the test gives up; no test waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A state folder and a workspace of its own, for a test that ends in time and leaves nothing
/// behind.
pub struct Scratch {
    pub state: TempDir,
    pub workspace: TempDir,
    watch: Watch,
}

impl Scratch {
    #[track_caller]
    pub fn new() -> Self {
        Self::with(Times::USUAL)
    }

    /// The same for a test that takes other times.
    #[track_caller]
    pub fn with(times: Times) -> Self {
        let (state, workspace) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let watch = Watch::new(&[&state, &workspace].map(|it| it.path().to_owned()), times);
        Self { state, workspace, watch }
    }

    /// `legwork VERB --state ...` in the workspace.
    pub fn legwork(&self, verb: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(verb).arg("--state").arg(self.state.path());
        command.current_dir(self.workspace.path()).stdin(Stdio::null()).env("SHELL", "/bin/sh");
        // Whatever the user of this machine has configured.
        command.env("XDG_CONFIG_HOME", self.state.path());
        if matches!(verb, "call" | "mcp" | "run" | "serve" | "sh") {
            // Most tests are not about the gate; those that are choose for themselves.
            command.args(["--mode", "open"]);
        }
        command
    }

    /// The same in a mode, with a policy.
    pub fn guarded(&self, verb: &str, mode: &str, policy: Option<&str>) -> Command {
        let mut command = Command::new(program());
        command.arg(verb).arg("--state").arg(self.state.path()).args(["--mode", mode]);
        command.current_dir(self.workspace.path()).stdin(Stdio::null()).env("SHELL", "/bin/sh");
        command.env("XDG_CONFIG_HOME", self.state.path());
        if let Some(policy) = policy {
            let path = self.state.path().join("given-policy.toml");
            fs::write(&path, policy).unwrap();
            command.arg("--policy").arg(path);
        }
        command
    }

    /// The envelope of an ExecCommand call.
    pub fn exec(&self, input: &Value) -> Value {
        let mut input = input.clone();
        input.as_object_mut().unwrap().entry("login").or_insert(json!(false));
        let output = self
            .legwork("call")
            .args(["ExecCommand", "--json", &input.to_string()])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
    }

    /// The same under a configuration.
    pub fn limited(&self, policy: &str, cmd: &str) -> Value {
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        let mut call = self.guarded("call", "open", Some(policy));
        let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no JSON: {output:?}"));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    /// The result of an ExecCommand call that must succeed.
    pub fn result(&self, cmd: &str) -> Value {
        let envelope = self.exec(&json!({ "cmd": cmd }));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    /// The envelope of a call.
    pub fn call(&self, tool: &str, input: &Value) -> Value {
        let output =
            self.legwork("call").args([tool, "--json", &input.to_string()]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
    }

    /// The result of a call that must succeed.
    pub fn get(&self, tool: &str, input: &Value) -> Value {
        let envelope = self.call(tool, input);
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    /// Starts a command as a task at once, and returns its id.
    pub fn promote(&self, cmd: &str, more: &Value) -> String {
        let mut input = json!({ "cmd": cmd, "yield_time_ms": 0, "login": false });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let result = self.get("ExecCommand", &input);
        assert_eq!(result["disposition"], "promoted_to_task", "{result:#}");
        result["task_handle"]["task_id"].as_str().unwrap().to_owned()
    }

    /// What is known of a task.
    pub fn status(&self, task: &str) -> Value {
        self.get("TaskStatus", &json!({ "task_id": task }))["task"].clone()
    }

    /// Waits for something about a task, which must come to be.
    pub fn wait(&self, task: &str, until: &Value) -> Value {
        let input = json!({ "task_ids": [task], "until": until, "timeout_ms": 30_000 });
        let waited = self.get("TaskWait", &input);
        assert_eq!(waited["met"], true, "{waited:#}");
        waited
    }

    /// Sends input that must be taken.
    pub fn send(&self, task: &str, more: &Value) -> Value {
        let mut input = json!({ "task_id": task });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sent = self.get("TaskInput", &input);
        assert_eq!(sent["accepted_input"], true, "{sent:#}");
        sent
    }

    /// The screen of a task's terminal.
    pub fn screen(&self, task: &str) -> Value {
        self.get("TaskOutput", &json!({ "task_id": task, "view": "screen" }))
    }

    /// Gives an answer that takes a letter and then Enter, at a question on a task's terminal.
    #[track_caller]
    pub fn confirms(&self, task: &str, letter: char, words: &str) {
        self.screen_with(task, &format!("[{letter}] {words}"));
        self.send(task, &json!({ "input": letter.to_string() }));
        self.screen_with(task, &format!("{words}? Enter confirms"));
        self.send(task, &json!({ "key": "enter" }));
    }

    /// Waits until the screen has this text, and returns all of it.
    pub fn screen_with(&self, task: &str, text: &str) -> String {
        let mut last = String::new();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let shown = self.screen(task);
            let shown = shown["output_preview"].as_str().unwrap();
            if shown.contains(text) {
                return shown.to_owned();
            }
            shown.clone_into(&mut last);
            thread::sleep(Duration::from_millis(20));
        }
        panic!("`{text}` is never on the screen:\n{last}");
    }

    /// The receipt of a call, and its exit code.
    pub fn receipt(&self, tool: &str, input: &str) -> (String, i32) {
        let output = self.legwork("call").args([tool, input]).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    }

    /// What a task printed to stdout, byte for byte.
    pub fn printed(&self, task_id: &Value) -> Vec<u8> {
        self.legwork("logs").arg(task_id.as_str().unwrap()).output().unwrap().stdout
    }

    pub fn folder(&self, task_id: &Value) -> PathBuf {
        self.state.path().join("tasks").join(task_id.as_str().unwrap())
    }

    /// Names in the tasks' folder.
    pub fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.state.path().join("tasks")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The tasks, newest first.
    pub fn tasks(&self) -> Vec<Value> {
        let output = self.legwork("ps").arg("--json").output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["tasks"].as_array().unwrap().clone()
    }

    /// A file in the workspace.
    pub fn file(&self, name: &str) -> String {
        self.workspace.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    /// Tasks that a test left running end with it; anything else it has ended itself.
    fn drop(&mut self) {
        if !thread::panicking() {
            stop_tasks(|verb| self.legwork(verb));
        }
        self.watch.finish();
    }
}

/// Stops all tasks that run in a state folder.
pub fn stop_tasks(legwork: impl Fn(&str) -> Command) {
    let mut list = legwork("ps");
    let Ok(output) = list.args(["--running", "--json", "-n", "10000"]).output() else { return };
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    for task in listed["tasks"].as_array().into_iter().flatten() {
        let id = task["task_id"].as_str().unwrap_or_default();
        let _ = legwork("stop").args([id, "--signal", "KILL"]).output();
    }
}

/// Waits until something is there.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The number that a fixture announced in a file, such as a port.
pub fn announced_number(path: &str) -> u32 {
    eventually(path, || fs::read_to_string(path).ok()?.parse().ok())
}

/// The pid that a fixture announced in a file.
pub fn announced(path: &str) -> u32 {
    windows::pid_here(announced_number(path), path)
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !matches!(stat.rsplit_once(") ").unwrap().1.as_bytes()[0], b'Z' | b'X')
}

/// Parent of a process.
pub fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The children of a process: each of its threads has its own.
pub fn children(pid: u32) -> Vec<u32> {
    // By their parents: the lists of a process's threads have gaps while a thread ends.
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent.and_then(|parent| parent.parse().ok()) == Some(pid)
    };
    let mut found: Vec<u32> = numbers.filter(is_child).collect();
    found.sort_unstable();
    found
}

/// Signals a process that the test started.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// A script in a mount namespace of its own; none where this machine does not allow that.
pub fn in_namespace(script: &str) -> Option<Command> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c"]);
    let allowed = Command::new("unshare").args(["--mount", "--map-root-user", "true"]).output();
    if allowed.is_ok_and(|output| output.status.success()) {
        command.arg(script).stdin(Stdio::null());
        return Some(command);
    }
    skips::skip("this machine allows no mount namespace");
    None
}

/// Runs a script with a small, full disk at `disk`, in a mount namespace of its own.
pub fn on_small_disk(scratch: &Scratch, options: &str, script: &str) -> Option<Output> {
    let disk = scratch.file("disk");
    fs::create_dir(&disk).unwrap();
    let script =
        format!("set -e; mount -t tmpfs -o {options} none {disk}; LW={}; {script}", program())
            .replace("$DISK", &disk);
    let mut command = in_namespace(&script)?;
    Some(command.current_dir(scratch.workspace.path()).output().unwrap())
}

/// Why a test skips that needs cgroups which limit a tree.
pub fn without_cgroups_here() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "this machine has no cgroup limits"
    } else {
        "only root can make cgroups here"
    }
}

/// Whether a program is here and does this; where programs are required, it must be.
pub fn has_program(program: &str, arguments: &[&str]) -> bool {
    let works = Command::new(program).args(arguments).output();
    let works = works.is_ok_and(|output| output.status.success());
    assert!(works || std::env::var_os("LEGWORK_REQUIRE_PROGRAMS").is_none(), "no {program}");
    if !works {
        skips::skip(&format!("{program} is not here, or may not do its work"));
    }
    works
}

/// Opens the gate that a fixture waits for.
pub fn open(gate: &str) {
    fs::File::create(gate).unwrap().flush().unwrap();
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code and both streams of a finished command.
pub fn parts(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The pid on the line that a script wrote into a file.
pub fn announced_line(path: &str) -> u32 {
    let told = eventually(path, || fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok());
    windows::pid_here(told, path)
}

/// A text in which every duration is the same.
pub fn without_times(text: &str) -> String {
    let times = regex::Regex::new(r"\b[0-9.]+ (ms|s|min)\b").unwrap();
    times.replace_all(text, "TIME").into_owned()
}
