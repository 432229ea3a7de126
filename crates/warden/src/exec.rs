//! Rules on executed programs, in the small form that a warden compares with.
//!
//! They are plain data: whoever makes them decides. The comparison is lenient, as a deny has to
//! be: options are passed over, and so are words that may be their values; an alternative that is
//! itself an option may be anywhere, in any spelling.

use serde::{Deserialize, Serialize};

/// A program that may not be executed, or not with these arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRule {
    /// The name of the rule, for whoever is refused.
    pub id: String,
    /// Whether it asks and does not deny: the process is held until somebody has answered.
    pub asks: bool,
    /// The name of the program, without a folder.
    pub program: Vec<u8>,
    /// Alternatives for each argument, from the first on; none is the program as a whole.
    pub args: Vec<Vec<Vec<u8>>>,
}

/// Programs that are many in one: the first argument says which.
const MANY_IN_ONE: [&[u8]; 4] = [b"busybox", b"busybox.static", b"toybox", b"coreutils"];

/// The shells among those: they may run the others without executing anything.
const INNER_SHELLS: [&[u8]; 4] = [b"sh", b"ash", b"hush", b"bash"];

/// Those among them that run others.
const INNER_RUNNERS: [&[u8]; 22] = [
    b"busybox",
    b"chroot",
    b"chrt",
    b"cttyhack",
    b"env",
    b"find",
    b"flock",
    b"ionice",
    b"nice",
    b"nohup",
    b"nsenter",
    b"script",
    b"setpriv",
    b"setsid",
    b"setuidgid",
    b"su",
    b"taskset",
    b"time",
    b"timeout",
    b"unshare",
    b"watch",
    b"xargs",
];

/// The option by which `coreutils` is told which program it is.
const INNER_NAME: &[u8] = b"--coreutils-prog=";

/// How the programs begin that load another.
const LOADERS: [&[u8]; 3] = [b"ld-linux", b"ld-musl", b"ld.so"];

/// The last part of a path; a login shell's name begins with a dash.
pub(crate) fn name_of_program(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.strip_prefix(b"-").unwrap_or(name)
}

/// The names of a program that is about to be executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramNames<'a> {
    /// As its path says.
    pub named: &'a [u8],
    /// As the file is called that the path leads to.
    pub file: &'a [u8],
    /// As it is told that it is called: its first argument.
    pub called: &'a [u8],
}

impl<'a> ProgramNames<'a> {
    fn all(self) -> [&'a [u8]; 3] {
        [self.named, self.file, self.called]
    }

    /// Whether a rule may speak of it, so that its arguments have to be known.
    pub(crate) fn concern(self, rules: &[ExecRule]) -> bool {
        let named = |name: &&[u8]| rules.iter().any(|rule| name.starts_with(&rule.program));
        is_many_in_one(self.called) || self.all().iter().any(|name| is_loader(name) || named(name))
    }
}

/// The first rule that speaks of a program with these arguments, its own name not among them;
/// denials come before questions.
pub(crate) fn find<'r>(
    rules: &'r [ExecRule],
    names: ProgramNames<'_>,
    arguments: &[Vec<u8>],
) -> Option<&'r ExecRule> {
    let speaks = |rule: &&ExecRule| rule.speaks_of(names, arguments);
    let denies = rules.iter().filter(|rule| !rule.asks).find(speaks);
    denies.or_else(|| rules.iter().filter(|rule| rule.asks).find(speaks))
}

/// The rule that denies a program which waits to be executed, its own name among the arguments.
pub fn denial<'r>(
    rules: &'r [ExecRule],
    path: &[u8],
    file: &[u8],
    argv: &[Vec<u8>],
) -> Option<&'r ExecRule> {
    let (called, arguments) = argv.split_first().map_or((path, argv), |(it, rest)| (&**it, rest));
    let [named, file, called] = [path, file, called].map(name_of_program);
    find(rules, ProgramNames { named, file, called }, arguments).filter(|rule| !rule.asks)
}

fn is_many_in_one(name: &[u8]) -> bool {
    MANY_IN_ONE.contains(&name)
}

fn is_loader(name: &[u8]) -> bool {
    LOADERS.iter().any(|loader| name.starts_with(loader))
}

impl ExecRule {
    fn speaks_of(&self, names: ProgramNames<'_>, arguments: &[Vec<u8>]) -> bool {
        if names.all().iter().any(|name| self.names(name, arguments)) {
            return true;
        }
        let inner = |place: usize| {
            let (Some(first), rest) =
                (arguments.get(place), arguments.get(place + 1..).unwrap_or_default())
            else {
                return false;
            };
            self.names(name_of_program(first.strip_prefix(INNER_NAME).unwrap_or(first)), rest)
        };
        // Such a program goes by what it is called: as `ls` it is `ls`.
        let first = arguments.first().filter(|_| is_many_in_one(names.called));
        let first = first.map(|first| name_of_program(first));
        if first.is_some_and(|first| INNER_SHELLS.contains(&first)) {
            return true;
        }
        // Whoever runs another may have options before it: every word is tried.
        let is_runner = first.is_some_and(|first| INNER_RUNNERS.contains(&first))
            || names.all().iter().any(|name| is_loader(name));
        let tried = if is_runner { arguments.len() } else { usize::from(first.is_some()) };
        (0..tried).any(inner)
    }

    /// Whether a program of this name, with these arguments, is what the rule names. What is
    /// written with a dash is the same: `git-push` is `git push`.
    fn names(&self, name: &[u8], arguments: &[Vec<u8>]) -> bool {
        let Some(rest) = name.strip_prefix(&self.program[..]) else { return false };
        if rest.is_empty() {
            return follows(arguments, &self.args);
        }
        let (Some(verb), Some((first, more))) = (rest.strip_prefix(b"-"), self.args.split_first())
        else {
            return false;
        };
        first.iter().any(|alternative| alternative == verb) && follows(arguments, more)
    }
}

/// Whether the alternatives follow each other when options are passed over.
fn follows(words: &[Vec<u8>], args: &[Vec<Vec<u8>>]) -> bool {
    let mut at = 0;
    args.iter().all(|alternatives| {
        if alternatives.iter().any(|alternative| alternative.starts_with(b"-")) {
            alternatives.iter().any(|alternative| has_option(words, alternative))
        } else {
            next_operand(words, alternatives, &mut at)
        }
    })
}

/// Whether one of the alternatives comes next, past options and their values.
fn next_operand(words: &[Vec<u8>], alternatives: &[Vec<u8>], at: &mut usize) -> bool {
    let mut value_possible = false;
    while let Some(word) = words.get(*at) {
        *at += 1;
        if alternatives.contains(word) {
            return true;
        }
        let option = word.starts_with(b"-") && word.len() > 1;
        if !option && !value_possible {
            return false;
        }
        value_possible = option && !word.contains(&b'=');
    }
    false
}

/// Whether an option is there; `-rf` means both letters.
fn has_option(words: &[Vec<u8>], option: &[u8]) -> bool {
    let mut after_option = false;
    let before_end = words.iter().take_while(|word| {
        // After an option, `--` may be its value and end nothing.
        let goes_on = word[..] != b"--"[..] || after_option;
        after_option = word.starts_with(b"-");
        goes_on
    });
    let before_end: Vec<&Vec<u8>> = before_end.collect();
    if option.starts_with(b"--") {
        return before_end.iter().any(|word| {
            let name = word.split(|byte| *byte == b'=').next().unwrap_or(word);
            // Any unambiguous beginning will do for the program, so any beginning does here.
            name.len() > 2 && name.starts_with(b"--") && option.starts_with(name)
        });
    }
    let letters = option.strip_prefix(b"-").unwrap_or(option);
    letters.iter().all(|letter| {
        before_end.iter().any(|word| {
            let cluster = word.strip_prefix(b"-").filter(|rest| !rest.starts_with(b"-"));
            cluster.is_some_and(|cluster| cluster.contains(letter))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ExecRule {
        let mut words = text.split(' ').map(|word| word.as_bytes().to_vec());
        ExecRule {
            id: text.into(),
            asks: false,
            program: words.next().unwrap(),
            args: words.map(|word| vec![word]).collect(),
        }
    }

    fn refuses(text: &str, command: &str) -> bool {
        let mut words = command.split(' ').map(|word| word.as_bytes().to_vec());
        let name = words.next().unwrap();
        let arguments: Vec<Vec<u8>> = words.collect();
        let name = name_of_program(&name);
        let (rules, names) = ([rule(text)], ProgramNames { named: name, file: name, called: name });
        let found = find(&rules, names, &arguments).is_some();
        assert!(!found || names.concern(&rules), "{command}");
        found
    }

    #[test]
    fn a_program_is_found_by_its_name_and_inside_programs_that_are_many() {
        for command in [
            "rm",
            "/bin/rm -f x",
            "busybox rm x",
            "/bin/busybox xargs rm",
            "toybox env -i rm x",
            "busybox sh script",
            "coreutils --coreutils-prog=rm x",
            "/lib64/ld-linux-x86-64.so.2 --library-path /x /usr/bin/rm x",
        ] {
            assert!(refuses("rm", command), "{command}");
        }
        for command in
            ["rmdir x", "rm-old x", "ls rm", "busybox echo rm", "ld-linux.so.2 ls", "sh -c rm"]
        {
            assert!(!refuses("rm", command), "{command}");
        }
    }

    #[test]
    fn arguments_are_found_past_options_and_in_any_spelling() {
        for command in [
            "git push",
            "git -C dir push",
            "git -c a=b --no-pager push origin",
            "/usr/lib/git-core/git-push origin",
            "busybox git push",
        ] {
            assert!(refuses("git push", command), "{command}");
        }
        for command in ["git", "git log push", "git status", "gitx push", "git-pull push"] {
            assert!(!refuses("git push", command), "{command}");
        }
        assert!(refuses("git push --force", "git push origin --forc"));
        assert!(refuses("rm -rf", "rm x -f -vr"));
        assert!(!refuses("rm -rf", "rm -r x"));
        assert!(!refuses("rm -rf", "rm -- -rf"));
    }

    #[test]
    fn one_program_of_many_is_what_it_is_called() {
        let words = [b"rm".to_vec()];
        let as_ls = ProgramNames { named: b"ls", file: b"busybox", called: b"ls" };
        assert!(find(&[rule("rm")], as_ls, &words).is_none());
        let as_rm = ProgramNames { named: b"busybox", file: b"busybox", called: b"rm" };
        assert!(find(&[rule("rm")], as_rm, &words).is_some());
    }

    #[test]
    fn a_denial_comes_before_a_question() {
        let ask = ExecRule { asks: true, ..rule("git push") };
        let rules = [ask, rule("git push --force")];
        let words = |text: &str| -> Vec<Vec<u8>> {
            text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
        };
        let git = ProgramNames { named: b"g", file: b"git", called: b"g" };
        let found = |text: &str| find(&rules, git, &words(text)).map(|it| it.asks);
        assert_eq!(found("push --force"), Some(false));
        assert_eq!(found("push"), Some(true));
        assert_eq!(found("pull"), None);
    }
}
