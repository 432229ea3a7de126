//! README tells the truth: its first command prints the receipt that it shows.

use std::collections::HashSet;

use crate::common::{Scratch, program, text};

const README: &str = include_str!("../../../../README.md");

/// The first fenced block of this kind that contains a text.
fn block(kind: &str, containing: &str) -> String {
    README
        .split("```")
        .filter_map(|part| part.strip_prefix(kind).and_then(|part| part.strip_prefix('\n')))
        .find(|part| part.contains(containing))
        .unwrap()
        .to_owned()
}

#[test]
fn the_first_command_prints_the_receipt() {
    let command = block("console", "cargo run");
    let (_, call) = command.trim().split_once(" -- call ExecCommand ").unwrap();
    let input = call.trim_matches('\'');
    assert_eq!(command.lines().count(), 1, "one line");
    let scratch = Scratch::new();
    let (receipt, code) = scratch.receipt("ExecCommand", input);
    assert_eq!((receipt, code), (block("text", "Process exited"), 0));
}

#[test]
fn the_second_command_is_what_ci_runs() {
    let command = block("console", "cargo test");
    let ci = include_str!("../../../../.ci/run");
    assert!(ci.lines().any(|line| line == command.trim()), "{command}");
}

#[test]
fn what_ci_checks_is_what_the_recipes_of_a_person_do() {
    let justfile = include_str!("../../../../justfile");
    let recipe = |name: &str| {
        let (_, rest) = justfile.split_once(&format!("\n{name}:\n")).unwrap();
        rest.lines().take_while(|line| line.starts_with("    ")).map(str::trim)
    };
    let by_hand: HashSet<&str> = ["lint", "doc", "test"].into_iter().flat_map(recipe).collect();
    // The rest of it only prepares the machine.
    let (_, checks) = include_str!("../../../../.ci/run").split_once("\n\ncargo fmt").unwrap();
    let checks = format!("cargo fmt{checks}");
    let is_check = |line: &&str| !line.starts_with('#') && !line.starts_with("command -v");
    let by_ci: HashSet<&str> = checks.lines().filter(is_check).collect();
    assert_eq!(by_hand, by_ci);
}

#[test]
fn every_verb_that_is_shown_exists() {
    for line in block("text", "legwork run --").lines() {
        let verb = line.split_whitespace().nth(1).unwrap();
        let output = std::process::Command::new(program()).args([verb, "--help"]).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", text(&output.stderr));
    }
}
