//! Scripts that could see the little that is left of a difference.
//!
//! In dash nothing is left. A bash that has read a profile has `PIPESTATUS` before its first command, one
//! entry in `BASH_ARGC`, and has forgotten that `$_` came from the environment. Whoever looks at those, or lists all
//! variables, gets a real login. A file that the script reads could look too; that is the one thing taken on trust.

use super::key::Shell;

/// Words that are enough by themselves.
const WORDS: [&str; 5] = ["PIPESTATUS", "BASH_ARG", "declare", "typeset", "compgen"];

/// Commands that list variables when they stand alone or are told to.
const LISTERS: [&str; 2] = ["set", "export"];

/// Whether this text could be used to see that no profile was read.
pub(super) fn sees_the_difference(shell: Shell, text: &str) -> bool {
    shell == Shell::Bash
        && (WORDS.iter().any(|word| text.contains(word))
            || LISTERS.iter().any(|lister| lists(text, lister)))
}

/// Whether a command of this name has no arguments that it would set, somewhere in the text; too often rather than
/// too seldom.
fn lists(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let rest = text.get(at + name.len()..).unwrap_or_default();
        let arguments = rest.trim_start_matches([' ', '\t', '\\', '"', '\'']);
        let is_word = arguments.len() < rest.len();
        let alone =
            !arguments.starts_with(|first: char| first.is_alphanumeric() || "-+_$".contains(first));
        alone || (is_word && arguments.starts_with("-p"))
    })
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
            ("echo offset; echo $reset_all", true),
            ("env; printenv; exit $?", false),
            ("set", true),
            ("set | sort", true),
            ("x=$(set)", true),
            ("set>file", true),
            ("export", true),
            ("export -p", true),
            ("export\t-p", true),
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
