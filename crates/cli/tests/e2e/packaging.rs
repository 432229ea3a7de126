//! Packages: one version for all of them, manual pages from the same words as the help, and a
//! release that does nothing by accident. What builds and installs packages is in `packaging/`
//! and takes minutes; `just release --dry-run` runs it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{program, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn toml_file(name: &str) -> toml::Table {
    toml::from_str(&read(name)).unwrap()
}

fn json_file(name: &str) -> Value {
    serde_json::from_str(&read(name)).unwrap()
}

/// Stands where a script fills the version in.
const FILLED_IN: &str = "0.0.0";

#[test]
fn the_version_is_that_of_the_workspace_everywhere() {
    let workspace = toml_file("Cargo.toml");
    let version = workspace["workspace"]["package"]["version"].as_str().unwrap();
    let mut different = Vec::new();
    let mut hold = |place: String, found: Option<&str>| {
        if ![Some(version), Some(FILLED_IN)].contains(&found) {
            different.push(format!("{place}: {found:?}"));
        }
    };
    // Crates of ours depend on each other at this version, and have no other.
    let dependencies = workspace["workspace"]["dependencies"].as_table().unwrap();
    let ours = dependencies.iter().filter(|(_, about)| about.get("path").is_some());
    for (name, about) in ours {
        hold(format!("dependency {name}"), about.get("version").and_then(toml::Value::as_str));
    }
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let manifest = format!("{}/Cargo.toml", member.as_str().unwrap());
        let own = &toml_file(&manifest)["package"]["version"];
        let inherits = own.get("workspace").and_then(toml::Value::as_bool) == Some(true);
        hold(manifest, if inherits { Some(version) } else { own.as_str() });
    }
    for name in ["clients/typescript/package.json", "packaging/mcpb/manifest.json"] {
        hold(name.to_owned(), json_file(name)["version"].as_str());
    }
    let lock = json_file("clients/typescript/package-lock.json");
    hold("package-lock.json".to_owned(), lock["version"].as_str());
    hold("package-lock.json, the package".to_owned(), lock["packages"][""]["version"].as_str());
    let python = toml_file("clients/python/pyproject.toml");
    let project = &python["project"];
    let filled_in =
        project["dynamic"].as_array().unwrap().iter().any(|it| it.as_str() == Some("version"));
    let own = project.get("version").and_then(toml::Value::as_str);
    hold("pyproject.toml".to_owned(), if filled_in { Some(FILLED_IN) } else { own });
    assert!(different.is_empty(), "not {version}: {different:#?}");
}

#[test]
fn every_script_of_a_package_is_a_step_of_the_release() {
    let listed = release(&["--list"]);
    let steps = text(&listed.stdout);
    let shared = ["lib.sh", "npm-tools.sh", "release.sh", "test.sh"];
    for entry in fs::read_dir(root().join("packaging")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(step) = name.strip_suffix(".sh") else { continue };
        let known =
            steps.lines().any(|line| line.strip_prefix("step").map(str::trim) == Some(step));
        assert!(known || shared.contains(&name.as_str()), "{name} is no step: {steps}");
    }
}

/// Runs the release with nothing configured.
fn release(arguments: &[&str]) -> Output {
    let mut command = Command::new("bash");
    command.arg(root().join("packaging/release.sh")).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", "/nowhere");
    let folder = tempfile::tempdir().unwrap();
    command.env("LEGWORK_DIST", folder.path().join("dist"));
    let output = command.output().unwrap();
    assert!(!folder.path().join("dist").exists(), "something was built");
    output
}

#[test]
fn a_release_without_a_channel_or_with_one_that_is_not_configured_does_nothing() {
    for (arguments, words) in [
        (&[][..], "name the channels to publish to"),
        (&["npm"][..], "npm: the variable NODE_AUTH_TOKEN is not set"),
        (&["crates", "pypi"][..], "pypi: the variable UV_PUBLISH_TOKEN is not set"),
        (&["elsewhere"][..], "no such channel: elsewhere"),
        (&["--dry-run", "--only", "elsewhere"][..], "no such step: elsewhere"),
    ] {
        let output = release(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {output:?}");
        assert_eq!(text(&output.stdout), "", "a step ran: {arguments:?}");
    }
}

/// Runs one long check of the release, whose script is `crate_check`, in a repository of its own.
fn rehearse(clone: &Path, crate_check: &str, more: &[&str]) -> (bool, String) {
    let script = clone.join("packaging/crates.sh");
    fs::write(&script, format!("#!/bin/sh\n{crate_check}\n")).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("bash");
    command.arg(clone.join("packaging/release.sh")).args(["--dry-run", "--only", "crates"]);
    let output = command.args(more).output().unwrap();
    let line = text(&output.stdout).lines().next().unwrap().to_owned();
    (output.status.success(), line)
}

#[test]
fn a_check_of_the_release_that_has_passed_is_kept_until_the_sources_change() {
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path();
    fs::create_dir(clone.join("packaging")).unwrap();
    for name in ["packaging/release.sh", "packaging/lib.sh", "Cargo.toml"] {
        fs::copy(root().join(name), clone.join(name)).unwrap();
    }
    fs::write(clone.join(".gitignore"), "target\n").unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).arg("-C").arg(clone);
        assert!(command.args(arguments).status().unwrap().success(), "{arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message=all"]);
    let kept = |(passed, line): &(bool, String)| *passed && line.contains("passed before");

    let first = rehearse(clone, "exit 3", &[]);
    assert!(!first.0 && first.1.starts_with("failed  crates"), "{first:?}");
    let again = rehearse(clone, "exit 3", &[]);
    assert!(!again.0, "a failed check was kept: {again:?}");
    let passed = rehearse(clone, "exit 0", &[]);
    assert!(passed.0 && !kept(&passed), "other sources: {passed:?}");
    let resumed = rehearse(clone, "exit 0", &[]);
    assert!(kept(&resumed), "{resumed:?}");
    let wanted = rehearse(clone, "exit 0", &["--again"]);
    assert!(wanted.0 && !kept(&wanted), "{wanted:?}");
    git(&["commit", "--quiet", "--all", "--allow-empty", "--message=more"]);
    let later = rehearse(clone, "exit 0", &[]);
    assert!(later.0 && !kept(&later), "another commit: {later:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let written = Command::new(program()).arg("man").arg(&pages).output().unwrap();
    assert!(written.status.success(), "{written:?}");
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    let help = Command::new(program()).arg("--help").output().unwrap();
    let help = text(&help.stdout);
    let (_, verbs) = help.split_once("Commands:\n").unwrap();
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    let main = page("legwork.1");
    let mut count = 0;
    for verb in verbs.filter_map(|line| line.strip_prefix("  ")) {
        let Some(name) = verb.split(' ').next().filter(|it| !it.is_empty() && *it != "help") else {
            continue;
        };
        let reference = format!("legwork\\-{name}(1)");
        assert!(main.contains(&reference), "{reference} in {main}");
        let own = page(&format!("legwork-{name}.1"));
        assert!(own.contains(".SH SYNOPSIS") && own.contains(".SH \"SEE ALSO\""), "{own}");
        count += 1;
    }
    assert!(count > 20, "{help}");
    for section in ["\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "EXAMPLES"] {
        assert!(main.contains(&format!(".SH {section}\n")), "{section} in {main}");
    }
    assert!(page("legwork-token-add.1").contains("token add"));
    // A hidden command is for programs.
    assert!(!pages.join("legwork-complete-ids.1").exists() && !main.contains("complete\\-ids"));
}
