//! Commands that read code from their input, such as shells: what is sent to them later is judged
//! like a command.

use serde::Serialize;

use crate::{
    reading::{Invocation, Word},
    unwrap::basename,
};

/// What a command makes of the text that it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeReader {
    /// It is code of another language, for an interpreter or a debugger.
    Repl,
    /// It is code for a shell, or may be.
    Shell,
}

const SHELLS: [&str; 13] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox", "pwsh",
    "nu",
];

/// Programs that start a shell of the user, here or elsewhere.
const SHELL_STARTERS: [&str; 9] =
    ["ssh", "su", "login", "script", "tmux", "screen", "newgrp", "machinectl", "telnet"];

/// Programs that start one when they are told to.
const SHELL_OPTIONS: [(&str, [&str; 4]); 2] =
    [("sudo", ["-i", "-s", "--login", "--shell"]), ("doas", ["-s", "-i", "--shell", "--login"])];

/// Interpreters that read their input where they are given no file.
const INTERPRETERS: [&str; 14] = [
    "python", "pypy", "ipython", "perl", "ruby", "irb", "node", "deno", "bun", "php", "lua",
    "tclsh", "R", "julia",
];

/// Programs that take commands whatever else they are given.
const CONSOLES: [&str; 9] =
    ["psql", "mysql", "mariadb", "sqlite", "sqlite3", "gdb", "lldb", "ghci", "redis-cli"];

/// What a command makes of its input: the strictest over all programs that the text runs; none if
/// it takes it for data. Text that is not understood may run a shell.
pub fn reads_code(text: &str) -> Option<CodeReader> {
    let reading = crate::read(text);
    let found = reading.runs.iter().filter_map(reader).max();
    if reading.understood && reading.later.is_empty() { found } else { Some(CodeReader::Shell) }
}

fn reader(run: &Invocation) -> Option<CodeReader> {
    let name = run.name()?;
    if name == "?" || run.unresolved {
        return Some(CodeReader::Shell);
    }
    let name = basename(name);
    let rest = run.words.get(1..).unwrap_or_default();
    let plain =
        name.trim_end_matches(|character: char| character.is_ascii_digit() || character == '.');
    let asked = |(starter, options): &(&str, [&str; 4])| {
        *starter == name && rest.iter().any(|word| options.contains(&word.text.as_str()))
    };
    if SHELLS.contains(&name) && reads_input(rest)
        || SHELL_STARTERS.contains(&name)
        || SHELL_OPTIONS.iter().any(asked)
    {
        return Some(CodeReader::Shell);
    }
    let repl = CONSOLES.contains(&name) || INTERPRETERS.contains(&plain) && reads_input(rest);
    repl.then_some(CodeReader::Repl)
}

/// Whether an interpreter is given neither a file nor a text to run, or is to read on all the same.
fn reads_input(rest: &[Word]) -> bool {
    let is_option = |word: &Word| word.text.starts_with('-') && word.text.len() > 1;
    let short = |word: &Word, letter: char| {
        is_option(word) && !word.text.starts_with("--") && word.text.contains(letter)
    };
    let interactive = |word: &Word| short(word, 'i') || short(word, 's') || word.text == "-";
    let given = rest.iter().any(|word| {
        !is_option(word) || word.literal().is_none() || short(word, 'c') || short(word, 'e')
    });
    !given || rest.iter().any(interactive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_reads_its_input_is_told_from_one_that_has_a_script() {
        for (text, expected) in [
            ("bash", Some(CodeReader::Shell)),
            ("exec /bin/sh -i", Some(CodeReader::Shell)),
            ("bash --norc", Some(CodeReader::Shell)),
            ("cat | sh", Some(CodeReader::Shell)),
            ("env X=1 zsh", Some(CodeReader::Shell)),
            ("docker exec -it box bash", Some(CodeReader::Shell)),
            ("sudo -i", Some(CodeReader::Shell)),
            ("ssh host", Some(CodeReader::Shell)),
            ("$SHELL", Some(CodeReader::Shell)),
            ("bash -s a", Some(CodeReader::Shell)),
            ("read x; eval \"$x\"", Some(CodeReader::Shell)),
            ("if", Some(CodeReader::Shell)),
            ("python3.12", Some(CodeReader::Repl)),
            ("python3 -i x.py", Some(CodeReader::Repl)),
            ("psql db", Some(CodeReader::Repl)),
            ("python3; bash", Some(CodeReader::Shell)),
            ("bash script.sh", None),
            ("bash -c 'cat'", None),
            ("python3 x.py", None),
            ("cat > notes", None),
            ("sudo apt install x", None),
        ] {
            assert_eq!(reads_code(text), expected, "{text}");
        }
    }
}
