//! One or both of a task's streams, as one run of bytes in the order in which they came.

use std::{io, iter::Peekable, path::Path, vec};

use legwork_warden::folder::Stream;

use super::{
    artifact::{Artifact, TaskOutput},
    clean::{Cell, End, clean},
    cursor::{Cursor, Selection},
    mask::{Mask, Scan, marked},
    order::{Both, Stretch},
};

/// Streams read as one.
#[derive(Debug)]
pub(super) struct View<'a> {
    mask: &'a Mask,
    streams: Both<Option<&'a Artifact>>,
    from: Cursor,
    stretches: Vec<Stretch>,
    bytes: u64,
}

/// How the edges of a piece are to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edges {
    /// Whether it may begin inside a character, which then is not shown.
    pub inside: bool,
    /// Whether the streams have ended: what they do not finish stays so.
    pub complete: bool,
}

/// A cleaned piece of a view.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The bytes, in the view's order.
    pub raw: Vec<u8>,
    /// The text; each cell's end counts from the piece's beginning.
    pub cells: Vec<Cell>,
    /// For each cell, the end in its own stream.
    pub ends: Vec<(Stream, u64)>,
    /// Whether bytes had to be replaced because they are no text.
    pub replaced: bool,
    /// Whether a secret was masked.
    pub masked: bool,
    /// How far the text goes in each stream.
    pub reached: Cursor,
}

impl TaskOutput {
    /// What the selected streams hold beyond a cursor.
    pub(super) fn view<'a>(
        &'a self,
        mask: &'a Mask,
        selection: Selection,
        from: Cursor,
    ) -> io::Result<View<'a>> {
        let stretches = self.stretches(selection, from)?;
        let streams = Both {
            stdout: (selection != Selection::Stderr).then_some(&self.stdout),
            stderr: (selection != Selection::Stdout).then_some(&self.stderr),
        };
        Ok(View::new(mask, streams, from, stretches))
    }
}

impl<'a> View<'a> {
    fn new(
        mask: &'a Mask,
        streams: Both<Option<&'a Artifact>>,
        from: Cursor,
        stretches: Vec<Stretch>,
    ) -> Self {
        let bytes = stretches.iter().map(Stretch::bytes).sum();
        Self { mask, streams, from, stretches, bytes }
    }

    /// One artifact alone.
    pub(super) fn of(mask: &'a Mask, artifact: &'a Artifact) -> Self {
        let whole = Stretch { stream: Stream::Stdout, from: 0, to: artifact.bytes() };
        let streams = Both { stdout: Some(artifact), stderr: None };
        Self::new(mask, streams, Cursor::default(), vec![whole])
    }

    /// The cursor behind which it begins.
    pub(super) fn from(&self) -> Cursor {
        self.from
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its newlines, where they were counted.
    pub(super) fn lines(&self) -> Option<u64> {
        self.artifacts().map(Artifact::lines).sum()
    }

    /// The files of its streams.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'a Path> + '_ {
        self.artifacts().filter_map(Artifact::path)
    }

    fn artifacts(&self) -> impl Iterator<Item = &'a Artifact> + '_ {
        let Both { stdout, stderr } = self.streams;
        stdout.into_iter().chain(stderr).filter(|artifact| artifact.bytes() > 0)
    }

    /// Reads and cleans a piece.
    ///
    /// Each stream is cleaned for itself: where the other one comes between the halves of a character or
    /// of a sequence, these still belong together.
    pub(super) fn read(&self, from: u64, to: u64, edges: Edges) -> io::Result<Piece> {
        let stretches = self.clipped(from, to);
        let mut streams = Both {
            stdout: self.text(Stream::Stdout, &stretches, edges)?,
            stderr: self.text(Stream::Stderr, &stretches, edges)?,
        };
        let Both { stdout, stderr } = &streams;
        let mut piece = Piece {
            replaced: stdout.replaced || stderr.replaced,
            masked: stdout.masked || stderr.masked,
            reached: Cursor { stdout: stdout.reached, stderr: stderr.reached },
            ..Piece::default()
        };
        for stretch in stretches {
            piece.take(stretch, streams.of_mut(stretch.stream));
        }
        Ok(piece)
    }

    /// The stretches between two places of the view.
    fn clipped(&self, from: u64, to: u64) -> Vec<Stretch> {
        let mut at = 0;
        let mut clipped = Vec::new();
        for stretch in &self.stretches {
            let begin = stretch.from + from.saturating_sub(at).min(stretch.bytes());
            let end = stretch.from + to.saturating_sub(at).min(stretch.bytes());
            if begin < end {
                clipped.push(Stretch { from: begin, to: end, ..*stretch });
            }
            at += stretch.bytes();
        }
        clipped
    }

    /// The text of one stream: the one place where bytes become what a model reads.
    fn text(&self, stream: Stream, stretches: &[Stretch], edges: Edges) -> io::Result<Text> {
        let mut own = stretches.iter().filter(|stretch| stretch.stream == stream);
        let (Some(artifact), Some(first)) = (self.streams.of(stream), own.next()) else {
            return Ok(Text { reached: self.from.of(stream), ..Text::default() });
        };
        let to = own.next_back().unwrap_or(first).to;
        // A secret may have begun before.
        let lead = first.from.min(self.mask.reach() as u64);
        let raw = artifact.read(first.from - lead, to - first.from + lead)?;
        let is_end = edges.complete && to == artifact.bytes();
        let end = if is_end { End::Final } else { End::Open };
        let lead = usize::try_from(lead).unwrap_or(0).min(raw.len());
        Ok(Text::new(self.mask, raw, lead, first.from, edges.inside, end))
    }
}

/// The cleaned part of one stream.
#[derive(Debug, Default)]
struct Text {
    raw: Vec<u8>,
    start: u64,
    cells: Option<Peekable<vec::IntoIter<Cell>>>,
    replaced: bool,
    masked: bool,
    reached: u64,
}

impl Text {
    /// The text of raw bytes behind a lead.
    fn new(mask: &Mask, mut raw: Vec<u8>, lead: usize, start: u64, inside: bool, end: End) -> Self {
        let Scan { mut secrets, held } = Scan::of(mask, &raw, lead, end);
        raw.drain(..lead);
        let is_inside = |byte: &&u8| inside && **byte & 0xc0 == 0x80;
        let broken = raw.iter().take(3).take_while(is_inside).count();
        for secret in &mut secrets {
            secret.start = secret.start.saturating_sub(broken);
            secret.end = secret.end.saturating_sub(broken);
        }
        let held = held.max(broken).min(raw.len());
        let cleaned = clean(raw.get(broken..held).unwrap_or_default(), end, &secrets);
        let replaced = cleaned.replaced;
        let reached = start + (broken + cleaned.reached) as u64;
        let (mut cells, masked) = marked(mask, cleaned, &secrets);
        for cell in &mut cells {
            cell.end += broken;
        }
        let cells = Some(cells.into_iter().peekable());
        Self { raw, start, cells, replaced, masked, reached }
    }

    fn bytes(&self, stretch: Stretch) -> &[u8] {
        let place = |offset: u64| usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let end = place(stretch.to).min(self.raw.len());
        self.raw.get(place(stretch.from)..end).unwrap_or_default()
    }

    /// The next cell and its end, if that is not beyond an offset of the stream.
    fn next_until(&mut self, to: u64) -> Option<(Cell, u64)> {
        let start = self.start;
        let cell = self.cells.as_mut()?.next_if(|cell| start + cell.end as u64 <= to)?;
        Some((cell, start + cell.end as u64))
    }
}

impl Piece {
    /// Appends a stretch of a stream, with the characters that end in it.
    fn take(&mut self, stretch: Stretch, text: &mut Text) {
        let begin = self.raw.len();
        self.raw.extend_from_slice(text.bytes(stretch));
        while let Some((mut cell, end)) = text.next_until(stretch.to) {
            cell.end = begin + usize::try_from(end.saturating_sub(stretch.from)).unwrap_or(0);
            self.cells.push(cell);
            self.ends.push((stretch.stream, end));
        }
    }
}
