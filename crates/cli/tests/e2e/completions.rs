//! Completions: made for every shell, and taken by bash.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use crate::common::{Scratch, program, text};

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

#[test]
fn ids_are_completed_with_their_commands() {
    let scratch = Scratch::new();
    let task = scratch.result("echo found")["task_id"].as_str().unwrap().to_owned();
    let folder = std::path::Path::new(program()).parent().unwrap().display();
    let script = format!(
        "source /dev/stdin; PATH={folder}:$PATH
        finish() {{ COMP_WORDS=(legwork \"$@\"); COMP_CWORD=$#; _legwork_with_ids legwork \"${{!#}}\"; \
                   echo \"${{COMPREPLY[@]}}\"; }}
        finish show t_; finish stop t_; complete -p legwork"
    );
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bash = command.env("LEGWORK_STATE", scratch.state.path()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(&completions("bash").stdout).unwrap();
    let output = text(&bash.wait_with_output().unwrap().stdout);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], [task.as_str(), ""], "the task has ended: {output}");
    assert!(lines[2].contains("_legwork_with_ids"), "{output}");
    // What other shells are told, with the command.
    let ids = scratch.legwork("complete-ids").arg("tasks").output().unwrap();
    assert_eq!(text(&ids.stdout), format!("{task}\techo found\n"));
    let zsh = text(&completions("zsh").stdout);
    for line in
        ["first characters; @ is the newest:_legwork_ids_tasks'", ":_legwork_ids_approvals'"]
    {
        assert!(zsh.contains(line), "{line} in {zsh}");
    }
    let fish = text(&completions("fish").stdout);
    assert!(fish.contains("(legwork complete-ids running"), "{fish}");
}
