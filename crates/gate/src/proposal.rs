//! Proposes the rule that would allow exactly one command, and nothing more.

use crate::{
    data,
    interpreters::is_interpreter,
    judge::{read_script, weigh},
    policy::{Layer, Policy},
    reading::{Reading, Word},
    rule::{Decision, Origin},
    unwrap::basename,
    verdict::{Script, Subject, argv_words},
    windows::{self, windows_shell},
};

/// Besides interpreters: a rule for one of them would be a rule for anything.
const AS_GENERAL: [&str; 13] = [
    "awk",
    "gawk",
    "mawk",
    "osascript",
    "make",
    "cmd",
    "powershell",
    "pwsh",
    "wscript",
    "cscript",
    "mshta",
    "rundll32",
    "wsl",
];

/// The rule, in TOML, that allows exactly this command: for this tool, in this workspace, and for
/// no caller who is trusted less; none where that cannot be said, or where the command would be
/// asked about all the same.
pub fn proposal(policy: &Policy, subject: &impl Subject, id: &str) -> Option<String> {
    let rule = rule_for(subject, id)?;
    let layer = Layer { origin: Origin::User, name: "proposal", text: &rule };
    let added = Policy::from_layers(&[layer], policy.mode).ok()?;
    let added = if policy.is_for_windows() { added.for_windows() } else { added };
    let mut amended = policy.clone();
    amended.rules.extend(added.rules);
    let (_, finding) = weigh(&amended, subject);
    (finding.decision == Decision::Allow).then_some(rule)
}

/// The rule itself.
fn rule_for(subject: &impl Subject, id: &str) -> Option<String> {
    let words = match subject.script() {
        script @ Script::Shell(_) => single(&read_script(&script, subject.shell()))?,
        Script::Argv(argv) => argv_words(argv),
    };
    let literal: Vec<&str> = words.iter().map(Word::literal).collect::<Option<_>>()?;
    let (program, args) = literal.split_first()?;
    if is_general(program) || !subject.shell().is_none_or(is_usual_shell) {
        return None;
    }
    let args: Vec<String> = args.iter().map(|word| format!("[{}]", quoted(word))).collect();
    let mut rule = String::from("[[rule]]\n");
    let mut add = |key: &str, value: &str| rule.extend([key, " = ", value, "\n"]);
    add("id", &quoted(id));
    add("decision", "\"allow\"");
    add("tool", &quoted(subject.tool()));
    add("workspace", &quoted(subject.workspace()?));
    add("trust", &quoted(subject.trust().as_str()));
    add("program", &quoted(program));
    add("args", &format!("[{}]", args.join(", ")));
    add("exact", "true");
    Some(rule)
}

/// A text as a string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            _ if character.is_control() => {
                out.push_str(&format!("\\U{:08X}", u32::from(character)));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// The words of a text that is one plain command.
fn single(reading: &Reading) -> Option<Vec<Word>> {
    let ([command], [run]) = (reading.commands.as_slice(), reading.runs.as_slice()) else {
        return None;
    };
    let plain = reading.understood
        && reading.substitution.is_none()
        && reading.later.is_empty()
        && reading.functions.is_empty()
        && command.assignments.is_empty()
        && command.redirects.is_empty()
        && !command.background
        && run.depth == 0
        && !run.unresolved;
    plain.then(|| command.words.clone())
}

/// Whether a shell is a usual one in a usual place: any other is a program of its own, which a rule
/// about the text says nothing of.
fn is_usual_shell(shell: &str) -> bool {
    if windows_shell(shell).is_some() {
        let path = windows::program_name(shell);
        let path = path.split_once(':').map_or(path.as_str(), |(_drive, path)| path);
        return !path.contains('/') || path.starts_with("/windows/system32/");
    }
    let folders = ["/bin/", "/usr/bin/", "/usr/local/bin/"];
    let name = folders.iter().find_map(|folder| shell.strip_prefix(folder)).unwrap_or(shell);
    ["sh", "bash", "dash", "zsh", "ksh"].contains(&name)
}

/// Whether a program is a shell, an interpreter or a wrapper, by whatever version.
fn is_general(program: &str) -> bool {
    is_interpreter(program, &AS_GENERAL) || data::is_wrapper(basename(program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Circumstances, Manners, Mode, Trust, check};

    /// A command that is asked about.
    struct Asked<'a> {
        script: Script<'a>,
        trust: Trust,
        shell: Option<&'a str>,
    }

    impl Subject for Asked<'_> {
        fn tool(&self) -> &'static str {
            "run_shell_command"
        }

        fn script(&self) -> Script<'_> {
            self.script
        }

        fn trust(&self) -> Trust {
            self.trust
        }

        fn workspace(&self) -> Option<&str> {
            Some("/w")
        }

        fn shell(&self) -> Option<&str> {
            self.shell
        }
    }

    fn proposed(script: Script<'_>, trust: Trust, shell: Option<&str>) -> Option<String> {
        let asked = Asked { script, trust, shell };
        let windows = shell.and_then(windows_shell).is_some();
        let policy = Policy::default();
        let policy = if windows { policy.for_windows() } else { policy };
        proposal(&policy, &asked, "x")
    }

    fn policy_of(rule: &str) -> Policy {
        let layer = Layer { origin: Origin::User, name: "f", text: rule };
        Policy::from_layers(&[layer], Mode::Guarded).unwrap()
    }

    /// What is said of a text for a tool that asks by default.
    fn verdict_in(policy: &Policy, text: &str, workspace: Option<&str>, trust: Trust) -> Decision {
        let manners = Manners { asks_by_default: true, refuses_substitution: true };
        let around = Circumstances { trust, manners, workspace, ..Circumstances::default() };
        check(policy, "run_shell_command", Script::Shell(text), around).verdict
    }

    #[test]
    fn a_proposed_rule_serves_its_workspace_and_no_lower_trust() {
        let all = [
            (Trust::UntrustedExternal, 0),
            (Trust::TrustedIntegration, 1),
            (Trust::TrustedSystem, 2),
            (Trust::TrustedOperator, 2),
        ];
        for (asked, least) in all {
            let rule = proposed(Script::Shell("touch x"), asked, Some("bash")).unwrap();
            let policy = policy_of(&rule);
            for (trust, rank) in all {
                let expected = if rank >= least { Decision::Allow } else { Decision::Ask };
                let verdict = verdict_in(&policy, "touch x", Some("/w"), trust);
                assert_eq!(verdict, expected, "asked by {asked:?}, served to {trust:?}");
                for other in [Some("/w2"), Some("/w/sub"), None] {
                    let verdict = verdict_in(&policy, "touch x", other, trust);
                    assert_eq!(verdict, Decision::Ask, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn a_rule_that_was_saved_without_workspace_and_trust_serves_all() {
        let policy = policy_of(
            "[[rule]]\nid = \"approved-x\"\ndecision = \"allow\"\ntool = \"run_shell_command\"\n\
             program = \"touch\"\nargs = [[\"x\"]]\nexact = true\n",
        );
        for workspace in [Some("/w"), None] {
            let verdict = verdict_in(&policy, "touch x", workspace, Trust::UntrustedExternal);
            assert_eq!(verdict, Decision::Allow);
        }
    }

    #[test]
    fn a_proposed_rule_allows_that_command_and_no_other() {
        let script = Script::Shell("git push origin 'a \"b\\'");
        let policy = policy_of(&proposed(script, Trust::TrustedOperator, None).unwrap());
        let verdict = |text: &str| verdict_in(&policy, text, Some("/w"), Trust::TrustedOperator);
        assert_eq!(verdict("git push origin 'a \"b\\'"), Decision::Allow);
        for other in [
            "git push origin 'a \"b\\' --force",
            "git push origin",
            "git push origin 'a \"b\\'; ls",
            "git push origin 'a \"b\\' > file",
            "X=1 git push origin 'a \"b\\'",
        ] {
            assert_eq!(verdict(other), Decision::Ask, "{other}");
        }
    }

    #[test]
    fn text_for_a_shell_of_windows_gets_a_rule_by_its_own_reader() {
        let of = |text, shell| proposed(Script::Shell(text), Trust::TrustedOperator, Some(shell));
        let rule = of(r#"IPConfig.exe /all C:\dir "a b""#, "cmd").unwrap();
        assert!(rule.contains(r#"args = [["/all"], ["C:\\dir"], ["a b"]]"#), "{rule}");
        let rule = rule.replace("\"/w\"", r"'C:\Work'");
        let policy = policy_of(&rule).for_windows();
        let verdict = |text: &str, workspace| {
            let manners = Manners { asks_by_default: true, refuses_substitution: true };
            let (workspace, shell) = (Some(workspace), Some("cmd"));
            let around = Circumstances { manners, workspace, shell, ..Circumstances::default() };
            check(&policy, "run_shell_command", Script::Shell(text), around).verdict
        };
        let asked = r#"ipconfig /all C:\dir "a b""#;
        assert_eq!(verdict(asked, r"c:\work\"), Decision::Allow);
        assert_eq!(verdict(asked, r"C:\Work\sub"), Decision::Ask);
        assert_eq!(verdict("ipconfig /all", r"C:\Work"), Decision::Ask);
        for (text, shell) in [
            ("echo a & b", "cmd"),
            ("cmd /c ipconfig", "cmd"),
            ("powershell x", "cmd"),
            ("ipconfig %x%", "cmd"),
            ("git $x", "pwsh"),
            ("ipconfig", r"C:\elsewhere\cmd.exe"),
        ] {
            assert_eq!(of(text, shell), None, "{text}");
        }
    }

    #[test]
    fn what_could_be_more_gets_no_rule() {
        for text in [
            "bash -c ls",
            "python3.12 x.py",
            "sudo ls",
            "env X=1 ls",
            "xargs rm",
            "ls; ls",
            "ls | cat",
            "ls > x",
            "ls $x",
            "ls *.txt",
            "ls $(id)",
            "X=1 ls",
            "eval ls",
            "sleep 1 &",
            "f() { ls; }; f",
            "if",
        ] {
            let rule = proposed(Script::Shell(text), Trust::TrustedOperator, None);
            assert_eq!(rule, None, "{text}");
        }
        let argv = |argv: &[String]| proposed(Script::Argv(argv), Trust::TrustedOperator, None);
        assert!(argv(&["ls".into(), "$x".into()]).is_some());
        assert!(argv(&["/bin/sh".into()]).is_none());
        for (shell, usual) in
            [("bash", true), ("/usr/bin/zsh", true), ("./sh", false), ("/w/bash", false)]
        {
            let rule = proposed(Script::Shell("ls"), Trust::TrustedOperator, Some(shell));
            assert_eq!(rule.is_some(), usual, "{shell}");
        }
    }

    #[test]
    fn a_text_for_a_shell_of_windows_gets_a_rule_if_it_is_one_plain_program() {
        for (text, shell, gets_one) in [
            ("touch x", "cmd", true),
            ("touch x", r"C:\Windows\System32\cmd.exe", true),
            ("git push origin", "powershell", true),
            ("touch x", r"C:\work\cmd.exe", false),
            ("touch x & del y", "cmd", false),
            ("touch %x%", "cmd", false),
            ("touch x > y", "cmd", false),
            ("cmd /c del x", "cmd", false),
            ("powershell -c x", "cmd", false),
            ("touch $x", "pwsh", false),
        ] {
            let rule = proposed(Script::Shell(text), Trust::TrustedOperator, Some(shell));
            assert_eq!(rule.is_some(), gets_one, "{text} in {shell}: {rule:?}");
        }
    }
}
