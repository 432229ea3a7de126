//! Reads `case`: its patterns, and where each of its lists begins.

use super::{
    Reader, Step,
    builder::FinishedWord,
    frame::{CaseState, Closer, Frame, Position, Role},
    refuse,
};

impl Reader<'_> {
    /// Reads one token of `case` between its lists.
    pub(super) fn step_case(&mut self) -> Step {
        self.skip_blanks();
        let opened_at = self.opened_at();
        let Some(Frame::Case { state, .. }) = self.frames.last() else { return Ok(()) };
        let state = *state;
        match (state, self.peek()) {
            (_, None) => self.fail("case", opened_at, "`case` is not closed; close it with `esac`"),
            (CaseState::In | CaseState::Clause, Some(b'\n')) => {
                self.at += 1;
                self.read_documents()
            }
            (CaseState::In | CaseState::Clause, Some(b'#')) => {
                self.skip_comment();
                Ok(())
            }
            (CaseState::In, _) => {
                if self.take_exactly("in") {
                    self.set_case(CaseState::Clause);
                    return Ok(());
                }
                refuse("case", opened_at, "`in` is missing after the word of `case`")
            }
            (CaseState::Clause, Some(b'e')) if self.take_exactly("esac") => {
                self.frames.pop();
                self.end_compound();
                Ok(())
            }
            (CaseState::Clause, Some(b'(')) | (CaseState::Pattern, Some(b'|')) => {
                self.at += 1;
                self.skip_blanks();
                self.open_pattern()
            }
            (CaseState::Pattern, Some(b')')) => {
                self.set_case(CaseState::Clause);
                self.open_list(Closer::Clause, Position::Optional, 1)
            }
            (CaseState::Clause, _) => self.open_pattern(),
            (CaseState::Pattern, _) => {
                refuse("case", opened_at, "a pattern of `case` is not understood; quote it")
            }
        }
    }

    /// Sets how far the case was read.
    fn set_case(&mut self, next: CaseState) {
        if let Some(Frame::Case { state, .. }) = self.frames.last_mut() {
            *state = next;
        }
    }

    /// Begins a pattern.
    fn open_pattern(&mut self) -> Step {
        self.set_case(CaseState::Pattern);
        self.open_word(Role::Pattern)
    }
}

/// Takes a pattern; an empty one means that something else stands in its place.
pub(super) fn take_pattern(finished: &FinishedWord) -> Step {
    let span = finished.word.span;
    if span.start == span.end {
        return refuse("case", span.start, "a pattern of `case` is missing");
    }
    Ok(())
}
