//! Follows reserved words into compound commands and out of them.

use super::{
    Reader, Step,
    frame::{
        Arithmetic, ArithmeticKind, CaseState, Closer, ConditionFrame, ForState, Frame, Position,
        Role,
    },
    list::is_function_name,
    refuse,
};
use crate::reading::{Refusal, Word};

impl Reader<'_> {
    /// Follows a word if it is reserved here; says whether it was.
    pub(super) fn take_reserved(&mut self, word: &Word) -> Result<bool, Refusal> {
        let Some(text) = word.literal() else { return Ok(false) };
        let start = word.span.start;
        let position = match self.frames.last() {
            Some(Frame::List(list)) => list.position,
            _ => return Ok(false),
        };
        let closes = matches!(position, Position::Optional | Position::Compound);
        let opens = matches!(position, Position::Command | Position::Prefixed | Position::Optional);
        match text {
            "then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}" if closes => {
                self.close_with(text, start).map(|()| true)
            }
            "then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}" | "in" if opens => {
                self.fail("reserved", start, "a reserved word stands in the place of a command")?;
                Ok(true)
            }
            "{" if position == Position::Body => {
                self.open_list(Closer::Brace, Position::Command, 0).map(|()| true)
            }
            _ if opens => self.open_with(text, start),
            _ => Ok(false),
        }
    }

    /// Opens what a reserved word opens.
    fn open_with(&mut self, text: &str, start: usize) -> Result<bool, Refusal> {
        match text {
            "{" => self.open_list(Closer::Brace, Position::Command, 0)?,
            "if" => self.open_list(Closer::Then, Position::Command, 0)?,
            "while" | "until" => self.open_list(Closer::Do, Position::Command, 0)?,
            "for" | "select" => self.open_for(start)?,
            "case" => self.open_case(start)?,
            "function" => self.open_function(start)?,
            "[[" => {
                self.note_beyond_posix("[[", start);
                self.open(Frame::Condition(ConditionFrame {
                    opened_at: start,
                    expression: false,
                    variable: false,
                    operand_varies: false,
                    number: false,
                    grouped: false,
                }))?;
            }
            "!" if self.is_piped_into() => {
                refuse("!", start, "`!` stands after a pipe; put it before the pipeline")?;
            }
            "!" => self.prefix(),
            // A name may follow; and in a substitution bash writes the command anew and gives it
            // another one: `$(coproc rm x)` runs `COPROC rm x`.
            "coproc" => refuse("coproc", start, "a coprocess; write `&` after the command")?,
            // There, it is the name of a program.
            "time" if self.is_piped_into() => return Ok(false),
            "time" => {
                self.skip_blanks();
                while self.take_exactly("-p") || self.take_exactly("--") {
                    self.skip_blanks();
                }
                if self.peek() == Some(b'-') {
                    refuse("time", start, "options of the reserved word `time`; leave them out")?;
                }
                self.prefix();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a pipe stands before the current command.
    fn is_piped_into(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::List(list)) if list.after_pipe)
    }

    /// Notes that a command has to follow on this line.
    fn prefix(&mut self) {
        if let Some(list) = self.list() {
            list.position = Position::Prefixed;
        }
    }

    /// Closes what a reserved word closes, or goes on with the next part.
    fn close_with(&mut self, text: &str, start: usize) -> Step {
        let Some(Frame::List(list)) = self.frames.last() else { return Ok(()) };
        let next = match (list.closer, text) {
            (Closer::Then, "then") => Some(Closer::Branch),
            (Closer::Branch, "elif") => Some(Closer::Then),
            (Closer::Branch, "else") => Some(Closer::Fi),
            (Closer::Do, "do") => Some(Closer::Done),
            (Closer::Branch | Closer::Fi, "fi")
            | (Closer::Done, "done")
            | (Closer::Brace, "}")
            | (Closer::Clause, "esac") => None,
            _ => {
                return self.fail(
                    "reserved",
                    start,
                    "a reserved word closes nothing here; quote it",
                );
            }
        };
        self.finish_command()?;
        if let Some(closer) = next {
            self.next_item(Position::Command);
            if let Some(list) = self.list() {
                list.closer = closer;
            }
            return Ok(());
        }
        self.frames.pop();
        if text == "esac" {
            self.frames.pop(); // The case itself, below its last clause.
        }
        self.end_compound();
        Ok(())
    }

    /// Reads the head of `for` or `select`, up to its name.
    fn open_for(&mut self, start: usize) -> Step {
        self.skip_blanks();
        let (next, second) = self.next_after(self.at);
        if self.peek() == Some(b'(') && next == Some(b'(') {
            self.open(Frame::For { opened_at: start, state: ForState::Do })?;
            self.at = second + 1;
            let kind = ArithmeticKind::For;
            return self.open(Frame::Arithmetic(Arithmetic { opened_at: start, kind, depth: 0 }));
        }
        if self.take_name().is_empty() {
            return refuse("for", start, "`for` needs the plain name of a variable");
        }
        self.open(Frame::For { opened_at: start, state: ForState::Name })
    }

    /// Takes the name of a variable.
    pub(super) fn take_name(&mut self) -> &str {
        let start = self.at;
        while let Some(byte) = self.peek() {
            let digit = byte.is_ascii_digit() && self.at > start;
            if !(byte == b'_' || byte.is_ascii_alphabetic() || digit) {
                break;
            }
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Takes an unquoted word that has to be exactly this.
    pub(super) fn take_exactly(&mut self, word: &str) -> bool {
        let end = self.at + word.len();
        let there = end <= self.limit && self.text.get(self.at..end) == Some(word);
        let next = self.byte_at(end);
        let ends = next.is_none_or(|byte| b" \t\n;&|()<>".contains(&byte));
        // A continuation could make the word longer.
        let ends = ends
            || next == Some(b'\\') && {
                let after = self.byte_at(self.past_continuations(end));
                after.is_none_or(|byte| b" \t\n;&|()<>".contains(&byte))
            };
        if there && ends {
            self.at = end;
        }
        there && ends
    }

    /// Reads one token of the head of `for`.
    pub(super) fn step_for(&mut self) -> Step {
        self.skip_blanks();
        let opened_at = self.opened_at();
        let Some(Frame::For { state, .. }) = self.frames.last() else { return Ok(()) };
        let state = *state;
        match (state, self.peek()) {
            (_, None) => self.fail("for", opened_at, "`for` has no body; write `do …; done`"),
            (_, Some(b'#')) => {
                self.skip_comment();
                Ok(())
            }
            (ForState::Name | ForState::Items, Some(b'\n' | b';')) => self.end_items(),
            (ForState::Name, _) if self.take_exactly("in") => {
                self.set_for(ForState::Items);
                Ok(())
            }
            (ForState::Do, Some(b'\n')) => {
                self.at += 1;
                self.read_documents()
            }
            (ForState::Do, Some(b';')) if self.is_after_arithmetic() => {
                self.at += 1;
                Ok(())
            }
            (ForState::Name | ForState::Do, _) if self.take_exactly("do") => {
                self.frames.pop();
                self.open_list(Closer::Done, Position::Command, 0)
            }
            (ForState::Items, Some(byte)) if !b"&|()<>".contains(&byte) => {
                self.open_word(Role::Item)
            }
            (ForState::Items, Some(b'<' | b'>')) if self.next_after(self.at).0 == Some(b'(') => {
                self.open_word(Role::Item)
            }
            _ => {
                refuse("for", opened_at, "the head of `for` is not understood; write `for x in …`")
            }
        }
    }

    /// Whether the head that was just read is `((…))`.
    fn is_after_arithmetic(&self) -> bool {
        let before = self.text.get(..self.at).unwrap_or_default();
        before.trim_end_matches([' ', '\t']).ends_with("))")
    }

    /// Goes past the end of the items.
    fn end_items(&mut self) -> Step {
        let newline = self.peek() == Some(b'\n');
        self.at += 1;
        self.set_for(ForState::Do);
        if newline { self.read_documents() } else { Ok(()) }
    }

    /// Sets how far the head was read.
    fn set_for(&mut self, next: ForState) {
        if let Some(Frame::For { state, .. }) = self.frames.last_mut() {
            *state = next;
        }
    }

    /// Reads `function name` and waits for the body.
    fn open_function(&mut self, start: usize) -> Step {
        self.skip_blanks();
        let from = self.at;
        while self.peek().is_some_and(|byte| !b" \t\n()<>&|;\\".contains(&byte)) {
            self.at += 1;
        }
        let name = self.text.get(from..self.at).unwrap_or_default().to_owned();
        if !is_function_name(&name) {
            return refuse("function", start, "the name of a function has to be plain");
        }
        self.skip_blanks();
        if self.peek() == Some(b'(') {
            self.at += 1;
            self.skip_blanks();
            if self.peek() != Some(b')') {
                return refuse("function", start, "write `name() { …; }`");
            }
            self.at += 1;
        }
        self.define(name);
        Ok(())
    }

    /// Reads `case` and what it looks at.
    fn open_case(&mut self, start: usize) -> Step {
        self.cased |= self.level > 0;
        self.check_written_anew("case", start)?;
        self.skip_blanks();
        if self.peek().is_none_or(|byte| b"\n;&|()#".contains(&byte)) {
            return self.fail("case", start, "`case` needs a word to look at");
        }
        self.open(Frame::Case { opened_at: start, state: CaseState::In })?;
        self.open_word(Role::Subject)
    }
}
