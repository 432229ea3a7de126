//! Reads an output in chunks of bounded size, in the order in which it was printed.

use std::{collections::VecDeque, io};

use legwork_warden::folder::Stream;

use super::{
    artifact::{Artifact, TaskOutput},
    cursor::{Cursor, Selection},
    order::Stretch,
};

/// Most bytes of a piece.
const PIECE_BYTES: u64 = 64 * 1024;

/// An output that is being read, as it was when it was opened.
#[derive(Debug)]
pub struct ArtifactReading {
    output: TaskOutput,
    /// What is left of it.
    stretches: VecDeque<Stretch>,
}

/// A piece of one stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream; a terminal counts as stdout.
    pub stream: Stream,
    /// Where it begins in its stream.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl TaskOutput {
    /// Begins to read what both streams hold beyond a cursor.
    pub fn read_from(self, cursor: Cursor) -> io::Result<ArtifactReading> {
        let stretches = self.stretches(Selection::Both, cursor, Artifact::gap)?.into();
        Ok(ArtifactReading { output: self, stretches })
    }
}

impl ArtifactReading {
    /// The next piece; none when all of it has been read. What is dropped meanwhile is passed over.
    pub fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        while let Some(stretch) = self.stretches.front_mut() {
            let (stream, offset) = (stretch.stream, stretch.from);
            let artifact = match stream {
                Stream::Stdout => &self.output.stdout,
                Stream::Stderr => &self.output.stderr,
            };
            let bytes = artifact.read(offset, stretch.bytes().min(PIECE_BYTES))?;
            stretch.from += bytes.len() as u64;
            if bytes.is_empty() || stretch.bytes() == 0 {
                self.stretches.pop_front();
            }
            if !bytes.is_empty() {
                return Ok(Some(Piece { stream, offset, bytes }));
            }
        }
        Ok(None)
    }

    /// Where it ends.
    pub fn end(&self) -> Cursor {
        Cursor { stdout: self.output.stdout.bytes(), stderr: self.output.stderr.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use legwork_warden::folder::TimelineRow;

    use super::*;
    use crate::output::SmallOutput;

    fn all(mut reading: ArtifactReading) -> Vec<(Stream, u64, usize)> {
        let mut pieces = Vec::new();
        while let Some(piece) = reading.next_piece().unwrap() {
            pieces.push((piece.stream, piece.offset, piece.bytes.len()));
        }
        pieces
    }

    #[test]
    fn pieces_come_in_order_and_are_never_long() {
        let rows = [(Stream::Stdout, 0), (Stream::Stderr, 0), (Stream::Stdout, 3)];
        let row = |(stream, offset)| TimelineRow::Grew { stream, offset, time_us: 0 }.to_bytes();
        let small = SmallOutput {
            stdout: vec![b'o'; 3 + 70_000],
            stderr: b"err".to_vec(),
            timeline: rows.into_iter().flat_map(row).collect(),
        };
        let reading = TaskOutput::from(&small).read_from(Cursor::default()).unwrap();
        assert_eq!(reading.end(), Cursor { stdout: 70_003, stderr: 3 });
        assert_eq!(
            all(reading),
            [
                (Stream::Stdout, 0, 3),
                (Stream::Stderr, 0, 3),
                (Stream::Stdout, 3, 65_536),
                (Stream::Stdout, 65_539, 4_464),
            ]
        );
        let rest = TaskOutput::from(&small).read_from(Cursor { stdout: 70_000, stderr: 3 });
        assert_eq!(all(rest.unwrap()), [(Stream::Stdout, 70_000, 3)]);
    }

    #[test]
    fn a_gap_is_passed_over() {
        let mut output = TaskOutput::default();
        output.stdout = Artifact::of(b"head|dropped|tail").with_gap(4, 13);
        let pieces = all(output.read_from(Cursor::default()).unwrap());
        assert_eq!(pieces, [(Stream::Stdout, 0, 4), (Stream::Stdout, 13, 4)]);
    }
}
