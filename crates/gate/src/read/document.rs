//! Reads here-documents: their delimiters, where their bodies end, and the expansions inside.

use super::{
    Reader, Step,
    frame::{Frame, Quoting},
    refuse,
};
use crate::reading::{Form, RedirectKind, Refusal, Span, Word};

/// A here-document whose body was not reached yet.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// Where its operator stands.
    pub operator_at: usize,
    /// How many substitutions were open there.
    pub level: usize,
    delimiter: String,
    /// Whether the body is taken as it is.
    quoted: bool,
    /// Whether leading tabs are taken off.
    tabs: bool,
}

impl Reader<'_> {
    /// Takes `<<` or `<<-` and the delimiter.
    pub(super) fn begin_document(&mut self, start: usize, second_at: usize) -> Step {
        let (third, third_at) = self.next_after(second_at);
        let tabs = third == Some(b'-');
        self.at = if tabs { third_at + 1 } else { second_at + 1 };
        self.skip_blanks();
        let from = self.at;
        let (delimiter, quoted) = self.take_delimiter(start)?;
        let span = Span { start: from, end: self.at };
        let level = self.level;
        self.pending.push(Document {
            operator_at: start,
            level,
            delimiter: delimiter.clone(),
            quoted,
            tabs,
        });
        let form = if quoted { Form::Literal } else { Form::Dynamic };
        let target = Word { text: delimiter, form, span };
        self.add_redirect(RedirectKind::Here, target);
        Ok(())
    }

    /// Reads a delimiter of plain characters, quoted or not.
    fn take_delimiter(&mut self, operator_at: usize) -> Result<(String, bool), Refusal> {
        let odd = Refusal {
            construct: "<<",
            offset: operator_at,
            reason: "the delimiter of a here-document has to be a plain word, like EOF or 'EOF'",
        };
        let (mut delimiter, mut quoted, mut inside) = (String::new(), false, None);
        while let Some(byte) = self.peek() {
            match (inside, byte) {
                (None, b'\'' | b'"') => {
                    inside = Some(byte);
                    quoted = true;
                }
                (Some(quote), _) if quote == byte => inside = None,
                // It quotes what comes next, also what would end the delimiter.
                (None, b'\\') => {
                    quoted = true;
                    self.at += 1;
                    let next = self.peek().filter(|byte| is_plain(*byte)).ok_or(odd)?;
                    delimiter.push(char::from(next));
                }
                (None, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')' | b'<' | b'>') => break,
                (Some(_), b' ') => delimiter.push(' '),
                _ if is_plain(byte) => delimiter.push(char::from(byte)),
                _ => return Err(odd),
            }
            self.at += 1;
        }
        if delimiter.is_empty() || inside.is_some() { Err(odd) } else { Ok((delimiter, quoted)) }
    }

    /// Finds the bodies of the pending here-documents; called right after a newline token.
    pub(super) fn read_documents(&mut self) -> Step {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.documented |= self.level > 0;
        self.check_written_anew("<<", self.at)?;
        let pending = std::mem::take(&mut self.pending);
        let mut bodies = Vec::new();
        let mut from = self.at;
        for document in &pending {
            if document.level != self.level {
                let reason = "a substitution with a newline follows a here-document; move it";
                return refuse("<<", document.operator_at, reason);
            }
            let (end, next) = self.body_end(document, from)?;
            if document.quoted {
                self.note_body(from, end);
            } else {
                self.check_body(document, from, end)?;
                bodies.push((from, end));
            }
            from = next;
        }
        bodies.reverse();
        let (resume_at, limit_before) = (from, self.limit);
        // The first step over the bodies begins at their start.
        self.at = resume_at;
        self.open(Frame::Documents { bodies, resume_at, limit_before })?;
        self.next_body();
        Ok(())
    }

    /// Where the body ends, and where the line after its delimiter begins.
    fn body_end(&self, document: &Document, from: usize) -> Result<(usize, usize), Refusal> {
        let unclosed = Refusal {
            construct: "<<",
            offset: document.operator_at,
            reason: "a here-document is not closed; write its delimiter alone on a line",
        };
        let mut line_start = from;
        let mut continued = false;
        while line_start < self.limit {
            let rest = self.text.get(line_start..self.limit).unwrap_or_default();
            let line = rest.split('\n').next().unwrap_or_default();
            let bare = if document.tabs { line.trim_start_matches('\t') } else { line };
            if bare == document.delimiter && !continued {
                let next = (line_start + line.len() + 1).min(self.limit);
                return Ok((line_start, next));
            }
            let doubtful = bare.starts_with(&document.delimiter) && bare.contains(')');
            if doubtful && self.level > 0 || bare == document.delimiter {
                return Err(unclosed);
            }
            let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
            continued = !document.quoted && backslashes % 2 == 1;
            line_start += line.len() + 1;
        }
        Err(unclosed)
    }

    /// Refuses a body where joined lines could change what a substitution runs.
    fn check_body(&self, document: &Document, from: usize, end: usize) -> Step {
        let body = self.text.get(from..end).unwrap_or_default();
        let partial = |line: &str| {
            line.trim_start_matches('\t')
                .strip_suffix('\\')
                .is_some_and(|start| document.delimiter.starts_with(start))
        };
        let joined = body.contains("\\\n") && super::first_opener(body, 0).is_some();
        if joined || body.lines().any(partial) {
            let reason = "joined lines in a here-document with substitutions; join them yourself";
            return refuse("<<", document.operator_at, reason);
        }
        Ok(())
    }

    /// Remembers quoted characters of a body that is taken as it is.
    fn note_body(&mut self, from: usize, end: usize) {
        let body = self.text.get(from..end).unwrap_or_default();
        for (offset, character) in body.char_indices() {
            self.note_quoted(character, from + offset);
        }
    }

    /// Goes to the next body, or back to the commands.
    fn next_body(&mut self) {
        let Some(Frame::Documents { bodies, resume_at, limit_before }) = self.frames.last_mut()
        else {
            return;
        };
        if let Some((from, end)) = bodies.pop() {
            self.at = from;
            self.limit = end;
        } else {
            self.at = *resume_at;
            self.limit = *limit_before;
            self.frames.pop();
        }
    }

    /// Reads one piece of a body.
    pub(super) fn step_documents(&mut self) -> Step {
        match self.peek() {
            None => self.next_body(),
            Some(b'$') => return self.read_dollar(Quoting::Document),
            Some(b'`') => return self.read_backtick(Quoting::Document),
            Some(b'\\') => {
                if let Some(byte @ (b'$' | b'`')) = self.byte_at(self.at + 1) {
                    self.note_quoted(char::from(byte), self.at + 1);
                }
                self.at += 1;
                self.at += self.character().map_or(0, |(character, _)| character.len_utf8());
            }
            Some(_) => {
                let Some((character, next)) = self.character() else { return Ok(()) };
                self.note_quoted(character, self.at);
                self.at = next;
            }
        }
        Ok(())
    }
}

/// Whether a byte may stand in a delimiter.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.!+:/=%@,".contains(&byte)
}
