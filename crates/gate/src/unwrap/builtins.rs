//! Builtins and variables by which a shell or a program runs data as code.

use std::collections::HashSet;

use super::basename;
use crate::reading::{Assignment, Form, Invocation, Later, Reading, Span, Word};

/// Builtins that always make code of data.
const ALWAYS: [&str; 15] = [
    "eval", "source", ".", "trap", "alias", "unalias", "shopt", "enable", "complete", "compgen",
    "compopt", "bind", "fc", "hash", "let",
];

/// Builtins whose operands are names of variables.
const NAMING: [&str; 10] = [
    "read",
    "unset",
    "getopts",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "mapfile",
    "readarray",
];

/// Values that do no harm in variables that name programs.
const HARMLESS: [&str; 7] = ["", "0", "1", "cat", "true", "false", ":"];

/// Whether the shell or a program acts on a variable.
pub(crate) fn is_special(name: &str) -> bool {
    /// Names without a pattern.
    const EXACT: [&str; 26] = [
        "PS4",
        "PROMPT_COMMAND",
        "BASH_ENV",
        "ENV",
        "IFS",
        "PATH",
        "SHELLOPTS",
        "BASHOPTS",
        "CDPATH",
        "PERL5OPT",
        "PERL5LIB",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "NODE_OPTIONS",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "RUSTC_WRAPPER",
        "RUSTC",
        "LESSOPEN",
        "LESSCLOSE",
        "BROWSER",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "HOME",
        "SHELL",
    ];
    EXACT.contains(&name)
        || name.starts_with("LD_")
        || name.starts_with("DYLD_")
        || names_program(name)
}

/// Whether a variable names a program that others run.
fn names_program(name: &str) -> bool {
    name.starts_with("GIT_")
        || name.starts_with("BASH_FUNC_")
        || name.ends_with("PAGER")
        || name.ends_with("EDITOR")
        || name == "VISUAL"
}

/// Notes assignments to variables that something acts on.
pub(super) fn note_assignments(reading: &mut Reading, run: &Invocation) {
    let name = run.words.first().and_then(Word::literal).map_or("", basename);
    for assignment in &run.assignments {
        // `IFS= read` changes how that one line is cut, and nothing else.
        let reads = assignment.name == "IFS" && name == "read";
        if is_special(&assignment.name) && !is_harmless(assignment) && !reads {
            let Assignment { name, value } = assignment;
            reading.later.push(Later { construct: name.clone(), span: value.span });
        }
    }
}

/// Whether an assignment does no harm by its value.
fn is_harmless(assignment: &Assignment) -> bool {
    let value = assignment.value.literal();
    names_program(&assignment.name) && value.is_some_and(|value| HARMLESS.contains(&value))
}

/// Notes a builtin that makes code of its arguments.
pub(super) fn note_later(reading: &mut Reading, run: &Invocation, name: &str) {
    let arguments = run.words.get(1..).unwrap_or_default();
    let has = |option: &str| arguments.iter().any(|word| word.literal() == Some(option));
    let found = match name {
        "hash" => has("-p"),
        "compgen" | "complete" => true,
        _ if ALWAYS.contains(&name) => true,
        "printf" => arguments.first().is_some_and(|word| starts(word, "-v")),
        "wait" => arguments.iter().any(|word| starts(word, "-p")),
        "mapfile" | "readarray" => arguments.iter().any(|word| starts(word, "-C")),
        "test" | "[" => tests_subscript(arguments),
        _ => false,
    };
    let declares = matches!(name, "declare" | "typeset" | "local" | "export");
    let refers = declares && arguments.iter().any(is_reference);
    let names = NAMING.contains(&name) && arguments.iter().any(|word| is_odd_name(word, name));
    if found || refers || names {
        let span = run.words.first().map_or(Span::default(), |word| word.span);
        reading.later.push(Later { construct: name.to_owned(), span });
    }
}

/// Whether a word is an option, or could become one.
fn starts(word: &Word, option: &str) -> bool {
    word.text.starts_with(option) || word.form == Form::Fields && word.text.is_empty()
}

/// Whether an option makes a variable a name for another one, or a number.
fn is_reference(word: &Word) -> bool {
    let option = word.text.strip_prefix('-');
    option.is_some_and(|letters| letters.contains(['n', 'i']))
}

/// Whether `test -v` looks at something that may have a subscript.
fn tests_subscript(arguments: &[Word]) -> bool {
    let mut after =
        arguments.iter().skip_while(|word| !matches!(word.literal(), Some("-v" | "-R")));
    after.next();
    after.next().is_some_and(|word| word.form != Form::Literal || word.text.contains('['))
}

/// Whether a word that names a variable has a subscript, is not known, or names one that is acted
/// on.
fn is_odd_name(word: &Word, builtin: &str) -> bool {
    let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
    let is_option = name.starts_with('-');
    let known = word.form == Form::Literal || word.text.contains('=');
    let subscripted = name.contains('[');
    let acted_on = is_special(name)
        && !(names_program(name) && HARMLESS.contains(&value) && !value.is_empty());
    !is_option && (!known && builtin != "unset" || subscripted || acted_on && builtin != "unset")
}

/// Notes arithmetic on variables that are filled from outside: their values may hold code.
pub(super) fn note_tainted_arithmetic(reading: &mut Reading) {
    let names: HashSet<&str> = reading.arithmetic_names.iter().map(String::as_str).collect();
    let reads = |run: &&Invocation| matches!(run.name(), Some("read" | "mapfile" | "readarray"));
    let tainted = reading.runs.iter().filter(reads).find(|run| {
        let mut words = run.words.iter().skip(1).filter_map(Word::literal);
        words.any(|word| names.contains(word))
    });
    if let Some(run) = tainted {
        let later = Later { construct: "arithmetic".to_owned(), span: run.span };
        reading.later.push(later);
    }
}

/// Counts a quoted substitution as one where something in the text makes code of data.
///
/// The shell evaluates the values of variables in arithmetic, and a subscript in a value may hold a
/// substitution: `x='a[$(id)]'; echo $((x))` runs `id`. Builtins that take names do the same, and a
/// program of which it is not known which one may be `eval`.
pub(super) fn reveal_quoted(reading: &mut Reading) {
    /// What acts on files or names, and not on quoted text of this script.
    const KEEPS_DATA: [&str; 6] = ["source", ".", "shopt", "enable", "hash", "trap"];
    let Some(opener) = reading.quoted_opener else { return };
    if let Some(span) = reading.arithmetic {
        reading.later.push(Later { construct: "arithmetic".to_owned(), span });
    }
    let makes_code = reading.later.iter().any(|later| {
        let construct = later.construct.as_str();
        let expanded = matches!(construct, "PS4" | "PROMPT_COMMAND" | "BASH_ENV" | "ENV");
        expanded || !is_special(construct) && !KEEPS_DATA.contains(&construct)
    });
    let may_be_any = |run: &Invocation| run.unresolved || run.name() == Some("?");
    if makes_code || reading.runs.iter().any(may_be_any) {
        reading.substitution.get_or_insert(opener);
    }
}
