//! What a command starts with, whatever the engine was started with.

use std::process::{Command, Stdio};

use crate::common::{Scratch, fixture, program, text};

#[test]
fn signals_are_clean_whatever_the_parent_did() {
    let scratch = Scratch::new();
    let output = Command::new(fixture())
        .args(["with-bad-signals", program(), "run", "--state"])
        .arg(scratch.state.path())
        .args(["--", "cat", "/proc/self/status"])
        .output()
        .unwrap();
    let status = text(&output.stdout);
    for name in ["SigBlk:\t", "SigIgn:\t", "SigCgt:\t"] {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(value, "0000000000000000", "{name}");
    }
}

#[test]
fn descriptors_session_mask_and_stdin() {
    let scratch = Scratch::new();
    let shell = "umask 027; exec 7</dev/null 9</dev/null; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", shell, program(), "run", "--state"])
        .arg(scratch.state.path())
        .args(["--", fixture(), "start"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "Umask: 0027\nDescriptors: 0 1 2\nSession leader: true\nStdin bytes: 0\n"
    );
}

#[test]
fn a_hostile_mask_does_not_lock_us_out_of_our_own_files() {
    let scratch = Scratch::new();
    let output = Command::new("sh")
        .args(["-c", "umask 777; exec \"$0\" \"$@\"", program(), "run"])
        .arg("--state")
        .arg(scratch.state.path())
        .args(["--", "echo", "hi"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "hi\n", "{output:?}");
}

#[test]
fn an_empty_environment_is_enough() {
    let scratch = Scratch::new();
    let output = scratch.legwork("run").args(["--", "pwd"]).env_clear().output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
