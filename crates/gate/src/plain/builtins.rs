//! Which builtins a plain text may use, and with which words.

use super::variables::{is_harmless_variable, is_listed};
use crate::reading::{Form, Word};

/// Whether a word can be no option: it is written out, or its beginning is.
fn is_operand(word: &Word) -> bool {
    match word.form {
        Form::Literal => !word.text.starts_with('-'),
        Form::Dynamic => !word.text.is_empty() && !word.text.starts_with('-'),
        Form::Glob | Form::Fields => false,
    }
}

/// `printf` prints, unless it is told to set a variable.
pub(super) fn prints(words: &[&Word]) -> bool {
    match words.split_first() {
        Some((first, _)) if first.literal() == Some("--") => true,
        Some((first, _)) => is_operand(first),
        None => false,
    }
}

/// `test` with operators that are written out; `-v` and `-R` evaluate subscripts.
pub(super) fn tests(words: &[&Word]) -> bool {
    const UNARY: &str = "-a -b -c -d -e -f -g -h -k -L -n -O -p -r -s -S -t -u -w -x -z";
    const BINARY: &str = "= == != -eq -ne -lt -le -gt -ge -nt -ot -ef";
    let single = |word: &&&Word| matches!(word.form, Form::Literal | Form::Dynamic);
    if !words.iter().all(|word| single(&word)) {
        return false;
    }
    let is = |word: &Word, known: &str| word.literal().is_some_and(|text| is_listed(known, text));
    match words {
        [] | [_] => true,
        [first, _] => is(first, UNARY) || first.literal() == Some("!"),
        [_, operator, _] if is(operator, BINARY) => true,
        [first, operator, _] => first.literal() == Some("!") && is(operator, UNARY),
        [first, _, operator, _] => first.literal() == Some("!") && is(operator, BINARY),
        _ => false,
    }
}

/// `set` with options that change only how errors are treated and what is shown.
pub(super) fn sets(words: &[&Word]) -> bool {
    let texts: Option<Vec<&str>> = words.iter().map(|word| word.literal()).collect();
    let Some(texts) = texts else { return false };
    let letters = |text: &str| {
        text.strip_prefix(['-', '+'])
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|it| "eufxo".contains(it)))
    };
    let mut known = !texts.is_empty();
    let mut texts = texts.into_iter();
    while let Some(text) = texts.next() {
        known &= letters(text);
        if text.ends_with('o') {
            let named = ["pipefail", "errexit", "nounset", "xtrace", "noglob"];
            known &= texts.next().is_some_and(|option| named.contains(&option));
        }
    }
    known
}

/// `export` of variables that nobody acts on.
pub(super) fn exports(words: &[&Word]) -> bool {
    !words.is_empty()
        && words.iter().all(|word| {
            let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            let literal = word.form == Form::Literal;
            let known = literal || word.text.contains('=') && word.form == Form::Dynamic;
            known && is_harmless_variable(name, Some(value).filter(|_| literal))
        })
}

/// `command -v NAME`, or a program whose name is written out.
pub(super) fn looks_up(words: &[&Word]) -> bool {
    match words.split_first() {
        Some((first, rest)) if matches!(first.literal(), Some("-v" | "-V")) => {
            rest.iter().all(|word| is_operand(word))
        }
        Some((first, _)) => first
            .literal()
            .is_some_and(|name| !name.starts_with('-') && !is_builtin(name) && !name.is_empty()),
        None => false,
    }
}

/// Whether a shell has a builtin of this name; whatever is not in the list of known ones is none of
/// the harmless.
pub(crate) fn is_builtin(name: &str) -> bool {
    const BUILTINS: &str = "! . : [ [[ alias bg bind break builtin caller case cd chdir command compgen complete compopt continue coproc \
         declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for function \
         getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray \
         readonly return select set shift shopt source suspend test then time times trap true type typeset ulimit \
         umask unalias unset until wait while { }";
    is_listed(BUILTINS, name)
}
