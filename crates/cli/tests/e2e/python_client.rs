//! Drives `legwork mcp` and `legwork serve` with the official Python client, in both protocol eras.
//!
//! The client lives in an environment of its own below the target folder, made on first use.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::{
    common::{Scratch, fixture, program},
    harness::stage,
};

/// Environments are made one at a time.
static MAKING: Mutex<()> = Mutex::new(());

/// An environment of this name with these packages.
pub fn environment(name: &str, packages: &[&str]) -> PathBuf {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Commands use some of them: where a sandbox hides the target folder, they last for one run.
    let parent = if stage::is_shown(target) { target } else { stage::folder() };
    let place = parent.join(format!("python-{name}"));
    let python = place.join("bin/python");
    let mark = place.join("complete");
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&mark).ok().as_deref() != Some(&wanted) {
        let run = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            // Else it is in the home of whoever runs the tests.
            command.args(arguments).env("PIP_CACHE_DIR", target.join("pip-cache"));
            let status = command.status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "{} {arguments:?} failed: the Python client needs python3 with venv and pip",
                program.display()
            );
        };
        run(Path::new("python3"), &["-m", "venv", "--clear", place.to_str().unwrap()]);
        if !packages.is_empty() {
            run(&python, &[&["-m", "pip", "install", "--quiet"], packages].concat());
        }
        std::fs::write(mark, wanted).unwrap();
    }
    python
}

/// An environment with this version of the `mcp` package.
fn client(version: &str) -> PathBuf {
    let package = format!("mcp=={version}");
    environment(&format!("mcp-{version}"), &[&package, "jsonschema==4.25.1"])
}

/// Whether there is a Python that can make environments; where it is required it must be there.
pub fn python_is_here() -> bool {
    let probe = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    let here = probe.is_ok_and(|output| output.status.success());
    let required = std::env::var_os("LEGWORK_REQUIRE_PYTHON").is_some();
    assert!(here || !required, "python3 with venv is required and not here");
    if !here {
        skips::skip("the Python client needs python3 with venv (Debian: python3-venv)");
    }
    here
}

fn drive(version: &str, era: &str, way: &str) {
    if !python_is_here() {
        return;
    }
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/python_client.py");
    let output = Command::new(client(version))
        .arg(script)
        .args([era, program()])
        .args([scratch.state.path(), scratch.workspace.path()])
        .args([fixture(), way])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{problems}");
    assert!(shown.ends_with("all well\n"), "{shown}\n{problems}");
}

#[test]
fn the_python_client_of_the_older_era() {
    drive("1.30.0", "legacy", "stdio");
}

#[test]
fn the_python_client_of_the_newer_era() {
    drive("2.3.0", "modern", "stdio");
}

#[test]
fn the_python_client_of_the_older_era_over_http() {
    drive("1.30.0", "legacy", "http");
}

#[test]
fn the_python_client_of_the_newer_era_over_http() {
    drive("2.3.0", "modern", "http");
}
