//! The examples run, and print what they promise.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{path::Path, process::Command};

fn example(name: &str) -> String {
    // The whole workspace's, as `cargo test --workspace` has built them: for one package alone
    // Cargo would choose other features, and build everything below it again.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--workspace", "--examples", "--target-dir"]);
    build.arg(target);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let program = target.join(profile).join("examples").join(name);
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new(program);
    let output = run.env("SHELL", "/bin/sh").env("TMPDIR", folder.path()).output().unwrap();
    legwork_fixture::remove_folder(folder.path());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn embed() {
    assert_eq!(
        example("embed"),
        "printed \"hi\\n\", exit code Some(3)\n\
         4 words\n\
         timed out: true\n\
         error: `no-such-program` could not be started: it was not found on PATH\n\
         out: first\n\
         err: second\n\
         success: true\n\
         running: true\n\
         then cancelled\n"
    );
}

#[test]
fn own_tool() {
    let printed = example("own_tool");
    assert!(printed.starts_with("Files: 3\nCommand failed\n"), "{printed}");
    assert!(printed.contains("invalid_tool_input") && printed.contains("nowhere"), "{printed}");
}

#[test]
fn watch_events() {
    assert_eq!(
        example("watch_events"),
        "started: echo done; exit 7\n\
         failed: exit code Some(7)\n\
         asked: rm -rf build\n\
         started: rm -rf build\n\
         completed: exit code Some(0)\n"
    );
}
