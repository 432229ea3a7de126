//! Puts a word together, piece by piece, and knows how much of it is literal.

use crate::reading::{Form, Span, Word};

/// A word that is being read.
#[derive(Debug)]
pub(super) struct Builder {
    start: usize,
    text: String,
    /// Whether an expansion was met; later pieces are not kept then.
    dynamic: bool,
    /// Whether an expansion may make any number of words.
    splits: bool,
    glob: bool,
    /// Whether any part was quoted.
    pub quoted: bool,
    bracket: bool,
    brace: Brace,
    head: Head,
    /// Open parentheses of a regular expression.
    pub parentheses: usize,
    /// The name and where the value begins, once the word turned out to be an assignment.
    assignment: Option<(String, usize, usize)>,
}

/// How much of a brace expansion was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Brace {
    None,
    Open { length: usize },
    Separated { length: usize },
}

/// Whether what was read so far can be the left side of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Start,
    Name,
    Subscript { depth: usize, name_length: usize },
    Closed { name_length: usize },
    Plus { name_length: usize },
    No,
}

impl Builder {
    /// Begins a word.
    pub(super) fn new(start: usize) -> Self {
        Self {
            start,
            text: String::new(),
            dynamic: false,
            splits: false,
            glob: false,
            quoted: false,
            bracket: false,
            brace: Brace::None,
            head: Head::Start,
            parentheses: 0,
            assignment: None,
        }
    }

    /// Adds a character that was written without quotes.
    pub(super) fn plain(&mut self, character: char, at: usize) {
        self.follow_head(character, at);
        self.follow_patterns(character);
        self.push(character);
    }

    /// Adds a character that was quoted.
    pub(super) fn quoted(&mut self, character: char) {
        self.quote();
        self.push(character);
    }

    /// Notes quotes, even when nothing is in them.
    pub(super) fn quote(&mut self) {
        self.quoted = true;
        if !matches!(self.head, Head::Subscript { .. }) {
            self.head = Head::No;
        }
    }

    /// Notes that from here on the word is known only after expansion.
    pub(super) fn expand(&mut self, splits: bool) {
        self.splits |= splits;
        if !matches!(self.head, Head::Subscript { .. }) {
            self.head = Head::No;
        }
        self.dynamic = true;
    }

    /// Keeps a character while the word is literal.
    fn push(&mut self, character: char) {
        if !self.dynamic {
            self.text.push(character);
        }
    }

    /// Whether the word so far is a descriptor: nothing but unquoted digits, and no number that is
    /// too large for bash.
    pub(super) fn is_number(&self) -> bool {
        let digits = self.text.bytes().all(|byte| byte.is_ascii_digit());
        digits && self.text.parse::<i32>().is_ok() && !self.quoted && !self.dynamic
    }

    /// Whether a descriptor has more digits than plain `sh` takes for one.
    pub(super) fn is_long(&self) -> bool {
        self.text.len() > 1
    }

    /// The name, if the word so far is `{name}`, which before a redirect means a new descriptor.
    pub(super) fn descriptor_name(&self) -> Option<&str> {
        let inner = self.text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        inner.filter(|name| !self.quoted && !self.dynamic && !name.is_empty())
    }

    /// Where it is, if it ends here.
    pub(super) fn span(&self, end: usize) -> Span {
        Span { start: self.start, end }
    }

    /// Whether an assignment was recognised and its value is empty so far.
    pub(super) fn awaits_value(&self) -> bool {
        let at_value = |(_, length, _): &(String, usize, usize)| self.text.len() == *length;
        !self.quoted && !self.dynamic && self.assignment.as_ref().is_some_and(at_value)
    }

    /// Whether the word stops inside `name[…`, where the shell would read on.
    pub(super) fn is_in_subscript(&self) -> bool {
        matches!(self.head, Head::Subscript { .. })
    }

    /// Whether the word stops inside `[…`, where the shell would read on within an array.
    pub(super) fn is_in_index(&self) -> bool {
        self.bracket && self.text.starts_with('[')
    }

    /// Follows whether the word may be an assignment.
    fn follow_head(&mut self, character: char, at: usize) {
        let length = self.text.len();
        let is_name = character == '_' || character.is_ascii_alphabetic();
        self.head = match (self.head, character) {
            (Head::Start, _) if is_name => Head::Name,
            (Head::Name, _) if is_name || character.is_ascii_digit() => Head::Name,
            (Head::Name, '[') => Head::Subscript { depth: 1, name_length: length },
            (Head::Name, '+') => Head::Plus { name_length: length },
            (Head::Closed { name_length }, '+') => Head::Plus { name_length },
            (Head::Name, '=') => self.assign(length, at),
            (Head::Closed { name_length } | Head::Plus { name_length }, '=') => {
                self.assign(name_length, at)
            }
            (Head::Subscript { depth, name_length }, '[') => {
                Head::Subscript { depth: depth + 1, name_length }
            }
            (Head::Subscript { depth: 1, name_length }, ']') => Head::Closed { name_length },
            (Head::Subscript { depth, name_length }, ']') => {
                Head::Subscript { depth: depth - 1, name_length }
            }
            (Head::Subscript { depth, name_length }, _) => Head::Subscript { depth, name_length },
            _ => Head::No,
        };
    }

    /// Notes that the word is an assignment.
    fn assign(&mut self, name_length: usize, at: usize) -> Head {
        let name = self.text.get(..name_length).unwrap_or_default().to_owned();
        self.assignment = Some((name, self.text.len() + 1, at + 1));
        Head::No
    }

    /// Follows globs and brace expansions.
    fn follow_patterns(&mut self, character: char) {
        match character {
            '*' | '?' => self.glob = true,
            '[' => self.bracket = true,
            ']' if self.bracket => {
                self.glob = true;
                self.bracket = false;
            }
            '{' if self.brace == Brace::None => {
                self.brace = Brace::Open { length: self.text.len() };
            }
            ',' => self.separate(),
            '.' if self.text.ends_with('.') => self.separate(),
            '}' => self.close_brace(),
            _ => {}
        }
    }

    /// Notes that an open brace has more than one part.
    fn separate(&mut self) {
        if let Brace::Open { length } = self.brace {
            self.brace = Brace::Separated { length };
        }
    }

    /// Notes that a brace expansion is complete.
    fn close_brace(&mut self) {
        if let Brace::Separated { length } = self.brace {
            self.brace = Brace::None;
            self.text.truncate(length);
            self.dynamic = true;
            self.splits = true;
        }
    }

    /// Ends the word, as an assignment when it is one.
    pub(super) fn finish(self, end: usize) -> FinishedWord {
        let form = match (self.dynamic, self.glob) {
            (true, _) if self.splits => Form::Fields,
            (true, _) => Form::Dynamic,
            (false, true) => Form::Glob,
            (false, false) => Form::Literal,
        };
        let word = Word { text: self.text, form, span: Span { start: self.start, end } };
        FinishedWord { word, quoted: self.quoted, assignment: self.assignment }
    }
}

/// A word that was read to its end.
#[derive(Debug)]
pub(super) struct FinishedWord {
    /// The whole word.
    pub word: Word,
    /// Whether any part was quoted.
    pub quoted: bool,
    /// The variable's name, where the value begins in the word and where in the text.
    pub assignment: Option<(String, usize, usize)>,
}
