//! The tables that come with Legwork: programs, their options, and what is known of them.

use crate::{
    content::only_prints,
    harmless::{self, Harmless},
    matching::{Certainty, follows, has_flag},
    reading::Word,
    windows,
};

// WRAPPER, DANGER, PROGRAM, HARMLESS, PATHS, PLAIN, SHORT_FORMS and SETS: what the files of data/
// say.
include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A text of a table, which is a part of the program itself.
pub(crate) type Text = &'static str;

/// Several of them.
pub(crate) type TextList = &'static [Text];

/// Values under names, sorted by name.
type Map<T> = &'static [(Text, T)];

/// Entries of a table, which are found by the names of programs.
struct List<T: 'static> {
    entries: &'static [T],
    /// Each name of each entry with the entry's place, sorted.
    names: Map<usize>,
}

impl<T> List<T> {
    /// The entries of a name, in the order of the file.
    fn of(&self, name: &str) -> impl Iterator<Item = &'static T> {
        let entries = self.entries;
        let first = self.names.partition_point(|(other, _)| *other < name);
        let rest = self.names.get(first..).unwrap_or_default().iter();
        let places = rest.take_while(move |(other, _)| *other == name);
        places.filter_map(|(_, place)| entries.get(*place))
    }

    /// The entries of names that end with `*` and begin as this one does.
    fn of_prefix(&self, name: &str) -> impl Iterator<Item = &'static T> {
        let entries = self.entries;
        let is_meant =
            move |other: &Text| other.strip_suffix('*').is_some_and(|it| name.starts_with(it));
        let places = self.names.iter().filter(move |(other, _)| is_meant(other));
        places.filter_map(|(_, place)| entries.get(*place))
    }

    /// Whether there is an entry of a name.
    fn has(&self, name: &str) -> bool {
        self.names.binary_search_by_key(&name, |(other, _)| other).is_ok()
    }
}

/// The value of a name in a map.
fn value_of<T: Copy>(map: Map<T>, name: &str) -> Option<T> {
    let at = map.binary_search_by_key(&name, |(other, _)| other).ok()?;
    map.get(at).map(|(_, value)| *value)
}

/// What the rest of a wrapper's words is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Then {
    /// A program and its arguments.
    #[default]
    Program,
    /// Shell text, joined by spaces.
    Shell,
    /// Shell texts, one a word.
    Shells,
    /// Nothing that is run.
    Nothing,
}

/// What a wrapper runs when nothing is left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Empty {
    /// Nothing.
    #[default]
    Nothing,
    /// Commands that it reads.
    Input,
}

/// A program that runs other programs, and its options; the file explains each field.
#[derive(Debug, Default)]
pub(crate) struct Wrapper {
    pub flags: TextList,
    pub values: TextList,
    pub stops: TextList,
    pub shell: TextList,
    pub split: TextList,
    pub operands: usize,
    pub assignments: bool,
    pub permute: bool,
    pub then: Then,
    pub empty: Empty,
    pub subcommand: TextList,
    pub before_flags: TextList,
    pub before_values: TextList,
    pub until: TextList,
    pub appends: bool,
    pub dashes: bool,
    pub numeric: bool,
    pub marker: TextList,
    pub neutral: bool,
}

/// A command that is asked about.
struct Danger {
    args: &'static [TextList],
    flags: TextList,
    words: bool,
    /// Whether it is one on Windows only.
    windows: bool,
    because: Text,
}

/// Paths that are not written without a question, and the programs that write.
struct Paths {
    fragments: TextList,
    windows: TextList,
    writers: TextList,
    copiers: TextList,
    editors: TextList,
}

/// Which of its words a program writes to.
#[derive(Debug, Clone, Copy)]
enum Writes {
    /// All of them.
    All,
    /// The last one.
    Last,
    /// All of them, when it is told to edit in place.
    InPlace,
}

impl Paths {
    /// Which of its words a program writes to, if it writes.
    fn written_by(&self, name: &str) -> Option<Writes> {
        let kinds = [
            (self.editors, Writes::InPlace),
            (self.copiers, Writes::Last),
            (self.writers, Writes::All),
        ];
        kinds.into_iter().find(|(names, _)| names.contains(&name)).map(|(_, writes)| writes)
    }
}

/// Arguments by which a program runs another one or writes files.
struct Arguments {
    flags: TextList,
    args: &'static [TextList],
    words: bool,
    content: Text,
    always: bool,
}

/// Programs that keep their arguments.
struct Plain {
    names: TextList,
}

/// The wrappers of a name.
pub(crate) fn wrappers(name: &str) -> impl Iterator<Item = &'static Wrapper> {
    WRAPPER.of(name)
}

/// Whether a program is a wrapper.
pub(crate) fn is_wrapper(name: &str) -> bool {
    WRAPPER.has(name)
}

/// The ways to call a program that are known to be harmless.
pub(crate) fn harmless(name: &str) -> impl Iterator<Item = &'static Harmless> {
    HARMLESS.of(name)
}

/// Whether a wrapper is judged only by what it runs.
pub(crate) fn is_neutral(name: &str) -> bool {
    wrappers(name).any(|wrapper| wrapper.neutral)
}

/// Why a command is asked about, if it is.
pub(crate) fn danger(name: &str, rest: &[Word], on_windows: bool) -> Option<&'static str> {
    let is_meant = |danger: &&Danger| {
        let mut flags = danger.flags.iter();
        (on_windows || !danger.windows)
            && follows(rest, danger.args) == Certainty::Yes
            && (danger.flags.is_empty()
                || flags.any(|flag| has_flag(rest, flag, danger.words) == Certainty::Yes))
    };
    let mut all = DANGER.of(name).chain(DANGER.of_prefix(name));
    all.find(is_meant).map(|danger| danger.because)
}

/// The protected part of a path, if it has one.
pub(crate) fn protected(path: &str, on_windows: bool) -> Option<&'static str> {
    let tidy = |path: &str| path.replace("//", "/").replace("/./", "/");
    let everywhere = PATHS.fragments.iter().copied();
    if !on_windows {
        let plain = tidy(&path.replace('\\', "/"));
        return everywhere.into_iter().find(|fragment| plain.contains(fragment));
    }
    let plain = tidy(&windows::long_names(&windows::folded(path), PATHS.fragments));
    let mut all = everywhere.chain(PATHS.windows.iter().copied());
    all.find(|fragment| plain.contains(&fragment.to_lowercase()))
}

/// The words of a command that may be paths which it writes to.
pub(crate) fn written<'w>(name: &str, rest: &'w [Word]) -> &'w [Word] {
    let in_place = ["-i", "--in-place"];
    let is_in_place = || in_place.iter().any(|flag| has_flag(rest, flag, false) > Certainty::No);
    match PATHS.written_by(name) {
        Some(Writes::All) => rest,
        Some(Writes::Last) => rest.get(rest.len().saturating_sub(1)..).unwrap_or_default(),
        Some(Writes::InPlace) if is_in_place() => rest,
        _ => &[],
    }
}

/// Whether arguments may make a program run another one or write files.
pub(crate) fn runs_or_writes(name: &str, rest: &[Word]) -> bool {
    PROGRAM.of(name).any(|entry| {
        let flag = |flag: &&str| has_flag(rest, flag, entry.words) > Certainty::No;
        let first = !entry.args.is_empty() && follows(rest, entry.args) > Certainty::No;
        entry.always || first || entry.flags.iter().any(flag) || !only_prints(entry.content, rest)
    })
}

/// Whether a program is known not to run its arguments, or to run them in ways that are known.
pub(crate) fn keeps_its_arguments(name: &str) -> bool {
    PROGRAM.has(name)
        || PLAIN.names.contains(&name)
        || WRAPPER.has(name)
        || harmless::is_known(name)
        || DANGER.has(name)
}

/// The tool that a short form of this name is about, empty for every tool; none if there is no such
/// form.
pub(crate) fn short_form(name: &str) -> Option<&'static str> {
    value_of(SHORT_FORMS, name)
}

/// Whether a name is one of the short forms, but for a few letters or their case.
pub(crate) fn is_nearly_short_form(name: &str) -> bool {
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let near = |known: &str| strsim::osa_distance(&fold(name), &fold(known)) <= known.len() / 4;
    SHORT_FORMS.iter().any(|(known, _)| near(known))
}

/// The names of a set that comes with Legwork.
pub fn shipped_set(name: &str) -> Option<TextList> {
    value_of(SETS, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NamePattern;

    #[test]
    fn entries_are_found_under_each_name_in_the_order_of_the_file() {
        assert_eq!(wrappers("env").count(), 1);
        assert!(wrappers("no such program").next().is_none());
        for (name, place) in HARMLESS.names {
            let entry = &raw const HARMLESS.entries[*place];
            assert!(HARMLESS.of(name).any(|found| std::ptr::eq(found, entry)), "{name}");
        }
        let of_git: Vec<_> = HARMLESS.of("git").map(|entry| &raw const *entry).collect();
        assert!(of_git.len() > 1 && of_git.is_sorted(), "{of_git:?}");
    }

    #[test]
    fn shipped_sets_are_patterns() {
        assert!(shipped_set("python").is_some() && shipped_set("nosuch").is_none());
        for name in SETS.iter().flat_map(|(_, names)| *names) {
            assert!(NamePattern::parse(name).is_ok(), "{name}");
        }
    }
}
