//! Changes one place of a text: everything else stays as it was written.

use serde_json::Value;

use super::{
    super::text::FileProblem,
    parse::{Node, NodeKind, after_blanks, parse},
};

/// The indent where a file shows none.
const INDENT: &str = "  ";

/// Puts a value at a path of keys, in the place of what is there; what is missing above it is made.
pub(in super::super) fn set(
    text: &str,
    path: &[String],
    value: &Value,
) -> Result<String, FileProblem> {
    let Some(root) = parse(text)? else {
        let layout = Layout::of(text);
        let whole = layout.written(&nested(path, value), "", true);
        return Ok(format!("{text}{whole}{}", layout.newline));
    };
    if let Some(node) = root.find(path) {
        if node.value() == *value {
            return Ok(text.to_owned());
        }
        let layout = Layout::of(text);
        let written = layout.written(value, line_indent(text, node.start), is_in_lines(text, node));
        return Ok(spliced(text, node.start, node.end, &written));
    }
    // The deepest object that is there takes the rest.
    let depth = (0..path.len()).rev().find(|depth| found(&root, path, *depth).is_some());
    let (above, below) = path.split_at(depth.unwrap_or(0));
    let node = root.find(above).unwrap_or(&root);
    let NodeKind::Object(members) = &node.kind else {
        return Err(FileProblem::at(text, node.start, "an object `{…}` has to stand here"));
    };
    let Some((key, rest)) = below.split_first() else { return Ok(text.to_owned()) };
    let value = nested(rest, value);
    let last = members.last().map(|member| (member.start, member.value.end));
    Ok(inserted(text, node, last, Some(key), &value))
}

/// Adds an element at the end of the list at a path of keys; what is missing above it is made.
pub(in super::super) fn append(
    text: &str,
    path: &[String],
    value: &Value,
) -> Result<String, FileProblem> {
    let root = parse(text)?;
    let Some(node) = root.as_ref().and_then(|root| root.find(path)) else {
        return set(text, path, &Value::Array(vec![value.clone()]));
    };
    let NodeKind::Array(items) = &node.kind else {
        return Err(FileProblem::at(text, node.start, "a list `[…]` has to stand here"));
    };
    let last = items.last().map(|item| (item.start, item.end));
    Ok(inserted(text, node, last, None, value))
}

/// Takes the value at a path of keys out, with its key.
pub(in super::super) fn remove(text: &str, path: &[String]) -> Result<String, FileProblem> {
    let (Some(root), Some((key, above))) = (parse(text)?, path.split_last()) else {
        return Ok(text.to_owned());
    };
    let Some(NodeKind::Object(members)) = root.find(above).map(|node| &node.kind) else {
        return Ok(text.to_owned());
    };
    let places: Vec<_> = members.iter().map(|it| (it.start, it.value.end)).collect();
    match members.iter().rposition(|member| member.key == *key) {
        Some(index) => Ok(without(text, &places, index)),
        None => Ok(text.to_owned()),
    }
}

/// Takes an element out of the list at a path of keys.
pub(in super::super) fn remove_element(
    text: &str,
    path: &[String],
    index: usize,
) -> Result<String, FileProblem> {
    let root = parse(text)?;
    let node = root.as_ref().and_then(|root| root.find(path));
    let Some(NodeKind::Array(items)) = node.map(|node| &node.kind) else {
        return Ok(text.to_owned());
    };
    let places: Vec<_> = items.iter().map(|it| (it.start, it.end)).collect();
    Ok(without(text, &places, index))
}

/// The object at the first keys of a path, or what stands in its way.
fn found<'n>(root: &'n Node, path: &[String], depth: usize) -> Option<&'n Node> {
    root.find(path.get(..depth)?)
}

/// A value inside of objects with these keys.
fn nested(path: &[String], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| {
        Value::Object([(key.clone(), inner)].into_iter().collect())
    })
}

/// A text with a part of it replaced.
fn spliced(text: &str, start: usize, end: usize, by: &str) -> String {
    let (before, after) = (text.get(..start), text.get(end..));
    format!("{}{by}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

/// A text with one more value in an object or a list, behind its last one.
fn inserted(
    text: &str,
    node: &Node,
    last: Option<(usize, usize)>,
    key: Option<&String>,
    value: &Value,
) -> String {
    let layout = Layout::of(text);
    let label = key.map_or(String::new(), |key| format!("{}: ", Value::from(key.as_str())));
    let Some((start, end)) = last else {
        return first_inserted(text, node, &layout, &label, value);
    };
    // Where the last one begins its own line, the new one does.
    if !text.get(..start).is_some_and(begins_line) {
        let written = layout.written(value, "", false);
        return spliced(text, end, end, &format!(", {label}{written}"));
    }
    let indent = line_indent(text, start);
    let written = layout.written(value, indent, true);
    let comma = after_blanks(text, end);
    let has_comma = text.get(comma..).is_some_and(|rest| rest.starts_with(','));
    let behind = if has_comma { comma + 1 } else { end };
    // Behind the comment that belongs to the last one.
    let line_end = end_of_line(text, behind);
    let tail = if has_comma { "," } else { "" };
    let line = format!("{}{indent}{label}{written}{tail}", layout.newline);
    let added = spliced(text, line_end, line_end, &line);
    if has_comma { added } else { spliced(&added, end, end, ",") }
}

/// The same for one that is empty.
fn first_inserted(text: &str, node: &Node, layout: &Layout, label: &str, value: &Value) -> String {
    let inside = text.get(node.start + 1..node.end - 1).unwrap_or_default();
    let outer = line_indent(text, node.start);
    let indent = format!("{outer}{}", layout.indent);
    let newline = layout.newline;
    let written = layout.written(value, &indent, true);
    // Comments in it stay above.
    let kept = inside.trim_end();
    let whole = format!("{kept}{newline}{indent}{label}{written}{newline}{outer}");
    spliced(text, node.start + 1, node.end - 1, &whole)
}

/// A text without one of the values at these places, and without its comma.
fn without(text: &str, places: &[(usize, usize)], index: usize) -> String {
    let Some(&(start, end)) = places.get(index) else { return text.to_owned() };
    let comma = after_blanks(text, end);
    let has_comma = text.get(comma..).is_some_and(|rest| rest.starts_with(','));
    let behind = if has_comma { comma + 1 } else { end };
    let own_line = text.get(..start).is_some_and(begins_line);
    let line_end = end_of_line(text, behind);
    let (from, to) = if own_line && is_newline_at(text, line_end) {
        // The whole line, with the newline before it.
        let line_start = text.get(..start).and_then(|it| it.rfind('\n')).unwrap_or(start);
        let carriage = text.get(..line_start).is_some_and(|it| it.ends_with('\r'));
        (line_start - usize::from(carriage), line_end)
    } else {
        let blanks = text.get(behind..).map_or(0, |it| it.len() - it.trim_start_matches(' ').len());
        let is_last = index + 1 == places.len();
        (start, if is_last { behind } else { behind + blanks })
    };
    let previous = index.checked_sub(1).and_then(|it| places.get(it));
    let Some(&(_, previous_end)) = previous.filter(|_| !has_comma) else {
        return spliced(text, from, to, "");
    };
    // It was the last one: the comma before it goes, too.
    let comma = after_blanks(text, previous_end);
    let from = if own_line { from } else { comma + 1 };
    let shorter = spliced(text, from, to, "");
    spliced(&shorter, comma, comma + 1, "")
}

/// Whether only white space stands before in the line.
fn begins_line(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    before.contains('\n') && line.trim().is_empty()
}

/// The white space that the line of an offset begins with.
fn line_indent(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..blanks).unwrap_or_default()
}

/// The end of a line, if nothing but blanks and one comment are before it; else the same offset.
fn end_of_line(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    let said = line.trim();
    let block = said.starts_with("/*") && said.find("*/") == Some(said.len().saturating_sub(2));
    if said.is_empty() || said.starts_with("//") || block { at + line.trim_end().len() } else { at }
}

fn is_newline_at(text: &str, at: usize) -> bool {
    let rest = text.get(at..).unwrap_or_default().trim_start_matches([' ', '\t', '\r']);
    rest.starts_with('\n')
}

fn is_in_lines(text: &str, node: &Node) -> bool {
    text.get(node.start..node.end).is_some_and(|it| it.contains('\n'))
}

/// How a file is laid out.
struct Layout<'t> {
    newline: &'static str,
    indent: &'t str,
}

impl<'t> Layout<'t> {
    fn of(text: &'t str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = text.lines().find(|line| line.starts_with([' ', '\t']));
        let indent = indented.map_or("", |line| {
            line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
        });
        Self { newline, indent: if indent.is_empty() { INDENT } else { indent } }
    }

    /// A value, in lines or in one; a list of plain values takes one line.
    fn written(&self, value: &Value, outer: &str, in_lines: bool) -> String {
        let inner = format!("{outer}{}", self.indent);
        let joined = |parts: Vec<String>, open: char, close: char, in_lines: bool| {
            if parts.is_empty() || !in_lines {
                return format!("{open}{}{close}", parts.join(", "));
            }
            let between = format!(",{}{inner}", self.newline);
            let parts = parts.join(&between);
            format!("{open}{}{inner}{parts}{}{outer}{close}", self.newline, self.newline)
        };
        match value {
            Value::Object(fields) => {
                let field = |(key, value): (&String, &Value)| {
                    let value = self.written(value, &inner, in_lines);
                    format!("{}: {value}", Value::from(key.as_str()))
                };
                joined(fields.iter().map(field).collect(), '{', '}', in_lines)
            }
            Value::Array(items) => {
                let plain = items.iter().all(|item| !item.is_object() && !item.is_array());
                let in_lines = in_lines && !plain;
                let item = |item: &Value| self.written(item, &inner, in_lines);
                joined(items.iter().map(item).collect(), '[', ']', in_lines)
            }
            plain => plain.to_string(),
        }
    }
}
