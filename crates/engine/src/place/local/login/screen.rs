//! Finds scripts that could tell a replaced login from a real one: they get a real one.
//!
//! In dash nothing is left. A bash that has read a profile has `PIPESTATUS` and another `$_` before
//! its first command, and one entry in `BASH_ARGC`. Whoever looks at those, or lists all variables,
//! gets a real login. A file that the script reads could look too; that is the one thing taken on
//! trust.

use super::key::Shell;

/// Words that are enough by themselves.
const WORDS: [&str; 7] = ["PIPESTATUS", "BASH_ARG", "declare", "typeset", "compgen", "${_", "${!"];

/// Whether this text could be used to see that no profile was read; too often rather than too
/// seldom.
pub(super) fn sees_the_difference(shell: Shell, text: &str) -> bool {
    let last_argument =
        |rest: &str| !rest.starts_with(|next: char| next == '_' || next.is_alphanumeric());
    shell == Shell::Bash
        && (WORDS.iter().any(|word| text.contains(word))
            || after(text, "$_").any(last_argument)
            || after(text, "set").any(has_no_arguments))
}

/// What follows each occurrence of a word.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).filter_map(move |(at, _)| text.get(at + word.len()..))
}

/// Whether a `set` before this would list all variables.
fn has_no_arguments(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', '\t', '\\', '"', '\'']);
    !rest.starts_with(|next: char| next.is_alphanumeric() || "-+_$".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lists_variables_gets_a_real_login() {
        for (text, sees) in [
            ("echo hi", false),
            ("set -e; make", false),
            ("set -euo pipefail\nmake", false),
            ("set -- a b; echo $1", false),
            ("export A=1 && make", false),
            ("export \"A=1\"", false),
            ("echo the offset; echo $reset_all", true),
            ("env; printenv; exit $?", false),
            ("set", true),
            ("set | sort", true),
            ("x=$(set)", true),
            ("set>file", true),
            ("export; export -p", false),
            ("echo $_", true),
            ("echo ${_}", true),
            ("echo $_x", false),
            ("echo ${!P*}", true),
            ("'set' ; true", true),
            ("make | tee log; exit ${PIPESTATUS[0]}", true),
            ("declare -p", true),
            ("typeset", true),
            ("echo ${BASH_ARGC[@]}", true),
            ("compgen -v", true),
        ] {
            assert_eq!(sees_the_difference(Shell::Bash, text), sees, "{text:?}");
            assert!(!sees_the_difference(Shell::Dash, text), "{text:?}");
        }
    }
}
