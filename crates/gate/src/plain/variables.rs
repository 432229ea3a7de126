//! Which variables a plain text may set.

/// Whether a variable may be set for a program: nobody does anything but print differently by it.
pub(crate) fn is_harmless_variable(name: &str, value: Option<&str>) -> bool {
    /// Those whose every value is harmless.
    const ANY: &str = "LANG LANGUAGE TZ TERM CI NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE \
        COLORTERM RUST_LOG RUST_BACKTRACE RUST_LIB_BACKTRACE CARGO_TERM_COLOR \
        CARGO_TERM_PROGRESS_WHEN PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED \
        DEBIAN_FRONTEND SOURCE_DATE_EPOCH";
    /// Those that name a program, with the values that name a harmless one.
    const PAIRS: [(&str, &[&str]); 5] = [
        ("PAGER", &["cat", ""]),
        ("GIT_PAGER", &["cat", ""]),
        ("MANPAGER", &["cat", ""]),
        ("GIT_TERMINAL_PROMPT", &["0", "1"]),
        ("GIT_OPTIONAL_LOCKS", &["0", "1"]),
    ];
    let is_locale = name.strip_prefix("LC_").is_some_and(|rest| !rest.is_empty());
    let is_pair = |(pair, values): &(&str, &[&str])| {
        *pair == name && value.is_some_and(|value| values.contains(&value))
    };
    is_locale || is_listed(ANY, name) || PAIRS.iter().any(is_pair)
}

/// Whether a name is a text's own: one that no shell reads or sets.
pub(super) fn is_own(name: &str) -> bool {
    /// Beginnings of names that shells keep for themselves.
    const PREFIXES: &str =
        "BASH COMP DIRSTACK EPOCH FUNC GLOB HIST LC_ MAIL OPT PROMPT READLINE ZSH";
    /// The rest of them.
    const NAMES: &str = "_ auto_resume histchars CDPATH CHILD_MAX COLUMNS COPROC EMACS ENV EUID \
        EXECIGNORE FCEDIT FIGNORE FPATH GROUPS HOME HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF \
        INPUTRC INSIDE_EMACS KSH_VERSION LANG LINENO LINES LOGNAME MACHTYPE MAPFILE NLSPATH OLDPWD \
        OSTYPE PATH PIPESTATUS POSIXLY_CORRECT PPID PS0 PS1 PS2 PS3 PS4 PWD RANDOM REPLY SECONDS \
        SHELL SHELLOPTS SHLVL SRANDOM TEXTDOMAIN TEXTDOMAINDIR TIMEFORMAT TMOUT TMPDIR UID";
    let mut prefixes = PREFIXES.split_ascii_whitespace();
    !is_listed(NAMES, name) && !prefixes.any(|prefix| name.starts_with(prefix)) && is_name(name)
}

/// Whether a list with blanks between its words has this one.
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|listed| listed == word)
}

/// Whether this can be the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}
