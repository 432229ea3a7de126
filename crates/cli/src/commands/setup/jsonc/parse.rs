//! Reads JSON with comments into a tree that knows where everything stands.

use serde_json::Value;

use super::super::text::FileProblem;

/// How deep values may stand in one another.
const DEPTH_MAX: usize = 200;

/// A value and its place: from its first byte to behind its last.
#[derive(Debug)]
pub(super) struct Node {
    pub start: usize,
    pub end: usize,
    pub kind: NodeKind,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Scalar(Value),
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Member {
    pub key: String,
    /// Where the key begins.
    pub start: usize,
    pub value: Node,
}

/// Reads a text; none if there is no value in it at all.
pub(super) fn parse(text: &str) -> Result<Option<Node>, FileProblem> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    reader.skip()?;
    if reader.peek().is_none() {
        return Ok(None);
    }
    let root = reader.value()?;
    reader.skip()?;
    match reader.peek() {
        None => Ok(Some(root)),
        Some(_) => Err(reader.problem("nothing may follow the value")),
    }
}

/// The first offset from here on that is neither white space nor in a comment.
pub(super) fn after_blanks(text: &str, at: usize) -> usize {
    let mut reader = Reader { text, at, depth: 0 };
    match reader.skip() {
        Ok(()) => reader.at,
        Err(_) => text.len(),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn problem(&self, problem: &str) -> FileProblem {
        FileProblem::at(self.text, self.at, problem)
    }

    /// Passes over white space and comments.
    fn skip(&mut self) -> Result<(), FileProblem> {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.at += blanks;
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end =
                    rest.find("*/").ok_or_else(|| self.problem("this comment is not closed"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<Node, FileProblem> {
        let start = self.at;
        let kind = match self.peek() {
            Some('{') => self.nested(Self::members)?,
            Some('[') => self.nested(Self::items)?,
            Some('"') => NodeKind::Scalar(Value::String(self.string()?)),
            Some(_) => self.word()?,
            None => return Err(self.problem("a value is missing at the end")),
        };
        Ok(Node { start, end: self.at, kind })
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<NodeKind, FileProblem>,
    ) -> Result<NodeKind, FileProblem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.problem("too many values in one another"));
        }
        self.at += 1;
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn members(&mut self) -> Result<NodeKind, FileProblem> {
        let mut members = Vec::new();
        loop {
            self.skip()?;
            match self.peek() {
                Some('}') => break,
                Some('"') => {}
                Some(_) => return Err(self.problem("a key in double quotes, or `}`, is missing")),
                None => return Err(self.problem("`}` is missing at the end")),
            }
            let start = self.at;
            let key = self.string()?;
            self.skip()?;
            if self.peek() != Some(':') {
                return Err(self.problem("`:` is missing behind the key"));
            }
            self.at += 1;
            self.skip()?;
            members.push(Member { key, start, value: self.value()? });
            if !self.comma('}')? {
                break;
            }
        }
        self.at += 1;
        Ok(NodeKind::Object(members))
    }

    fn items(&mut self) -> Result<NodeKind, FileProblem> {
        let mut items = Vec::new();
        loop {
            self.skip()?;
            match self.peek() {
                Some(']') => break,
                Some(_) => items.push(self.value()?),
                None => return Err(self.problem("`]` is missing at the end")),
            }
            if !self.comma(']')? {
                break;
            }
        }
        self.at += 1;
        Ok(NodeKind::Array(items))
    }

    /// Passes over a comma; says no at the closing bracket.
    fn comma(&mut self, closing: char) -> Result<bool, FileProblem> {
        self.skip()?;
        match self.peek() {
            Some(',') => {
                self.at += 1;
                Ok(true)
            }
            Some(found) if found == closing => Ok(false),
            _ => Err(self.problem(&format!("`,` or `{closing}` is missing"))),
        }
    }

    fn string(&mut self) -> Result<String, FileProblem> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find_map(|(at, character)| {
            let closes = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            closes.then_some(at + 1)
        });
        let end = end.ok_or_else(|| self.problem("this text is not closed"))?;
        let written = rest.get(..end).unwrap_or_default();
        let text = serde_json::from_str(written).map_err(|_| self.problem("no text of JSON"))?;
        self.at += end;
        Ok(text)
    }

    /// A number, or one of the three words.
    fn word(&mut self) -> Result<NodeKind, FileProblem> {
        let rest = self.rest();
        let ends = |it: char| it.is_whitespace() || matches!(it, ',' | '}' | ']' | ':' | '/');
        let end = rest.find(ends).unwrap_or(rest.len());
        let written = rest.get(..end).unwrap_or_default();
        let value = serde_json::from_str(written).map_err(|_| self.problem("no value of JSON"))?;
        self.at += end;
        Ok(NodeKind::Scalar(value))
    }
}
