//! Reading a log that grows: a cursor says what has been seen, and only what is new is shown.

use std::{fmt::Write, io};

use legwork_warden::folder::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    artifact::{Artifact, TaskOutput},
    clean::{Cell, SEQUENCE_BYTES_MAX, TextEnd},
    mask::{Mask, Scan},
    preview::{LINES_MAX, Preview, apart, preview},
    tokens::{self, TOKEN},
    view::{Edges, View, ViewPiece},
};
use crate::id::TaskId;

/// Raw bytes looked at for each token of the budget.
const WINDOW_BYTES_PER_TOKEN: u64 = 8;

/// Most bytes that can be unfinished at a stream's end: the longest sequence, or the longest
/// secret.
fn unfinished_bytes_max(mask: &Mask) -> u64 {
    SEQUENCE_BYTES_MAX + mask.reach() as u64
}

/// How much of each stream has been seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Bytes of stdout.
    pub stdout: u64,
    /// Bytes of stderr.
    pub stderr: u64,
}

impl Cursor {
    /// Reads a cursor of this task; anything else is none.
    pub fn parse(text: &str, task: &TaskId) -> Option<Self> {
        let mut numbers = text.strip_prefix('c')?.split('.');
        let mut number = || u64::from_str_radix(numbers.next()?, 16).ok();
        let cursor = Self { stdout: number()?, stderr: number()? };
        // One cursor has one text: signs, capitals and zeros in front are refused by the
        // comparison.
        (cursor.to_text(task) == text).then_some(cursor)
    }

    /// The text that stands for it, which is good for this task only.
    pub fn to_text(self, task: &TaskId) -> String {
        let mut text = format!("c{:x}.{:x}", self.stdout, self.stderr);
        let digest = Sha256::digest(format!("{task} {text}"));
        text.push('.');
        for byte in digest.iter().take(4) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The place in one stream.
    pub(super) fn of(self, stream: Stream) -> u64 {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    /// Goes to a place in one stream.
    fn set(&mut self, stream: Stream, offset: u64) {
        match stream {
            Stream::Stdout => self.stdout = offset,
            Stream::Stderr => self.stderr = offset,
        }
    }
}

/// The streams that are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Both, in the order in which they came.
    #[default]
    Both,
    /// Stdout alone.
    Stdout,
    /// Stderr alone.
    Stderr,
}

impl Selection {
    /// The first cursor, with the selected streams at the places of the second.
    pub(super) fn moved(self, from: Cursor, to: Cursor) -> Cursor {
        match self {
            Self::Both => to,
            Self::Stdout => Cursor { stdout: to.stdout, ..from },
            Self::Stderr => Cursor { stderr: to.stderr, ..from },
        }
    }
}

/// What was new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fresh {
    /// The text, not trimmed.
    pub text: String,
    /// Where to go on.
    pub next: Cursor,
    /// Whether there is more already.
    pub more: bool,
    /// Whether bytes had to be replaced because they are no text.
    pub replaced: bool,
    /// Whether a secret was masked.
    pub masked: bool,
}

impl TaskOutput {
    /// Shows what is new after a cursor, in order, within a budget.
    ///
    /// Unless the task is complete, half a character, sequence or secret at the end is left to the
    /// next read. There is always progress where there is something new: the first character may
    /// cost more than a tiny budget.
    pub fn since(
        &self,
        mask: &Mask,
        cursor: Cursor,
        selection: Selection,
        budget_tokens: u64,
        complete: bool,
    ) -> io::Result<Fresh> {
        // With room for what is unfinished in either stream, some stream always gets on.
        let least = 2 * unfinished_bytes_max(mask);
        let window = budget_tokens.saturating_mul(WINDOW_BYTES_PER_TOKEN).max(least);
        fresh(&self.view(mask, selection, cursor)?, window, budget_tokens, complete)
    }

    /// Shows head and tail of what is new after a cursor, and where [`TaskOutput::since`] goes on
    /// from there.
    pub fn overview_since(
        &self,
        mask: &Mask,
        cursor: Cursor,
        selection: Selection,
        budget_tokens: u64,
        complete: bool,
    ) -> io::Result<(Preview, Cursor)> {
        let mut shown = preview(&self.view(mask, selection, cursor)?, budget_tokens, complete)?;
        if shown.truncated && selection == Selection::Both {
            let stdout = self.view(mask, Selection::Stdout, cursor)?;
            let stderr = self.view(mask, Selection::Stderr, cursor)?;
            shown = apart(&stdout, &stderr, budget_tokens, complete)?;
        }
        let ends = Cursor {
            stdout: settled(mask, &self.stdout, complete)?.max(cursor.stdout),
            stderr: settled(mask, &self.stderr, complete)?.max(cursor.stderr),
        };
        Ok((shown, selection.moved(cursor, ends)))
    }

    /// Shows head and tail of the selected streams, and where [`TaskOutput::since`] goes on from
    /// there.
    pub fn overview(
        &self,
        mask: &Mask,
        selection: Selection,
        budget_tokens: u64,
        complete: bool,
    ) -> io::Result<(Preview, Cursor)> {
        self.overview_since(mask, Cursor::default(), selection, budget_tokens, complete)
    }
}

/// Shows the beginning of a view, of which no more than a window is read.
fn fresh(view: &View<'_>, window: u64, budget_tokens: u64, complete: bool) -> io::Result<Fresh> {
    let piece = view.read(0, window, Edges { inside: false, complete })?;
    let is_all = window >= view.bytes();
    let mut kept = fitting(&piece, budget_tokens);
    if !is_all {
        kept = cut_before(&piece, kept);
    }
    let is_cut = kept < piece.cells.len();
    let next = if is_cut { seen(&piece, kept, view.from()) } else { piece.reached };
    // An artifact that somebody cut short must not send the caller round in circles.
    let more = (is_cut || !is_all) && next != view.from();
    let text = text(&piece, kept);
    let replaced = piece.replaced && text.contains(char::REPLACEMENT_CHARACTER);
    let masked = piece.cells.iter().take(kept).any(|cell| cell.secret != 0);
    Ok(Fresh { text, next, more, replaced, masked })
}

/// The cursor behind the first cells of a piece.
fn seen(piece: &ViewPiece, cells: usize, from: Cursor) -> Cursor {
    let mut cursor = from;
    for (stream, end) in piece.ends.iter().take(cells) {
        cursor.set(*stream, *end);
    }
    cursor
}

fn text(piece: &ViewPiece, cells: usize) -> String {
    piece.cells.iter().take(cells).map(|cell| cell.character).collect()
}

/// How many cells of a piece are shown.
fn fitting(piece: &ViewPiece, budget_tokens: u64) -> usize {
    let mut costs = Vec::with_capacity(piece.cells.len());
    tokens::costs(piece.cells.iter().map(|cell| cell.character), |_, cost| costs.push(cost));
    let newlines = piece.cells.iter().enumerate().filter(|(_, cell)| cell.character == '\n');
    if let Some((last, _)) = newlines.skip(LINES_MAX - 1).find(|(at, _)| is_cut(piece, at + 1)) {
        costs.truncate(last + 1);
    }
    let budget_tokens = budget_tokens.max(1);
    let mut limit = budget_tokens.saturating_mul(TOKEN);
    if costs.last().is_none_or(|cost| *cost <= limit) {
        return costs.len();
    }
    loop {
        let kept = cut_before(piece, costs.partition_point(|cost| *cost <= limit));
        if kept == 0 {
            return (1..costs.len()).find(|place| is_cut(piece, *place)).unwrap_or(costs.len());
        }
        // A cut inside a run can cost a little more than its share of the run.
        if limit == 0 || tokens::estimate(&text(piece, kept)) <= budget_tokens {
            return kept;
        }
        limit -= (limit / 8).max(1);
    }
}

/// The last place for a cut that is not behind a given one: a line's end, else inside the line.
fn cut_before(piece: &ViewPiece, place: usize) -> usize {
    let kept = piece.cells.get(..place).unwrap_or_default();
    let ends_line = |(last, cell): (usize, &Cell)| {
        (cell.character == '\n' && is_cut(piece, last + 1)).then_some(last + 1)
    };
    let newline = kept.iter().enumerate().rev().find_map(ends_line);
    let inside = || (1..=place).rev().find(|place| is_cut(piece, *place));
    newline.or_else(inside).unwrap_or(0)
}

/// Whether the text can be cut before this cell so that no byte is shown twice or never.
fn is_cut(piece: &ViewPiece, place: usize) -> bool {
    let before = place.checked_sub(1).and_then(|last| piece.ends.get(last));
    before.is_some() && before != piece.ends.get(place)
}

/// Where the text of an artifact ends: its size, or where something begins that is not finished.
fn settled(mask: &Mask, artifact: &Artifact, complete: bool) -> io::Result<u64> {
    if complete {
        return Ok(artifact.bytes());
    }
    let length = unfinished_bytes_max(mask);
    let shown_from = artifact.shown_gap().map_or(0, |gap| gap.to);
    let start = artifact.bytes().saturating_sub(length).max(shown_from);
    let raw = artifact.read(start, length)?;
    Ok(start + Scan::of(mask, &raw, 0, TextEnd::Open).held as u64)
}

#[cfg(test)]
mod tests;
