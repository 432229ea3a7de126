//! TOML, with its comments and its order kept.

use serde_json::Value;
use toml_edit::{
    Array, DocumentMut, InlineTable, Item, Table, TableLike, Value as TomlValue, value,
};

use super::text::FileProblem;

fn parse(text: &str) -> Result<DocumentMut, FileProblem> {
    text.parse::<DocumentMut>().map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        FileProblem::at(text, offset, error.message().trim().replace('\n', ", "))
    })
}

/// The value at a path of keys, as JSON.
pub(super) fn get(text: &str, path: &[String]) -> Result<Option<Value>, FileProblem> {
    let document = parse(text)?;
    let mut item = document.as_item();
    for key in path {
        match item.get(key) {
            Some(inner) => item = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(as_json(item)))
}

/// Puts a value at a path of keys, in the place of what is there.
pub(super) fn set(text: &str, path: &[String], new: &Value) -> Result<String, FileProblem> {
    if get(text, path)?.as_ref() == Some(new) {
        return Ok(text.to_owned());
    }
    let mut document = parse(text)?;
    let Some((key, above)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in above {
        let item = table.entry(name).or_insert_with(|| {
            let mut made = Table::new();
            // Only what is in it is written.
            made.set_implicit(new.is_object());
            Item::Table(made)
        });
        table = item.as_table_like_mut().ok_or_else(|| in_the_way(text, name))?;
    }
    table.insert(key, as_item(new));
    Ok(document.to_string())
}

/// Takes the value at a path of keys out.
pub(super) fn remove(text: &str, path: &[String]) -> Result<String, FileProblem> {
    let mut document = parse(text)?;
    let Some((key, above)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in above {
        match table.get_mut(name).and_then(Item::as_table_like_mut) {
            Some(inner) => table = inner,
            None => return Ok(text.to_owned()),
        }
    }
    match table.remove(key) {
        Some(_) => Ok(document.to_string()),
        None => Ok(text.to_owned()),
    }
}

fn in_the_way(text: &str, name: &str) -> FileProblem {
    let line = text.lines().position(|line| line.trim_start().starts_with(name)).unwrap_or(0) + 1;
    FileProblem { line, column: 1, problem: format!("`{name}` has to be a table") }
}

fn as_item(new: &Value) -> Item {
    match new {
        Value::Object(fields) => {
            let mut table = Table::new();
            for (key, field) in fields {
                table.insert(key, value(in_one_line(field)));
            }
            Item::Table(table)
        }
        plain => value(in_one_line(plain)),
    }
}

fn in_one_line(new: &Value) -> TomlValue {
    match new {
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.as_i64().unwrap_or_default().into(),
        Value::Array(items) => TomlValue::Array(items.iter().map(in_one_line).collect::<Array>()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| (key.as_str(), in_one_line(field)));
            TomlValue::InlineTable(fields.collect::<InlineTable>())
        }
        Value::String(text) => text.as_str().into(),
        Value::Null => "".into(),
    }
}

fn as_json(item: &Item) -> Value {
    match item {
        Item::Value(value) => value_as_json(value),
        Item::Table(table) => {
            table.iter().map(|(key, item)| (key.to_owned(), as_json(item))).collect()
        }
        Item::ArrayOfTables(tables) => {
            tables.iter().map(|table| as_json(&Item::Table(table.clone()))).collect()
        }
        Item::None => Value::Null,
    }
}

fn value_as_json(value: &TomlValue) -> Value {
    match value {
        TomlValue::String(text) => Value::from(text.value().as_str()),
        TomlValue::Integer(number) => Value::from(*number.value()),
        TomlValue::Float(number) => Value::from(*number.value()),
        TomlValue::Boolean(flag) => Value::from(*flag.value()),
        TomlValue::Datetime(time) => Value::from(time.value().to_string()),
        TomlValue::Array(items) => items.iter().map(value_as_json).collect(),
        TomlValue::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), value_as_json(value))).collect()
        }
    }
}
