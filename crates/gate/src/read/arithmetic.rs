//! Reads arithmetic, and finds where bash could run data in it as code.

use super::{
    NESTING_MAX, Reader, Step,
    frame::{ArithmeticKind, Frame, Quoting},
    refuse, too_deep,
};
use crate::reading::Span;

impl Reader<'_> {
    /// Reads one piece of arithmetic.
    pub(super) fn step_arithmetic(&mut self) -> Step {
        let Some(Frame::Arithmetic(arithmetic)) = self.frames.last() else { return Ok(()) };
        let (start, kind, depth) = (arithmetic.opened_at, arithmetic.kind, arithmetic.depth);
        self.at = self.past_continuations(self.at);
        let Some(byte) = self.peek() else {
            return self.fail("((", start, "arithmetic is not closed; close it with `))`");
        };
        match byte {
            b'$' => self.read_dollar(Quoting::Document),
            b'`' => self.read_backtick(Quoting::Document),
            b'"' => self.open_double(),
            b')' if depth == 0 => self.close_arithmetic(start, kind),
            b'(' if depth + self.frames.len() >= NESTING_MAX => Err(too_deep(start)),
            b'<' | b'>' if self.next_after(self.at).0 == Some(b'(') => {
                refuse("((", start, "`<(` inside arithmetic; put a space before the parenthesis")
            }
            _ if self.take_arithmetic(byte, kind, depth) => Ok(()),
            _ => refuse("((", start, "a character in arithmetic is not understood; leave it out"),
        }
    }

    /// Whether arithmetic or a condition is around this place, in the same list of commands.
    pub(super) fn is_in_parentheses(&self) -> bool {
        let mut here = self.frames.iter().rev().take_while(|it| !matches!(it, Frame::List(_)));
        here.any(|frame| matches!(frame, Frame::Arithmetic(_) | Frame::Condition(_)))
    }

    /// Takes what only arithmetic looks at; says whether it is known.
    fn take_arithmetic(&mut self, byte: u8, kind: ArithmeticKind, depth: usize) -> bool {
        match byte {
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => self.take_arithmetic_name(),
            b'0'..=b'9' => self.take_number(),
            b'(' => self.set_depth(depth + 1),
            b')' => self.set_depth(depth.saturating_sub(1)),
            b' ' | b'\t' | b'\n' => self.at += 1,
            b';' if kind == ArithmeticKind::For => self.at += 1,
            _ if b"+-*/%<>=!&|^~?:,#[]".contains(&byte) => self.at += 1,
            _ => return false,
        }
        true
    }

    /// Goes past a parenthesis.
    fn set_depth(&mut self, next: usize) {
        if let Some(Frame::Arithmetic(arithmetic)) = self.frames.last_mut() {
            arithmetic.depth = next;
        }
        self.at += 1;
    }

    /// Takes a number, also with a base or in hexadecimal.
    fn take_number(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.at += 1;
        }
    }

    /// Takes `)` where no parenthesis is open: arithmetic ends only with two of them.
    fn close_arithmetic(&mut self, start: usize, kind: ArithmeticKind) -> Step {
        if self.byte_at(self.at + 1) != Some(b')') {
            if kind == ArithmeticKind::Expansion {
                self.found("$(", start);
            }
            return refuse("((", start, "this is a subshell and not arithmetic; write `( (`");
        }
        self.at += 2;
        self.frames.pop();
        if kind == ArithmeticKind::Command {
            self.end_compound();
        }
        Ok(())
    }

    /// Takes the name of a variable whose value is evaluated.
    pub(super) fn take_arithmetic_name(&mut self) {
        let start = self.at;
        let name = self.take_name().to_owned();
        self.note_arithmetic(&name, Span { start, end: self.at });
    }

    /// Notes a variable whose value arithmetic looks at.
    pub(super) fn note_arithmetic(&mut self, name: &str, span: Span) {
        self.note_arithmetic_span(span);
        self.arithmetics.names.push(name.to_owned());
    }

    /// Notes that arithmetic looks at something whose value is not known.
    pub(super) fn note_arithmetic_span(&mut self, span: Span) {
        self.arithmetics.variable.get_or_insert(span);
    }
}
