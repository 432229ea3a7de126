//! Reads `${…}`.

use super::{
    Reader, Step,
    frame::{Frame, Parameter, ParameterMode, Quoting},
    refuse,
};
use crate::reading::Span;

/// What is said of a form that is not read.
const ODD: &str = "this form of ${…} is not understood; use a plain variable";

/// What is said where the text ends in it.
const UNCLOSED: &str = "`${` is not closed; close it with `}`";

impl Reader<'_> {
    /// Reads the head of `${…}`: its name, and what is done with it.
    pub(super) fn open_parameter(&mut self, start: usize, from: usize, quoting: Quoting) -> Step {
        self.expand(quoting == Quoting::Plain);
        let inside = self.past_continuations(from);
        if matches!(self.byte_at(inside), Some(b' ' | b'\t' | b'\n' | b'|')) {
            self.found("${ ", start);
            return refuse("${ ", start, "newer shells run what is inside; use a plain variable");
        }
        self.at = from;
        let length = self.peek() == Some(b'#') && self.byte_at(from + 1) != Some(b'}');
        let indirect = self.peek() == Some(b'!') && self.byte_at(from + 1) != Some(b'}');
        if length || indirect {
            self.at += 1;
        }
        let mode = ParameterMode::Default;
        self.open(Frame::Parameter(Parameter { opened_at: start, quoting, mode, indirect }))?;
        if !self.take_parameter_name(start) {
            return refuse("${", start, ODD);
        }
        if self.peek() == Some(b'[') {
            self.at += 1;
            self.set_mode(ParameterMode::Subscript(0));
            return Ok(());
        }
        if length && self.peek() != Some(b'}') {
            return refuse("${#", start, ODD);
        }
        self.take_parameter_operator()
    }

    /// Takes a name, a number or a special parameter.
    fn take_parameter_name(&mut self, start: usize) -> bool {
        let name = self.take_name().to_owned();
        if !name.is_empty() {
            let below = self.frames.iter().nth_back(1);
            if below.is_some_and(Frame::evaluates) {
                let span = Span { start, end: self.at };
                self.note_arithmetic(&name, span);
            }
            return true;
        }
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.peek() == Some(b'@') {
            self.expand(true);
        }
        if self.at == from && self.peek().is_some_and(|byte| b"@*#?-$!".contains(&byte)) {
            self.at += 1;
        }
        self.at > from
    }

    /// Takes what comes after the name, up to the word that belongs to it.
    fn take_parameter_operator(&mut self) -> Step {
        let (start, at) = (self.opened_at(), self.at);
        let second = self.byte_at(at + 1);
        let plain_indirection = self.is_indirect();
        let (mode, bytes) = match (self.peek(), second) {
            (None, _) => return self.fail("${", start, UNCLOSED),
            (Some(b'}'), _) => {
                self.note_indirection(plain_indirection, start);
                self.close_parameter();
                return Ok(());
            }
            (Some(b'@'), Some(_)) => return self.take_transformation(start),
            (Some(b'*'), Some(b'}')) if plain_indirection => {
                self.at += 1;
                self.close_parameter();
                return Ok(());
            }
            (Some(b':'), Some(b'-' | b'=' | b'?' | b'+')) => (ParameterMode::Default, 2),
            (Some(b'-' | b'=' | b'?' | b'+'), _) => (ParameterMode::Default, 1),
            (Some(b':'), _) => (ParameterMode::Offset, 1),
            (Some(b'#' | b'%' | b'/' | b'^' | b','), _) => (ParameterMode::Pattern, 1),
            _ => return refuse("${", start, ODD),
        };
        self.note_indirection(plain_indirection, start);
        self.at += bytes;
        self.set_mode(mode);
        Ok(())
    }

    /// Whether the parameter on top began with `!`.
    fn is_indirect(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Parameter(parameter)) if parameter.indirect)
    }

    /// Notes that the value of a variable is taken for a name.
    fn note_indirection(&mut self, indirect: bool, start: usize) {
        if indirect {
            self.note_later("${!", start);
        }
    }

    /// Takes `@Q}` and its like; `${!name@}` lists names.
    fn take_transformation(&mut self, start: usize) -> Step {
        let (letter, end) = (self.byte_at(self.at + 1), self.byte_at(self.at + 2));
        match (letter, end) {
            (Some(b'}'), _) if self.is_indirect() => self.at += 1,
            (Some(b'P'), Some(b'}')) => {
                self.at += 2;
                self.note_later("${…@P}", start);
            }
            (Some(b'Q' | b'E' | b'A' | b'K' | b'a' | b'k' | b'U' | b'u' | b'L'), Some(b'}')) => {
                self.at += 2;
                self.note_indirection(self.is_indirect(), start);
            }
            _ => return refuse("${", start, ODD),
        }
        self.close_parameter();
        Ok(())
    }

    /// Goes past `}`.
    fn close_parameter(&mut self) {
        self.frames.pop();
        self.at += 1;
    }

    /// Sets which part of the parameter is read.
    fn set_mode(&mut self, next: ParameterMode) {
        if let Some(Frame::Parameter(parameter)) = self.frames.last_mut() {
            parameter.mode = next;
        }
    }

    /// Reads one piece of the rest of `${…}`.
    pub(super) fn step_parameter(&mut self) -> Step {
        let Some(Frame::Parameter(parameter)) = self.frames.last() else { return Ok(()) };
        let (mode, quoting, start) = (parameter.mode, parameter.quoting, parameter.opened_at);
        let Some(byte) = self.peek() else {
            return self.fail("${", start, UNCLOSED);
        };
        match byte {
            // Bash does not see these braces when it looks for the parenthesis that closes the
            // arithmetic or a pattern: `(( rm -rf ${x:-)} build ))` runs `rm`.
            b'(' | b')' | b'\\' | b'\'' if self.is_in_parentheses() => {
                refuse("${", start, "this inside ${…} of `((…))` or `[[…]]`; move it out")
            }
            b'$' => self.read_dollar(quoting),
            b'`' => self.read_backtick(quoting),
            b'"' if quoting == Quoting::Document => refuse("${", start, ODD),
            b'"' => self.open_double(),
            b'\'' => self.read_parameter_single(mode, quoting, start),
            b'<' | b'>' if self.next_after(self.at).0 == Some(b'(') => {
                let construct = if byte == b'<' { "<(" } else { ">(" };
                self.found(construct, self.at);
                refuse("${", start, "a process substitution inside ${…}; move it out")
            }
            _ => match mode {
                ParameterMode::Subscript(depth) => self.step_subscript(byte, depth, start),
                ParameterMode::Offset => self.step_offset(byte, start),
                ParameterMode::Default | ParameterMode::Pattern => self.step_operand(byte, start),
            },
        }
    }

    /// Reads `'…'` inside `${…}`, where it does not always quote.
    fn read_parameter_single(
        &mut self,
        mode: ParameterMode,
        quoting: Quoting,
        start: usize,
    ) -> Step {
        let from = self.at + 1;
        let rest = self.text.get(from..self.limit).unwrap_or_default();
        let Some(length) = rest.find('\'') else { return refuse("${", start, ODD) };
        let inside = rest.get(..length).unwrap_or_default();
        let surely_quoted = quoting == Quoting::Plain && mode == ParameterMode::Default;
        let active = inside.bytes().any(|byte| b"{}\"\\$`<>[]".contains(&byte));
        if active && !surely_quoted {
            return refuse("${", start, "single quotes inside ${…} may not quote; leave them out");
        }
        for (offset, character) in inside.char_indices() {
            self.note_quoted(character, from + offset);
        }
        self.at = from + length + 1;
        Ok(())
    }

    /// Reads a byte of a subscript.
    fn step_subscript(&mut self, byte: u8, depth: usize, start: usize) -> Step {
        match byte {
            b']' if depth == 0 => {
                self.at += 1;
                return self.take_parameter_operator();
            }
            b']' => self.set_mode(ParameterMode::Subscript(depth - 1)),
            b'[' => self.set_mode(ParameterMode::Subscript(depth + 1)),
            b'@' => self.expand(true),
            b'\\' | b'}' | b'{' | b'(' | b')' | b';' | b'\n' => return refuse("${", start, ODD),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_arithmetic_name();
                return Ok(());
            }
            _ => {}
        }
        self.skip_character();
        Ok(())
    }

    /// Reads a byte of an offset or a length.
    fn step_offset(&mut self, byte: u8, start: usize) -> Step {
        match byte {
            b'}' => {
                self.close_parameter();
                return Ok(());
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_arithmetic_name();
                return Ok(());
            }
            _ if byte.is_ascii_digit() || b" :+-*/%()[]?=#".contains(&byte) => {}
            _ => return refuse("${", start, ODD),
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a byte of a default value, a pattern or a replacement.
    fn step_operand(&mut self, byte: u8, start: usize) -> Step {
        match byte {
            b'}' => {
                self.close_parameter();
                return Ok(());
            }
            b'\\' => {
                self.at += 1;
                let Some((character, _)) = self.character() else {
                    return refuse("${", start, ODD);
                };
                self.note_quoted(character, self.at);
            }
            _ => {}
        }
        self.skip_character();
        Ok(())
    }

    /// Goes past one character.
    fn skip_character(&mut self) {
        if let Some((_, next)) = self.character() {
            self.at = next;
        }
    }
}
