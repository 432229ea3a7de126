//! The client libraries of `clients/` against the built program, and their types.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    common::{program, text},
    python_client::{environment, python_is_here},
};

/// A folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) {
    let (shown, problems) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}\n{problems}");
}

/// Python with the library and these packages.
fn python(name: &str, packages: &[&str]) -> Option<Command> {
    if !python_is_here() {
        return None;
    }
    let mut command = Command::new(environment(name, packages));
    command
        .env("PYTHONPATH", repository("clients/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LEGWORK_PROGRAM", program())
        .current_dir(repository("clients/python"));
    Some(command)
}

#[test]
fn the_python_library_keeps_its_promises() {
    let Some(mut python) = python("plain", &[]) else { return };
    python.args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-s", "tests"]);
    succeeded(&python.output().unwrap());
}

#[test]
fn the_python_library_is_typed() {
    let Some(mut python) = python("mypy", &["mypy==2.4.1"]) else { return };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mypy-cache");
    python.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(cache).args(["src", "tests"]);
    succeeded(&python.output().unwrap());
}
