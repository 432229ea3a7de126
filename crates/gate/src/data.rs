//! The shipped tables: what is known of programs and their options.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use serde::Deserialize;

use crate::{
    content::only_prints,
    matching::{Certainty, begins_with, follows, has_flag, operands},
    reading::Word,
};

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
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wrapper {
    pub names: Vec<String>,
    pub flags: Vec<String>,
    pub values: Vec<String>,
    pub stops: Vec<String>,
    pub shell: Vec<String>,
    pub split: Vec<String>,
    pub operands: usize,
    pub assignments: bool,
    pub permute: bool,
    pub then: Then,
    pub empty: Empty,
    pub subcommand: Vec<String>,
    pub before_flags: Vec<String>,
    pub before_values: Vec<String>,
    pub until: Vec<String>,
    pub appends: bool,
    pub dashes: bool,
    pub numeric: bool,
    pub marker: Vec<String>,
    pub neutral: bool,
}

/// A program that only reads, under conditions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Safe {
    programs: Vec<String>,
    args: Vec<Vec<String>>,
    deny_flags: Vec<String>,
    words: bool,
    operands_max: Option<usize>,
    content: String,
    because: String,
}

/// A command that is asked about.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Danger {
    programs: Vec<String>,
    args: Vec<Vec<String>>,
    flags: Vec<String>,
    words: bool,
    because: String,
}

/// Paths that are not written without a question, and the programs that write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paths {
    fragments: Vec<String>,
    writers: Vec<String>,
    copiers: Vec<String>,
    editors: Vec<String>,
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
    fn by_name(&self) -> HashMap<String, Writes> {
        let of = |names: &[String], writes| {
            names.iter().map(move |n| (n.clone(), writes)).collect::<Vec<_>>()
        };
        let mut all = of(&self.writers, Writes::All);
        all.extend(of(&self.copiers, Writes::Last));
        all.extend(of(&self.editors, Writes::InPlace));
        all.into_iter().collect()
    }
}

/// Arguments by which a program runs another one or writes files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Arguments {
    names: Vec<String>,
    flags: Vec<String>,
    args: Vec<Vec<String>>,
    words: bool,
    content: String,
    always: bool,
}

/// The file of wrappers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrapperFile {
    wrapper: Vec<Wrapper>,
}

/// The file of programs that only read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SafeFile {
    safe: Vec<Safe>,
}

/// The file of dangers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DangerFile {
    danger: Vec<Danger>,
    paths: Paths,
}

/// Programs that keep their arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    names: Vec<String>,
}

/// The file of arguments that run or write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArgumentFile {
    program: Vec<Arguments>,
    plain: Plain,
}

/// All tables, by the names of programs.
struct Tables {
    wrappers: HashMap<String, Vec<Wrapper>>,
    safe: HashMap<String, Vec<Arc<Safe>>>,
    danger: HashMap<String, Vec<Arc<Danger>>>,
    /// The dangers of programs whose names begin alike.
    danger_prefixes: Vec<(String, Arc<Danger>)>,
    /// Parts of paths that are not written without a question.
    fragments: Vec<String>,
    writers: HashMap<String, Writes>,
    arguments: HashMap<String, Vec<Arc<Arguments>>>,
    plain: HashSet<String>,
}

/// The tables; nothing when a shipped file is broken, and then nothing is allowed or understood.
static TABLES: LazyLock<Option<Tables>> = LazyLock::new(|| load().ok());

/// Files entries under each of their names.
fn by_name<T>(entries: Vec<T>, names: fn(&T) -> &[String]) -> HashMap<String, Vec<Arc<T>>> {
    let mut table: HashMap<String, Vec<Arc<T>>> = HashMap::new();
    for entry in entries.into_iter().map(Arc::new) {
        for name in names(&entry) {
            table.entry(name.clone()).or_default().push(entry.clone());
        }
    }
    table
}

/// Reads all tables.
fn load() -> Result<Tables, toml::de::Error> {
    let file: WrapperFile = toml::from_str(include_str!("../data/wrappers.toml"))?;
    let mut wrappers: HashMap<String, Vec<Wrapper>> = HashMap::new();
    for wrapper in file.wrapper {
        for name in &wrapper.names {
            wrappers.entry(name.clone()).or_default().push(wrapper.clone());
        }
    }
    let safe: SafeFile = toml::from_str(include_str!("../data/safe.toml"))?;
    let danger: DangerFile = toml::from_str(include_str!("../data/dangerous.toml"))?;
    let arguments: ArgumentFile = toml::from_str(include_str!("../data/arguments.toml"))?;
    let danger_by_name = by_name(danger.danger, |entry| &entry.programs);
    let prefixes = danger_by_name.iter().filter_map(|(name, entries)| {
        Some((name.strip_suffix('*')?.to_owned(), entries.first()?.clone()))
    });
    Ok(Tables {
        wrappers,
        safe: by_name(safe.safe, |entry| &entry.programs),
        danger_prefixes: prefixes.collect(),
        danger: danger_by_name,
        writers: danger.paths.by_name(),
        fragments: danger.paths.fragments,
        arguments: by_name(arguments.program, |entry| &entry.names),
        plain: arguments.plain.names.into_iter().collect(),
    })
}

/// The wrappers of a name; nothing when the table could not be read.
pub(crate) fn wrappers(name: &str) -> Option<&'static [Wrapper]> {
    let tables = TABLES.as_ref()?;
    Some(tables.wrappers.get(name).map_or(&[], Vec::as_slice))
}

/// Whether a wrapper is judged only by what it runs.
pub(crate) fn is_neutral(name: &str) -> bool {
    wrappers(name).is_some_and(|found| found.iter().any(|wrapper| wrapper.neutral))
}

/// Why a command only reads, if it surely does.
pub(crate) fn reads_only(name: &str, rest: &[Word]) -> Option<&'static str> {
    let mut of_name = TABLES.as_ref()?.safe.get(name)?.iter();
    let covers = |safe: &&Arc<Safe>| {
        let mut flags = safe.deny_flags.iter();
        let operands_max = safe.operands_max.unwrap_or(usize::MAX);
        begins_with(rest, &safe.args)
            && !flags.any(|flag| has_flag(rest, flag, safe.words) > Certainty::No)
            && operands(rest.get(safe.args.len()..).unwrap_or_default()) <= operands_max
            && only_prints(&safe.content, rest)
    };
    of_name.find(covers).map(|safe| safe.because.as_str())
}

/// Why a command is asked about, if it is.
pub(crate) fn danger(name: &str, rest: &[Word]) -> Option<&'static str> {
    let tables = TABLES.as_ref()?;
    let by_prefix = tables.danger_prefixes.iter().filter(|(prefix, _)| name.starts_with(prefix));
    let by_name = tables.danger.get(name).into_iter().flatten();
    let is_meant = |danger: &&Arc<Danger>| {
        let mut flags = danger.flags.iter();
        follows(rest, &danger.args) == Certainty::Yes
            && (danger.flags.is_empty()
                || flags.any(|flag| has_flag(rest, flag, danger.words) == Certainty::Yes))
    };
    let mut all = by_name.chain(by_prefix.map(|(_, danger)| danger));
    all.find(is_meant).map(|danger| danger.because.as_str())
}

/// The protected part of a path, if it has one.
pub(crate) fn protected(path: &str) -> Option<&'static str> {
    let tables = TABLES.as_ref()?;
    let plain = path.replace("//", "/").replace("/./", "/");
    let fragments = tables.fragments.iter();
    fragments.map(String::as_str).find(|fragment| plain.contains(fragment))
}

/// The words of a command that may be paths which it writes to.
pub(crate) fn written<'w>(name: &str, rest: &'w [Word]) -> &'w [Word] {
    let Some(tables) = TABLES.as_ref() else { return rest };
    let in_place = ["-i", "--in-place"];
    let is_in_place = || in_place.iter().any(|flag| has_flag(rest, flag, false) > Certainty::No);
    match tables.writers.get(name) {
        Some(Writes::All) => rest,
        Some(Writes::Last) => rest.get(rest.len().saturating_sub(1)..).unwrap_or_default(),
        Some(Writes::InPlace) if is_in_place() => rest,
        _ => &[],
    }
}

/// Whether arguments may make a program run another one or write files.
pub(crate) fn runs_or_writes(name: &str, rest: &[Word]) -> bool {
    let Some(tables) = TABLES.as_ref() else { return true };
    let mut of_name = tables.arguments.get(name).into_iter().flatten();
    of_name.any(|entry| {
        let flag = |flag: &String| has_flag(rest, flag, entry.words) > Certainty::No;
        let first = !entry.args.is_empty() && follows(rest, &entry.args) > Certainty::No;
        entry.always || first || entry.flags.iter().any(flag) || !only_prints(&entry.content, rest)
    })
}

/// Whether a program is known not to run its arguments, or to run them in ways that are known.
pub(crate) fn keeps_its_arguments(name: &str) -> bool {
    TABLES.as_ref().is_some_and(|tables| {
        tables.plain.contains(name)
            || tables.wrappers.contains_key(name)
            || tables.safe.contains_key(name)
            || tables.danger.contains_key(name)
            || tables.arguments.contains_key(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_tables_can_be_read() {
        load().map(|_| ()).unwrap();
        assert!(wrappers("env").is_some_and(|found| found.len() == 1));
    }
}
