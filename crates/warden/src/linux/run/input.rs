//! Writes input to a run's stdin or terminal, and closes it.

use std::os::fd::{AsFd, BorrowedFd};

use super::CommandRun;
use crate::{
    linux::{input::InputSource, peer::PendingInput},
    protocol::InputRefusal,
};

impl CommandRun {
    /// What it would be reading if it waited for input; none if there is no input.
    pub(in crate::linux) fn input_source(&self) -> Option<InputSource> {
        self.streams.input_source()
    }

    /// The descriptor that takes input.
    pub(in crate::linux) fn input_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.streams.input.as_ref().map(AsFd::as_fd)
    }

    /// Writes what is taken now; says what was written in all once nothing is left to wait for.
    pub(in crate::linux) fn feed(
        &mut self,
        pending: &mut PendingInput,
    ) -> Option<(u64, Option<InputRefusal>)> {
        let Some(input) = &mut self.streams.input else {
            return Some((pending.taken, Some(self.refusal())));
        };
        match input.write(&pending.rest) {
            Ok(written) => {
                pending.taken += written as u64;
                pending.rest.drain(..written);
                pending.rest.is_empty().then_some((pending.taken, None))
            }
            Err(refusal) => {
                self.streams.input = None;
                Some((pending.taken, Some(refusal)))
            }
        }
    }

    /// Ends the input.
    pub(in crate::linux) fn end_input(&mut self) -> Option<InputRefusal> {
        let Some(input) = &mut self.streams.input else {
            return Some(self.refusal());
        };
        if let Some(typed) = input.end_of_file() {
            let refusal = input.write_whole(&typed);
            return refusal;
        }
        self.streams.input = None;
        None
    }

    fn refusal(&self) -> InputRefusal {
        if self.has_ended() {
            InputRefusal::Ended
        } else if self.had_input {
            InputRefusal::Closed
        } else {
            InputRefusal::NoInput
        }
    }
}
