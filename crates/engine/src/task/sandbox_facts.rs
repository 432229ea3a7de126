//! Describes the sandbox to a caller: in general, and for the paths that a failed command names in
//! its errors.

use std::path::{Path, PathBuf};

use legwork_gate::{Level, NetworkMode};
use legwork_warden::sandbox::SandboxLayer;

use super::Tasks;
use crate::model::{
    Caller, Denial, Trust,
    sandbox::{SandboxReport, Wanted},
};

/// Most paths of a command's complaints that are looked at.
const PATHS_MAX: usize = 10;

/// Longest line in which a complaint is looked for.
const LINE_BYTES_MAX: usize = 2_000;

/// What a program says that was not let do something.
const COMPLAINTS: [&str; 9] = [
    "permission denied",
    "read-only file system",
    "operation not permitted",
    "eacces",
    "erofs",
    "eperm",
    "cannot create",
    "connection refused",
    "cannot connect",
];

/// What is said of a process that cannot be signalled, because there is none.
const NO_PROCESS: &str = "no such process";

impl Tasks {
    /// Facts about the paths that a failed command complains about, in the sandbox that it had:
    /// which cannot be seen there, and which cannot be written.
    pub(crate) async fn path_facts(
        &self,
        sandbox: &SandboxReport,
        trust: Trust,
        complaints: &str,
    ) -> Vec<Denial> {
        if sandbox.level == Level::None {
            return Vec::new();
        }
        let home = self.place.variable("HOME").map(PathBuf::from);
        let paths = complained_of(complaints, home.as_deref());
        if paths.is_empty() {
            return Vec::new();
        }
        let operator = trust.reaches(Trust::TrustedSystem);
        let wanted = Wanted { level: sandbox.level, network: sandbox.network_mode(), operator };
        let unwritable = self.place.refused_writes(wanted, paths.clone()).await;
        let mut facts = Vec::new();
        for path in paths {
            let shown = path.display();
            let is_there = self.place.exists(&path);
            if is_there && self.place.as_seen(wanted, path.clone()).await.is_none() {
                facts.push(Denial::of_path(format!("{shown} is hidden here")));
            } else if unwritable.contains(&path) {
                let level = sandbox.level.as_str();
                let what = format!("{shown} is not writable here ({level})");
                facts.push(Denial::of_path(what));
            }
        }
        facts
    }

    /// Facts about the processes that a command could not signal, because they are those of other
    /// tasks, and not of its sandbox: for a caller who can stop these.
    pub(crate) async fn process_facts(
        &self,
        sandbox: &SandboxReport,
        caller: &Caller,
        complaints: &str,
    ) -> Vec<Denial> {
        let own_pids = SandboxLayer::PidNamespace.as_str();
        if caller.session.ends_what_is_left() || !sandbox.enforced.iter().any(|it| it == own_pids) {
            return Vec::new();
        }
        let missed = not_found(complaints);
        if missed.is_empty() {
            return Vec::new();
        }
        let workspace = self.visible_workspace();
        let left = self.left_running(workspace.as_deref()).await.unwrap_or_default();
        let mut facts = Vec::new();
        for task in left.iter().filter(|task| self.right(caller, task).is_ok()) {
            let pids = self.left_by(task).into_iter().map(|(pid, _)| pid);
            for pid in pids.filter(|pid| missed.contains(pid)) {
                let what = format!("{pid} belongs to task {}; TaskStop ends it", task.task_id);
                facts.push(Denial::of_process(what));
            }
        }
        facts
    }
}

/// The numbers in the lines of a text that complain of a process which is not there.
fn not_found(text: &str) -> Vec<u32> {
    let lines = text.lines().filter(|line| line.len() <= LINE_BYTES_MAX);
    let complaints = lines.filter(|line| line.to_lowercase().contains(NO_PROCESS)).take(PATHS_MAX);
    let numbers = complaints.flat_map(|line| line.split(|it: char| !it.is_ascii_digit()));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The absolute paths in the lines of a text that complain of something.
fn complained_of(text: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for line in text.lines().filter(|line| line.len() <= LINE_BYTES_MAX) {
        let lower = line.to_lowercase();
        if !COMPLAINTS.iter().any(|complaint| lower.contains(complaint)) {
            continue;
        }
        for word in line.split(|it: char| it.is_whitespace() || "'\"`‘’“”()[]<>,;=".contains(it))
        {
            let word = word.trim_end_matches([':', '.']);
            let word = word.strip_prefix("unix://").unwrap_or(word);
            let path = match (word.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ if word.starts_with('/') && word.len() > 1 => PathBuf::from(word),
                _ => continue,
            };
            if paths.len() < PATHS_MAX && !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// The sandbox that is really in force, for a model.
pub(crate) fn told(sandbox: &SandboxReport) -> String {
    let is_enforced =
        |layer: SandboxLayer| sandbox.enforced.iter().any(|name| name == layer.as_str());
    let writes = match sandbox.level {
        Level::None => {
            return "Commands run without a sandbox, with all rights of the user.".to_owned();
        }
        // What is only wished for is not told as if it were so.
        level if !sandbox.holds_files() => {
            let missing: Vec<&str> = sandbox.missing.iter().map(|it| it.layer.as_str()).collect();
            return format!(
                "Commands run with all rights of the user: nothing on this machine holds them to the sandbox that was \
                 asked for ({}). Missing: {}.",
                level.as_str(),
                missing.join(", ")
            );
        }
        Level::WorkspaceWrite => "the workspace, /tmp and the caches of package managers",
        Level::ReadOnly => "/tmp, and nothing else",
    };
    let own_view = is_enforced(SandboxLayer::MountNamespace);
    let tmp = if own_view { " /tmp is private to this workspace." } else { "" };
    let network = match sandbox.network_mode() {
        NetworkMode::All => "The network can be used.",
        NetworkMode::Names => {
            "Of the network, only hosts can be reached that rules allow, through the proxy that http_proxy and \
             https_proxy name; others are refused, and names do not resolve."
        }
        NetworkMode::None => "There is no network, but for a loopback of the command's own.",
    };
    let mut text = format!(
        "Commands run in a sandbox ({}). They can write to {writes}; writing elsewhere fails.{tmp} Keys, credentials and \
         browser profiles are hidden. {network} Sockets of other programs do not answer: no docker, no \
         ssh-agent. This is not a fault of the command: do not try to work around it, ask the person.",
        sandbox.level.as_str()
    );
    for missing in &sandbox.missing {
        text.push_str(&format!(" Not in force here: {} ({}).", missing.layer, missing.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_where_a_program_complains_of_them() {
        let home = Path::new("/home/me");
        let text = "touch: cannot touch '/etc/foo': Permission denied\n\
            /bin/sh: 1: cannot create /usr/x: Read-only file system\n\
            cat: /etc/none: No such file or directory\n\
            error: EACCES: permission denied, open \"~/.npmrc\"\n\
            Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?";
        let paths = complained_of(text, Some(home));
        let expected = ["/etc/foo", "/bin/sh", "/usr/x", "/home/me/.npmrc", "/var/run/docker.sock"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn processes_are_found_which_a_program_could_not_signal() {
        let text = "bash: line 1: kill: (4362) - No such process\n\
            kill: (4363): No such process\n\
            kill: kill 4364 failed: no such process\n\
            4365: Operation not permitted";
        assert_eq!(not_found(text), [1, 4362, 4363, 4364]);
    }
}
