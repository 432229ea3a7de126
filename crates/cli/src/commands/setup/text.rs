//! The text of a client's file, JSON or TOML, and changes of it that leave all else as it is.

use std::{fmt, path::Path};

use serde_json::Value;

use super::{jsonc, table::Put, toml_text};

/// Some editors put it before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Why a text cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileProblem {
    /// Counted from 1.
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

impl FileProblem {
    pub(crate) fn at(text: &str, offset: usize, problem: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        let line = before.matches('\n').count() + 1;
        Self { line, column, problem: problem.into() }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.line, self.column, self.problem)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With comments, which every reader of it passes over.
    Json,
    Toml,
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileText {
    form: Form,
    /// Whether a byte order mark stands before it.
    marked: bool,
    /// Whether all lines end with a carriage return, which is left out of `text`: only of TOML,
    /// whose writer knows none.
    carriage: bool,
    text: String,
}

impl FileText {
    /// Of a file of this name.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        let is_toml = path.extension().is_some_and(|it| it == "toml");
        let form = if is_toml { Form::Toml } else { Form::Json };
        let (marked, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let newlines = text.matches('\n').count();
        let carriage = is_toml && newlines > 0 && text.matches("\r\n").count() == newlines;
        let text = if carriage { text.replace("\r\n", "\n") } else { text.to_owned() };
        Self { form, marked, carriage, text }
    }

    /// As it is written.
    pub(crate) fn whole(&self) -> String {
        let text = if self.carriage { self.text.replace('\n', "\r\n") } else { self.text.clone() };
        if self.marked { format!("{BYTE_ORDER_MARK}{text}") } else { text }
    }

    /// The value at a path of keys.
    pub(crate) fn get(&self, path: &[String]) -> Result<Option<Value>, FileProblem> {
        match self.form {
            Form::Json => jsonc::get(&self.text, path),
            Form::Toml => toml_text::get(&self.text, path),
        }
    }

    /// Puts something in at a path of keys.
    pub(crate) fn put(&mut self, path: &[String], put: &Put) -> Result<(), FileProblem> {
        self.text = match (self.form, put) {
            (Form::Json, Put::Set(value)) => jsonc::set(&self.text, path, value)?,
            (Form::Json, Put::Append(value)) => jsonc::append(&self.text, path, value)?,
            (Form::Toml, Put::Set(value)) => toml_text::set(&self.text, path, value)?,
            (Form::Toml, Put::Append(_)) => {
                return Err(FileProblem::at("", 0, "lists of TOML are not changed"));
            }
        };
        Ok(())
    }

    /// Takes the value at a path of keys out.
    pub(crate) fn remove(&mut self, path: &[String]) -> Result<(), FileProblem> {
        self.text = match self.form {
            Form::Json => jsonc::remove(&self.text, path)?,
            Form::Toml => toml_text::remove(&self.text, path)?,
        };
        Ok(())
    }

    /// Takes the elements out of the list at a path of keys of which something holds.
    pub(crate) fn remove_elements(
        &mut self,
        path: &[String],
        is_meant: impl Fn(&Value) -> bool,
    ) -> Result<(), FileProblem> {
        while let Some(Value::Array(items)) = self.get(path)? {
            let Some(index) = items.iter().position(&is_meant) else { break };
            self.text = jsonc::remove_element(&self.text, path, index)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    const CODEX: &str = "\
# mine
model = \"x\"   # best

[features]
web = true # keep

[mcp_servers.other]
command = 'o'
args = [
  \"a\", # first
]
";

    #[test]
    fn toml_keeps_comments_order_and_line_ends() {
        let entry = json!({ "command": "/l", "args": ["mcp"] });
        let at = path(&["mcp_servers", "legwork"]);
        let added = "\n[mcp_servers.legwork]\ncommand = \"/l\"\nargs = [\"mcp\"]\n";
        for text in [CODEX.to_owned(), CODEX.replace('\n', "\r\n"), format!("\u{feff}{CODEX}")] {
            let mut file = FileText::of(Path::new("config.toml"), &text);
            file.put(&at, &Put::Set(entry.clone())).unwrap();
            let added =
                if text.contains('\r') { added.replace('\n', "\r\n") } else { added.to_owned() };
            assert_eq!(file.whole(), format!("{text}{added}"));
            assert_eq!(file.get(&at).unwrap(), Some(entry.clone()));
            let twice = file.clone();
            file.put(&at, &Put::Set(entry.clone())).unwrap();
            assert_eq!(file, twice);
            file.remove(&at).unwrap();
            assert_eq!(file.whole(), text);
            file.put(&path(&["features", "shell_tool"]), &Put::Set(json!(false))).unwrap();
            assert!(file.whole().contains("web = true # keep"), "{}", file.whole());
            assert!(file.whole().contains("shell_tool = false"), "{}", file.whole());
        }
        let mut empty = FileText::of(Path::new("config.toml"), "");
        empty.put(&at, &Put::Set(entry)).unwrap();
        assert_eq!(empty.whole(), added.trim_start());
        let mut inline =
            FileText::of(Path::new("c.toml"), "mcp_servers = { a = { command = 'x' } }\n");
        inline.put(&at, &Put::Set(json!({ "command": "/l" }))).unwrap();
        let expected = "mcp_servers = { a = { command = 'x' } , legwork = { command = \"/l\" } }\n";
        assert_eq!(inline.whole(), expected);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (name, text, place) in [
            ("c.toml", "a = 1\nb = \n", "2:"),
            ("c.toml", "mcp_servers = 1\n", "1:1: "),
            ("c.json", "\u{feff}{\n  \"a\": 1\n  \"b\": 2\n}", "3:3: "),
        ] {
            let mut file = FileText::of(Path::new(name), text);
            let at = path(&["mcp_servers", "legwork"]);
            let problem = file.put(&at, &Put::Set(json!({}))).unwrap_err().to_string();
            assert!(problem.starts_with(place), "{text}: {problem}");
        }
    }
}
