//! Reads operators: separators, pipes, and redirects with their targets.

use super::{
    Reader, Step, first_opener,
    frame::{Closer, Frame, Position, Role},
    refuse, unquoted,
};
use crate::reading::{Assignment, EXPANDED_AGAIN, Form, Redirect, RedirectKind, Span, Word};

impl Reader<'_> {
    /// Takes an operator that begins with `&`, `|` or `;`.
    pub(super) fn take_operator(&mut self, byte: u8) -> Step {
        let start = self.at;
        let (next, next_at) = self.next_after(start);
        match (byte, next) {
            (b'&', Some(b'>')) => {
                self.note_beyond_posix("&>", start);
                self.begin_redirect(start)?;
                self.at = next_at;
                self.take_redirect()
            }
            (b';', Some(b';' | b'&')) => self.take_clause_end(next_at),
            _ if self.is_prefixed() => {
                refuse("operator", start, "nothing stands before this operator; write a command")
            }
            _ if !self.has_command() => {
                self.fail("operator", start, "nothing stands before this operator; write a command")
            }
            (b'&', Some(b'&')) | (b'|', Some(b'|')) => self.chain(next_at + 1),
            (b'|', Some(b'&')) => self.pipe(next_at + 1),
            (b'|', _) => self.pipe(start + 1),
            (b'&', _) => self.send_to_background(start + 1),
            _ => {
                self.finish_command()?;
                self.next_item(Position::Optional);
                self.at = start + 1;
                Ok(())
            }
        }
    }

    /// Takes `&&` or `||`.
    fn chain(&mut self, next: usize) -> Step {
        self.finish_command()?;
        let commands = self.commands.len();
        if let Some(list) = self.list() {
            list.position = Position::Command;
            list.pipeline_start = commands;
            list.piped = false;
            list.after_pipe = false;
        }
        self.at = next;
        Ok(())
    }

    /// Takes `|` or `|&`.
    fn pipe(&mut self, next: usize) -> Step {
        self.finish_command()?;
        let start = match self.list() {
            Some(list) => {
                list.position = Position::Command;
                let first = !list.piped;
                list.piped = true;
                list.after_pipe = true;
                if first { list.pipeline_start } else { usize::MAX }
            }
            None => usize::MAX,
        };
        for command in self.commands.iter_mut().skip(start) {
            command.piped = true;
        }
        self.at = next;
        Ok(())
    }

    /// Takes `&`.
    fn send_to_background(&mut self, next: usize) -> Step {
        self.finish_command()?;
        let start = self.list().map_or(usize::MAX, |list| list.item_start);
        for command in self.commands.iter_mut().skip(start) {
            command.background = true;
        }
        self.next_item(Position::Optional);
        self.at = next;
        Ok(())
    }

    /// Takes `;;`, `;&` or `;;&` at the end of a clause.
    fn take_clause_end(&mut self, next_at: usize) -> Step {
        let start = self.at;
        if !self.is_closed_by(Closer::Clause) {
            return self.fail(";;", start, "`;;` stands outside of `case`; write `;`");
        }
        self.finish_command()?;
        self.frames.pop();
        let both = self.byte_at(next_at) == Some(b';');
        let (third, third_at) = self.next_after(next_at);
        self.at = if both && third == Some(b'&') { third_at + 1 } else { next_at + 1 };
        Ok(())
    }

    /// Takes a redirect operator; here, `&` of `&>` is behind.
    pub(super) fn take_redirect(&mut self) -> Step {
        let start = self.at;
        let Some(first) = self.peek() else { return Ok(()) };
        self.begin_redirect(start)?;
        let (second, second_at) = self.next_after(start);
        let (third, third_at) = self.next_after(second_at);
        let kind = match (first, second, third) {
            (b'<', Some(b'<'), Some(b'<')) => {
                self.at = third_at + 1;
                RedirectKind::Here
            }
            (b'<', Some(b'<'), _) => return self.begin_document(start, second_at),
            (_, Some(b'&'), _) => {
                self.at = second_at + 1;
                RedirectKind::Duplicate
            }
            (b'>', Some(b'>'), _) => {
                self.at = second_at + 1;
                RedirectKind::Append
            }
            (b'>', Some(b'|'), _) => {
                self.at = second_at + 1;
                RedirectKind::Write
            }
            (b'<', Some(b'>'), _) => {
                self.at = second_at + 1;
                RedirectKind::ReadWrite
            }
            (b'<', ..) => {
                self.at += 1;
                RedirectKind::Read
            }
            _ => {
                self.at += 1;
                RedirectKind::Write
            }
        };
        self.skip_blanks();
        if kind == RedirectKind::Duplicate && self.peek() == Some(b'-') {
            self.take_close();
            return Ok(());
        }
        self.open_word(Role::Target(kind))
    }

    /// Begins a simple command with a redirect, unless it belongs to a compound one.
    pub(super) fn begin_redirect(&mut self, start: usize) -> Step {
        let compound = matches!(
            self.frames.last(),
            Some(Frame::List(list)) if list.position == Position::Compound
        );
        if compound { Ok(()) } else { self.begin_simple(start) }
    }

    /// Takes `{name}` before a redirect: the shell opens a new descriptor and assigns its number.
    pub(super) fn name_descriptor(&mut self, name: &str, span: Span) -> Step {
        let is_name = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
        if !name.bytes().all(is_name) || name.starts_with(|first: char| first.is_ascii_digit()) {
            return refuse("{name}>", span.start, "a named descriptor; use a number instead");
        }
        self.note_beyond_posix("{name}>", span.start);
        self.begin_redirect(span.start)?;
        if let Some(list) = self.list() {
            let value = Word { text: String::new(), form: Form::Dynamic, span };
            list.partial.assignments.push(Assignment { name: name.to_owned(), value });
        }
        Ok(())
    }

    /// Takes the `-` of `>&-`: to bash it is a token, and what is glued to it a word of its own.
    fn take_close(&mut self) {
        let span = Span { start: self.at, end: self.at + 1 };
        self.at += 1;
        if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')')) {
            self.note_beyond_posix(">&-", span.start);
        }
        let target = Word { text: "-".to_owned(), form: Form::Literal, span };
        self.add_redirect(RedirectKind::Duplicate, target);
    }

    /// Adds a redirect to the command, simple or compound, that is being read.
    pub(super) fn add_redirect(&mut self, kind: RedirectKind, target: Word) {
        let (kind, target) = match kind {
            RedirectKind::Duplicate if !is_descriptor(&target) => {
                (RedirectKind::Write, self.expand_again(target))
            }
            other => (other, target),
        };
        if let Some(list) = self.list() {
            list.partial.end = target.span.end;
            list.partial.redirects.push(Redirect { kind, target });
        }
    }
}

impl Reader<'_> {
    /// The target of `>&` where that is no descriptor: bash expands what the first expansion made
    /// of it once more, so what the first one leaves in quotes is code.
    fn expand_again(&mut self, target: Word) -> Word {
        let span = target.span;
        if target.literal().is_some_and(means_itself) {
            return target;
        }
        self.note_later(EXPANDED_AGAIN, span.start);
        let written = self.text.get(span.start..span.end).unwrap_or_default();
        let found = first_opener(&unquoted(written), 0).or_else(|| first_opener(written, 0));
        if let Some(found) = found {
            self.found(found.construct, span.start);
        }
        Word { form: Form::Dynamic, ..target }
    }
}

/// Whether a word stays what it is, however often it is expanded.
fn means_itself(text: &str) -> bool {
    let itself = |it: char| it.is_alphanumeric() || "/._-+:,@%= ".contains(it);
    text.chars().all(itself)
}

/// Whether the target of `>&` is a descriptor and not a file.
fn is_descriptor(target: &Word) -> bool {
    let Some(text) = target.literal() else { return false };
    let number = text.strip_suffix('-').unwrap_or(text);
    number.bytes().all(|byte| byte.is_ascii_digit())
}
