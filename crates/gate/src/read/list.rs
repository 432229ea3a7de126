//! Reads lists of commands: separators, pipelines, subshells, and where simple commands end.

use super::{
    COMMANDS_MAX, Reader, Step,
    frame::{Arithmetic, ArithmeticKind, Closer, Frame, List, Partial, Position, Role},
    refuse, too_many,
};
use crate::reading::{SimpleCommand, Span};

impl Reader<'_> {
    /// Reads one token of a list.
    pub(super) fn step_list(&mut self) -> Step {
        self.skip_blanks();
        let Some(byte) = self.peek() else { return self.end_of_text() };
        match byte {
            b'\n' => self.take_newline(),
            b'#' => {
                self.skip_comment();
                Ok(())
            }
            b'<' | b'>' if self.next_after(self.at).0 == Some(b'(') => self.open_argument(),
            b'<' | b'>' => self.take_redirect(),
            b'&' | b'|' | b';' => self.take_operator(byte),
            b'(' => self.take_open_parenthesis(),
            b')' => self.take_close_parenthesis(),
            _ => self.open_argument(),
        }
    }

    /// What may come next in the list on top.
    fn position(&self) -> Position {
        match self.frames.last() {
            Some(Frame::List(list)) => list.position,
            _ => Position::Optional,
        }
    }

    /// Begins a word of a command.
    fn open_argument(&mut self) -> Step {
        self.open_word(Role::Argument)
    }

    /// Begins a simple command, or goes on with one.
    pub(super) fn begin_simple(&mut self, start: usize) -> Step {
        match self.position() {
            Position::Body => {
                refuse("function", start, "a function's body has to be `{ …; }` or `( … )`")
            }
            Position::Compound => {
                self.fail("word", start, "a word follows a compound command; put `;` before it")
            }
            Position::Words => Ok(()),
            Position::Command | Position::Prefixed | Position::Optional => {
                if let Some(list) = self.list() {
                    list.position = Position::Words;
                    list.partial.start = start;
                }
                Ok(())
            }
        }
    }

    /// Ends the current command; without one, only where none is needed.
    pub(super) fn finish_command(&mut self) -> Step {
        let at = self.at;
        let level = self.level;
        match self.position() {
            Position::Command => {
                return self.fail("operator", at, "a command is missing here; write one");
            }
            Position::Prefixed => {
                return refuse("operator", at, "a command is missing here; write one");
            }
            Position::Body => {
                return self.fail("function", at, "a function has no body; write one");
            }
            Position::Optional | Position::Words | Position::Compound => {}
        }
        let Some(list) = self.list() else { return Ok(()) };
        let partial = std::mem::take(&mut list.partial);
        let piped = list.piped;
        if !partial.is_empty() {
            if self.commands.len() >= COMMANDS_MAX {
                return Err(too_many(at));
            }
            self.commands.push(SimpleCommand {
                words: partial.words,
                assignments: partial.assignments,
                redirects: partial.redirects,
                span: Span { start: partial.start, end: partial.end },
                substituted: level > 0,
                piped,
                background: false,
            });
        }
        Ok(())
    }

    /// Whether there is something that an operator could separate.
    pub(super) fn has_command(&self) -> bool {
        matches!(self.position(), Position::Words | Position::Compound)
    }

    /// Whether only `!` or `time` stands before this place.
    pub(super) fn is_prefixed(&self) -> bool {
        self.position() == Position::Prefixed
    }

    /// Begins the next and-or list.
    pub(super) fn next_item(&mut self, position: Position) {
        let commands = self.commands.len();
        if let Some(list) = self.list() {
            list.position = position;
            list.item_start = commands;
            list.pipeline_start = commands;
            list.piped = false;
            list.after_pipe = false;
        }
    }

    /// Ends the text, where everything is closed.
    fn end_of_text(&mut self) -> Step {
        let opened_at = self.opened_at();
        if !self.is_closed_by(Closer::End) {
            return self.fail("unclosed", opened_at, "this construct is not closed; close it");
        }
        if let Some(document) = self.pending.first() {
            return refuse("<<", document.operator_at, "a here-document has no body; write it");
        }
        self.finish_command()?;
        self.frames.pop();
        Ok(())
    }

    /// Takes a newline token: it may end a command, and here-documents begin after it.
    fn take_newline(&mut self) -> Step {
        let at = self.at;
        match self.position() {
            Position::Prefixed => return refuse("!", at, "a command is missing here; write one"),
            Position::Words | Position::Compound => {
                self.finish_command()?;
                self.next_item(Position::Optional);
            }
            Position::Command | Position::Optional | Position::Body => {}
        }
        let goes_on = matches!(self.position(), Position::Command | Position::Body);
        let before = self.text.get(..at).unwrap_or_default();
        self.line_ended |= self.frames.len() == 1 && !goes_on && !before.trim().is_empty();
        self.at += 1;
        self.read_documents()
    }

    /// Takes `(`: a subshell, arithmetic, or the parentheses of a function.
    fn take_open_parenthesis(&mut self) -> Step {
        let at = self.at;
        match self.position() {
            Position::Words => self.take_function_parentheses(),
            Position::Compound => self.fail("(", at, "`(` follows a command; put `;` before it"),
            Position::Body => self.open_list(Closer::Parenthesis, Position::Command, 1),
            Position::Command | Position::Prefixed | Position::Optional => {
                let (next, second) = self.next_after(at);
                if next != Some(b'(') {
                    return self.open_list(Closer::Parenthesis, Position::Command, 1);
                }
                self.at = second + 1;
                self.note_beyond_posix("((", at);
                let kind = ArithmeticKind::Command;
                self.open(Frame::Arithmetic(Arithmetic { opened_at: at, kind, depth: 0 }))
            }
        }
    }

    /// Opens a list of commands after some bytes.
    pub(super) fn open_list(&mut self, closer: Closer, position: Position, bytes: usize) -> Step {
        let mut list = List::new(closer, position, self.at, self.commands.len());
        list.piped = matches!(self.frames.last(), Some(Frame::List(outer)) if outer.piped);
        self.open(Frame::List(list))?;
        self.at += bytes;
        Ok(())
    }

    /// Takes `()` after a word: the word is the name of a function.
    fn take_function_parentheses(&mut self) -> Step {
        let at = self.at;
        let partial = match self.list() {
            Some(list) => std::mem::take(&mut list.partial),
            None => Partial::default(),
        };
        let reason = "`(` stands in the middle of a command; quote it";
        let ([word], true, true) = (
            partial.words.as_slice(),
            partial.assignments.is_empty(),
            partial.redirects.is_empty(),
        ) else {
            // Some builtins besides those of `is_array` take an array, and a profile may have set
            // `extglob`.
            let before = self.text.get(..at).unwrap_or_default();
            let may_go_on = before.ends_with(['=', '?', '*', '+', '@', '!']);
            let wrong = partial.words.len() > 1 && !may_go_on;
            return if wrong { self.fail("(", at, reason) } else { refuse("(", at, reason) };
        };
        let name = word.literal().filter(|name| partial.plain && is_function_name(name));
        let Some(name) = name else { return refuse("(", at, reason) };
        self.at += 1;
        self.skip_blanks();
        if self.peek() != Some(b')') {
            return self.fail("(", at, reason);
        }
        self.at += 1;
        self.define(name.to_owned());
        Ok(())
    }

    /// Notes a function and waits for its body.
    pub(super) fn define(&mut self, name: String) {
        self.functions.push(name);
        if let Some(list) = self.list() {
            list.position = Position::Body;
        }
    }

    /// Takes `)`: the end of a subshell or a substitution.
    fn take_close_parenthesis(&mut self) -> Step {
        let at = self.at;
        let substitution = self.is_closed_by(Closer::Substitution);
        if !substitution && !self.is_closed_by(Closer::Parenthesis) {
            return self.fail(")", at, "`)` closes nothing here; quote it");
        }
        self.finish_command()?;
        if substitution {
            // Levels only rise in the list of what is pending, so the last one tells.
            let open = self.pending.last().filter(|document| document.level == self.level);
            if let Some(document) = open {
                return refuse("<<", document.operator_at, "a here-document has no body");
            }
            self.level -= 1;
        }
        self.frames.pop();
        self.at += 1;
        if !substitution {
            self.end_compound();
        }
        Ok(())
    }

    /// Notes that a compound command of the list on top has ended.
    pub(super) fn end_compound(&mut self) {
        let at = self.at;
        if let Some(list) = self.list() {
            list.position = Position::Compound;
            list.partial.start = at;
            list.partial.end = at;
        }
    }
}

/// Whether a function may have this name without doubt.
pub(super) fn is_function_name(name: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:+@/".contains(&byte);
    !name.is_empty() && name.bytes().all(ordinary)
}
