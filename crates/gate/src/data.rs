//! The shipped tables: what is known of programs and their options.

use std::{collections::HashMap, sync::LazyLock};

use serde::Deserialize;

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

/// A program that runs other programs, and its options.
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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrapperFile {
    wrapper: Vec<Wrapper>,
}

/// The wrappers by name; nothing when the shipped file is broken, and then nothing is understood.
static WRAPPERS: LazyLock<Option<HashMap<String, Vec<Wrapper>>>> = LazyLock::new(|| {
    let file: WrapperFile = toml::from_str(include_str!("../data/wrappers.toml")).ok()?;
    let mut wrappers: HashMap<String, Vec<Wrapper>> = HashMap::new();
    for wrapper in file.wrapper {
        for name in &wrapper.names {
            wrappers.entry(name.clone()).or_default().push(wrapper.clone());
        }
    }
    Some(wrappers)
});

/// The wrappers of a name; nothing when the table could not be read.
pub(crate) fn wrappers(name: &str) -> Option<&'static [Wrapper]> {
    let table = WRAPPERS.as_ref()?;
    Some(table.get(name).map_or(&[], Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_tables_can_be_read() {
        let file: Result<WrapperFile, _> = toml::from_str(include_str!("../data/wrappers.toml"));
        file.unwrap();
        assert!(wrappers("env").is_some_and(|found| found.len() == 1));
    }
}
