//! What a person is told of a trial besides files and lines: modes, owners, and nothing that the
//! command did not do.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use super::{can_try, commit_all, git, tree};
use crate::common::{Scratch, has_program, parts};

#[test]
fn another_mode_is_told_in_the_list_the_difference_and_json() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    for (name, mode) in [("tool", 0o644), ("both", 0o644), ("same", 0o644), ("folder/in", 0o600)] {
        scratch.write(name, "before\n");
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(scratch.file(name), permissions).unwrap();
    }
    fs::set_permissions(scratch.file("folder"), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, stderr) = parts(&scratch.try_sh(
        "umask 022; chmod 755 tool; echo more >> both; chmod 600 both; touch -d 2001-01-01 same; chmod 700 folder; \
         echo made > run; chmod 755 run; echo made > plain; rm folder/in; ln -s ../same folder/in",
    ));
    assert_eq!(code, Some(0), "{stderr}");
    let expected = [
        "  + run (mode 755)",
        "  . tool (mode 644 -> 755)",
        "  ~ both (mode 644 -> 600)",
        "  . folder/ (mode 755 -> 700)",
        "  ~ folder/in (was a file)",
        "  + plain",
        "  . same (time)",
    ];
    let listed: Vec<&str> = stderr.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(listed, expected, "{stderr}");
    let shown = |option: &str| {
        let output = scratch.legwork("changes").arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let diff = shown("--diff");
    for line in ["both: mode 644 -> 600", "tool: mode 644 -> 755", "run: mode 755", "same: time"] {
        assert!(diff.lines().any(|it| it == line), "{line}: {diff}");
    }
    assert!(!diff.contains("plain: "), "{diff}");
    let json: Value = serde_json::from_str(&shown("--json")).unwrap();
    let change = |name: &str| {
        let all = json["changes"].as_array().unwrap();
        let found = all.iter().find(|it| it["path"].as_str().unwrap().ends_with(name));
        found.unwrap_or_else(|| panic!("{name}: {json:#}")).clone()
    };
    let tool = change("/tool");
    assert_eq!((tool["mode_before"].as_str(), tool["mode"].as_str()), (Some("644"), Some("755")));
    assert_eq!(tool["details"], serde_json::json!(["mode 644 -> 755"]));
    let plain = change("/plain");
    assert_eq!((&plain["mode_before"], &plain["mode"]), (&Value::Null, &"644".into()));
    assert_eq!(scratch.apply(&["tool"]).0, Some(0));
    let mode = fs::metadata(scratch.file("tool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn what_runs_or_is_trusted_is_listed_first_and_never_cut() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    let script =
        "for it in $(seq 100 160); do echo > aaa$it; done; mkdir -p x/.vscode x/.git/hooks z
        echo > x/.vscode/tasks.json; echo > x/.git/hooks/pre-commit; echo > zzz.sh; chmod 777 zzz.sh
        for it in $(seq 100 150); do echo > z/run$it; chmod 755 z/run$it; done";
    let (code, _, stderr) = parts(&scratch.try_sh(script));
    assert_eq!(code, Some(0), "{stderr}");
    let listed: Vec<&str> = stderr.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(listed[..2], ["  + x/.git/hooks/pre-commit", "  + x/.vscode/tasks.json"]);
    let runs = |line: &&&str| line.starts_with("  + z/run") || line.contains("zzz.sh (mode 777)");
    assert_eq!(listed.iter().filter(runs).count(), 52, "{stderr}");
    assert!(listed.last().unwrap().starts_with("  and 61 more"), "{stderr}");
}

#[test]
fn a_repository_without_hooks_gets_none_by_a_trial() {
    if !can_try() || !has_program("git", &["--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("file", "before\n");
    commit_all(&scratch);
    let _ = fs::remove_dir_all(scratch.file(".git/hooks"));
    let before = tree(scratch.workspace.path());
    // What is guarded cannot be written in the trial either.
    let (code, _, stderr) = parts(&scratch.try_sh("echo x > .git/hooks/post-commit"));
    assert!(code != Some(0) && stderr.contains("nothing would change"), "{stderr}");
    let (code, _, stderr) = parts(&scratch.try_sh("echo tried > file"));
    assert!(code == Some(0) && stderr.contains("only tried: 1 changed;"), "{stderr}");
    assert_eq!(tree(scratch.workspace.path()), before);
    // Neither is it given another mode if somebody makes it meanwhile.
    fs::create_dir(scratch.file(".git/hooks")).unwrap();
    fs::set_permissions(scratch.file(".git/hooks"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(scratch.changes().into_keys().collect::<Vec<_>>(), ["file"]);
    assert_eq!(scratch.apply(&[]).0, Some(0));
    let hooks = fs::metadata(scratch.file(".git/hooks")).unwrap().permissions();
    assert_eq!(hooks.mode() & 0o777, 0o755);
    assert_eq!(fs::read_to_string(scratch.file("file")).unwrap(), "tried\n");
}

#[test]
fn what_goes_with_a_folder_that_is_made_anew_is_told_and_removed_however_deep() {
    if !can_try() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["dist/old.js", "dist/assets/old.css", "dist/assets/deep/old.png", "dist/kept"] {
        scratch.write(name, "old\n");
    }
    // As a build does that cleans up first: the kernel notes only of the first folder that it is
    // another one.
    let build = "rm -rf dist; mkdir -p dist/assets/deep; echo new > dist/assets/new.css; echo old > dist/kept";
    let (code, _, stderr) = parts(&scratch.try_sh(build));
    assert_eq!(code, Some(0), "{stderr}");
    let changes = scratch.changes();
    let of = |kind: &str| {
        let found = changes.iter().filter(|(_, it)| *it == kind);
        found.map(|(path, _)| path.as_str()).collect::<Vec<_>>()
    };
    let removed = ["dist/assets/deep/old.png", "dist/assets/old.css", "dist/old.js"];
    assert_eq!(of("removed"), removed, "{changes:?}");
    assert_eq!(of("made"), ["dist/assets/new.css"], "{changes:?}");
    let (code, stdout, stderr) = scratch.apply(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("1 made, 1 changed, 3 removed"), "{stdout}");
    let files = tree(&scratch.workspace.path().join("dist"))
        .into_iter()
        .filter(|(_, (.., text))| !text.is_empty());
    let left: Vec<String> = files.map(|(path, _)| path.display().to_string()).collect();
    assert_eq!(left, ["assets/new.css", "kept"]);
    assert!(scratch.workspace.path().join("dist/assets/deep").is_dir());
}

#[test]
fn git_finds_its_repository_around_the_workspace_of_a_trial() {
    if !can_try() || !has_program("git", &["--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("inner/file", "before\n");
    commit_all(&scratch);
    let script = "git rev-parse --show-prefix; git rm -q file; git status --short";
    let mut tried = scratch.legwork("try");
    let tried = tried.current_dir(scratch.file("inner")).args(["--sh", script]).output().unwrap();
    let (code, stdout, stderr) = parts(&tried);
    assert_eq!((code, stdout.as_str()), (Some(0), "inner/\nD  file\n"), "{stderr}");
    assert_eq!(git(&scratch, &["status", "--short"]), "");
    let listed: Vec<&str> = stderr.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(listed.first(), Some(&"  - file"), "the workspace comes first: {stderr}");
    assert!(listed.iter().any(|line| line.ends_with("/.git/index")), "{stderr}");
}
