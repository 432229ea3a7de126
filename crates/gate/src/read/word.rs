//! Reads words: quotes, escapes, and where a word ends.

use super::{
    Reader, Step,
    builder::{Builder, FinishedWord},
    case::take_pattern,
    frame::{Closer, ConditionFrame, Frame, Quoting, Role},
    refuse,
};
use crate::reading::{Assignment, RedirectKind, Span};

/// Builtins whose arguments may be assignments of arrays.
const DECLARING: [&str; 5] = ["declare", "typeset", "local", "export", "readonly"];

/// The words that bash reserves where a command begins.
const RESERVED: &str = "! { } [[ case coproc do done elif else esac fi for function if in select \
     then time until while";

impl Reader<'_> {
    /// Begins a word here.
    pub(super) fn open_word(&mut self, role: Role) -> Step {
        self.open(Frame::Word(role))?;
        self.builders.push(Builder::new(self.at));
        Ok(())
    }

    /// The role of the word on top.
    fn role(&self) -> Role {
        match self.frames.last() {
            Some(Frame::Word(role)) => *role,
            _ => Role::Argument,
        }
    }

    /// Reads one piece of a word.
    pub(super) fn step_word(&mut self) -> Step {
        let Some(byte) = self.peek() else { return self.finish_word() };
        match byte {
            b'\\' => self.read_escape(),
            b'\'' => self.read_single(),
            b'"' => self.open_double(),
            b'$' => self.read_dollar(Quoting::Plain),
            b'`' => self.read_backtick(Quoting::Plain),
            b'<' | b'>' if self.next_after(self.at).0 == Some(b'(') => {
                self.open_process_substitution()
            }
            b'(' | b')' | b'|' if self.role() == Role::Expression => self.read_expression(byte),
            b'(' if self.is_array() => self.open_array(),
            b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>' => {
                self.finish_word()
            }
            _ => {
                self.read_plain();
                Ok(())
            }
        }
    }

    /// Takes a character that means itself.
    fn read_plain(&mut self) {
        if let Some((character, next)) = self.character() {
            let at = self.at;
            if let Some(builder) = self.builders.last_mut() {
                builder.plain(character, at);
            }
            self.at = next;
        }
    }

    /// Adds a quoted character to the word.
    pub(super) fn add_quoted(&mut self, character: char, at: usize) {
        self.note_quoted(character, at);
        if let Some(builder) = self.builders.last_mut() {
            builder.quoted(character);
        }
    }

    /// Notes quotes in the current word.
    fn quote(&mut self) {
        if let Some(builder) = self.builders.last_mut() {
            builder.quote();
        }
    }

    /// Takes a backslash outside of quotes.
    fn read_escape(&mut self) -> Step {
        let start = self.at;
        if self.past_continuations(start) > start {
            self.at = self.past_continuations(start);
            return Ok(());
        }
        self.at += 1;
        let Some((character, next)) = self.character() else {
            return refuse("\\", start, "a backslash at the end quotes nothing; leave it out");
        };
        self.add_quoted(character, self.at);
        self.at = next;
        Ok(())
    }

    /// Reads `'…'`.
    fn read_single(&mut self) -> Step {
        let start = self.at;
        self.at += 1;
        self.quote();
        while let Some((character, next)) = self.character() {
            if character == '\'' {
                self.at = next;
                return Ok(());
            }
            self.add_quoted(character, self.at);
            self.at = next;
        }
        self.fail("'", start, "a single quote is not closed; close it, or escape it with \\'")
    }

    /// Opens `"`.
    pub(super) fn open_double(&mut self) -> Step {
        self.open(Frame::Double { opened_at: self.at })?;
        self.quote();
        self.at += 1;
        Ok(())
    }

    /// Reads one piece of `"…"`.
    pub(super) fn step_double(&mut self) -> Step {
        let Some((character, next)) = self.character() else {
            return self.fail("\"", self.opened_at(), "a double quote is not closed; close it");
        };
        match character {
            '"' => {
                self.frames.pop();
                self.at = next;
            }
            '$' => return self.read_dollar(Quoting::Double),
            '`' => return self.read_backtick(Quoting::Double),
            '\\' => self.read_double_escape(),
            _ => {
                self.add_quoted(character, self.at);
                self.at = next;
            }
        }
        Ok(())
    }

    /// Reads a backslash inside double quotes, where it quotes only some characters.
    fn read_double_escape(&mut self) {
        let start = self.at;
        match self.byte_at(start + 1) {
            Some(b'\n') => self.at += 2,
            Some(byte @ (b'$' | b'`' | b'"' | b'\\')) => {
                self.add_quoted(char::from(byte), start + 1);
                self.at += 2;
            }
            _ => {
                self.add_quoted('\\', start);
                self.at += 1;
            }
        }
    }

    /// Reads a parenthesis or bar of a regular expression.
    fn read_expression(&mut self, byte: u8) -> Step {
        let open = self.builders.last().map_or(0, |builder| builder.parentheses);
        if byte == b')' && open == 0 {
            return self.finish_word();
        }
        self.note_group(byte);
        if let Some(builder) = self.builders.last_mut() {
            match byte {
                b'(' => builder.parentheses += 1,
                b')' => builder.parentheses -= 1,
                _ => {}
            }
        }
        self.read_plain();
        Ok(())
    }

    /// Whether `(` here begins the value of an array.
    fn is_array(&self) -> bool {
        let awaits = self.builders.last().is_some_and(Builder::awaits_value);
        let Some(Frame::List(list)) = self.frames.iter().nth_back(1) else { return false };
        let name = list.partial.words.first().and_then(|word| word.literal());
        awaits && self.role() == Role::Argument && name.is_none_or(|name| DECLARING.contains(&name))
    }

    /// Opens the value of an array.
    fn open_array(&mut self) -> Step {
        self.open(Frame::Array { opened_at: self.at })?;
        self.expand(true);
        self.at += 1;
        Ok(())
    }

    /// Reads one element of an array, or its end.
    pub(super) fn step_array(&mut self) -> Step {
        self.skip_blanks();
        let opened_at = self.opened_at();
        match self.peek() {
            None => refuse("=(", opened_at, "an array is not closed; close it with `)`"),
            Some(b'\n') if !self.pending.is_empty() => {
                refuse("<<", opened_at, "a here-document begins inside an array; move it out")
            }
            Some(b'\n') => {
                self.at += 1;
                Ok(())
            }
            Some(b'#') => {
                self.skip_comment();
                Ok(())
            }
            Some(b')') => {
                self.frames.pop();
                self.at += 1;
                Ok(())
            }
            Some(b'<' | b'>') if self.next_after(self.at).0 == Some(b'(') => {
                self.open_word(Role::Element)
            }
            Some(b'|' | b'&' | b';' | b'(' | b'<' | b'>') => {
                refuse("=(", opened_at, "an operator stands inside an array; quote it")
            }
            Some(_) => self.open_word(Role::Element),
        }
    }

    /// Notes that the current word is known only after expansion.
    pub(super) fn expand(&mut self, splits: bool) {
        if let Some(builder) = self.builders.last_mut() {
            builder.expand(splits);
        }
    }

    /// Where the construct on top was opened.
    pub(super) fn opened_at(&self) -> usize {
        match self.frames.last() {
            Some(Frame::List(list)) => list.opened_at,
            Some(
                Frame::Double { opened_at }
                | Frame::Array { opened_at }
                | Frame::For { opened_at, .. }
                | Frame::Case { opened_at, .. }
                | Frame::Condition(ConditionFrame { opened_at, .. }),
            ) => *opened_at,
            Some(Frame::Parameter(parameter)) => parameter.opened_at,
            Some(Frame::Arithmetic(arithmetic)) => arithmetic.opened_at,
            Some(Frame::Word(_) | Frame::Documents { .. }) | None => self.at,
        }
    }

    /// Ends the word on top and gives it to the construct below.
    fn finish_word(&mut self) -> Step {
        let role = self.role();
        let Some(builder) = self.builders.pop() else { return Ok(()) };
        self.frames.pop();
        let redirects = matches!(self.peek(), Some(b'<' | b'>'));
        if redirects && role == Role::Argument {
            if let Some(name) = builder.descriptor_name() {
                return self.name_descriptor(name, builder.span(self.at));
            }
            if builder.is_number() {
                // The descriptor of the redirect that follows.
                let span = builder.span(self.at);
                if builder.is_long() {
                    self.note_beyond_posix("10>", span.start);
                }
                return self.begin_redirect(span.start);
            }
        }
        if builder.parentheses > 0 {
            return refuse("=~", self.at, "a blank stands in a group of an expression; quote it");
        }
        let in_subscript = match role {
            Role::Argument => builder.is_in_subscript() && self.is_prefix(),
            Role::Element => builder.is_in_index() || builder.is_in_subscript(),
            _ => false,
        };
        if in_subscript {
            return refuse("[", self.at, "a blank or operator stands in a subscript; leave it out");
        }
        let finished = builder.finish(self.at);
        self.deliver(role, finished)
    }

    /// Whether an assignment may stand here.
    fn is_prefix(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::List(list)) if list.partial.words.is_empty())
    }

    /// Gives a word to the construct that it belongs to.
    fn deliver(&mut self, role: Role, finished: FinishedWord) -> Step {
        match role {
            Role::Argument => self.take_argument(finished),
            Role::Target(kind) => self.take_target(kind, finished),
            Role::Operand | Role::Expression => self.take_operand(role, &finished),
            Role::Pattern => take_pattern(&finished),
            Role::Element => {
                self.note_index(finished.word.span);
                Ok(())
            }
            Role::Subject | Role::Item => Ok(()),
        }
    }

    /// Adds a word or an assignment to the simple command, or follows a reserved word.
    fn take_argument(&mut self, finished: FinishedWord) -> Step {
        let empty = match self.frames.last() {
            Some(Frame::List(list)) => list.partial.is_empty(),
            _ => false,
        };
        if empty && !finished.quoted && self.take_reserved(&finished.word)? {
            return Ok(());
        }
        self.check_behind_redirects(&finished)?;
        let prefix = self.is_prefix();
        if let Some((_, _, at)) = &finished.assignment {
            self.note_subscript(finished.word.span.start, *at);
        }
        self.begin_simple(finished.word.span.start)?;
        let Some(list) = self.list() else { return Ok(()) };
        list.partial.end = finished.word.span.end;
        match finished.assignment {
            Some((name, length, at)) if prefix => {
                let mut value = finished.word;
                value.text = value.text.split_off(length.min(value.text.len()));
                value.span.start = at;
                list.partial.assignments.push(Assignment { name, value });
            }
            _ => {
                if list.partial.words.is_empty() {
                    list.partial.plain = !finished.quoted;
                }
                list.partial.words.push(finished.word);
            }
        }
        Ok(())
    }

    /// Refuses a reserved word as the name of a command behind redirects: in a substitution bash
    /// writes the command anew, with the redirects at its end, and the word is reserved then.
    fn check_behind_redirects(&self, finished: &FinishedWord) -> Step {
        let Some(Frame::List(list)) = self.frames.last() else { return Ok(()) };
        let partial = &list.partial;
        let is_first = partial.words.is_empty() && partial.assignments.is_empty();
        let is_reserved = |text: &str| RESERVED.split_ascii_whitespace().any(|word| word == text);
        let is_behind = is_first && !partial.is_empty() && !finished.quoted;
        if is_behind && finished.word.literal().is_some_and(is_reserved) {
            let reason = "a reserved word behind a redirect; move the redirect to the end";
            return refuse("reserved", finished.word.span.start, reason);
        }
        Ok(())
    }

    /// Notes the variables in the subscript of an assignment: it is arithmetic.
    fn note_subscript(&mut self, start: usize, end: usize) {
        let left = self.text.get(start..end).unwrap_or_default();
        if let Some((_, subscript)) = left.split_once('[') {
            let varies = subscript.bytes().any(|byte| byte == b'$' || byte.is_ascii_alphabetic());
            if varies {
                self.note_arithmetic_span(Span { start, end });
            }
        }
    }

    /// Notes the variables in `[…]=` of an array: it is arithmetic.
    fn note_index(&mut self, span: Span) {
        let element = self.text.get(span.start..span.end).unwrap_or_default();
        if element.starts_with('[') {
            self.note_subscript(span.start, span.end);
        }
    }

    /// Adds a redirect's target to the simple command.
    fn take_target(&mut self, kind: RedirectKind, finished: FinishedWord) -> Step {
        let at = self.at;
        if finished.word.span.start == finished.word.span.end {
            return self.fail("<>", at, "a redirect has no target; name a file");
        }
        self.add_redirect(kind, finished.word);
        Ok(())
    }

    /// Whether the list on top is closed by this.
    pub(super) fn is_closed_by(&self, closer: Closer) -> bool {
        matches!(self.frames.last(), Some(Frame::List(list)) if list.closer == closer)
    }
}
