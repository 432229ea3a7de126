//! Completions: made for every shell, and taken by bash.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use crate::common::{program, text};

fn completions(shell: &str) -> Output {
    let mut command = Command::new(program());
    command.args(["completions", shell]).output().unwrap()
}

#[test]
fn every_shell_gets_a_script_that_knows_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&completions(shell).stdout);
        for word in ["approvals", "completions", "mcp", "running"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let refused = completions("csh");
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
}

#[test]
fn bash_completes_a_verb_and_its_options() {
    // As bash itself would call it when a person presses the tabulator.
    let script = "source /dev/stdin; complete -p legwork >&2 || exit 9
        finish() { COMP_WORDS=(legwork \"$@\"); COMP_CWORD=$#; _legwork legwork \"${!#}\"; echo \"${COMPREPLY[@]}\"; }
        finish appro; finish ps --runn";
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bash = command.spawn().unwrap();
    let script = completions("bash").stdout;
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "approvals approve\n--running\n", "{output:?}");
}
