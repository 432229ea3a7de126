//! The tables that come with Legwork: programs, their options, and what is known of them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use serde::Deserialize;

use crate::{
    content::only_prints,
    harmless,
    matching::{Certainty, follows, has_flag},
    reading::Word,
};

/// The text of a table, as the build has turned it into JSON.
macro_rules! table {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/", $name, ".json"))
    };
}
pub(crate) use table;

/// A text of a table, which is a part of the program itself.
pub(crate) type Text = &'static str;

/// Entries of a table, under each of their names.
pub(crate) type ByName<T> = HashMap<Text, Vec<Arc<T>>>;

/// What the rest of a wrapper's words is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Empty {
    /// Nothing.
    #[default]
    Nothing,
    /// Commands that it reads.
    Input,
}

/// A program that runs other programs, and its options; the file explains each field.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, bound(deserialize = "'de: 'static"))]
pub(crate) struct Wrapper {
    pub names: Vec<Text>,
    pub flags: Vec<Text>,
    pub values: Vec<Text>,
    pub stops: Vec<Text>,
    pub shell: Vec<Text>,
    pub split: Vec<Text>,
    pub operands: usize,
    pub assignments: bool,
    pub permute: bool,
    pub then: Then,
    pub empty: Empty,
    pub subcommand: Vec<Text>,
    pub before_flags: Vec<Text>,
    pub before_values: Vec<Text>,
    pub until: Vec<Text>,
    pub appends: bool,
    pub dashes: bool,
    pub numeric: bool,
    pub marker: Vec<Text>,
    pub neutral: bool,
}

/// A command that is asked about.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, bound(deserialize = "'de: 'static"))]
struct Danger {
    programs: Vec<Text>,
    args: Vec<Vec<Text>>,
    flags: Vec<Text>,
    words: bool,
    because: Text,
}

/// Paths that are not written without a question, and the programs that write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Paths {
    fragments: Vec<Text>,
    writers: Vec<Text>,
    copiers: Vec<Text>,
    editors: Vec<Text>,
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
    /// What each program writes to.
    fn by_name(&self) -> HashMap<Text, Writes> {
        let of = |names: &[Text], writes| {
            names.iter().map(move |name| (*name, writes)).collect::<Vec<_>>()
        };
        let mut all = of(&self.writers, Writes::All);
        all.extend(of(&self.copiers, Writes::Last));
        all.extend(of(&self.editors, Writes::InPlace));
        all.into_iter().collect()
    }
}

/// Arguments by which a program runs another one or writes files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, bound(deserialize = "'de: 'static"))]
struct Arguments {
    names: Vec<Text>,
    flags: Vec<Text>,
    args: Vec<Vec<Text>>,
    words: bool,
    content: Text,
    always: bool,
}

/// The file of wrappers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct WrapperFile {
    wrapper: Vec<Wrapper>,
}

/// The file of dangers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct DangerFile {
    danger: Vec<Danger>,
    paths: Paths,
}

/// Programs that keep their arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Plain {
    names: Vec<Text>,
}

/// The file of arguments that run or write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct ArgumentFile {
    program: Vec<Arguments>,
    plain: Plain,
}

/// The dangers and the paths, by the names of programs.
struct Dangers {
    by_name: ByName<Danger>,
    /// The dangers of programs whose names begin alike.
    prefixes: Vec<(&'static str, Arc<Danger>)>,
    /// Parts of paths that are not written without a question.
    fragments: Vec<&'static str>,
    writers: HashMap<&'static str, Writes>,
}

/// The arguments that run or write, by the names of programs.
struct ArgumentTable {
    by_name: ByName<Arguments>,
    plain: HashSet<&'static str>,
}

// One table at a time, because a short command needs few of them. Where a shipped file is broken
// there is nothing, and then nothing is allowed or understood.
static WRAPPERS: LazyLock<Option<ByName<Wrapper>>> = LazyLock::new(|| load_wrappers().ok());
static DANGERS: LazyLock<Option<Dangers>> = LazyLock::new(|| load_dangers().ok());
static ARGUMENTS: LazyLock<Option<ArgumentTable>> = LazyLock::new(|| load_arguments().ok());

/// Files entries under each of their names.
pub(crate) fn by_name<T>(entries: Vec<T>, names: fn(&T) -> &[&'static str]) -> ByName<T> {
    let mut table = ByName::new();
    for entry in entries.into_iter().map(Arc::new) {
        for name in names(&entry) {
            table.entry(*name).or_default().push(entry.clone());
        }
    }
    table
}

/// Reads the table of wrappers.
fn load_wrappers() -> Result<ByName<Wrapper>, serde_json::Error> {
    let file: WrapperFile = serde_json::from_str(table!("wrappers"))?;
    Ok(by_name(file.wrapper, |entry| &entry.names))
}

/// Reads the table of dangers.
fn load_dangers() -> Result<Dangers, serde_json::Error> {
    let file: DangerFile = serde_json::from_str(table!("dangerous"))?;
    let by_name = by_name(file.danger, |entry| &entry.programs);
    let prefixes = by_name
        .iter()
        .filter_map(|(name, entries)| Some((name.strip_suffix('*')?, entries.first()?.clone())));
    Ok(Dangers {
        prefixes: prefixes.collect(),
        by_name,
        writers: file.paths.by_name(),
        fragments: file.paths.fragments,
    })
}

/// Reads the table of arguments.
fn load_arguments() -> Result<ArgumentTable, serde_json::Error> {
    let file: ArgumentFile = serde_json::from_str(table!("arguments"))?;
    let plain = file.plain.names.into_iter().collect();
    Ok(ArgumentTable { by_name: by_name(file.program, |entry| &entry.names), plain })
}

/// Reads the tables that are not read yet, so that the first command need not wait for that.
pub fn read_tables() {
    // Wrappers first: they are needed for every command.
    let _ = (WRAPPERS.is_some(), DANGERS.is_some(), ARGUMENTS.is_some());
    harmless::read_table();
}

/// The wrappers of a name; nothing when the table could not be read.
pub(crate) fn wrappers(name: &str) -> Option<&'static [Arc<Wrapper>]> {
    Some(WRAPPERS.as_ref()?.get(name).map_or(&[], Vec::as_slice))
}

/// Whether a wrapper is judged only by what it runs.
pub(crate) fn is_neutral(name: &str) -> bool {
    wrappers(name).is_some_and(|found| found.iter().any(|wrapper| wrapper.neutral))
}

/// Why a command is asked about, if it is.
pub(crate) fn danger(name: &str, rest: &[Word]) -> Option<&'static str> {
    let dangers = DANGERS.as_ref()?;
    let by_prefix = dangers.prefixes.iter().filter(|(prefix, _)| name.starts_with(prefix));
    let by_name = dangers.by_name.get(name).into_iter().flatten();
    let is_meant = |danger: &&Arc<Danger>| {
        let mut flags = danger.flags.iter();
        follows(rest, &danger.args) == Certainty::Yes
            && (danger.flags.is_empty()
                || flags.any(|flag| has_flag(rest, flag, danger.words) == Certainty::Yes))
    };
    let mut all = by_name.chain(by_prefix.map(|(_, danger)| danger));
    all.find(is_meant).map(|danger| danger.because)
}

/// The protected part of a path, if it has one.
pub(crate) fn protected(path: &str) -> Option<&'static str> {
    let dangers = DANGERS.as_ref()?;
    let plain = path.replace("//", "/").replace("/./", "/");
    dangers.fragments.iter().copied().find(|fragment| plain.contains(fragment))
}

/// The words of a command that may be paths which it writes to.
pub(crate) fn written<'w>(name: &str, rest: &'w [Word]) -> &'w [Word] {
    let Some(dangers) = DANGERS.as_ref() else { return rest };
    let in_place = ["-i", "--in-place"];
    let is_in_place = || in_place.iter().any(|flag| has_flag(rest, flag, false) > Certainty::No);
    match dangers.writers.get(name) {
        Some(Writes::All) => rest,
        Some(Writes::Last) => rest.get(rest.len().saturating_sub(1)..).unwrap_or_default(),
        Some(Writes::InPlace) if is_in_place() => rest,
        _ => &[],
    }
}

/// Whether arguments may make a program run another one or write files.
pub(crate) fn runs_or_writes(name: &str, rest: &[Word]) -> bool {
    let Some(arguments) = ARGUMENTS.as_ref() else { return true };
    let mut of_name = arguments.by_name.get(name).into_iter().flatten();
    of_name.any(|entry| {
        let flag = |flag: &&str| has_flag(rest, flag, entry.words) > Certainty::No;
        let first = !entry.args.is_empty() && follows(rest, &entry.args) > Certainty::No;
        entry.always || first || entry.flags.iter().any(flag) || !only_prints(entry.content, rest)
    })
}

/// Whether a program is known not to run its arguments, or to run them in ways that are known.
pub(crate) fn keeps_its_arguments(name: &str) -> bool {
    let in_arguments =
        |table: &ArgumentTable| table.plain.contains(name) || table.by_name.contains_key(name);
    ARGUMENTS.as_ref().is_some_and(in_arguments)
        || WRAPPERS.as_ref().is_some_and(|table| table.contains_key(name))
        || harmless::is_known(name)
        || DANGERS.as_ref().is_some_and(|table| table.by_name.contains_key(name))
}

/// The tool that a short form of this name is about, empty for every tool; none if there is no such
/// form.
pub(crate) fn short_form(name: &str) -> Option<&'static str> {
    static FORMS: LazyLock<HashMap<&'static str, &'static str>> =
        LazyLock::new(|| serde_json::from_str(table!("short_forms")).unwrap_or_default());
    FORMS.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_tables_can_be_read() {
        load_wrappers().unwrap();
        load_dangers().map(|_| ()).unwrap();
        load_arguments().map(|_| ()).unwrap();
        assert!(wrappers("env").is_some_and(|found| found.len() == 1));
    }
}
