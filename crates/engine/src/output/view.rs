//! Merges a task's stdout and stderr into one sequence of bytes, in the order in which they were
//! printed.

use std::{collections::VecDeque, io, path::Path};

use legwork_warden::{folder::Stream, gaps::Gap};

use super::{
    artifact::{Artifact, TaskOutput},
    clean::{Cell, TextEnd, clean},
    cursor::{Cursor, Selection},
    look::TextLook,
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
pub(super) struct ViewPiece {
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
        let stretches = self.stretches(selection, from, Artifact::shown_gap)?;
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
        let shown = whole.without(artifact.shown_gap()).collect();
        Self::new(mask, streams, Cursor::default(), shown)
    }

    /// The cursor behind which it begins.
    pub(super) fn from(&self) -> Cursor {
        self.from
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is missing: where in the view, how many bytes, and how many of those were dropped.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        [Stream::Stdout, Stream::Stderr].into_iter().filter_map(|stream| {
            let gap = self.gap(stream)?;
            let begins = |stretch: &Stretch| stretch.stream == stream && stretch.from >= gap.to;
            let place = self.stretches.iter().take_while(|stretch| !begins(stretch));
            Some((place.map(Stretch::bytes).sum(), gap.to - gap.from, gap.dropped))
        })
    }

    /// What is missing of a stream beyond the view's beginning.
    fn gap(&self, stream: Stream) -> Option<Missing> {
        let (artifact, seen) = (self.streams.of(stream).as_ref()?, self.from.of(stream));
        let (gap, shown) = (artifact.gap()?, artifact.shown_gap()?);
        let unseen = |gap: Gap| Gap { from: gap.from.max(seen), to: gap.to };
        let missing =
            Missing { from: unseen(shown).from, to: shown.to, dropped: unseen(gap).bytes() };
        (seen < shown.to).then_some(missing)
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
    /// Each stream is cleaned for itself: where the other one comes between the halves of a
    /// character or of a sequence, these still belong together.
    pub(super) fn read(&self, from: u64, to: u64, edges: Edges) -> io::Result<ViewPiece> {
        let stretches = self.clipped(from, to);
        let mut streams = Both {
            stdout: self.text(Stream::Stdout, &stretches, edges)?,
            stderr: self.text(Stream::Stderr, &stretches, edges)?,
        };
        let Both { stdout, stderr } = &streams;
        let mut piece = ViewPiece {
            replaced: stdout.replaced || stderr.replaced,
            masked: stdout.masked || stderr.masked,
            reached: Cursor { stdout: stdout.reached, stderr: stderr.reached },
            ..ViewPiece::default()
        };
        for stretch in stretches {
            piece.take(stretch, streams.of_mut(stretch.stream));
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            // A gap at the end has no stretch behind it.
            if let Some(Missing { to, .. }) = self.gap(stream) {
                piece.take(Stretch { stream, from: to, to }, streams.of_mut(stream));
            }
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
            return Ok(self.text_of_nothing(stream));
        };
        let to = own.next_back().unwrap_or(first).to;
        let goes_to = artifact.shown_gap().filter(|gap| gap.from == to).map_or(to, |gap| gap.to);
        let is_end = edges.complete && goes_to == artifact.bytes();
        let end = if is_end { TextEnd::Final } else { TextEnd::Open };
        let passes = |gap: &Missing| to > gap.to || (to == gap.from && gap.to == artifact.bytes());
        let mut text = Text::default();
        let Some(gap) = self.gap(stream).filter(|gap| first.from <= gap.to && passes(gap)) else {
            text.add(self.segment(artifact, (first.from, to), edges.inside, end)?);
            return Ok(text);
        };
        if first.from < gap.from {
            // What the head does not finish was never finished, as far as anybody can know.
            text.add(self.segment(
                artifact,
                (first.from, gap.from),
                edges.inside,
                TextEnd::Open,
            )?);
        }
        text.mark(gap);
        if to > gap.to {
            text.add(self.segment(artifact, (gap.to, to), false, end)?);
        }
        Ok(text)
    }

    /// The text of a stream of which nothing is read: a marker if there is nothing left but a gap.
    fn text_of_nothing(&self, stream: Stream) -> Text {
        let has_more = self.stretches.iter().any(|stretch| stretch.stream == stream);
        let mut text = Text { reached: self.from.of(stream), ..Text::default() };
        if let Some(gap) = self.gap(stream).filter(|_| !has_more) {
            text.mark(gap);
        }
        text
    }

    /// Reads, masks and cleans what stands between two places with no gap between them.
    fn segment(
        &self,
        artifact: &Artifact,
        (from, to): (u64, u64),
        inside: bool,
        end: TextEnd,
    ) -> io::Result<Segment> {
        // A secret may have begun before.
        let kept_from = artifact.gap().filter(|gap| gap.to <= from).map_or(0, |gap| gap.to);
        let lead = (from - kept_from).min(self.mask.reach() as u64);
        let raw = artifact.read(from - lead, to - from + lead)?;
        let lead = usize::try_from(lead).unwrap_or(0).min(raw.len());
        Ok(Segment::new(self.mask, raw, lead, from, inside, end))
    }
}

/// What is missing of a stream.
#[derive(Debug, Clone, Copy)]
struct Missing {
    from: u64,
    to: u64,
    /// How many bytes of it are not stored; the others are lines that were cut.
    dropped: u64,
}

impl Missing {
    /// What stands in its place.
    fn marker(&self, passed: u64) -> String {
        let hidden = (self.to - passed.min(self.from)).saturating_sub(self.dropped);
        let beside = match hidden {
            0 => String::new(),
            hidden => format!(", {hidden} beside them are not shown"),
        };
        format!("\n[... {} bytes were dropped and are not stored{beside} ...]\n", self.dropped)
    }
}

/// A cleaned part of one stream, without a gap.
#[derive(Debug)]
struct Segment {
    raw: Vec<u8>,
    start: u64,
    cells: Vec<Cell>,
    replaced: bool,
    masked: bool,
    reached: u64,
}

impl Segment {
    /// The text of raw bytes behind a lead.
    fn new(
        mask: &Mask,
        mut raw: Vec<u8>,
        lead: usize,
        start: u64,
        inside: bool,
        end: TextEnd,
    ) -> Self {
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
        Self { raw, start, cells, replaced, masked, reached }
    }
}

/// The cleaned part of one stream.
#[derive(Debug, Default)]
struct Text {
    /// The bytes, and where they begin.
    raw: Vec<(u64, Vec<u8>)>,
    /// The cells, each with its end in the stream.
    cells: VecDeque<(Cell, u64)>,
    replaced: bool,
    masked: bool,
    reached: u64,
}

impl Text {
    fn add(&mut self, segment: Segment) {
        let Segment { raw, start, cells, replaced, masked, reached } = segment;
        self.cells.extend(cells.into_iter().map(|cell| (cell, start + cell.end as u64)));
        self.raw.push((start, raw));
        self.replaced |= replaced;
        self.masked |= masked;
        self.reached = reached;
    }

    /// Says what is missing here. The whole marker ends where the gap does, so that it is never
    /// cut.
    fn mark(&mut self, gap: Missing) {
        if gap.dropped > 0 {
            let passed = if self.raw.is_empty() { gap.from } else { self.reached };
            let cell = |character| {
                (Cell { character, end: 0, secret: 0, look: TextLook::default() }, gap.to)
            };
            self.cells.extend(gap.marker(passed).chars().map(cell));
        }
        self.reached = gap.to;
    }

    fn bytes(&self, stretch: Stretch) -> &[u8] {
        let found = self.raw.iter().rev().find(|(start, _)| *start <= stretch.from);
        let Some((start, raw)) = found else { return &[] };
        let place = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        let end = place(stretch.to).min(raw.len());
        raw.get(place(stretch.from)..end).unwrap_or_default()
    }

    /// The next cell and its end, if that is not beyond an offset of the stream.
    fn next_until(&mut self, to: u64) -> Option<(Cell, u64)> {
        let is_due = self.cells.front().is_some_and(|(_, end)| *end <= to);
        if is_due { self.cells.pop_front() } else { None }
    }
}

impl ViewPiece {
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
