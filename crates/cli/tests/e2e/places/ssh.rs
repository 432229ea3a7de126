//! A place over ssh: OpenSSH's server on the loopback device, with a configuration of its own.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    There, assert_as_here, names_in, recorded, serving,
    session::{assert_same, session},
    task_of, with,
};
use crate::common::{
    Scratch, announced, children, eventually, fixture, has_program, is_alive, open, parts, program,
    signal, text,
};

const SSHD: &str = "/usr/sbin/sshd";

/// A server, and what a client needs to reach it.
pub struct Sshd {
    server: Option<Child>,
    folder: TempDir,
    port: u16,
}

impl Sshd {
    /// Starts one; none where that cannot be done, which is said.
    fn start() -> Option<Self> {
        Self::with(|_| String::new())
    }

    /// The same for a user without a profile: what that takes is not measured.
    pub fn without_profile() -> Option<Self> {
        Self::with(|folder| format!("HOME={folder}"))
    }

    fn with(variables: impl Fn(&str) -> String) -> Option<Self> {
        if !has_program("ssh", &["-V"]) || !has_program("test", &["-x", SSHD]) {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]);
            assert!(make.status().unwrap().success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\nSetEnv XDG_CACHE_HOME={} {}\n",
            file("host"),
            file("user.pub"),
            file("cache"),
            variables(folder.path().to_str().unwrap()),
        );
        fs::write(file("sshd_config"), configuration).unwrap();
        let mut sshd = Self { server: None, folder, port };
        sshd.serve();
        Some(sshd)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts the server, or starts it again.
    fn serve(&mut self) {
        let serve = format!("exec {SSHD} -D -e -f {}", self.file("sshd_config"));
        let mut command = Command::new("sh");
        if rustix::process::geteuid().is_root() {
            // As root it wants a folder that is only there where it is a service.
            let own = format!("mount -t tmpfs none /run && mkdir /run/sshd && {serve}");
            command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &own]);
        } else {
            command.args(["-c", &serve]);
        }
        let said = fs::File::create(self.file("sshd.log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        self.server = Some(command.spawn().unwrap());
        eventually("sshd listens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// Ends the server and every session of it, as when the machine is cut off.
    fn cut(&mut self) {
        let mut server = self.server.take().unwrap();
        let all = sessions(server.id());
        for pid in all.into_iter().chain([server.id()]).filter(|pid| is_alive(*pid)) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(),
                Signal::KILL,
            );
        }
        server.wait().unwrap();
    }
}

/// The processes of a server that hold its connections.
fn sessions(pid: u32) -> Vec<u32> {
    let is_sshd = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("sshd"))
    };
    let direct: Vec<u32> = children(pid).into_iter().filter(is_sshd).collect();
    direct.iter().flat_map(|pid| [vec![*pid], sessions(*pid)].concat()).collect()
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.cut();
        }
    }
}

impl There for Sshd {
    fn configuration(&self, scratch: &Scratch) -> String {
        format!("{}program = {:?}\n", self.sending(scratch), program())
    }
}

impl Sshd {
    fn options(&self) -> Vec<String> {
        let (port, key) = (self.port.to_string(), self.file("user"));
        let mut options = ["-F", "none", "-p", &port, "-i", &key].map(str::to_owned).to_vec();
        for option in ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        options
    }

    /// What runs a command there over a connection that is shared by this socket.
    pub fn shared(&self, socket: &str, command: &str) -> Vec<String> {
        let mut words = vec!["ssh".to_owned()];
        words.extend(self.options());
        let path = format!("ControlPath={socket}");
        for option in ["ControlMaster=auto", "ControlPersist=60", &path] {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        words.extend(["127.0.0.1", command].map(str::to_owned));
        words
    }

    /// The same without a program there: this one is sent.
    fn sending(&self, scratch: &Scratch) -> String {
        let options = self.options();
        format!(
            "[place.there]\nkind = \"ssh\"\nhost = \"127.0.0.1\"\noptions = {options:?}\nstate = {:?}\n",
            scratch.file("far"),
        )
    }
}

#[test]
fn a_session_reads_the_same_over_ssh_as_on_this_machine() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start() else { return };
    let here = session(&scratch, "", None, &[]);
    let there = session(&scratch, &sshd.configuration(&scratch), Some("there"), &[]);
    assert_same(&there, &here);
    let far = scratch.file("far");
    // What ended is here, and nothing of it there.
    eventually("the place is clean", || names_in(&format!("{far}/tasks")).is_empty().then_some(()));
    assert_eq!(names_in(&format!("{far}/begun")), [""; 0]);
    // Whoever reads the output later needs no connection.
    let task = scratch.tasks().last().unwrap()["task_id"].as_str().unwrap().to_owned();
    drop(sshd);
    let printed = scratch.legwork("logs").arg(task).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
}

#[test]
fn a_command_over_ssh_is_as_one_here_in_code_streams_and_input() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start() else { return };
    let configuration = sshd.configuration(&scratch);
    let run = |words: &[&str]| {
        let mut command = with(&scratch, "run", &configuration);
        command.args(["--place", "there", "--"]).args(words);
        command
    };
    assert_as_here(&scratch, run);
    assert_eq!(names_in(&scratch.file("far/begun")), [""; 0]);
}

#[test]
fn a_new_server_adopts_over_ssh_what_a_killed_one_left() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start() else { return };
    let configuration = sshd.configuration(&scratch);
    let gate = scratch.file("gate");
    let mut first = serving(&scratch, &configuration, &[]);
    let cmd = format!("echo on; {} wait-then-exit {gate} 7; exit 7", fixture());
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
    let task = task_of(&first.tool("ExecCommand", &input));
    signal(first.child.id(), Signal::KILL);
    first.child.wait().unwrap();
    let mut second = serving(&scratch, &configuration, &[]);
    open(&gate);
    let waited = second.tool("TaskWait", &json!({ "task_ids": [task] }));
    assert!(waited.contains("Exit status: 7"), "{waited}");
    let told = second.tool("TaskOutput", &json!({ "task_id": task, "after": "start" }));
    assert!(told.ends_with("\non"), "{told}");
}

#[test]
fn a_lost_connection_loses_nothing() {
    let scratch = Scratch::new();
    let Some(mut sshd) = Sshd::start() else { return };
    let configuration = sshd.configuration(&scratch);
    let (gate, starts) = (scratch.file("gate"), scratch.file("starts"));
    let mut wire = serving(&scratch, &configuration, &[]);
    let f = fixture();
    let cmd = format!(
        "echo start >> {starts}; echo before; {f} wait-then-exit {gate} 0; seq 1 30000; exit 5"
    );
    let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": 0, "place": "there" });
    let task = task_of(&wire.tool("ExecCommand", &input));
    let until = json!({ "output_matches": "before" });
    wire.tool("TaskWait", &json!({ "task_ids": [task], "until": until }));
    sshd.cut();
    // It runs on, and whoever lists tasks does not wait for a machine that does not answer.
    let begin = Instant::now();
    assert_eq!(recorded(&scratch, &task)["status"], "running");
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    let refused = wire.exec(&json!({ "cmd": "true", "login": false, "place": "there" }));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    open(&gate);
    sshd.serve();
    let waited = wire.tool("TaskWait", &json!({ "task_ids": [task], "timeout_ms": 60_000 }));
    assert!(waited.contains("Exit status: 5"), "{waited}");
    let printed = text(&scratch.printed(&json!(task)));
    assert!(printed.starts_with("before\n1\n2\n") && printed.ends_with("\n30000\n"));
    assert_eq!(fs::read_to_string(&starts).unwrap(), "start\n");
}

#[test]
fn everything_is_removed_only_with_the_tasks_at_the_place() {
    let scratch = Scratch::new();
    let Some(mut sshd) = Sshd::start() else { return };
    let ready = scratch.file("ready");
    let mut run = with(&scratch, "run", &sshd.configuration(&scratch));
    run.args(["-d", "--place", "there", "--", fixture(), "ignore-term", &ready]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let task = announced(&ready);
    let remove = || {
        let mut setup = scratch.legwork("setup");
        setup.args(["--remove", "--all", "--yes"]).env("HOME", scratch.workspace.path());
        parts(&setup.output().unwrap())
    };
    sshd.cut();
    let (code, listed, said) = remove();
    assert_eq!(code, Some(125), "{listed}{said}");
    assert!(
        listed.contains("  stop     the task t_") && listed.contains(" at there\n"),
        "{listed}"
    );
    assert!(said.contains("nothing was removed: the task t_"), "{said}");
    assert!(is_alive(task) && scratch.state.path().join("ledger.db").exists());
    sshd.serve();
    let (code, listed, said) = remove();
    assert_eq!(code, Some(0), "{listed}{said}");
    eventually("the task ends", || (!is_alive(task)).then_some(()));
    assert!(!scratch.state.path().join("ledger.db").exists());
}

#[test]
fn a_program_is_sent_to_a_place_that_has_none() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start() else { return };
    let configuration = sshd.sending(&scratch);
    let run = || {
        let mut command = with(&scratch, "run", &configuration);
        command.args(["--place", "there", "--", "sh", "-c", "echo $PPID; echo sent"]);
        command.output().unwrap()
    };
    let output = run();
    assert!(text(&output.stdout).ends_with("sent\n"), "{output:?}");
    let kept = names_in(&sshd.file("cache/legwork"));
    assert_eq!(kept.len(), 1, "{kept:?}");
    let kept = Path::new(&sshd.file("cache/legwork")).join(&kept[0]).join("legwork");
    let sent = fs::metadata(&kept).unwrap().modified().unwrap();
    // Once is enough.
    assert!(run().status.success());
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), sent);
    let mut check = with(&scratch, "places", &configuration);
    let output = check.args(["--check", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["places"][1]["same_program"], true, "{told:#}");
    assert_eq!(told["places"][1]["ok"], true, "{told:#}");
}

#[test]
fn rules_and_the_sandbox_count_at_a_place_too() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start() else { return };
    let configuration = format!(
        "excludeTools = [\"run_shell_command(rm)\", \"ExecCommand(rm)\"]\n{}",
        sshd.configuration(&scratch)
    );
    let call = |cmd: &str| -> Value {
        let input = json!({ "cmd": cmd, "login": false, "place": "there" }).to_string();
        let mut call = scratch.guarded("call", "guarded", Some(&configuration));
        let output = call.args(["ExecCommand", "--json", &input]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
    };
    let denied = call("rm -rf build");
    assert_eq!(denied["error"]["kind"], "command_denied", "{denied:#}");
    let told = call("echo in > inside; touch /usr/local/legwork-test-outside");
    let result = &told["result"];
    if told["sandbox"]["missing"].as_array().is_some_and(|missing| !missing.is_empty()) {
        skips::skip("this machine has no whole sandbox");
        return;
    }
    assert_ne!(result["exit_status"], 0, "{told:#}");
    assert_eq!(fs::read_to_string(scratch.file("inside")).unwrap(), "in\n");
    assert!(!Path::new("/usr/local/legwork-test-outside").exists());
}

#[test]
fn a_place_that_cannot_be_reached_is_said_to_be() {
    let scratch = Scratch::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let configuration = format!(
        "[place.gone]\nkind = \"ssh\"\nhost = \"127.0.0.1\"\noptions = [\"-F\", \"none\", \"-p\", \
         \"{port}\"]\nprogram = \"legwork\"\n"
    );
    let mut command = with(&scratch, "run", &configuration);
    let output = command.args(["--place", "gone", "--", "true"]).output().unwrap();
    let (code, _, said) = parts(&output);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("gone") && said.contains("refused"), "{said}");
    let mut command = with(&scratch, "run", &configuration);
    let output = command.args(["--place", "nowhere", "--", "true"]).output().unwrap();
    let (_, _, said) = parts(&output);
    assert!(said.contains("there is no place `nowhere`"), "{said}");
    assert!(said.contains("local, gone"), "{said}");
    // Nothing was started, and nothing is recorded as begun.
    assert_eq!(scratch.tasks(), Vec::<Value>::new());
    let mut check = with(&scratch, "places", &configuration);
    let output = check.arg("--check").output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
fn a_choice_of_places_is_offered_where_there_are_several() {
    let scratch = Scratch::new();
    let properties = |configuration: &str| -> Value {
        let mut wire = serving(&scratch, configuration, &[]);
        let listed = wire.request("tools/list", &json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == "ExecCommand").unwrap();
        tool["inputSchema"]["properties"]["place"].clone()
    };
    assert_eq!(properties(""), Value::Null);
    let place = "[place.there]\nkind = \"ssh\"\nhost = \"there.invalid\"\n";
    assert_eq!(properties(place)["enum"], json!(["local", "there"]));
    let default = format!("[place]\ndefault = \"there\"\n{place}");
    assert_eq!(properties(&default)["description"], "The place to run at. Default: there.");
}
