//! Reads what begins with `$`, and backticks.

use super::{
    COMMANDS_MAX, Inner, Reader, Step,
    frame::{Arithmetic, ArithmeticKind, Closer, Frame, Position, Quoting},
    refuse, too_many,
};
use crate::reading::{Refusal, Span};

impl Reader<'_> {
    /// Reads `$` and what follows it, past line continuations.
    pub(super) fn read_dollar(&mut self, quoting: Quoting) -> Step {
        let start = self.at;
        let (next, next_at) = self.next_after(start);
        match next {
            Some(b'(') => {
                self.expand(quoting == Quoting::Plain);
                self.open_parenthesised(start, next_at)
            }
            Some(b'{') => self.open_parameter(start, next_at + 1, quoting),
            Some(b'[') => refuse("$[", start, "old arithmetic; write $((…)) instead"),
            Some(b'\'') if quoting == Quoting::Plain && self.is_in_substituted_braces() => {
                refuse("$'", start, "$'…' inside ${…} of a substitution; move it out")
            }
            Some(b'\'') if quoting == Quoting::Plain => self.read_ansi(start, next_at + 1),
            Some(b'"') if quoting == Quoting::Plain => {
                refuse("$\"", start, "a translated string; write \"…\" without the dollar")
            }
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                self.at = next_at;
                let name = self.take_name().to_owned();
                self.expand(quoting == Quoting::Plain);
                self.use_variable(&name, Span { start, end: self.at });
                Ok(())
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.at = next_at + 1;
                let positional = byte.is_ascii_digit() || byte == b'@' || byte == b'*';
                let name = if positional { "1" } else { "" };
                self.expand(quoting == Quoting::Plain || byte == b'@');
                self.use_variable(name, Span { start, end: self.at });
                Ok(())
            }
            _ => {
                self.at = start + 1;
                self.add_dollar(start);
                Ok(())
            }
        }
    }

    /// Whether `${…}` of a substitution is around this place. Where quotes are around that
    /// substitution, bash expands once more what `$'…'` means there.
    fn is_in_substituted_braces(&self) -> bool {
        self.level > 0 && matches!(self.frames.last(), Some(Frame::Parameter(_)))
    }

    /// Adds a dollar that expands nothing.
    fn add_dollar(&mut self, at: usize) {
        self.note_quoted('$', at);
        if let Some(builder) = self.builders.last_mut() {
            builder.plain('$', at);
        }
    }

    /// Notes a variable that is expanded in arithmetic.
    fn use_variable(&mut self, name: &str, span: Span) {
        let evaluated = self.frames.last().is_some_and(Frame::evaluates);
        if evaluated && !name.is_empty() {
            self.note_arithmetic(name, span);
        }
    }

    /// Reads `$(`: arithmetic when another parenthesis follows, otherwise a substitution.
    fn open_parenthesised(&mut self, start: usize, parenthesis_at: usize) -> Step {
        let (second, second_at) = self.next_after(parenthesis_at);
        if second == Some(b'(') {
            self.at = second_at + 1;
            let kind = ArithmeticKind::Expansion;
            return self.open(Frame::Arithmetic(Arithmetic { opened_at: start, kind, depth: 0 }));
        }
        self.open_substitution("$(", start, parenthesis_at)
    }

    /// Opens the commands of a substitution.
    fn open_substitution(
        &mut self,
        construct: &'static str,
        start: usize,
        parenthesis_at: usize,
    ) -> Step {
        self.found(construct, start);
        self.check_group(start)?;
        self.check_arithmetic_of_document(start)?;
        self.at = parenthesis_at;
        self.level += 1;
        self.open_list(Closer::Substitution, Position::Optional, 1)
    }

    /// Refuses a substitution inside arithmetic of a here-document: quotes in it can make bash take
    /// the whole for commands.
    fn check_arithmetic_of_document(&self, start: usize) -> Step {
        let mut outer = self.frames.iter();
        let in_document = outer.any(|frame| matches!(frame, Frame::Documents { .. }));
        if in_document && outer.any(|frame| matches!(frame, Frame::Arithmetic(_))) {
            return refuse("((", start, "a substitution in arithmetic of a here-document; move it");
        }
        Ok(())
    }

    /// Opens `<(` or `>(`.
    pub(super) fn open_process_substitution(&mut self) -> Step {
        let start = self.at;
        let construct = if self.peek() == Some(b'<') { "<(" } else { ">(" };
        let (_, parenthesis_at) = self.next_after(start);
        self.expand(false);
        self.open_substitution(construct, start, parenthesis_at)
    }

    /// Cuts out the text between two backticks; it is read on its own afterwards.
    pub(super) fn read_backtick(&mut self, quoting: Quoting) -> Step {
        let start = self.at;
        self.found("`", start);
        self.check_group(start)?;
        self.check_arithmetic_of_document(start)?;
        self.expand(quoting == Quoting::Plain);
        self.at += 1;
        let mut text = String::new();
        while let Some((character, next)) = self.character() {
            match character {
                '`' => {
                    self.at = next;
                    let span = Span { start, end: next };
                    if self.inner.len() >= COMMANDS_MAX {
                        return Err(too_many(start));
                    }
                    self.inner.push(Inner { text, span, depth: 1 });
                    return Ok(());
                }
                '\\' => self.unescape_in_backticks(&mut text, quoting)?,
                _ => {
                    text.push(character);
                    self.at = next;
                }
            }
        }
        refuse("`", start, "a backtick is not closed; write $(…) instead")
    }

    /// Takes a backslash inside backticks, which quotes less there than elsewhere.
    fn unescape_in_backticks(&mut self, text: &mut String, quoting: Quoting) -> Step {
        let start = self.at;
        self.at += 1;
        let Some((character, next)) = self.character() else { return Ok(()) };
        match character {
            '\n' => return refuse("`", start, "a continued line inside backticks; use $(…)"),
            '"' if quoting != Quoting::Plain => {
                return refuse("`", start, "an escaped quote inside backticks; use $(…)");
            }
            '$' | '`' | '\\' => {}
            _ => text.push('\\'),
        }
        text.push(character);
        self.at = next;
        Ok(())
    }

    /// Reads `$'…'` and decodes it.
    fn read_ansi(&mut self, start: usize, from: usize) -> Step {
        self.at = from;
        self.note_beyond_posix("$'", start);
        if let Some(builder) = self.builders.last_mut() {
            builder.quote();
        }
        while let Some((character, next)) = self.character() {
            let at = self.at;
            self.at = next;
            match character {
                '\'' => return Ok(()),
                '\\' => {
                    let decoded = self.decode_escape(start)?;
                    self.add_quoted(decoded, at);
                }
                _ => self.add_quoted(character, at),
            }
        }
        self.fail("$'", start, "a $'…' string is not closed; close it")
    }

    /// Decodes one escape of `$'…'`, after its backslash.
    fn decode_escape(&mut self, start: usize) -> Result<char, Refusal> {
        let odd = Refusal {
            construct: "$'",
            offset: start,
            reason: "an escape in $'…' is not understood; write the character itself",
        };
        let (character, next) = self.character().ok_or(odd)?;
        self.at = next;
        let decoded = match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'e' | 'E' => '\x1b',
            'f' => '\x0c',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '?' => character,
            'x' => self.decode_number(16, 2).ok_or(odd)?,
            'u' => self.decode_number(16, 4).ok_or(odd)?,
            'U' => self.decode_number(16, 8).ok_or(odd)?,
            '0'..='7' => {
                self.at -= 1;
                self.decode_number(8, 3).ok_or(odd)?
            }
            _ => return Err(odd),
        };
        Ok(decoded)
    }

    /// Decodes digits to an ASCII character; a NUL would cut the string, others depend on the
    /// locale.
    fn decode_number(&mut self, radix: u32, digits_max: usize) -> Option<char> {
        let (mut value, mut digits) = (0_u32, 0);
        while digits < digits_max {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(radix));
            let Some(digit) = digit else { break };
            value = value * radix + digit;
            digits += 1;
            self.at += 1;
        }
        let ascii = u8::try_from(value).ok().filter(|byte| (1..0x80).contains(byte))?;
        (digits > 0).then_some(char::from(ascii))
    }
}
