//! The rule that would allow a command for good: exactly this one, and nothing that could be more.

use crate::{
    data,
    reading::{Reading, Word},
    unwrap::basename,
    verdict::{Script, argv_words},
};

/// Programs that run whatever they are given: a rule for one of them would be a rule for anything.
const INTERPRETERS: [&str; 24] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ash",
    "fish",
    "csh",
    "tcsh",
    "python",
    "perl",
    "ruby",
    "node",
    "deno",
    "bun",
    "php",
    "lua",
    "awk",
    "gawk",
    "mawk",
    "tclsh",
    "osascript",
    "pwsh",
    "make",
];

/// The rule, in TOML, that allows exactly this command for this tool; none where that cannot be
/// said.
pub fn proposal(tool: &str, script: Script<'_>, id: &str) -> Option<String> {
    let words = match script {
        Script::Shell(text) => single(&crate::read(text))?,
        Script::Argv(argv) => argv_words(argv),
    };
    let literal: Vec<&str> = words.iter().map(Word::literal).collect::<Option<_>>()?;
    let (program, args) = literal.split_first()?;
    if is_general(program) {
        return None;
    }
    let args: Vec<String> = args.iter().map(|word| format!("[{}]", quoted(word))).collect();
    Some(format!(
        "[[rule]]\nid = {}\ndecision = \"allow\"\ntool = {}\nprogram = {}\nargs = [{}]\nexact = true\n",
        quoted(id),
        quoted(tool),
        quoted(program),
        args.join(", ")
    ))
}

/// A text as a string of TOML.
fn quoted(text: &str) -> String {
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

/// Whether a program is a shell, an interpreter or a wrapper, by whatever version.
fn is_general(program: &str) -> bool {
    let name = basename(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    // A table that cannot be read makes everything a wrapper.
    INTERPRETERS.contains(&name)
        || data::wrappers(basename(program)).is_none_or(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Circumstances, Decision, Layer, Manners, Mode, Origin, Policy, check};

    #[test]
    fn a_proposed_rule_allows_that_command_and_no_other() {
        let shell = |text| proposal("run_shell_command", Script::Shell(text), "x");
        let rule = shell("git push origin 'a \"b\\'").unwrap();
        let layer = Layer { origin: Origin::User, name: "f", text: &rule };
        let policy = Policy::from_layers(&[layer], Mode::Guarded).unwrap();
        let verdict = |tool: &str, text: &str| {
            let manners = Manners { asks_by_default: true, refuses_substitution: true };
            let around = Circumstances { manners, ..Circumstances::default() };
            check(&policy, tool, Script::Shell(text), around).verdict
        };
        assert_eq!(verdict("run_shell_command", "git push origin 'a \"b\\'"), Decision::Allow);
        for other in [
            "git push origin 'a \"b\\' --force",
            "git push origin",
            "git push origin 'a \"b\\'; ls",
            "git push origin 'a \"b\\' > file",
            "X=1 git push origin 'a \"b\\'",
        ] {
            assert_eq!(verdict("run_shell_command", other), Decision::Ask, "{other}");
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
            assert_eq!(proposal("run_shell_command", Script::Shell(text), "x"), None, "{text}");
        }
        assert!(
            proposal("execute_command", Script::Argv(&["ls".into(), "$x".into()]), "x").is_some()
        );
        assert!(proposal("execute_command", Script::Argv(&["/bin/sh".into()]), "x").is_none());
    }
}
