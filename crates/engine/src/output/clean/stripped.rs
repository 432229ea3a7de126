//! What was written as plain text, and where it was in the raw bytes.

use super::is_invisible;

/// What was written, without control sequences, and whatever became of it on the line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::output) struct Stripped {
    pub text: String,
    /// Where the text is in the raw bytes.
    pub runs: Vec<StrippedRun>,
    /// As in [`super::Clean`].
    pub reached: usize,
}

/// Characters that follow each other in the text and in the raw bytes: all as they are, or one that
/// was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::output) struct StrippedRun {
    pub text: usize,
    pub text_bytes: usize,
    pub raw: usize,
    pub raw_bytes: usize,
}

impl StrippedRun {
    fn is_exact(&self) -> bool {
        self.text_bytes == self.raw_bytes
    }

    /// Where a place of the text that is not before the run is in the raw bytes.
    fn in_raw(&self, place: usize) -> usize {
        let into = place.saturating_sub(self.text);
        self.raw + if self.is_exact() || into == 0 { into } else { self.raw_bytes }
    }
}

impl Stripped {
    pub(super) fn push(&mut self, character: char, start: usize, end: usize) {
        if is_invisible(character) {
            return;
        }
        let (text, text_bytes, raw_bytes) = (self.text.len(), character.len_utf8(), end - start);
        self.text.push(character);
        let goes_on = |run: &&mut StrippedRun| {
            run.is_exact() && text_bytes == raw_bytes && run.raw + run.raw_bytes == start
        };
        if let Some(run) = self.runs.last_mut().filter(goes_on) {
            run.text_bytes += text_bytes;
            run.raw_bytes += raw_bytes;
        } else {
            self.runs.push(StrippedRun { text, text_bytes, raw: start, raw_bytes });
        }
    }

    /// Where in the raw bytes the character at a place of the text begins; none behind the last.
    pub(in crate::output) fn begin(&self, place: usize) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.text + run.text_bytes <= place);
        self.runs.get(index).map(|run| run.in_raw(place))
    }

    /// Where in the raw bytes the character before a place of the text ends.
    pub(in crate::output) fn end(&self, place: usize) -> usize {
        let index = self.runs.partition_point(|run| run.text < place);
        let run = index.checked_sub(1).and_then(|index| self.runs.get(index));
        run.map_or(0, |run| run.in_raw(place))
    }
}
