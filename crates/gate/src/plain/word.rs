//! The words of plain text: written out, in quotes, patterns, and a few expansions.

use super::{
    Plain, Plainly, is_end,
    variables::{is_name, is_own},
};
use crate::reading::{Form, Span, Word};

/// A word, with what only the shell's grammar cares about.
#[derive(Debug, Clone)]
pub(super) struct Lexeme {
    pub word: Word,
    /// Nothing of it was quoted or escaped.
    pub bare: bool,
    /// Where in its text the first `=` stands that was not quoted.
    equals: Option<usize>,
}

impl Lexeme {
    /// The reserved word or name that it may be.
    pub(super) fn bare(&self) -> Option<&str> {
        self.word.literal().filter(|_| self.bare)
    }
}

/// A word that is being read.
#[derive(Debug)]
struct Draft {
    text: String,
    form: Form,
    quoted: bool,
    equals: Option<usize>,
}

impl Default for Draft {
    fn default() -> Self {
        Self { text: String::new(), form: Form::Literal, quoted: false, equals: None }
    }
}

impl Draft {
    /// Keeps what is known of the word: all before the first expansion.
    fn keep(&mut self, piece: &str) {
        if matches!(self.form, Form::Literal | Form::Glob) {
            self.text.push_str(piece);
        }
    }

    /// Notes an expansion that stays one word.
    fn expand(&mut self) {
        self.form = match self.form {
            Form::Literal | Form::Dynamic => Form::Dynamic,
            Form::Glob | Form::Fields => Form::Fields,
        };
    }
}

impl Plainly<'_> {
    /// One word.
    pub(super) fn lexeme(&mut self) -> Plain<Lexeme> {
        let start = self.at;
        let mut draft = Draft::default();
        while let Some(character) = self.peek().filter(|character| !is_end(*character)) {
            match character {
                '\'' => self.single(&mut draft)?,
                '"' => self.double(&mut draft)?,
                '\\' => self.escape(&mut draft)?,
                '$' => {
                    self.dollar()?;
                    draft.form = Form::Fields;
                }
                '{' | '}' | '*' | '?' | '[' | ']' => self.special(character, start, &mut draft)?,
                '~' if self.at == start || self.is_after(['=', ':']) => {
                    // Becomes the path of a home folder.
                    draft.keep(if self.at == start { "~" } else { "" });
                    draft.expand();
                    self.at += 1;
                }
                '=' => {
                    if draft.equals.is_none() && draft.form == Form::Literal && !draft.quoted {
                        draft.equals = Some(draft.text.len());
                    }
                    self.one(&mut draft, '=');
                }
                'a'..='z' | 'A'..='Z' | '0'..='9' => self.one(&mut draft, character),
                '_' | '-' | '.' | '/' | ',' | ':' | '+' | '@' | '%' | '^' | '!' | '~' => {
                    self.one(&mut draft, character);
                }
                '#' if self.at > start => self.one(&mut draft, character),
                _ => return self.no("a character that is not quoted"),
            }
        }
        if self.at == start {
            return self.no("a word that is missing");
        }
        let Draft { text, form, quoted, equals } = draft;
        let span = Span { start, end: self.at };
        Ok(Lexeme { word: Word { text, form, span }, bare: !quoted, equals })
    }

    /// Braces and patterns.
    fn special(&mut self, character: char, start: usize, draft: &mut Draft) -> Plain<()> {
        let alone = self.at == start && self.ends_after(1);
        if self.take("{}") {
            draft.keep("{}");
            return Ok(());
        }
        match character {
            '}' | '[' | ']' if alone => {}
            '{' | '}' => return self.no("a brace that may be expanded"),
            _ => {
                draft.form = match draft.form {
                    Form::Literal | Form::Glob => Form::Glob,
                    Form::Dynamic | Form::Fields => Form::Fields,
                }
            }
        }
        self.one(draft, character);
        Ok(())
    }

    fn single(&mut self, draft: &mut Draft) -> Plain<()> {
        let inside = self.rest().get(1..).unwrap_or_default();
        let Some(length) = inside.find('\'') else {
            return self.no("a quote that is not closed");
        };
        draft.keep(inside.get(..length).unwrap_or_default());
        draft.quoted = true;
        self.at += length + 2;
        Ok(())
    }

    fn escape(&mut self, draft: &mut Draft) -> Plain<()> {
        draft.quoted = true;
        self.at += 1;
        match self.peek() {
            Some(next) if next.is_ascii_graphic() || next == ' ' => {
                self.one(draft, next);
                Ok(())
            }
            _ => self.no("a continued line in a word"),
        }
    }

    /// Whether one of these stands just before.
    fn is_after(&self, characters: [char; 2]) -> bool {
        self.text.get(..self.at).is_some_and(|before| before.ends_with(characters))
    }

    fn one(&mut self, draft: &mut Draft, character: char) {
        draft.keep(character.encode_utf8(&mut [0; 4]));
        self.at += character.len_utf8();
    }

    /// Whether a word ends after this many bytes.
    fn ends_after(&self, bytes: usize) -> bool {
        self.rest().get(bytes..).is_some_and(|rest| rest.is_empty() || rest.starts_with(is_end))
    }

    /// What is between double quotes.
    fn double(&mut self, draft: &mut Draft) -> Plain<()> {
        draft.quoted = true;
        self.at += 1;
        loop {
            let second = self.rest().chars().nth(1);
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => match second {
                    Some(next @ ('$' | '`' | '"' | '\\')) => {
                        self.at += 1;
                        self.one(draft, next);
                    }
                    Some('\n') | None => return self.no("a continued line in a word"),
                    Some(_) => self.one(draft, '\\'),
                },
                Some('$') if matches!(second, Some('"' | ' ' | '|' | ')' | '/' | ',' | '.')) => {
                    self.one(draft, '$');
                }
                Some('$') => {
                    self.dollar()?;
                    draft.expand();
                }
                Some('`') => return self.no("a substitution"),
                Some(character) => self.one(draft, character),
                None => return self.no("a quote that is not closed"),
            }
        }
    }

    /// `$NAME`, `${NAME}`, `$1`, `$?`, `$#`, `$$`, `$!`, or arithmetic over numbers.
    fn dollar(&mut self) -> Plain<()> {
        let rest = self.rest();
        let inside = rest.get(1..).unwrap_or_default();
        let names = |text: &str| {
            text.bytes().take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric()).count()
        };
        if let Some(braced) = inside.strip_prefix('{') {
            let count = names(braced);
            let name = braced.get(..count).unwrap_or_default();
            if !is_name(name) || !braced.get(count..).is_some_and(|rest| rest.starts_with('}')) {
                return self.no("an expansion that does more than to look up a variable");
            }
            self.at += count + 3;
            return Ok(());
        }
        if inside.starts_with("((") {
            return self.arithmetic();
        }
        let count = names(inside);
        let name = inside.get(..count).unwrap_or_default();
        if is_name(name) {
            self.at += 1 + count;
            return Ok(());
        }
        match inside.chars().next() {
            Some('1'..='9' | '?' | '#' | '$' | '!') => {
                self.at += 2;
                Ok(())
            }
            Some('(' | '{') => self.no("a substitution"),
            _ => self.no("a dollar that is not quoted"),
        }
    }

    fn arithmetic(&mut self) -> Plain<()> {
        self.at += 3;
        let mut open = 0_usize;
        loop {
            let Some(next) = self.peek() else { return self.no("arithmetic that is not closed") };
            match next {
                ')' if open == 0 => break,
                ')' => open -= 1,
                '(' => open += 1,
                ' ' | '*' | '/' | '%' | '0'..='9' => {}
                '+' | '-' if !self.begins("++") && !self.begins("--") => {}
                '_' | 'a'..='z' | 'A'..='Z' | '$' => {
                    let offset = self.at;
                    self.take("$");
                    let count = self
                        .rest()
                        .bytes()
                        .take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric())
                        .count();
                    let name = self.rest().get(..count).unwrap_or_default();
                    if !is_own(name) {
                        return self.no("arithmetic over a variable of any value");
                    }
                    self.computed.push((name.to_owned(), offset));
                    self.at += count;
                    continue;
                }
                _ => return self.no("an operator of arithmetic"),
            }
            self.at += 1;
        }
        if !self.take("))") {
            return self.no("arithmetic that is not closed");
        }
        Ok(())
    }
}

/// What is decimal and nothing else; a leading zero would make it octal.
pub(super) fn is_number(text: &str) -> bool {
    text == "0"
        || (1..=18).contains(&text.len())
            && !text.starts_with('0')
            && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name and the value of a word that sets a variable before a command.
pub(super) fn assignment(lexeme: &Lexeme) -> Option<(String, String)> {
    let (name, value) = lexeme.word.text.split_at_checked(lexeme.equals?)?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name).then(|| (name.to_owned(), value.get(1..).unwrap_or_default().to_owned()))
}
