//! Every file and folder of the state folder spoilt in every way: nothing that is recorded
//! elsewhere is lost, and what was done about it is said once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Scratch, eventually, parts, signal, text},
    mcp::Wire,
};

/// Puts something else in the place of a file or a folder.
fn spoil(path: &Path, how: &str) {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => fs::create_dir_all(path.parent().unwrap()).unwrap(),
    }
    let noise: Vec<u8> = (0..5000_u32).map(|byte| (byte * 7 % 251) as u8 | 0x80).collect();
    let private = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match how {
        "noise" => std::io::Write::write_all(&mut private().unwrap(), &noise).unwrap(),
        "nothing" => drop(private().unwrap()),
        "folder" => fs::create_dir(path).unwrap(),
        "full folder" => fs::create_dir_all(path.join("somebody's")).unwrap(),
        "dangling link" => symlink("/nowhere/at/all", path).unwrap(),
        "pipe" => {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Whether that is still what belongs there, as far as its kind goes.
fn is_right_kind(was_folder: bool, how: &str) -> bool {
    match how {
        "noise" | "nothing" => !was_folder,
        "folder" | "full folder" => was_folder,
        _ => false,
    }
}

/// A state folder as a killed server leaves it, of which copies are spoilt.
struct Template {
    scratch: Scratch,
    copy: PathBuf,
    /// The tasks, with the exit codes that they had.
    tasks: BTreeMap<String, Value>,
    /// A task that has a folder.
    spilled: String,
}

/// What comes and goes, and may not be there when the state folder is looked at.
const PASSING: [&str; 7] = [
    "ledger.db.new",
    "ledger.db-daybook.new",
    "gc.lock",
    "retention.json",
    "logins.json",
    "engines/ofadeadone",
    "wardens/ofadeadone-x.sock",
];

impl Template {
    fn new() -> Self {
        let scratch = Scratch::new();
        // In a sandbox, so that there is all that belongs to one.
        let mut server = scratch.guarded("mcp", "guarded", None);
        server.env("HOME", scratch.workspace.path());
        let mut wire = Wire::spawn(server);
        wire.initialize();
        for cmd in ["echo short; exit 3", "echo kept; sleep 0.3; exit 7", "echo last"] {
            wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
        }
        wire.tool("TaskList", &json!({}));
        signal(wire.child.id(), Signal::KILL);
        wire.child.wait().unwrap();
        let copy = scratch.workspace.path().join("copy");
        copy_all(scratch.state.path(), &copy);
        let mut template = Self { spilled: String::new(), tasks: BTreeMap::new(), scratch, copy };
        template.tasks = template.codes("as it was").0;
        assert_eq!(template.tasks.len(), 3);
        let spilled = template.tasks.iter().find(|(_, code)| **code == 7).unwrap();
        template.spilled = spilled.0.clone();
        template
    }

    /// Makes the state folder what it was.
    fn restore(&self) {
        for entry in fs::read_dir(self.scratch.state.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        copy_all(&self.copy, self.scratch.state.path());
    }

    /// Everything in it, and what comes and goes, with whether it is a folder.
    fn all(&self) -> Vec<(PathBuf, bool)> {
        let mut found = vec![PathBuf::new()];
        let mut all = Vec::new();
        while let Some(folder) = found.pop() {
            for entry in fs::read_dir(self.copy.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let name = folder.join(entry.file_name());
                let is_folder = entry.file_type().unwrap().is_dir();
                // What is in a workspace's `/tmp` is the command's.
                if is_folder && !name.starts_with("tmp/") {
                    found.push(name.clone());
                }
                all.push((name, is_folder));
            }
        }
        all.extend(PASSING.map(|name| (PathBuf::from(name), false)));
        all.sort();
        all.dedup();
        all
    }

    /// The exit codes of all tasks, and what was said besides.
    fn codes(&self, case: &str) -> (BTreeMap<String, Value>, Vec<String>) {
        let mut ps = self.scratch.legwork("ps");
        ps.arg("--json");
        let (printed, told) = self.run(case, ps);
        let listed: Value = serde_json::from_str(&printed).unwrap();
        let tasks = listed["tasks"].as_array().unwrap().iter();
        let codes = tasks.map(|task| {
            let id = task["task_id"].as_str().unwrap().to_owned();
            (id, task["outcome"]["exit_status"].clone())
        });
        (codes.collect(), told)
    }

    /// What a command that must succeed printed to stdout, and the lines that it said on stderr.
    fn run(&self, case: &str, mut command: Command) -> (String, Vec<String>) {
        let output = command.env("HOME", self.scratch.workspace.path()).output().unwrap();
        let (code, printed, told) = parts(&output);
        assert_eq!(code, Some(0), "{case}: {output:?}");
        (printed, told.lines().map(str::to_owned).collect())
    }

    /// All that must hold of a spoilt state folder.
    fn holds(&self, name: &Path, was_folder: bool, how: &str) {
        let case = format!("{} is {how}", name.display());
        let (codes, mut told) = self.codes(&case);
        assert_eq!(codes, self.tasks, "{case}");
        let is_ours = name.components().count() == 1;
        if is_ours && !is_right_kind(was_folder, how) {
            assert_eq!(told.len(), 1, "{case}: nothing is said, or too much: {told:?}");
        }
        // Commands run in their sandbox, are kept, and are cleaned up.
        let cmd = "head -c 70000 /dev/zero | tr '\\0' x";
        let input = json!({ "cmd": cmd, "login": false }).to_string();
        let mut call = self.scratch.guarded("call", "guarded", None);
        call.args(["ExecCommand", &input]);
        told.extend(self.run(&case, call).1);
        told.extend(self.run(&case, self.scratch.legwork("gc")).1);
        assert!(told.len() <= 1, "{case}: {told:?}");
        let (codes, told) = self.codes(&case);
        assert_eq!(told, [""; 0], "{case}: it is said once");
        assert_eq!(codes.len(), self.tasks.len() + 1, "{case}: {codes:?}");
        assert!(self.tasks.iter().all(|(id, code)| codes.get(id) == Some(code)), "{case}");
        // What was somebody's is still somewhere.
        if how == "full folder" && !was_folder {
            let found = Command::new("find").arg(self.scratch.state.path()).output().unwrap();
            assert!(text(&found.stdout).contains("somebody's"), "{case}");
        }
    }
}

/// Spoils everything in a state folder in this way, one after the other.
fn spoil_all(how: &str) {
    let template = Template::new();
    let all = template.all();
    let names: Vec<&Path> = all.iter().map(|(name, _)| name.as_path()).collect();
    for name in
        ["ledger.db", "ledger.db-wal", "ledger.db-daybook", "ledger.db.lock", "audit.jsonl", "tmp"]
    {
        assert!(names.contains(&Path::new(name)), "{names:?}");
    }
    let exit = Path::new("tasks").join(&template.spilled).join("exit");
    assert!(names.contains(&exit.as_path()), "{names:?}");
    for (name, is_folder) in &all {
        template.restore();
        spoil(&template.scratch.state.path().join(name), how);
        template.holds(name, *is_folder, how);
    }
    // Whoever cleans up after this test wants a state folder.
    template.restore();
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

#[test]
fn noise_in_any_file_is_repaired_or_set_aside_and_said_once() {
    spoil_all("noise");
}

#[test]
fn any_file_that_is_empty_is_repaired_or_set_aside_and_said_once() {
    spoil_all("nothing");
}

#[test]
fn a_folder_in_the_place_of_any_file_is_set_aside_and_said_once() {
    spoil_all("folder");
}

#[test]
fn a_folder_with_something_in_it_in_the_place_of_any_file_is_kept_aside_and_said_once() {
    spoil_all("full folder");
}

#[test]
fn a_link_to_nowhere_in_the_place_of_any_file_is_set_aside_and_said_once() {
    spoil_all("dangling link");
}

#[test]
fn a_pipe_in_the_place_of_any_file_is_set_aside_and_said_once_and_never_waited_for() {
    spoil_all("pipe");
}

/// The commands of all tasks.
fn listed(scratch: &Scratch) -> BTreeSet<String> {
    let output = scratch.legwork("ps").args(["--json", "-n", "1000"]).output().unwrap();
    let listed: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let tasks = listed["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["command"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_goes_on_whatever_comes_to_stand_in_the_place_of_its_files() {
    let scratch = Scratch::new();
    let mut wire = Wire::initialized(&scratch);
    let names = ["", "-wal", "-shm", "-daybook", ".lock", ".rebuild"];
    let names = names.map(|suffix| format!("ledger.db{suffix}"));
    for name in names.iter().map(String::as_str).chain(["audit.jsonl", "gc.lock"]) {
        for how in ["nothing", "folder", "dangling link", "pipe"] {
            let case = format!("{name} is {how}");
            // What was in the ledger alone is lost with it.
            let is_ledger = ["ledger.db", "ledger.db-wal", "ledger.db-shm"].contains(&name);
            let before = if is_ledger { BTreeSet::new() } else { listed(&scratch) };
            spoil(&scratch.state.path().join(name), how);
            let cmd = format!("echo {case}");
            let told = wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
            assert!(told.starts_with("Process exited with code 0"), "{case}: {told}");
            // Whoever rebuilds the ledger cannot know what only the server sees; the server brings
            // it a moment later.
            eventually(&case, || {
                let after = listed(&scratch);
                (after.contains(&cmd) && before.is_subset(&after)).then_some(())
            });
        }
    }
}
