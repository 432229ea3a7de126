//! Enums of the library, read from its source: the names in JSON, and what is said of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::page::root;

/// A variant, or a field of one.
#[derive(Debug, Default, PartialEq)]
pub struct Item {
    /// Its name in JSON.
    pub name: String,
    /// Its doc comment, in one line.
    pub meaning: String,
    pub fields: Vec<Item>,
}

/// The variants of a public enum of the library.
pub fn variants(name: &str) -> Vec<Item> {
    let mut files = Vec::new();
    collect(&root().join("crates/engine/src"), &mut files);
    let head = format!("pub enum {name} {{\n");
    let source = files.iter().map(|path| fs::read_to_string(path).unwrap());
    let found = source.into_iter().find_map(|text| Some(text.split_once(&head)?.1.to_owned()));
    read(&found.unwrap_or_else(|| panic!("there is no enum {name}")))
}

/// Reads the body of an enum, as rustfmt writes it.
fn read(body: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut meaning = String::new();
    for line in body.lines().take_while(|line| !line.starts_with('}')) {
        let (indent, text) = (line.len() - line.trim_start().len(), line.trim_start());
        if let Some(words) = text.strip_prefix("///") {
            meaning.push_str(words);
            continue;
        }
        let name = text.split([',', ' ', ':', '(']).next().unwrap_or_default();
        if text.starts_with(['#', '}', '/']) || name.is_empty() {
            continue;
        }
        let meaning = plain(&std::mem::take(&mut meaning));
        let item = Item { name: snake(name), meaning, fields: Vec::new() };
        match items.last_mut() {
            Some(variant) if indent > 4 => variant.fields.push(item),
            _ => items.push(item),
        }
    }
    items
}

/// A doc comment without links into the library's pages.
fn plain(comment: &str) -> String {
    let text = comment.trim().replace("[`", "`");
    let mut parts = text.split("`]");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('`');
        let target = part.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        plain.push_str(target.map_or(part, |(_, rest)| rest));
    }
    plain
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn an_enum_is_read_with_its_comments() {
    let body = "    /// One,\n    /// as [`Other::x`](a::b) says.\n    FirstOne,\n    /// Two.\n    \
                #[serde(rename)]\n    Second {\n        /// What.\n        task_id: TaskId,\n    },\n}\n";
    let item = |name: &str, meaning: &str, fields| Item {
        name: name.to_owned(),
        meaning: meaning.to_owned(),
        fields,
    };
    let field = item("task_id", "What.", Vec::new());
    let expected = [
        item("first_one", "One, as `Other::x` says.", Vec::new()),
        item("second", "Two.", vec![field]),
    ];
    assert_eq!(read(body), expected);
}
