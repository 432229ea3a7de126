//! Logins: a profile that changes only the environment costs nothing, and any other one is read by
//! a real login.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{Scratch, fixture, open, program},
    harness::stage,
    mcp::Wire,
};

/// A profile that changes nothing but the environment, in the ways that profiles do that.
const PLAIN: &str = "export GREETING='hello  there'\nPATH=\"$HOME/bin:$PATH\"\nexport EMPTY=\n\
    export LINES_OF='a\nb'\nif [ -d /usr ]; then export HAS_USR=yes; fi\nunset NOT_WANTED\n";

/// What a script prints with which its own shell was called.
const CALLED_AS: &str = "tr '\\0' ' ' </proc/$$/cmdline | cut -d' ' -f1-3";

/// How long a look at a login may take.
const LOOK: Duration = Duration::from_secs(20);

/// A server whose commands have a home of their own.
struct Home {
    folder: PathBuf,
    wire: Wire,
    log: Receiver<String>,
    /// Last, so that the server has lost its client when everything must end.
    scratch: Scratch,
}

impl Home {
    fn new(profile: &str) -> Self {
        Self::with(profile, &["--mode", "open"])
    }

    fn with(profile: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        // A sandbox shows it there too.
        let home = scratch.workspace.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join(".profile"), profile).unwrap();
        let mut command = legwork(&scratch, &home, &["mcp", "--structured"]);
        command.args(arguments).arg("--state").arg(scratch.state.path()).stderr(Stdio::piped());
        let mut wire = Wire::spawn(command);
        wire.initialize();
        let stderr = BufReader::new(wire.child.stderr.take().unwrap());
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { folder: home, wire, log, scratch }
    }

    /// Exit code and both streams of a script.
    fn run(&mut self, shell: &str, cmd: &str) -> (Value, String, String) {
        self.run_with(&json!({ "shell": shell, "cmd": cmd }))
    }

    fn run_with(&mut self, input: &Value) -> (Value, String, String) {
        let answer = self.wire.exec(input);
        streams(&answer["result"]["structuredContent"])
    }

    /// The same by a call of its own, which does what it is told.
    fn run_really(&self, shell: &str, cmd: &str) -> (Value, String, String) {
        let input = json!({ "shell": shell, "cmd": cmd }).to_string();
        let arguments = ["call", "ExecCommand", "--mode", "open", "--json", &input, "--state"];
        let mut call = legwork(&self.scratch, &self.folder, &arguments);
        streams(
            &serde_json::from_slice(&call.arg(self.scratch.state.path()).output().unwrap().stdout)
                .unwrap(),
        )
    }

    /// Lets the login be looked at, and says whether it can be replaced.
    fn looked_at(&mut self, shell: &str) -> bool {
        assert_eq!(
            self.called_as(shell),
            format!("{} -lc --", name(shell)),
            "the first one is real"
        );
        loop {
            let line = self.log.recv_timeout(Duration::from_secs(60)).unwrap();
            if line.contains("looked at a login") {
                return line.contains("true");
            }
        }
    }

    fn called_as(&mut self, shell: &str) -> String {
        let (_, called, _) = self.run(shell, CALLED_AS);
        // A profile may print something else.
        let line = called.lines().find(|line| line.starts_with(name(shell)));
        line.unwrap_or_default().to_owned()
    }
}

/// The program, with an environment that is the same on every machine.
fn legwork(scratch: &Scratch, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(scratch.workspace.path()).stdin(Stdio::null());
    command.env_clear().envs([
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("SHLVL", "2"),
        ("LANG", "C.UTF-8"),
        ("NOT_WANTED", "1"),
        ("odd.name", "1"),
        ("_", "/usr/bin/something"),
        ("LEGWORK_LOG", "legwork::place::local::login=debug"),
    ]);
    command.env("HOME", home).env("XDG_CONFIG_HOME", scratch.state.path());
    command
}

/// Exit code and both streams.
fn streams(envelope: &Value) -> (Value, String, String) {
    let result = &envelope["result"];
    let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(result["disposition"], "completed", "{envelope:#}");
    (result["exit_status"].clone(), text("stdout_preview"), text("stderr_preview"))
}

/// Folders that are of no command: those have one if the machine was slow.
fn left_of_looks(scratch: &Scratch) -> Vec<String> {
    let mut folders = scratch.folders();
    folders.retain(|name| !name.starts_with("t_"));
    folders
}

fn name(shell: &str) -> &str {
    shell.rsplit('/').next().unwrap()
}

fn replaced(shell: &str) -> &'static str {
    if shell == "bash" { "bash --noprofile -lc" } else { "dash -c --" }
}

#[test]
fn a_profile_that_changes_only_the_environment_is_replaced_by_it() {
    for shell in ["bash", "dash"] {
        let mut home = Home::new(PLAIN);
        assert!(home.looked_at(shell), "{shell}");
        assert_eq!(home.called_as(shell), replaced(shell));
        assert_eq!(home.run(shell, "echo \"$GREETING $HAS_USR\"").1, "hello  there yes");
        // Nobody asked for the looks: they are no tasks, and nothing is left of them.
        assert_eq!(home.scratch.tasks().len(), 3);
        assert_eq!(left_of_looks(&home.scratch), [""; 0]);
        assert!(home.scratch.tasks().iter().all(|task| task["login"] == true));
    }
}

#[test]
fn a_profile_that_does_anything_else_is_read_by_a_real_login() {
    let waits = format!("{} wait-for \"$HOME/over\" &", fixture());
    let waits_alone = format!("({waits}) >/dev/null 2>&1");
    let common = [
        ("a function", "f() { :; }"),
        ("an alias", "alias ll='ls -l'"),
        ("an option", "set -u"),
        ("a trap", "trap 'echo bye' EXIT"),
        ("an ignored signal", "trap '' USR1"),
        ("a variable that is not exported", "SECRET_PLACE=1"),
        ("output", "echo welcome"),
        ("errors", "echo careful >&2"),
        ("another folder", "cd /"),
        ("a file mode mask", "umask 077"),
        ("a limit", "ulimit -n 64"),
        ("a descriptor", "exec 7</dev/null"),
        ("stderr elsewhere", "exec 2>/dev/null"),
        ("stdin elsewhere", "exec </etc/passwd"),
        ("arguments", "set -- a b"),
        ("a status", "false"),
        ("a process in the background", &waits),
        ("a process in the background that nobody waits for", &waits_alone),
        ("something else each time", "export NOW=$(date +%s.%N)"),
        ("a remembered command", "date >/dev/null"),
        ("a line in a log", "date >>\"$HOME/log\""),
        ("a constant", "readonly GREETING=1; export GREETING"),
    ];
    let of_one = [
        ("bash", "a shell option", "shopt -s nullglob"),
        ("bash", "an array", "LIST=(a b)"),
        ("bash", "loaded dice", "RANDOM=7"),
        ("bash", "a clock set forward", "SECONDS=1000"),
        ("dash", "a function in a text", "eval 'f() { :; }'"),
    ];
    let both =
        common.iter().flat_map(|(what, line)| [("bash", *what, *line), ("dash", *what, *line)]);
    at_once(both.chain(of_one), |(shell, what, line)| {
        let mut home = Home::new(&format!("{PLAIN}{line}\n"));
        assert!(!home.looked_at(shell), "{what}, {shell}");
        assert_eq!(home.called_as(shell), format!("{shell} -lc --"), "{what}");
        open(home.folder.join("over").to_str().unwrap());
    });
}

#[test]
fn a_profile_that_ends_its_shell_is_not_replaced() {
    let mut home = Home::new("export A=1; exit 3");
    assert_eq!(home.run("bash", "echo never").0, 3);
    let line = home.log.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(line.contains("false"), "{line}");
    assert_eq!(home.run("bash", "echo never"), (json!(3), String::new(), String::new()));
}

#[test]
fn a_changed_profile_is_seen_at_once() {
    let mut home = Home::new(PLAIN);
    assert!(home.looked_at("bash"));
    assert_eq!(home.called_as("bash"), replaced("bash"));
    fs::write(home.folder.join(".profile"), "export GREETING=changed; f() { echo f; }").unwrap();
    assert_eq!(home.run("bash", "f; echo $GREETING").1, "f\nchanged");
    fs::write(home.folder.join(".bash_profile"), "export GREETING=another").unwrap();
    assert_eq!(home.run("bash", "echo $GREETING").1, "another");
}

#[test]
fn whoever_could_see_the_difference_gets_a_real_login() {
    let mut home = Home::new(PLAIN);
    assert!(home.looked_at("bash"));
    let listing = format!("set >/dev/null; {CALLED_AS}");
    assert_eq!(home.run("bash", &listing).1, "bash -lc --");
    let input = json!({ "shell": "bash", "cmd": CALLED_AS, "tty": true });
    assert_eq!(home.run_with(&input).1, "bash -lc --", "a profile may look at its terminal");
    let input = json!({ "shell": "bash", "cmd": CALLED_AS, "accepts_input": true });
    assert_eq!(home.run_with(&input).1, "bash -lc --", "a profile may read its stdin");
    assert_eq!(home.called_as("bash"), replaced("bash"));
}

#[test]
fn a_login_in_a_sandbox_gets_the_environment_that_it_would_have_there() {
    let profile = "[ -w /etc ] && export ETC=writable\nexport WHERE=$PWD\n: done\n";
    let mut home = Home::with(profile, &["--trust", "trusted_integration"]);
    assert!(home.looked_at("bash"));
    assert_eq!(home.called_as("bash"), replaced("bash"));
    let workspace = home.scratch.workspace.path().canonicalize().unwrap();
    let (_, printed, _) = home.run("bash", "echo $ETC$WHERE");
    assert_eq!(printed, workspace.to_str().unwrap());
}

#[test]
fn a_call_that_is_made_alone_looks_at_nothing() {
    let (scratch, home) = (Scratch::new(), TempDir::new().unwrap());
    fs::write(home.path().join(".profile"), "echo x >>\"$HOME/read\"").unwrap();
    let input = json!({ "cmd": "true", "shell": "bash" }).to_string();
    let mut call = scratch.legwork("call");
    assert!(
        call.env("HOME", home.path()).args(["ExecCommand", &input]).status().unwrap().success()
    );
    assert_eq!(fs::read_to_string(home.path().join("read")).unwrap(), "x\n");
}

#[test]
fn a_look_does_not_hold_up_the_end_of_the_server() {
    let profile = "export A=1\n[ -e \"$HOME/read\" ] && { echo $$ >\"$HOME/look\"; sleep 600; }\n: >\"$HOME/read\"\n";
    let mut home = Home::new(profile);
    home.run("bash", "true");
    let look = home.folder.join("look");
    let pid = crate::common::announced_line(look.to_str().unwrap());
    let start = Instant::now();
    home.wire.stdin = None;
    home.wire.child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(!crate::common::is_alive(pid));
    assert_eq!(left_of_looks(&home.scratch), [""; 0]);
}

/// Every script gives the same with and without the profile.
#[test]
fn no_script_can_tell_the_difference() {
    let profiles = [
        PLAIN,
        "export PATH=/opt/tools/bin:/usr/bin:/bin EDITOR=vi PAGER=cat LESS=-R\n",
        "for folder in a b c; do PATH=$PATH:/$folder; done; unset folder\nexport A=1 B=2 C=3 D=4 E=5\n",
        "export SHLVL=7 OLDPWD=/tmp TERM=dumb\n: last word\n",
    ];
    let cases = profiles.into_iter().flat_map(|profile| [("bash", profile), ("dash", profile)]);
    at_once(cases, |(shell, profile)| {
        let mut home = Home::new(profile);
        assert!(home.looked_at(shell), "{profile:?} in {shell}");
        assert_eq!(home.called_as(shell), replaced(shell));
        for script in include_str!("data/login-scripts.txt").lines() {
            let ours = home.run(shell, script);
            assert_eq!(
                ours,
                home.run_really(shell, script),
                "{script:?} in {shell} after {profile:?}"
            );
        }
    });
}

/// Does the same for all of them, a few at a time.
fn at_once<T: Send>(cases: impl Iterator<Item = T> + Send, each: impl Fn(T) + Sync) {
    let cases = Mutex::new(cases);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().next() } {
                    each(case);
                }
            });
        }
    });
}

#[test]
fn a_profile_that_prints_and_hangs_holds_up_no_answer_and_its_time_counts() {
    let policies = TempDir::new().unwrap();
    let policy = policies.path().join("policy.toml");
    fs::write(&policy, "[limits]\nwall_ms_max = 1000\n").unwrap();
    let profile = "echo from the profile\nread -r line <\"$HOME/nobody-writes\"\n";
    for shell in ["bash", "sh"] {
        let arguments = ["--mode", "open", "--policy", policy.to_str().unwrap()];
        let mut home = Home::with(profile, &arguments);
        let fifo = home.folder.join("nobody-writes");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let input = json!({ "shell": shell, "cmd": "echo ran", "yield_time_ms": 100 });
        let begin = Instant::now();
        let answer = home.wire.exec(&input)["result"]["structuredContent"].clone();
        assert_eq!(answer["result"]["disposition"], "promoted_to_task", "{answer:#}");
        let task = answer["result"]["task_handle"]["task_id"].clone();
        home.wire.tool("TaskWait", &json!({ "task_ids": [task] }));
        assert!(begin.elapsed() < LOOK, "nobody waits for a look: {:?}", begin.elapsed());
        let all = json!({ "task_id": task, "after": "start" });
        let told = home.wire.tool("TaskOutput", &all);
        assert!(told.contains("Status: failed") && !told.contains("ran"), "{told}");
        assert!(told.contains("from the profile"), "what it prints is the command's: {told}");
        let ended = &home.scratch.tasks()[0]["outcome"]["ended_by"];
        assert_eq!(ended, "timeout", "the profile's time is the command's");
        // A look is under way, and hangs too: it does not keep the server.
        let begin = Instant::now();
        drop(home.wire.stdin.take());
        assert!(home.wire.child.wait().unwrap().success());
        assert!(begin.elapsed() < LOOK, "{:?}", begin.elapsed());
    }
}

#[test]
fn what_a_profile_says_of_the_sandbox_is_no_output_of_the_command() {
    if !stage::is_seen_in_sandboxes() {
        return;
    }
    let elsewhere = TempDir::new_in(stage::folder()).unwrap();
    let written = elsewhere.path().join("of-a-profile");
    let tool = format!("#!/bin/sh\ntouch '{}'\n", written.display());
    // One that defines a function has to be a real login; the other one is replaced.
    for (more, is_replaced) in [("", true), ("greet() { echo \"$GREETING you\"; }\n", false)] {
        let profile = format!("\"$HOME/tool\"\nexport GREETING=hello\n{more}");
        let mut home = Home::with(&profile, &["--mode", "guarded"]);
        fs::write(home.folder.join("tool"), &tool).unwrap();
        fs::set_permissions(home.folder.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(home.looked_at("bash"), is_replaced);
        let (code, stdout, stderr) = home.run("bash", "echo \"$GREETING\"; echo own >&2");
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (json!(0), "hello", "own"));
        let own = elsewhere.path().join("of-a-command");
        let (_, _, stderr) = home.run("bash", &format!("touch {}", own.display()));
        assert!(stderr.contains("of-a-command") && !stderr.contains("of-a-profile"), "{stderr}");
        assert!(!written.exists() && !own.exists());
    }
}
