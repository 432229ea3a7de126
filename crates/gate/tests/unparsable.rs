//! Text that bash cannot parse: bash says so, and nobody is asked.

use std::process::{Command, Stdio};

mod common;

use common::check;
use legwork_gate::{
    Checked, Circumstances, Decision, Layer, Manners, Mode, Origin, Policy, Script, Subject, Trust,
    Verdict, judge,
};

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
    "coproc f ",
    "coproc ran_it; ",
    "coproc $x ",
    "coproc f if ran_it; then ",
    "for f in a; do ran_it; ",
    "ran_it $((1+2)) ${x:-a} \"${b}\"; ",
    "(( 1 + x )); ran_it; ",
    "x=(a b); ran_it; ",
    "x=(a | b)\nran_it; ",
    "[[ a =~ b ]] && ran_it; ",
    "[[ a b ]]\nran_it; ",
    "case x in x) ran_it;; esac; ",
    "\n# what it does\nran_it; ",
    "\n\n",
    "ran_it && ! ",
    "until ran_it; do break; done; ",
    "ran_it 2>&1 >f <<<x; ",
    "{ ran_it; } >f; ",
    "ran_it <<<E\n",
    "{ ran_it <<E\nE\n",
    "ran_it a{b,c} *.x ~; ",
    "function g { ran_it; }; ",
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
    "if :; then ran_it; fi",
    "while ran_it; do break; done",
    "{ ran_it; }",
    "for i in a; do ran_it; done",
    "case x in x) ran_it;; esac",
    "[[ a ]] && ran_it",
    "(ran_it)",
    "ls |",
    "ls | | ran_it",
    "(ls",
    "ls )",
    "ls &&",
    "ls && || ran_it",
    "{ ls",
    "if true; then ls",
    "ls >",
    "ls > ; ran_it",
    "ls > # ran_it",
    "ls >\nran_it",
    "ls ;; ran_it",
    "; ran_it",
    "& ran_it",
    "echo \"a ${b} c",
    "for f in *; do echo \"$f; done",
    "for f in *",
    "for f in *; do ran_it",
    "echo $((1+2)) 'x",
    "echo $((1+",
    "echo ${x",
    "((1+",
    "((1+\nran_it",
    "[[ a",
    "[[ a\nran_it",
    "[[ a b ]]\nran_it",
    "case x in",
    "case ;",
    "case x in x) ran_it",
    "echo (ran_it)",
    "echo a (b); ran_it",
    "echo x=(1 2); ran_it",
    "eval x=(1 2); ran_it",
    "declare x=(1 |)\nran_it",
    "x=(1; ran_it)\nran_it",
    "x=(a\nran_it",
    "f() ;",
    "f()",
    "f() ran_it",
    "{ ls; } ran_it",
    "{ ls; } (ran_it)",
    "( )",
    "! ",
    "time",
    "time; ran_it",
    "! ; ran_it",
    "cat <<E",
    "cat <<E; then\nE",
    "cat <<E 'x\nE\nran_it",
    "{ cat <<E\n${x\nE\n}",
    "echo a\\",
    "!(ran_it)",
    "ls @(a|b)",
    "${x:-'} ran_it",
    "\"${x:-'}\"; ran_it",
];

/// What may come after a mistake.
const AFTER: &[&str] = &["", "; ran_it", "\nran_it", " '\nran_it\n"];

fn look(policy: &Policy, text: &str) -> Checked {
    let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
    check(policy, "run_shell_command", Script::Shell(text), circumstances)
}

#[test]
fn nobody_is_asked_about_a_text_that_bash_does_not_begin() {
    for text in [
        "echo 'x",
        "echo \"x",
        "if then",
        "rm -rf x; fi",
        "git commit -m 'it's'",
        "ls | done",
        "ls |",
        "(ls",
        "ls )",
        "ls &&",
        "{ ls",
        "if true; then ls",
        "ls >",
        "ls ;; ls",
        "; ls",
        "echo \"a ${b} c",
        "for f in *; do echo \"$f; done",
        "for f in *; do ls",
        "case x in x) ls",
        "[[ -f x",
        "((1+",
        "echo (x)",
        "{ ls; } x",
        "f()",
        "echo $((1+2)) 'x",
        "echo $((1+",
        "echo ${x",
        "\n\nif then",
        "for i in 1 2; do\n  echo \"$i\ndone\n",
    ] {
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
        "coproc f if :; then rm -rf x; fi",
        "coproc f while :; do rm -rf x; done",
        "coproc f for i in a; do rm -rf x; done",
        "coproc f { rm -rf x; }",
        "x=(a | b)\nrm -rf x",
        "rm -rf x; ! ;",
        "cat <<E\n${x\nE\nrm -rf x",
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

#[derive(Debug)]
struct WithVariable(&'static str);

impl Subject for WithVariable {
    fn tool(&self) -> &'static str {
        "run_shell_command"
    }

    fn script(&self) -> Script<'_> {
        Script::Shell("if then")
    }

    fn manners(&self) -> Manners {
        Manners { asks_by_default: true, refuses_substitution: true }
    }

    fn has_variable(&self, name: &str) -> bool {
        name == self.0
    }
}

/// Bash runs the file that `BASH_ENV` names before it reads the text.
#[test]
fn variables_that_steer_bash_are_asked_about() {
    for name in ["BASH_ENV", "BASHOPTS", "SHELLOPTS", "BASH_COMPAT", "POSIXLY_CORRECT"] {
        let asked = judge(&Policy::default(), WithVariable(name));
        assert!(matches!(asked, Verdict::Ask(_)), "{name}: {asked:?}");
    }
    let left = judge(&Policy::default(), WithVariable("LANG"));
    assert!(matches!(left, Verdict::Allow(_)), "{left:?}");
}

/// Bash itself runs nothing of what it is left to: whatever stands before a mistake.
#[test]
fn bash_runs_nothing_of_what_is_left_to_it() {
    let mut left = 0;
    let pairs = BEFORE.iter().flat_map(|one| MISTAKES.iter().map(move |two| (one, two)));
    // Each pair with one of what may come after, so that each meets all of them.
    let texts = pairs.enumerate().map(|(index, (one, two))| {
        let after = AFTER[index % AFTER.len()];
        format!("{one}{two}{after}")
    });
    for text in texts {
        if look(&Policy::default(), &text).explanation.rule != "syntax-error" {
            continue;
        }
        left += 1;
        let ran =
            Command::new("bash").args(["-c", "--", &text]).stdin(Stdio::null()).output().unwrap();
        // After a mistake inside `[[ … ]]`, bash ends as if nothing had been wrong.
        let ended = ran.status.code();
        assert!(ended == Some(2) || text.contains("[[") && ended == Some(0), "{text:?}");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!said.contains("ran_it: command not found"), "{text:?}: {said}");
    }
    assert!(left > 1300, "only {left} texts are left to bash");
}
