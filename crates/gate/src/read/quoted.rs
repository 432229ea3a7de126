//! Remembers substitutions in quoted text: some constructs run such text as code later.

use super::{Arithmetics, Reader};
use crate::reading::{Span, Substitution};

impl Reader<'_> {
    /// Remembers a quoted character that opens a substitution, or could be part of an opener.
    pub(super) fn note_quoted(&mut self, character: char, at: usize) {
        match character {
            '`' => self.note_opener("`", at),
            '$' => self.note_dollar(at),
            '<' if self.precedes_parenthesis(at) => self.note_opener("<(", at),
            '>' if self.precedes_parenthesis(at) => self.note_opener(">(", at),
            '(' => {
                let before = at.checked_sub(1).and_then(|before| self.byte_at(before));
                let begins = matches!(before, Some(b'\'' | b'"' | b'\\'));
                self.arithmetics.parenthesis_at_start |= begins;
            }
            _ => {}
        }
    }

    /// Remembers a quoted dollar by what follows it.
    fn note_dollar(&mut self, at: usize) {
        let (next, after) = (self.byte_at(at + 1), self.byte_at(at + 2));
        match (next, after) {
            // Written as a number: whoever does that hides it.
            _ if self.byte_at(at) != Some(b'$') => self.note_opener("$(", at),
            (Some(b'('), _) | (Some(b'\\'), Some(b'(' | b'\n')) => self.note_opener("$(", at),
            (Some(b'{'), Some(b' ' | b'\t' | b'\n' | b'|')) => self.note_opener("${ ", at),
            (Some(b'\'' | b'"') | None, _) => {
                self.arithmetics.dollar_at_end.get_or_insert(at);
            }
            _ => {}
        }
    }

    /// Whether a parenthesis follows, escaped or not.
    fn precedes_parenthesis(&self, at: usize) -> bool {
        let next = self.byte_at(at + 1);
        next == Some(b'(') || next == Some(b'\\') && self.byte_at(at + 2) == Some(b'(')
    }

    /// Remembers an opener, if it is the first.
    fn note_opener(&mut self, construct: &'static str, offset: usize) {
        self.arithmetics.quoted_opener.get_or_insert(Substitution { construct, offset });
    }
}

impl Arithmetics {
    /// The first substitution in quoted text, also when it is put together from two pieces.
    pub(super) fn opener(&self) -> Option<Substitution> {
        let pieces = self.dollar_at_end.filter(|_| self.parenthesis_at_start);
        let together = pieces.map(|offset| Substitution { construct: "$(", offset });
        self.quoted_opener.or(together)
    }

    /// Moves everything to a span of the text around.
    pub(super) fn relocate(&mut self, span: Span) {
        self.variable = self.variable.map(|_| span);
        self.dollar_at_end = self.dollar_at_end.map(|_| span.start);
        if let Some(opener) = &mut self.quoted_opener {
            opener.offset = span.start;
        }
    }
}
