//! Reads `[[ … ]]`.

use super::{
    Reader, Step,
    builder::FinishedWord,
    frame::{ConditionFrame, Frame, Role},
    refuse,
};
use crate::reading::Form;

impl Reader<'_> {
    /// Reads one token of a condition.
    pub(super) fn step_condition(&mut self) -> Step {
        self.skip_blanks();
        let opened_at = self.opened_at();
        let Some(Frame::Condition(condition)) = self.frames.last() else { return Ok(()) };
        let expression = condition.expression;
        let Some(byte) = self.peek() else {
            return self.fail("[[", opened_at, "`[[` is not closed; close it with ` ]]`");
        };
        let (next, next_at) = self.next_after(self.at);
        match (byte, next) {
            (b'<' | b'>', Some(b'(')) => self.open_word(Role::Operand),
            (b'(', _) if expression => self.open_word(Role::Expression),
            (b'\n', _) if !self.pending.is_empty() => {
                refuse("<<", opened_at, "a here-document begins before `[[`; move it")
            }
            (b'\n' | b'(' | b')' | b'<' | b'>', _) => {
                // Bash takes a newline only in some places, and ends there in others.
                self.line_ended |= byte == b'\n';
                self.note_group(byte);
                self.at += 1;
                Ok(())
            }
            (b'&', Some(b'&')) | (b'|', Some(b'|')) => {
                self.at = next_at + 1;
                Ok(())
            }
            (b'&' | b'|' | b';' | b'#', _) => {
                refuse("[[", opened_at, "a character inside `[[ … ]]` is not understood; quote it")
            }
            _ => self.open_word(if expression { Role::Expression } else { Role::Operand }),
        }
    }

    /// Notes a parenthesis of the condition on top: a group, or a pattern like `@(…)`.
    pub(super) fn note_group(&mut self, byte: u8) {
        let conditions = self.frames.iter_mut().rev().take(2);
        for frame in conditions {
            if let Frame::Condition(condition) = frame {
                condition.grouped |= byte == b'(';
            }
        }
    }

    /// Refuses a substitution in the parentheses of a condition: bash counts nothing but
    /// parentheses and quotes there, so a comment inside the substitution could end the condition.
    pub(super) fn check_group(&self, start: usize) -> Step {
        let mut here = self.frames.iter().rev().take_while(|it| !matches!(it, Frame::List(_)));
        let grouped = here.any(|it| matches!(it, Frame::Condition(condition) if condition.grouped));
        if grouped {
            return refuse("[[", start, "a substitution in parentheses of `[[ … ]]`; move it out");
        }
        Ok(())
    }

    /// Takes a word of a condition; `]]` ends it.
    pub(super) fn take_operand(&mut self, role: Role, finished: &FinishedWord) -> Step {
        if role == Role::Expression && finished.word.text == "]]" {
            return refuse("=~", finished.word.span.start, "an expression is missing after `=~`");
        }
        let plain = !finished.quoted;
        let text = finished.word.literal().filter(|_| plain && role == Role::Operand);
        if text == Some("]]") {
            self.frames.pop();
            self.end_compound();
            return Ok(());
        }
        let varies = matches!(finished.word.form, Form::Dynamic | Form::Fields)
            || finished.word.text.bytes().any(|byte| byte.is_ascii_alphabetic() || byte == b'[');
        let start = finished.word.span.start;
        let Some(Frame::Condition(condition)) = self.frames.last_mut() else { return Ok(()) };
        let ConditionFrame { variable, number, operand_varies, .. } = *condition;
        let compares = matches!(text, Some("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"));
        condition.expression = text == Some("=~");
        condition.variable = matches!(text, Some("-v" | "-R"));
        condition.number = compares;
        condition.operand_varies = varies && !compares;
        if variable && (finished.word.form != Form::Literal || finished.word.text.contains('[')) {
            self.note_later("[[ -v", start);
        }
        if compares && operand_varies || number && varies {
            self.note_arithmetic_span(finished.word.span);
        }
        Ok(())
    }
}
