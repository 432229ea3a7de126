//! `legwork setup --remove --all`: after it nothing of Legwork is in a home, and all else is.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Signal, geteuid};
use serde_json::json;

use super::Home;
use crate::{
    common::{
        Scratch, announced, eventually, fixture, is_alive, program, signal, stop_tasks, text,
    },
    harness::watch::{Times, Watch},
};

const STATE: &str = ".local/state/legwork";
const CONFIG: &str = ".config/legwork/config.toml";

/// A home that Legwork was used in.
struct Used {
    home: Home,
    watch: Watch,
}

impl Used {
    fn new() -> Self {
        let home = Home::new();
        let watch = Watch::new(&[home.folder.path().to_owned()], Times::USUAL);
        let used = Self { home, watch };
        used.home.write(CONFIG, "[retention]\ndays = 3\n");
        used.done("sh", &["--mode", "open", "echo used"]);
        used
    }

    /// `legwork VERB` as the person at home calls it.
    fn legwork(&self, verb: &str) -> Command {
        let mut command = Command::new(program());
        command.arg(verb).current_dir(self.home.path("project")).stdin(Stdio::null());
        command.env("HOME", self.home.folder.path()).env("SHELL", "/bin/sh");
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "LEGWORK_STATE"] {
            command.env_remove(name);
        }
        command
    }

    fn done(&self, verb: &str, arguments: &[&str]) -> String {
        let output = self.legwork(verb).args(arguments).output().unwrap();
        assert!(output.status.success(), "{verb} {arguments:?}: {output:?}");
        text(&output.stdout)
    }

    fn remove(&self, more: &[&str]) -> Output {
        self.legwork("setup").args(["--remove", "--all"]).args(more).output().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    /// A server that a client has started and keeps open, once it runs.
    fn server(&self) -> Child {
        let mut command = self.legwork("mcp");
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } });
        writeln!(server.stdin.as_mut().unwrap(), "{hello}").unwrap();
        let engines = self.path(STATE).join("engines");
        eventually("the server runs", || {
            let names = fs::read_dir(&engines).ok()?.flatten();
            names.filter(|it| it.file_name() != ".spare").count().gt(&0).then_some(())
        });
        server
    }

    /// A task that runs on, and the pid of its command.
    fn task(&self) -> u32 {
        let ready = self.path("project/ready").to_str().unwrap().to_owned();
        self.done("run", &["--mode", "open", "-d", "--", fixture(), "ignore-term", &ready]);
        announced(&ready)
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            stop_tasks(|verb| self.legwork(verb));
        }
        self.watch.finish();
    }
}

/// The names in a folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn nothing_is_removed_without_a_person_and_everything_that_would_be_is_listed() {
    let used = Used::new();
    used.home.write(".cursor/mcp.json", "{\"mcpServers\": {}}\n");
    used.home.done(&["cursor"]);
    let task = used.task();
    for (more, code) in [(&[][..], 125), (&["--print"][..], 0)] {
        let output = used.remove(more);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let told = said(&output);
        for what in ["stop     the task t_", STATE, CONFIG, "~/.cursor/mcp.json: without Legwork"] {
            assert!(told.contains(what), "{what}: {told}");
        }
        assert_eq!(told.contains("--remove --all --yes"), more.is_empty(), "{told}");
        assert!(is_alive(task) && used.path(CONFIG).exists());
        assert!(used.home.read(".cursor/mcp.json").contains("legwork"));
    }
}

#[test]
fn everything_goes_with_a_task_a_trial_and_a_server_and_nothing_of_others_does() {
    let used = Used::new();
    let before = "{\"mcpServers\": {\"x\": {\"command\": \"x\"}}}\n";
    used.home.write(".cursor/mcp.json", before);
    used.home.write(".config/legwork/mine.txt", "mine");
    used.home.done(&["cursor", "gemini"]);
    used.home.done(&["claude-code", "--scope", "project"]);
    if crate::trials::can_try() {
        used.done("try", &["--sh", "mkdir made; echo x > made/file"]);
        assert!(used.path(STATE).join("trials").read_dir().unwrap().next().is_some());
    }
    let mut server = used.server();
    let task = used.task();
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("The program stays: "), "{output:?}");
    eventually("the task ends", || (!is_alive(task)).then_some(()));
    server.wait().unwrap();
    for gone in [STATE, CONFIG, ".gemini", "project/.mcp.json"] {
        assert!(!used.path(gone).exists(), "{gone}");
    }
    assert_eq!(used.home.read(".cursor/mcp.json"), before);
    assert_eq!(used.home.read(".config/legwork/mine.txt"), "mine");
    assert!(used.path("project/ready").exists());
    let again = used.remove(&[]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(text(&again.stdout).starts_with("Nothing of Legwork is in your files."), "{again:?}");
}

#[test]
fn a_damaged_state_folder_goes_and_what_somebody_else_put_there_stays() {
    let used = Used::new();
    let state = used.path(STATE);
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-daybook", "audit.jsonl"] {
        fs::write(state.join(name), [7; 5000]).unwrap();
    }
    fs::remove_dir_all(state.join("tasks")).unwrap();
    fs::write(state.join("tasks"), "no folder").unwrap();
    fs::write(state.join("notes.txt"), "mine").unwrap();
    symlink(used.path("project"), state.join("trials")).unwrap();
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).contains("notes.txt: not made by Legwork"), "{output:?}");
    assert_eq!(names_in(&state), ["notes.txt"]);
    assert!(used.path("project").exists(), "a link is not followed");
}

#[test]
fn what_cannot_be_removed_is_named_with_the_way_and_the_rest_goes() {
    let used = Used::new();
    used.home.write(".cursor/mcp.json", "{ broken");
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("not removed: Cursor: ") && told.contains("correct it"), "{told}");
    assert!(!used.path(STATE).exists() && !used.path(CONFIG).exists());
    assert_eq!(used.home.read(".cursor/mcp.json"), "{ broken");
}

#[test]
fn a_clients_file_is_as_before_though_it_has_to_be_corrected_first() {
    let used = Used::new();
    let (file, before) = (".codex/config.toml", "[features]\nshell_tool = true # I want it\n");
    used.home.write(file, before);
    used.home.done(&["codex", "--shell-off"]);
    let changed = used.home.read(file);
    used.home.write(file, &format!("{changed}oops = \n"));
    let printed = used.remove(&["--print"]);
    assert_eq!(printed.status.code(), Some(125), "{printed:?}");
    assert_eq!(said(&printed).matches("  keep     Codex: ").count(), 1, "{printed:?}");
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let told = text(&output.stderr);
    assert_eq!(told.matches("not removed: Codex: ").count(), 1, "{told}");
    assert_eq!(names_in(&used.path(STATE)), ["setup"]);
    assert!(
        text(&output.stdout).contains("  keep     ~/.local/state/legwork/setup: "),
        "{output:?}"
    );
    // Nothing has become better, and nothing else is left to be asked about.
    let again = used.remove(&[]);
    assert_eq!(again.status.code(), Some(125), "{again:?}");
    assert!(said(&again).contains("nothing of Legwork is in your other files"), "{again:?}");
    assert_eq!(names_in(&used.path(STATE)), ["setup"]);
    used.home.write(file, &changed);
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(used.home.read(file), before);
    assert!(!used.path(STATE).exists());
}

#[test]
fn saved_tokens_go_and_so_does_what_a_server_serves_by() {
    let used = Used::new();
    used.done("token", &["add", "bob", "--role", "operator", "--save"]);
    fs::create_dir(used.path(STATE).join("serving")).unwrap();
    assert!(used.path(STATE).join("saved/bob.header").exists());
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!said(&output).contains("not made by Legwork"), "{output:?}");
    assert!(!used.path(STATE).exists());
}

#[test]
fn what_a_removal_left_in_the_usual_folder_goes_and_a_folder_of_others_stays() {
    let used = Used::new();
    assert_eq!(used.remove(&["--yes"]).status.code(), Some(0));
    for left in ["trials/t_1/file", "ledger.db.new", "ledger.db.rebuild", "setup/x.json"] {
        used.home.write(&format!("{STATE}/{left}"), "left");
        let output = used.remove(&["--yes"]);
        assert_eq!(output.status.code(), Some(0), "{left}: {output:?}");
        assert!(!used.path(STATE).exists(), "{left}: {output:?}");
    }
    for name in ["tasks", "tmp", "trials", "recent", "places"] {
        used.home.write(&format!("project/w/{name}/mine.json"), "mine");
    }
    let output = used.remove(&["--yes", "--state", "w"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.starts_with("Nothing of Legwork is in your files."), "{told}");
    assert!(told.contains("keep     w/tasks: not made by Legwork"), "{told}");
    let left = names_in(&used.path("project/w"));
    assert_eq!(left, ["places", "recent", "tasks", "tmp", "trials"]);
    assert_eq!(used.home.read("project/w/tasks/mine.json"), "mine");
}

#[test]
fn a_state_folder_of_another_user_is_left_to_that_user() {
    if !geteuid().is_root() {
        skips::skip("only root can give a folder to another user");
        return;
    }
    let used = Used::new();
    let task = used.task();
    chown(used.path(STATE), Some(1234), None).unwrap();
    let output = used.remove(&["--yes"]);
    chown(used.path(STATE), Some(0), None).unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("belongs to the user 1234"), "{output:?}");
    assert!(is_alive(task) && used.path(CONFIG).exists());
    assert!(used.path(STATE).join("ledger.db").exists());
}

#[test]
fn a_state_folder_goes_that_is_closed_or_a_link_and_a_file_is_named() {
    let used = Used::new();
    let (state, task) = (used.path(STATE), used.task());
    fs::set_permissions(&state, fs::Permissions::from_mode(0o000)).unwrap();
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    eventually("the task ends", || (!is_alive(task)).then_some(()));
    assert!(!state.exists());
    used.done("sh", &["--mode", "open", "echo used"]);
    fs::rename(&state, used.path("elsewhere")).unwrap();
    symlink(used.path("elsewhere"), &state).unwrap();
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!state.is_symlink());
    assert_eq!(names_in(&used.path("elsewhere")), [""; 0]);
    fs::write(&state, "a file").unwrap();
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains(".local/state/legwork: it is no folder"), "{output:?}");
    fs::remove_file(&state).unwrap();
}

#[test]
fn a_server_that_is_halted_ends_by_itself() {
    let used = Used::new();
    let mut server = used.server();
    signal(server.id(), Signal::STOP);
    let output = used.remove(&["--yes"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_ne!(server.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
}

#[test]
fn what_takes_long_to_end_is_named() {
    let used = Used::new();
    let ready = used.path("project/ready");
    // By its name a program of ours; and nothing else keeps the folder open.
    let own = used.path("legwork-slow");
    symlink(fixture(), &own).unwrap();
    let folder = fs::File::open(used.path(STATE).join("tasks")).unwrap();
    let mut slow = Command::new(&own).arg("ignore-term").arg(&ready).stdin(folder).spawn().unwrap();
    announced(ready.to_str().unwrap());
    let mut remove = used.legwork("setup");
    remove.args(["--remove", "--all", "--yes"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut remove = remove.spawn().unwrap();
    let mut told = String::new();
    BufReader::new(remove.stderr.take().unwrap()).read_line(&mut told).unwrap();
    signal(slow.id(), Signal::KILL);
    slow.wait().unwrap();
    assert!(told.contains("s for `legwork-slow ignore-term"), "{told}");
    assert!(remove.wait().unwrap().success());
    assert!(!used.path(STATE).exists());
}

#[test]
fn nothing_but_the_word_that_is_asked_for_removes_anything() {
    let (used, scratch) = (Used::new(), Scratch::new());
    let home = used.home.folder.path().display();
    let cmd = format!(
        "env -u XDG_CONFIG_HOME -u XDG_STATE_HOME -u LEGWORK_STATE HOME={home} {} setup --remove --all",
        program()
    );
    let no = "nothing was removed";
    for (typed, told) in [("y", no), ("yes", no), ("", no), ("remove", "The program stays: ")] {
        let task = scratch.promote(&cmd, &json!({ "tty": true }));
        scratch.screen_with(&task, "to remove it:");
        scratch.send(&task, &json!({ "input": format!("{typed}\n") }));
        scratch.screen_with(&task, told);
        scratch.wait(&task, &json!({ "exit": true }));
        assert_eq!(used.path(STATE).exists(), told == no, "{typed:?}");
    }
}

#[test]
fn a_task_of_legwork_does_not_remove_what_it_runs_under() {
    let used = Used::new();
    let mut command = used.legwork("run");
    command.args(["--mode", "open", "--", program(), "setup", "--remove", "--all", "--yes"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(said(&output).contains("itself a task of Legwork"), "{output:?}");
    assert!(used.path(STATE).exists() && used.path(CONFIG).exists());
}

/// Folders that their owner cannot enter, or change.
fn closed(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let data = entry.path().symlink_metadata().unwrap();
        if data.is_dir() {
            if data.mode() & 0o700 != 0o700 {
                found.push(entry.path());
            }
            found.extend(closed(&entry.path()));
        }
    }
    found
}

#[test]
fn rm_removes_a_state_folder_with_a_trial_that_is_open() {
    if !crate::trials::can_try() {
        return;
    }
    let used = Used::new();
    used.done("try", &["--sh", "echo x > file"]);
    let trials = used.path(STATE).join("trials");
    assert!(trials.read_dir().unwrap().next().is_some());
    // Root removes them whatever their modes are.
    assert_eq!(closed(&trials), [""; 0].map(PathBuf::from));
    let removed = Command::new("rm").arg("-rf").arg(used.path(".local")).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
}
