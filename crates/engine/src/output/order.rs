//! The order in which a task's stdout and stderr were printed, from its timeline file.

use std::{io, time::Duration};

use legwork_warden::{
    folder::{Stream, TimelineRow},
    gaps::Gap,
};

use super::{
    artifact::{Artifact, TaskOutput, rows},
    cursor::{Cursor, Selection},
};

/// Rows of the timeline that are looked at first, from its end on.
const ROWS_FIRST: u64 = 4096;

/// Something of each stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Both<T> {
    pub stdout: T,
    pub stderr: T,
}

impl<T> Both<T> {
    /// That of one stream.
    pub(super) fn of(&self, stream: Stream) -> &T {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// That of one stream, to change it.
    pub(super) fn of_mut(&mut self, stream: Stream) -> &mut T {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Bytes of one stream that came with none of the other between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub stream: Stream,
    pub from: u64,
    pub to: u64,
}

impl Stretch {
    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// What is left of it on both sides of a gap.
    pub(super) fn without(self, gap: Option<Gap>) -> impl Iterator<Item = Self> {
        let Gap { from, to } = gap.unwrap_or(Gap { from: self.to, to: self.to });
        let head = Self { to: self.to.min(from), ..self };
        let tail = Self { from: self.from.max(to), ..self };
        [head, tail].into_iter().filter(|part| part.from < part.to)
    }
}

/// Puts what the streams hold between two places into the order in which it came.
///
/// The rows are only hints: whatever they say, each byte is covered once, and each stream's in
/// order.
pub(super) fn stretches(
    rows: impl IntoIterator<Item = TimelineRow>,
    from: Cursor,
    to: Cursor,
) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut last: Both<Option<usize>> = Both::default();
    let ends_of_streams = [Stream::Stdout, Stream::Stderr].map(|stream| (stream, to.of(stream)));
    let begins = rows.into_iter().filter_map(|row| match row {
        TimelineRow::Grew { stream, offset, .. } => Some((stream, offset)),
        TimelineRow::Resized { .. } => None,
    });
    // A row begins a stretch of its stream; the stretch ends where the stream's next row begins.
    // The rows at the end bring nothing but the stretch of a stream that has none.
    for (stream, offset) in begins.chain(ends_of_streams) {
        let begin = match last.of(stream).and_then(|place| found.get_mut(place)) {
            Some(before) => {
                before.to = offset.clamp(before.from, before.to);
                before.to
            }
            None => from.of(stream),
        };
        *last.of_mut(stream) = Some(found.len());
        found.push(Stretch { stream, from: begin, to: to.of(stream).max(begin) });
    }
    found.retain(|stretch| stretch.from < stretch.to);
    found.dedup_by(|next, before| {
        let same = next.stream == before.stream;
        if same {
            before.to = next.to;
        }
        same
    });
    found
}

impl TaskOutput {
    /// What the selected streams hold beyond a cursor, in the order in which it came.
    /// What counts as missing is said by `gap`.
    pub(super) fn stretches(
        &self,
        selection: Selection,
        from: Cursor,
        gap: fn(&Artifact) -> Option<Gap>,
    ) -> io::Result<Vec<Stretch>> {
        let sizes = Cursor { stdout: self.stdout.bytes(), stderr: self.stderr.bytes() };
        let to = selection.moved(from, sizes);
        let is_mixed = to.stdout > from.stdout && to.stderr > from.stderr;
        let rows = if is_mixed { self.rows_since(from)? } else { Vec::new() };
        let all = stretches(rows, from, to).into_iter();
        let gap = |stream| match stream {
            Stream::Stdout => gap(&self.stdout),
            Stream::Stderr => gap(&self.stderr),
        };
        Ok(all.flat_map(|stretch| stretch.without(gap(stretch.stream))).collect())
    }

    /// How far both streams had come when the command had run for this long.
    pub fn at(&self, elapsed: Duration) -> io::Result<Cursor> {
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let mut later: Both<Option<u64>> = Both::default();
        for row in self.rows()? {
            if let TimelineRow::Grew { stream, offset, time_us } = row
                && time_us >= elapsed_us
            {
                later.of_mut(stream).get_or_insert(offset);
            }
        }
        Ok(Cursor {
            stdout: later.stdout.unwrap_or(self.stdout.bytes()),
            stderr: later.stderr.unwrap_or(self.stderr.bytes()),
        })
    }

    /// Where both streams end.
    pub fn end(&self) -> Cursor {
        Cursor { stdout: self.stdout.bytes(), stderr: self.stderr.bytes() }
    }

    /// All rows of the timeline.
    pub(super) fn rows(&self) -> io::Result<Vec<TimelineRow>> {
        Ok(rows(&self.timeline().read(0, self.timeline().bytes())?))
    }

    /// The last rows of the timeline, from where both streams were no further than the cursor.
    fn rows_since(&self, cursor: Cursor) -> io::Result<Vec<TimelineRow>> {
        let bytes_each = TimelineRow::BYTES as u64;
        let total = self.timeline().bytes() / bytes_each;
        let mut count = ROWS_FIRST.min(total);
        loop {
            let found =
                rows(&self.timeline().read((total - count) * bytes_each, count * bytes_each)?);
            if count == total || reach_back(&found, cursor) {
                return Ok(found);
            }
            count = count.saturating_mul(4).min(total);
        }
    }
}

/// Whether the rows begin before the cursor, in both streams.
fn reach_back(rows: &[TimelineRow], cursor: Cursor) -> bool {
    [Stream::Stdout, Stream::Stderr].into_iter().all(|wanted| {
        rows.iter().any(|row| {
            matches!(row, TimelineRow::Grew { stream, offset, .. }
                if *stream == wanted && *offset <= cursor.of(wanted))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(stream: Stream, offset: u64) -> TimelineRow {
        TimelineRow::Grew { stream, offset, time_us: 0 }
    }

    fn rows_of(text: &[(char, u64)]) -> Vec<TimelineRow> {
        let stream = |name| if name == 'o' { Stream::Stdout } else { Stream::Stderr };
        text.iter().map(|(name, offset)| row(stream(*name), *offset)).collect()
    }

    fn shown(found: &[Stretch]) -> Vec<(char, u64, u64)> {
        let name = |stream| if stream == Stream::Stdout { 'o' } else { 'e' };
        found.iter().map(|stretch| (name(stretch.stream), stretch.from, stretch.to)).collect()
    }

    #[test]
    fn rows_order_the_streams_whatever_they_say() {
        let from = Cursor::default();
        let to = Cursor { stdout: 10, stderr: 5 };
        for (rows, expected) in [
            (&[][..], &[('o', 0, 10), ('e', 0, 5)][..]),
            (&[('e', 0), ('o', 0)], &[('e', 0, 5), ('o', 0, 10)]),
            (&[('o', 0), ('e', 0), ('o', 4)], &[('o', 0, 4), ('e', 0, 5), ('o', 4, 10)]),
            // What came before the first row of its stream, and what no row covers.
            (&[('o', 3), ('e', 2), ('o', 4)], &[('o', 0, 4), ('e', 0, 5), ('o', 4, 10)]),
            (&[('e', 0)], &[('e', 0, 5), ('o', 0, 10)]),
            // Beyond the size, falling, and one stream again and again.
            (&[('o', 0), ('o', 99), ('e', 77), ('o', 5)], &[('o', 0, 10), ('e', 0, 5)]),
            (
                &[('o', 0), ('e', 0), ('o', 6), ('e', 1), ('o', 2), ('e', 3)],
                &[('o', 0, 6), ('e', 0, 3), ('o', 6, 10), ('e', 3, 5)],
            ),
            (&[('o', 0), ('o', 2), ('o', 4), ('e', 0)], &[('o', 0, 10), ('e', 0, 5)]),
        ] {
            let found = stretches(rows_of(rows), from, to);
            assert_eq!(shown(&found), expected, "{rows:?}");
        }
    }

    #[test]
    fn a_cursor_leaves_only_what_is_beyond_it() {
        let rows = rows_of(&[('o', 0), ('e', 0), ('o', 4), ('e', 3)]);
        let to = Cursor { stdout: 10, stderr: 5 };
        for (stdout, stderr, expected) in [
            (2, 0, &[('o', 2, 4), ('e', 0, 3), ('o', 4, 10), ('e', 3, 5)][..]),
            (4, 1, &[('e', 1, 3), ('o', 4, 10), ('e', 3, 5)]),
            (12, 1, &[('e', 1, 5)]),
            (10, 5, &[]),
        ] {
            let found = stretches(rows.clone(), Cursor { stdout, stderr }, to);
            assert_eq!(shown(&found), expected);
        }
    }

    fn assert_covers(found: &[Stretch], from: Cursor, to: Cursor) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut at = from.of(stream);
            for stretch in found.iter().filter(|stretch| stretch.stream == stream) {
                assert_eq!(stretch.from, at);
                assert!(stretch.to > at);
                at = stretch.to;
            }
            assert_eq!(at, to.of(stream).max(from.of(stream)));
        }
    }

    #[test]
    fn a_million_rows_take_linear_time() {
        let rows = (0..1_000_000).map(|place| {
            let stream = if place % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
            row(stream, place / 2)
        });
        let to = Cursor { stdout: 500_000, stderr: 500_000 };
        assert_eq!(stretches(rows, Cursor::default(), to).len(), 1_000_000);
    }

    proptest! {
        #[test]
        fn every_byte_is_covered_once(
            rows in proptest::collection::vec((any::<bool>(), 0u64..120), 0..60),
            from in (0u64..120, 0u64..120),
            to in (0u64..100, 0u64..100),
        ) {
            let stream = |first| if first { Stream::Stdout } else { Stream::Stderr };
            let rows = rows.into_iter().map(|(first, offset)| row(stream(first), offset));
            let from = Cursor { stdout: from.0, stderr: from.1 };
            let to = Cursor { stdout: to.0, stderr: to.1 };
            assert_covers(&stretches(rows, from, to), from, to);
        }
    }
}
