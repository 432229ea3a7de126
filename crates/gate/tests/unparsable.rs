//! Text that bash cannot parse: bash says so, and nobody is asked.

use std::process::{Command, Stdio};

mod common;

use common::check;
use legwork_gate::{Checked, Circumstances, Decision, Layer, Mode, Origin, Policy, Script, Trust};

/// What may stand before a mistake.
const BEFORE: &[&str] = &[
    "",
    "ran_it; ",
    "ran_it && ",
    "ran_it | ",
    "ran_it & ",
    "ran_it\n",
    "X=1 ",
    "2>&1 ",
    "! ",
    "time ",
    "coproc ",
    "if ran_it; then ",
    "while ran_it; do ",
    "{ ran_it; ",
    "( ran_it; ",
    "ran_it; # '\n",
    "ran_it # ",
    "ran_it \\\n",
    "f() { ran_it; }; f; ",
    "eval ran_it; ",
    "if true; then ran_it; fi; ",
    "case x in x) ran_it;; ",
    "ran_it; for ",
    "[[ a ]] && ran_it; ",
    "ran_it <<E\n",
    "\"ran_it\"; ",
    "'ran_it'; ",
    "$'ran_it'; ",
    "shopt -s extglob; ran_it; ",
];

/// Mistakes, and what only looks like one.
const MISTAKES: &[&str] = &[
    "then",
    "fi",
    "else",
    "elif",
    "do",
    "done",
    "esac",
    "}",
    "in",
    "in x",
    "if then",
    "while do",
    "{ }",
    "if true; fi",
    "echo 'x",
    "echo \"x",
    "echo 'a'b'",
    "echo \"a'b",
    "! then",
    "time fi",
    "then; ran_it",
    "fi\nran_it",
    "echo 'x\nran_it",
    "X=then do",
    "\\then",
    "'then",
    "\"fi",
    "echo then",
    "then() { x; }",
    "in=1",
    "}x",
    "echo # 'x",
    "x=(a 'b",
    "echo a\\'b",
    "echo $'a\\'b",
    "echo \"a\\\"",
];

fn look(policy: &Policy, text: &str) -> Checked {
    let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
    check(policy, "run_shell_command", Script::Shell(text), circumstances)
}

#[test]
fn nobody_is_asked_about_a_text_that_bash_does_not_begin() {
    for text in
        ["echo 'x", "echo \"x", "if then", "rm -rf x; fi", "git commit -m 'it's'", "ls | done"]
    {
        let checked = look(&Policy::default(), text);
        assert_eq!(checked.verdict, Decision::Allow, "{text}: {checked:?}");
        assert_eq!(checked.explanation.rule, "syntax-error", "{text}");
    }
}

#[test]
fn what_bash_runs_before_it_finds_the_mistake_is_judged() {
    // Lines before, texts that are parsed later, and what may be read in another way.
    for text in [
        "rm -rf x\nif then",
        "rm -rf x\necho 'y",
        "rm -rf x; eval 'if then'",
        "rm -rf x; bash -c \"echo 'y\"",
        "X=1 then; rm -rf x",
        "2>&1 then; rm -rf x",
        "cat <<E\nrm 'x\nE\nrm -rf x",
        "rm -rf x; echo ${x:-'}",
        "alias a=then; rm -rf x",
    ] {
        let checked = look(&Policy::default(), text);
        assert_eq!(checked.verdict, Decision::Ask, "{text}: {checked:?}");
    }
    let denies = Layer {
        origin: Origin::Given,
        name: "p.toml",
        text: "excludeTools = [\"run_shell_command(rm)\"]",
    };
    let denies = Policy::from_layers(&[denies], Mode::Guarded).unwrap();
    assert_eq!(look(&denies, "rm x; echo 'y").verdict, Decision::Deny);
    assert_eq!(look(&Policy::default(), "echo $(x) 'y").verdict, Decision::Deny);
}

#[test]
fn other_shells_and_programs_are_asked_about() {
    let policy = Policy::default();
    let argv = ["bash".to_owned(), "-c".to_owned(), "rm -rf x\nif then".to_owned()];
    let circumstances = || Circumstances {
        sandboxed: true,
        trust: Trust::UntrustedExternal,
        ..Circumstances::default()
    };
    let by_argv = check(&policy, "ExecCommand", Script::Argv(&argv), circumstances());
    assert_eq!(by_argv.verdict, Decision::Ask);
    let zsh = Circumstances { shell: Some("zsh"), ..circumstances() };
    let by_zsh = check(&policy, "ExecCommand", Script::Shell("echo 'x"), zsh);
    assert_eq!(by_zsh.verdict, Decision::Ask);
}

/// Bash itself runs nothing of what it is left to: whatever stands before a mistake.
#[test]
fn bash_runs_nothing_of_what_is_left_to_it() {
    let mut left = 0;
    for text in BEFORE.iter().flat_map(|one| MISTAKES.iter().map(move |two| format!("{one}{two}")))
    {
        if look(&Policy::default(), &text).explanation.rule != "syntax-error" {
            continue;
        }
        left += 1;
        let ran =
            Command::new("bash").args(["-c", "--", &text]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{text:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!said.contains("ran_it: command not found"), "{text:?}: {said}");
    }
    assert!(left > 300, "only {left} texts are left to bash");
}
