//! Trials: a command runs on a copy, the workspace stays as it is, and what is applied comes over
//! as a whole.

mod ahead;
mod applying;
mod asked;
mod faults;
mod full;
mod hostile;
mod killed;
mod metered;
mod mounted;
mod told;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{Scratch, has_program, parts};

/// What a tree is: for each path its kind, mode, time and content.
pub(super) type Tree = BTreeMap<PathBuf, (u32, i64, Vec<u8>)>;

/// Reads everything below a folder; times of folders are left out.
pub(super) fn tree(top: &Path) -> Tree {
    let mut all = Tree::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, data) = (entry.path(), entry.metadata().unwrap());
            let (content, time) = if data.is_dir() {
                waiting.push(path.clone());
                (Vec::new(), 0)
            } else if data.is_symlink() {
                (fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(), 0)
            } else if data.is_file() {
                (fs::read(&path).unwrap(), data.mtime())
            } else {
                (Vec::new(), 0)
            };
            let name = path.strip_prefix(top).unwrap().to_owned();
            all.insert(name, (data.mode(), time, content));
        }
    }
    all
}

/// Whether this machine can try anything.
pub(super) fn can_try() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let can = known.contains("overlay")
        && has_program("unshare", &["--mount", "--map-root-user", "true"]);
    if !can {
        skips::skip("this machine makes no copies");
    }
    can
}

impl Scratch {
    /// `legwork try` with a script, in the workspace.
    pub(super) fn try_sh(&self, script: &str) -> Output {
        self.legwork("try").args(["--sh", script]).output().unwrap()
    }

    /// The changes of the newest trial: path from the workspace, and kind.
    pub(super) fn changes(&self) -> BTreeMap<String, String> {
        let output = self.legwork("changes").arg("--json").output().unwrap();
        let listed: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let workspace = self.workspace.path().canonicalize().unwrap();
        let pair = |change: &Value| {
            let path = Path::new(change["path"].as_str().unwrap());
            let path = path.strip_prefix(&workspace).unwrap_or(path).display().to_string();
            (path, change["kind"].as_str().unwrap().to_owned())
        };
        listed["changes"].as_array().unwrap().iter().map(pair).collect()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.workspace.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn apply(&self, paths: &[&str]) -> (Option<i32>, String, String) {
        parts(&self.legwork("apply").args(paths).output().unwrap())
    }

    /// What is left of trials in the state folder.
    pub(super) fn trials_left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state.path().join("trials")).into_iter().flatten();
        entries.map(|it| it.unwrap().path()).filter(|path| path.is_dir()).collect()
    }
}

#[test]
fn what_a_trial_does_is_listed_and_the_workspace_is_as_it_was() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("kept", "kept\n");
    scratch.write("changed", "one\ntwo\n");
    scratch.write("folder/removed", "x\n");
    scratch.write("folder/deep/removed too", "x\n");
    scratch.write("replaced/old", "old\n");
    scratch.write("only opened", "same\n");
    let before = tree(scratch.workspace.path());
    let script = "echo three >> changed; rm -r folder; rm -r replaced; mkdir replaced; echo new > replaced/new; \
                  mkdir -p made/deep; echo hello > made/deep/file; ln -s file made/deep/link; chmod 700 kept; \
                  : >> 'only opened'; cat changed; echo x > /tmp/elsewhere; exit 3";
    let output = scratch.try_sh(script);
    let (code, stdout, stderr) = parts(&output);
    assert_eq!((code, stdout.as_str()), (Some(3), "one\ntwo\nthree\n"), "{stderr}");
    assert_eq!(tree(scratch.workspace.path()), before);
    assert!(stderr.contains("only tried: 3 made, 1 changed, 3 removed, 1 touched"), "{stderr}");
    let changes = scratch.changes();
    let expected = [
        ("changed", "changed"),
        ("folder", "removed"),
        ("folder/deep", "removed"),
        ("folder/deep/removed too", "removed"),
        ("folder/removed", "removed"),
        ("kept", "touched"),
        ("made", "made"),
        ("made/deep", "made"),
        ("made/deep/file", "made"),
        ("made/deep/link", "made"),
        ("replaced/new", "made"),
        ("replaced/old", "removed"),
    ];
    let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
    assert_eq!(changes, BTreeMap::from(expected));
    let diff = scratch.legwork("changes").arg("--diff").output().unwrap();
    let diff = String::from_utf8(diff.stdout).unwrap();
    for line in [
        "--- a/changed",
        "+++ b/changed",
        "+three",
        "--- a/folder/removed",
        "+++ /dev/null",
        "+hello",
    ] {
        assert!(diff.lines().any(|it| it == line), "{line}: {diff}");
    }
    // Nobody else sees what it wrote outside.
    let seen = scratch.guarded("sh", "guarded", None).arg("ls /tmp").output().unwrap();
    assert!(!String::from_utf8_lossy(&seen.stdout).contains("elsewhere"), "{seen:?}");
    let discarded = scratch.legwork("discard").output().unwrap();
    assert!(discarded.status.success(), "{discarded:?}");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    assert_eq!(tree(scratch.workspace.path()), before);
}

#[test]
fn a_trial_that_changes_nothing_leaves_nothing() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "x\n");
    let output = scratch.legwork("try").args(["--", "cat", "file"]).output().unwrap();
    let (code, stdout, stderr) = parts(&output);
    assert_eq!((code, stdout.as_str()), (Some(0), "x\n"), "{stderr}");
    assert!(stderr.contains("nothing would change"), "{stderr}");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

#[test]
fn a_trial_has_no_network_and_a_denied_command_is_denied() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached");
    let output = scratch.legwork("try").args(["--", "bash", "-c", &script]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    let policy = "[[rule]]\ndecision = \"deny\"\nprogram = \"touch\"\n";
    let mut denied = scratch.guarded("try", "guarded", Some(policy));
    let denied = denied.args(["--", "touch", "x"]).output().unwrap();
    assert_eq!(denied.status.code(), Some(126), "{denied:?}");
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
}

/// The first of what has to be seen: a real repository, a build that needs what is removed.
#[test]
fn a_build_in_a_repository_is_tried_and_only_its_result_is_applied() {
    if !can_try() || !has_program("git", &["--version"]) {
        return;
    }
    // Where there is no npm, a shell runs its script.
    let has_npm = Command::new("npm").arg("--version").output().is_ok_and(|it| it.status.success());
    let scratch = Scratch::new();
    scratch.write("src/index.js", "console.log('hi');\n");
    scratch.write("src/lib/more.js", "module.exports = 1;\n");
    let build = "mkdir -p dist && echo built > dist/app.js && echo map > dist/app.js.map";
    let package = serde_json::json!({
        "name": "tried", "version": "1.0.0", "private": true, "scripts": { "build": build },
    });
    scratch.write("package.json", &package.to_string());
    commit_all(&scratch);
    let before = tree(scratch.workspace.path());
    let run = if has_npm { "npm run build" } else { build };
    let output = scratch.try_sh(&format!("rm -rf src && {run}"));
    let (code, _, stderr) = parts(&output);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(tree(scratch.workspace.path()), before, "the workspace is untouched");
    let diff = scratch.legwork("changes").arg("--diff").output().unwrap();
    let diff = String::from_utf8(diff.stdout).unwrap();
    for line in ["-console.log('hi');", "-module.exports = 1;", "+built"] {
        assert!(diff.lines().any(|it| it == line), "{line}: {diff}");
    }
    let (code, stdout, stderr) = scratch.apply(&["dist/"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("2 made, 0 changed, 0 removed; the rest"), "{stdout}");
    assert_eq!(git(&scratch, &["status", "--porcelain"]), "?? dist/\n", "only that came over");
    let rest = scratch.changes();
    assert!(rest.contains_key("src/index.js") && !rest.contains_key("dist/app.js"), "{rest:?}");
    assert!(scratch.legwork("discard").output().unwrap().status.success());
    assert_eq!(scratch.trials_left(), Vec::<PathBuf>::new());
    assert_eq!(git(&scratch, &["status", "--porcelain"]), "?? dist/\n");
    let permissions = fs::metadata(scratch.file("dist")).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o700, 0o700);
}

/// Makes the workspace a git repository with all its files in one commit.
fn commit_all(scratch: &Scratch) {
    for words in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "one"]] {
        git(scratch, words);
    }
}

/// Runs git in the workspace.
fn git(scratch: &Scratch, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=n", "-c", "user.email=e@x"]).args(words);
    let output = command.current_dir(scratch.workspace.path()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
