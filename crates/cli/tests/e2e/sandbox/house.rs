//! A user with a home, a workspace and a state folder, who calls Legwork.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{fixture, program, stop_tasks, text},
    harness::{
        stage::{self, NOBODY},
        watch::{Times, Watch},
    },
};

pub const OPERATOR: &str = "trusted_operator";
pub const INTEGRATION: &str = "trusted_integration";
pub const UNTRUSTED: &str = "untrusted_external";
pub const TRUSTS: [&str; 3] = [OPERATOR, INTEGRATION, UNTRUSTED];

/// Where programs are that everybody may run.
const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The script that a house runs its probes by: where no command can have put it, since an untrusted
/// caller is allowed nothing else.
const PROBES: &str = "scripts/probes.sh";

/// The house is not in a temporary folder: those are hidden inside anyway.
pub struct House {
    pub base: TempDir,
    /// Whom Legwork is started as, if that is not who we are.
    user: Option<u32>,
    home: &'static str,
    policy: Option<String>,
    before: Vec<String>,
    watch: Watch,
}

impl House {
    /// One of each kind of user that this test can be.
    #[track_caller]
    pub fn each() -> Vec<Self> {
        if !rustix::process::geteuid().is_root() {
            skips::skip("only root can be both root and an ordinary user");
        }
        Self::own().into_iter().chain(Self::of_another()).collect()
    }

    /// One of whoever runs this test; none where sandboxes cannot show it.
    #[track_caller]
    pub fn own() -> Option<Self> {
        Self::of(None)
    }

    /// One of an ordinary user.
    #[track_caller]
    pub fn ordinary() -> Option<Self> {
        if rustix::process::geteuid().is_root() { Self::of_another() } else { Self::own() }
    }

    /// One of a user whom only root can become.
    #[track_caller]
    fn of_another() -> Option<Self> {
        if rustix::process::geteuid().is_root() { Self::of(Some(NOBODY)) } else { None }
    }

    #[track_caller]
    fn of(user: Option<u32>) -> Option<Self> {
        if !stage::is_seen_in_sandboxes() {
            return None;
        }
        let base = TempDir::new_in(stage::folder()).unwrap();
        let watch = Watch::new(&[base.path().to_owned()], Times::USUAL);
        let house = Self { base, user, home: "home", policy: None, before: Vec::new(), watch };
        house.give(house.base.path());
        for room in ["home", "workspace", "state", "outside"] {
            house.folder(room);
        }
        Some(house)
    }

    pub fn is_root(&self) -> bool {
        self.user.is_none() && rustix::process::geteuid().is_root()
    }

    /// Lets every call have this policy.
    pub fn with_policy(self, text: &str) -> Self {
        self.with_policy_in("policy.toml", text)
    }

    /// The same, at a place.
    pub fn with_policy_in(mut self, name: &str, text: &str) -> Self {
        self.policy = Some(self.file(name, text).to_str().unwrap().to_owned());
        self
    }

    /// Lets another folder be the home.
    pub fn with_home(mut self, name: &'static str) -> Self {
        self.home = name;
        self
    }

    /// Lets every call be made through another program, such as `unshare`.
    pub fn through(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The same, as text.
    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes it the user's.
    pub fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }

    /// A folder that belongs to the user.
    pub fn folder(&self, name: &str) -> PathBuf {
        let mut path = self.base.path().to_owned();
        for part in Path::new(name).components() {
            path.push(part);
            if !path.exists() {
                fs::create_dir(&path).unwrap();
                self.give(&path);
            }
        }
        path
    }

    /// A file that belongs to the user.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        self.folder(Path::new(name).parent().unwrap().to_str().unwrap());
        fs::write(&path, text).unwrap();
        self.give(&path);
        path
    }

    /// A program that belongs to the user.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Something that this user does, outside of any sandbox.
    pub fn outside(&self, program: &str) -> Command {
        let mut words = self.before.clone();
        if let Some(user) = self.user {
            let ids = ["--reuid", "--regid"].map(|id| format!("{id}={user}"));
            words.insert(0, "setpriv".to_owned());
            words.splice(1..1, ids.into_iter().chain(["--clear-groups".to_owned()]));
        }
        words.push(program.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.path("workspace")).stdin(Stdio::null());
        command.env_clear().env("PATH", PROGRAMS).env("SHELL", "/bin/sh");
        command.env("HOME", self.path(self.home)).env("LANG", "C.UTF-8");
        // The clone of these tests is not the repository around it.
        command.env("GIT_CEILING_DIRECTORIES", stage::folder());
        command
    }

    /// `legwork VERB` by this user.
    pub fn legwork(&self, verb: &str, trust: &str) -> Command {
        let mut command = self.outside(program());
        command.arg(verb).arg("--state").arg(self.path("state"));
        command.arg("--workspace").arg(self.path("workspace")).args(["--trust", trust]);
        if let Some(policy) = &self.policy {
            command.args(["--policy", policy]);
        }
        command
    }

    /// `legwork VERB` for people, who are asked for no trust.
    pub fn verb(&self, verb: &str) -> Command {
        let mut command = self.outside(program());
        command.arg(verb).arg("--state").arg(self.path("state"));
        command
    }

    /// What a verb of several words prints.
    pub fn verb_of(&self, words: &[&str]) -> String {
        let mut command = self.outside(program());
        command.args(words).arg("--state").arg(self.path("state"));
        text(&command.output().unwrap().stdout)
    }

    /// The envelope of a call.
    pub fn call(&self, trust: &str, tool: &str, input: &Value) -> Value {
        let mut command = self.legwork("call", trust);
        let output = command.args([tool, "--json", &input.to_string()]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
    }

    /// The result of a call that must succeed.
    pub fn get(&self, trust: &str, tool: &str, input: &Value) -> Value {
        let envelope = self.call(trust, tool, input);
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        envelope["result"].clone()
    }

    /// The result of a command.
    pub fn exec(&self, trust: &str, cmd: &str) -> Value {
        self.get(
            trust,
            "ExecCommand",
            &json!({ "cmd": cmd, "login": false, "max_output_tokens": 20_000 }),
        )
    }

    /// What a command printed that must end well.
    pub fn prints(&self, trust: &str, cmd: &str) -> String {
        let result = self.exec(trust, cmd);
        assert_eq!(result["exit_status"], 0, "{cmd}: {result:#}");
        result["stdout_preview"].as_str().unwrap_or_default().to_owned()
    }

    /// The answers of some probes, each with what was tried.
    pub fn probes<S: AsRef<str>>(&self, trust: &str, probes: &[S]) -> Vec<(String, String)> {
        let line = |probe: &S| {
            let words = probe.as_ref();
            format!("printf '%s\\t' '{words}'; {} probe {words}", fixture())
        };
        let lines: Vec<String> = probes.iter().map(line).collect();
        let script = self.script(PROBES, &lines.join("\n"));
        let script = script.display();
        let mut command = self.legwork("call", trust);
        if self.policy.is_none() && trust == UNTRUSTED {
            let policy =
                self.file("allowed.toml", &format!("coreTools = [\"ExecCommand({script})\"]\n"));
            command.arg("--policy").arg(policy);
        }
        let input =
            json!({ "cmd": script.to_string(), "login": false, "max_output_tokens": 20_000 });
        let output = command.args(["ExecCommand", "--json", &input.to_string()]).output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no JSON: {output:?}"));
        assert_eq!(envelope["status"], "success", "{envelope:#}");
        let text = envelope["result"]["stdout_preview"].as_str().unwrap();
        let answers: Vec<(String, String)> = text
            .lines()
            .map(|line| line.split_once('\t').unwrap_or_else(|| panic!("{envelope:#}")))
            .map(|(probe, answer)| (probe.to_owned(), answer.to_owned()))
            .collect();
        assert_eq!(answers.len(), probes.len(), "{envelope:#}");
        answers
    }

    /// Every one of these attempts succeeds without a sandbox: otherwise its refusal would prove
    /// nothing.
    pub fn possible<S: AsRef<str>>(&self, probes: &[S]) {
        for probe in probes.iter().map(AsRef::as_ref) {
            let words = probe.split(' ');
            let output = self.outside(fixture()).arg("probe").args(words).output().unwrap();
            assert!(output.stdout.starts_with(b"allowed: "), "{probe}: {output:?}");
        }
    }

    /// Every one of these attempts must fail.
    pub fn refuses<S: AsRef<str>>(&self, trust: &str, probes: &[S]) {
        let all = self.probes(trust, probes);
        let got: Vec<_> =
            all.iter().filter(|(_, answer)| !answer.starts_with("refused: ")).collect();
        assert!(got.is_empty(), "{trust}, root: {}: {got:#?}", self.is_root());
    }

    /// Every one of these attempts must succeed.
    pub fn allows<S: AsRef<str>>(&self, trust: &str, probes: &[S]) {
        let all = self.probes(trust, probes);
        let not: Vec<_> =
            all.iter().filter(|(_, answer)| !answer.starts_with("allowed: ")).collect();
        assert!(not.is_empty(), "{trust}, root: {}: {not:#?}", self.is_root());
    }
}

impl Drop for House {
    /// Tasks that a test left running end with it; anything else it has ended itself.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            stop_tasks(|verb| self.verb(verb));
        }
        self.watch.finish();
    }
}
