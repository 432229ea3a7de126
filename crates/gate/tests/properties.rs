//! Properties: nothing makes a verdict laxer, nothing crashes, and the time is linear.

mod common;

use common::check;
use legwork_gate::{
    Circumstances, Decision, Layer, Mode, Origin, Policy, Script, read, substitution,
};
use proptest::prelude::*;

/// A policy with rules of every kind.
fn policy() -> Policy {
    let text = r#"
coreTools = ["run_shell_command(git)", "run_shell_command(ls)", "run_shell_command(echo)"]
excludeTools = ["run_shell_command(rm)", "run_shell_command(git push)"]

[[rule]]
id = "no-net"
decision = "ask"
program = "curl"
"#;
    let layer = Layer { origin: Origin::Given, name: "policy.toml", text };
    Policy::from_layers(&[layer], Mode::Guarded).unwrap_or_else(|error| panic!("{error}"))
}

fn verdict(policy: &Policy, tool: &str, text: &str) -> Decision {
    let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
    check(policy, tool, Script::Shell(text), circumstances).verdict
}

/// A simple command: a name of interest and some arguments.
fn command() -> impl Strategy<Value = String> {
    let names = [
        "rm", "git", "ls", "echo", "curl", "make", "cat", "sort", "sed", "find", "mytool",
        "/bin/rm",
    ];
    let words = [
        "push",
        "status",
        "-rf",
        "x",
        "--output=f",
        "-o",
        "rm",
        "--",
        "-exec",
        "a.txt",
        "-c",
        "*.rs",
        "$x",
        "\"$y\"",
    ];
    let name = proptest::sample::select(names.to_vec());
    let arguments = proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..4);
    (name, arguments).prop_map(|(name, arguments)| {
        let mut all = vec![name];
        all.extend(arguments);
        all.join(" ")
    })
}

/// Every way to wrap a command that must not make it laxer.
fn wrapped(command: &str) -> Vec<String> {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    let (first, last) = name.split_at(1);
    let mut all = vec![
        format!("env X=1 {command}"),
        format!("env -i {command}"),
        format!("command {command}"),
        format!("timeout 5 {command}"),
        format!("nice -n 5 {command}"),
        format!("nohup {command}"),
        format!("( {command} )"),
        format!("{{ {command}; }}"),
        format!("if true; then {command}; fi"),
        format!("if {command}; then :; fi"),
        format!("while {command}; do break; done"),
        format!("for i in 1; do {command}; done"),
        format!("case a in a) {command};; esac"),
        format!("f() {{ {command}; }}; f"),
        format!("! {command}"),
        format!("X=1 {command}"),
        format!("{command} 2>&1"),
        format!("{command} &"),
        format!("{command} | cat"),
        format!("cat x | {command}"),
        format!("true && {command}"),
        format!("{command}; true"),
        format!("true\n{command}"),
        format!("echo a # b\n{command}"),
        format!("cat <<'E'\nx\nE\n{command}"),
        format!("\\{command}"),
        format!("'{name}' {rest}"),
        format!("\"{name}\" {rest}"),
        format!("{first}''{last} {rest}"),
        format!("{first}\\\n{last} {rest}"),
        format!("xargs {command}"),
        format!("sudo {command}"),
        format!("find . -exec {command} \\;"),
        format!("echo $({command})"),
        format!("echo \"$({command})\""),
    ];
    if !command.contains('\'') {
        all.push(format!("bash -c '{command}'"));
        all.push(format!("bash -lc '{command}'"));
        all.push(format!("sh -c '{command}'"));
        all.push(format!("eval '{command}'"));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wrapping_quoting_prefixing_and_chaining_never_make_a_verdict_laxer(command in command()) {
        let policy = policy();
        for tool in ["ExecCommand", "execute_command", "run_shell_command"] {
            let bare = verdict(&policy, tool, &command);
            for text in wrapped(&command) {
                let now = verdict(&policy, tool, &text);
                prop_assert!(now >= bare, "{tool}: {command:?} is {bare:?}, {text:?} is {now:?}");
            }
        }
    }

    #[test]
    fn two_commands_are_as_strict_as_the_stricter(left in command(), right in command(), join in 0..5_usize) {
        let policy = policy();
        let operator = ["; ", " && ", " || ", "\n", " & "][join];
        let text = format!("{left}{operator}{right}");
        for tool in ["ExecCommand", "run_shell_command"] {
            let each = verdict(&policy, tool, &left).max(verdict(&policy, tool, &right));
            prop_assert!(verdict(&policy, tool, &text) >= each, "{text:?}");
        }
    }

    #[test]
    fn no_text_crashes(text in any::<String>()) {
        read(&text);
        substitution(&text);
        verdict(&policy(), "ExecCommand", &text);
    }

    #[test]
    fn no_soup_crashes(tokens in proptest::collection::vec(proptest::sample::select(soup()), 0..60)) {
        let text = tokens.concat();
        let reading = read(&text);
        for command in &reading.commands {
            prop_assert!(text.get(command.span.start..command.span.end).is_some(), "{text:?}");
        }
        prop_assert_eq!(reading.understood, reading.refusal.is_none());
        let checked = check(&policy(), "run_shell_command", Script::Shell(&text), Circumstances::default());
        checked.explanation.render(&text);
    }

    #[test]
    fn no_bytes_crash(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_single_quoted_text_holds_no_substitution(inside in "[ -&(-~]*") {
        prop_assert_eq!(substitution(&format!("echo '{inside}'")), None);
    }
}

/// Pieces of shell.
fn soup() -> Vec<&'static str> {
    vec![
        "$(",
        ")",
        "`",
        "<(",
        "${",
        "}",
        "{",
        "((",
        "))",
        "'",
        "\"",
        "\\",
        "\n",
        " ",
        "a",
        "=",
        "[",
        "]",
        "[[",
        "]]",
        "if ",
        "then ",
        "fi",
        "do ",
        "done",
        "case ",
        "in ",
        "esac",
        ";;",
        ";",
        "&",
        "|",
        "<<E",
        "\nE\n",
        "<<-'E'",
        "é",
        "💥",
        "$",
        "#",
        "x=(",
        "f()",
        "for i in ",
        "while ",
        "$'",
        "\\\n",
        ">",
        "<<<",
        "~",
        "*",
        "2>&1",
        "function ",
        "-eq",
        "=~",
        "${x:-",
        "${x[",
        "$((",
        "!",
        "time ",
        "eval ",
        "bash -c ",
    ]
}
