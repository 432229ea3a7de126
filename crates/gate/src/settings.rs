//! The settings of a layer, as they are written: values of the kinds that the table of keys names.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    keys::{Key, Kind, PLACES, find},
    policy::{Layer, LayerReader, PolicyError},
    units::{duration_ms, size_bytes},
};

/// A value with its place.
type Written<'i> = Spanned<DeValue<'i>>;

/// What a layer sets, besides rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    found: Vec<(&'static Key, Value)>,
    /// The places, each with its name and what is set of it.
    places: Vec<(String, Values)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Flag(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
    Lists(Vec<(String, Vec<String>)>),
}

impl Values {
    /// Reads the settings of a layer; a mistake anywhere in it is an error.
    pub fn read(layer: &Layer<'_>) -> Result<Self, PolicyError> {
        let reader = LayerReader { layer };
        let mut values = Self::default();
        let table = reader.parse()?;
        for (name, value) in table.get_ref() {
            match value.get_ref() {
                DeValue::Table(places) if name.get_ref() == "place" => {
                    reader.places(places, &mut values)?;
                }
                DeValue::Table(section) => {
                    reader.section(name.get_ref(), section, &mut values)?;
                }
                _ => reader.setting("", name.get_ref(), value, &mut values)?,
            }
        }
        Ok(values)
    }

    fn get(&self, section: &str, name: &str) -> Option<&Value> {
        debug_assert!(find(section, name).is_some(), "no such key: [{section}] {name}");
        let is_it = |key: &Key| key.section == section && key.name == name;
        self.found.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    /// The places, each with its name and what is set of it in the section
    /// [`PLACES`](crate::keys::PLACES).
    pub fn places(&self) -> &[(String, Self)] {
        &self.places
    }

    /// A number, if it is set.
    pub fn number(&self, section: &str, name: &str) -> Option<u64> {
        match self.get(section, name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether something is so, if that is set.
    pub fn flag(&self, section: &str, name: &str) -> Option<bool> {
        match self.get(section, name)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A text, if it is set.
    pub fn text(&self, section: &str, name: &str) -> Option<&str> {
        match self.get(section, name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The lists of a table, each with its name; none if it is not set.
    pub fn lists(&self, section: &str, name: &str) -> &[(String, Vec<String>)] {
        match self.get(section, name) {
            Some(Value::Lists(lists)) => lists,
            _ => &[],
        }
    }

    /// The texts of a list; none if it is not set.
    pub fn texts(&self, section: &str, name: &str) -> &[String] {
        match self.get(section, name) {
            Some(Value::Texts(texts)) => texts,
            _ => &[],
        }
    }
}

impl LayerReader<'_, '_> {
    /// Reads the places, and what is set of all of them.
    pub(crate) fn places(
        &self,
        table: &DeTable<'_>,
        values: &mut Values,
    ) -> Result<(), PolicyError> {
        for (name, value) in table {
            let (at, name) = (name.span().start, name.get_ref().as_ref());
            let DeValue::Table(place) = value.get_ref() else {
                if find("place", name).is_none() {
                    let problem = format!("unknown key `{name}`");
                    let remedy = "write `[place.NAME]`, and the keys of the place below it";
                    return Err(self.error(at, &problem, remedy));
                }
                self.setting("place", name, value, values)?;
                continue;
            };
            self.check_keys(place, PLACES)?;
            let mut set = Values::default();
            self.section(PLACES, place, &mut set)?;
            self.check_place(name, at, &set)?;
            values.places.push((name.to_owned(), set));
        }
        Ok(())
    }

    /// Checks that a place has a name that can be typed, and what its kind needs.
    fn check_place(&self, name: &str, at: usize, set: &Values) -> Result<(), PolicyError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if !begins || !name.bytes().all(is_plain) || name.len() > 32 || name == "local" {
            let problem = format!("`{name}` cannot be the name of a place");
            let remedy = "write up to 32 letters, digits, `-`, `_` or `.`; `local` is this machine";
            return Err(self.error(at, &problem, remedy));
        }
        let missing = |key: &str, example: &str| {
            self.error(at, &format!("the place `{name}` has no `{key}`"), example)
        };
        match set.text(PLACES, "kind") {
            None => Err(missing("kind", "write `kind = \"ssh\"` or `kind = \"docker\"`")),
            Some("ssh") if set.text(PLACES, "host").is_none() => {
                Err(missing("host", "write `host = \"build.example\"`"))
            }
            Some("docker")
                if set.text(PLACES, "container").is_none()
                    && set.text(PLACES, "image").is_none() =>
            {
                Err(missing(
                    "container",
                    "write `container = \"build\"`, or `image = \"debian:12\"` for one a task",
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Reads the settings of a section.
    pub(crate) fn section(
        &self,
        section: &str,
        table: &DeTable<'_>,
        values: &mut Values,
    ) -> Result<(), PolicyError> {
        for (name, value) in table {
            self.setting(section, name.get_ref(), value, values)?;
        }
        Ok(())
    }

    /// Reads one setting; what is no setting is passed over here.
    pub(crate) fn setting(
        &self,
        section: &str,
        name: &str,
        written: &Written<'_>,
        values: &mut Values,
    ) -> Result<(), PolicyError> {
        let Some(key) = find(section, name) else { return Ok(()) };
        let value = match key.kind {
            Kind::Flag => Value::Flag(self.flag_value(written, name)?),
            Kind::Number(unit) => Value::Number(self.number(written, name, unit)?),
            Kind::Text => Value::Text(self.string(written, name)?.to_owned()),
            Kind::Choice(known) => {
                let text = self.string(written, name)?;
                if !known.contains(&text) {
                    return Err(self.choice(text, written.span().start, known));
                }
                Value::Text(text.to_owned())
            }
            Kind::Texts => Value::Texts(self.strings(written, name)?),
            Kind::Lists => Value::Lists(self.lists(written, name)?),
            Kind::Words | Kind::Tables => return Ok(()),
        };
        values.found.push((key, value));
        Ok(())
    }

    /// The table of lists that a value has to be.
    fn lists(
        &self,
        written: &Written<'_>,
        name: &str,
    ) -> Result<Vec<(String, Vec<String>)>, PolicyError> {
        let Some(table) = written.get_ref().as_table() else {
            let problem = format!("`{name}` is not a table");
            return Err(self.error(
                written.span().start,
                &problem,
                "write a key with a list for each",
            ));
        };
        let list = |(key, value): (&Spanned<_>, &Written<'_>)| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            Ok((key.to_string(), self.strings(value, key)?))
        };
        table.iter().map(list).collect()
    }

    /// The number that a value has to be.
    fn number(&self, written: &Written<'_>, name: &str, unit: &str) -> Result<u64, PolicyError> {
        let number = match written.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            DeValue::String(text) => with_unit(text, unit),
            _ => None,
        };
        number.ok_or_else(|| {
            let problem = format!("`{name}` is not a whole number from 0 on");
            let example = match unit_example(unit) {
                Some(example) => format!("write a number of {unit}, or `\"{example}\"`"),
                None => format!("write a number of {unit}"),
            };
            self.error(written.span().start, &problem, &example)
        })
    }
}

/// An example of a value with a unit, for keys that take one.
pub fn unit_example(unit: &str) -> Option<&'static str> {
    match unit {
        "milliseconds" => Some("5m"),
        "bytes" => Some("2GiB"),
        "days" => Some("2w"),
        _ => None,
    }
}

/// The number that a text with a unit stands for, in the unit of the key.
fn with_unit(text: &str, unit: &str) -> Option<u64> {
    const DAY_MS: u64 = 24 * 3_600_000;
    // A number in quotes is more likely a mistake than a choice.
    let named = text.ends_with(|it: char| it.is_ascii_alphabetic());
    match unit {
        _ if !named => None,
        "milliseconds" => duration_ms(text, 1),
        "bytes" => size_bytes(text),
        "days" => duration_ms(text, DAY_MS).map(|whole| whole / DAY_MS),
        _ => None,
    }
}
