//! Verdicts over data files: the classes that got past others, and what rules say of everyday
//! commands.

use std::collections::HashMap;

mod common;

use common::check;
use legwork_gate::{Checked, Circumstances, Decision, Layer, Mode, Origin, Policy, Script};
use serde::Deserialize;

const TOOLS: [&str; 3] = ["ExecCommand", "execute_command", "run_shell_command"];

/// A policy of one given file.
fn policy(text: &str, mode: Mode) -> Policy {
    let layer = Layer { origin: Origin::Given, name: "policy.toml", text };
    Policy::from_layers(&[layer], mode).unwrap_or_else(|error| panic!("{error}"))
}

fn look(policy: &Policy, tool: &str, text: &str) -> Checked {
    let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
    check(policy, tool, Script::Shell(text), circumstances)
}

#[test]
fn no_form_of_a_denied_program_is_allowed_by_any_tool() {
    let policies = [
        policy("excludeTools = [\"run_shell_command(rm)\"]", Mode::Guarded),
        policy(
            "excludeTools = [\"run_shell_command(rm)\"]\ncoreTools = [\"Bash\", \"run_shell_command\"]",
            Mode::Guarded,
        ),
    ];
    let mut wrong = Vec::new();
    for line in include_str!("data/forms_of_rm.txt").lines().skip(1) {
        let text = line.replace('⏎', "\n");
        for (policy, tool) in policies.iter().flat_map(|p| TOOLS.map(|tool| (p, tool))) {
            let checked = look(policy, tool, &text);
            if checked.verdict == Decision::Allow {
                wrong.push(format!("{tool}: {text:?}: {checked:?}"));
            }
            let argv = ["bash".to_owned(), "-c".to_owned(), text.clone()];
            let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
            if check(policy, tool, Script::Argv(&argv), circumstances).verdict == Decision::Allow {
                wrong.push(format!("{tool} by argv: {text:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policies: HashMap<String, String>,
    group: Vec<Group>,
}

/// Cases with the same expectation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    policy: String,
    tools: Vec<String>,
    mode: Option<String>,
    verdict: Decision,
    rule: Option<String>,
    substitution: Option<bool>,
    understood: Option<bool>,
    sandboxed: Option<bool>,
    untrusted: Option<bool>,
    /// The shell that reads the text, where it is not bash.
    shell: Option<String>,
    /// The programs that are in the current folder.
    #[serde(default)]
    in_current_folder: Vec<String>,
    #[serde(default)]
    cases: Vec<String>,
}

fn mode(name: Option<&str>) -> Mode {
    match name {
        Some("open") => Mode::Open,
        Some("strict") => Mode::Strict,
        _ => Mode::Guarded,
    }
}

/// What is wrong with one case.
fn complaint(group: &Group, checked: &Checked) -> Option<String> {
    let rule = checked.explanation.rule.as_str();
    let wrong = checked.verdict != group.verdict
        || group.rule.as_deref().is_some_and(|expected| expected != rule)
        || group.substitution.is_some_and(|expected| expected != checked.substitution)
        || group.understood.is_some_and(|expected| expected != checked.understood);
    wrong.then(|| {
        format!(
            "{:?} by {rule} ({}), expected {:?} by {:?}",
            checked.verdict, checked.reason, group.verdict, group.rule
        )
    })
}

#[test]
fn the_cases_come_out_as_written() {
    hold(include_str!("data/verdicts.toml"), false);
}

#[test]
fn text_for_the_shells_of_windows_comes_out_as_written() {
    hold(include_str!("data/windows.toml"), true);
}

#[expect(clippy::unwrap_used, reason = "a test may panic")]
fn hold(cases: &str, on_windows: bool) {
    let file: File = toml::from_str(cases).unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for group in &file.group {
        let text = file.policies.get(&group.policy).unwrap();
        let mut policy = policy(text, mode(group.mode.as_deref()));
        if on_windows {
            policy = policy.for_windows();
        }
        let trust = if group.untrusted == Some(true) {
            legwork_gate::Trust::UntrustedExternal
        } else {
            legwork_gate::Trust::TrustedOperator
        };
        let sandboxed = group.sandboxed.unwrap_or(true);
        let shell = group.shell.as_deref();
        let in_current_folder: Vec<_> = group.in_current_folder.iter().map(|it| &**it).collect();
        let circumstances = Circumstances {
            sandboxed,
            trust,
            shell,
            in_current_folder: &in_current_folder,
            ..Circumstances::default()
        };
        for (tool, case) in group.tools.iter().flat_map(|t| group.cases.iter().map(move |c| (t, c)))
        {
            count += 1;
            let checked = check(&policy, tool, Script::Shell(case), circumstances);
            if let Some(complaint) = complaint(group, &checked) {
                wrong.push(format!("{tool} with {}: {case:?}: {complaint}", group.policy));
            }
        }
    }
    println!("{count} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which commands are seen in a text, and what they run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    text: String,
    commands: Vec<String>,
    runs: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct NamesFile {
    case: Vec<Names>,
}

#[test]
fn the_names_of_commands_and_runs_are_seen() {
    let file: NamesFile = toml::from_str(include_str!("data/names.toml")).unwrap();
    for case in file.case {
        let checked = look(&Policy::default(), "ExecCommand", &case.text);
        assert!(checked.understood, "{:?}: {checked:?}", case.text);
        assert_eq!(checked.commands, case.commands, "commands of {:?}", case.text);
        assert_eq!(checked.runs, case.runs.unwrap_or(case.commands), "runs of {:?}", case.text);
    }
}
