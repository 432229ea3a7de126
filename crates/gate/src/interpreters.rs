//! Interpreters: programs that run whatever code they are given.

use crate::unwrap::basename;

/// Those whose words or input are code in any case.
const INTERPRETERS: [&str; 19] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "csh", "tcsh", "python", "perl", "ruby",
    "node", "deno", "bun", "php", "lua", "tclsh", "pwsh",
];

/// Whether a program is an interpreter, or one of `others`, by whatever version.
pub(crate) fn is_interpreter(program: &str, others: &[&str]) -> bool {
    let name = basename(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || others.contains(&name)
}
