//! Masks the secrets of a stream that is passed on piece by piece, and leaves every other byte as
//! it is.

use std::{io, sync::Arc};

use super::{Mask, Scan, with_markers};
use crate::output::{artifact::Artifact, clean::TextEnd};

/// A stream on its way to a reader.
#[derive(Debug)]
pub struct MaskedStream {
    mask: Arc<Mask>,
    /// The last bytes that were passed on, and behind them those that are held back.
    buffer: Vec<u8>,
    passed: usize,
}

impl MaskedStream {
    /// A stream of which nothing was passed on yet.
    pub fn new(mask: Arc<Mask>) -> Self {
        Self { mask, buffer: Vec::new(), passed: 0 }
    }

    /// A stream that goes on where an artifact ends now; what it holds back is not to be shown yet.
    pub fn behind(mask: Arc<Mask>, artifact: &Artifact) -> io::Result<Self> {
        Self::at(mask, artifact, artifact.bytes())
    }

    /// A stream that goes on at a place in an artifact: a secret that began before it is masked.
    pub fn at(mask: Arc<Mask>, artifact: &Artifact, place: u64) -> io::Result<Self> {
        let reach = mask.reach() as u64;
        let from = artifact.skip(place.saturating_sub(reach));
        let mut stream = Self::new(mask);
        // Across the gap nothing belongs together.
        let gap = artifact.gap().filter(|gap| gap.from < place);
        let from = gap.map_or(from, |gap| from.max(gap.to));
        stream.feed(&artifact.read(from, place.saturating_sub(from))?);
        Ok(stream)
    }

    /// Bytes that are held back.
    pub fn held_bytes(&self) -> u64 {
        (self.buffer.len() - self.passed) as u64
    }

    /// Takes a piece, and gives what can be passed on: the beginning of a secret has to wait for
    /// what follows.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<u8> {
        self.buffer.extend_from_slice(piece);
        self.pass(TextEnd::Open)
    }

    /// Gives what is left, at the stream's end.
    pub fn finish(&mut self) -> Vec<u8> {
        self.pass(TextEnd::Final)
    }

    fn pass(&mut self, end: TextEnd) -> Vec<u8> {
        let Scan { secrets, held } = Scan::of(&self.mask, &self.buffer, self.passed, end);
        let to = self.passed + held;
        let fresh = self.buffer.get(self.passed..to).unwrap_or_default();
        let shown = with_markers(fresh, &secrets);
        let forgotten = to.saturating_sub(self.mask.reach());
        self.buffer.drain(..forgotten);
        self.passed = to - forgotten;
        shown
    }
}

impl MaskedStream {
    /// Goes on behind a gap: what was held back is never finished, and is not shown.
    pub fn skip_gap(&mut self) {
        self.buffer.clear();
        self.passed = 0;
    }
}

/// A writer behind a masked stream.
#[derive(Debug)]
pub struct MaskedWriter<W> {
    stream: MaskedStream,
    sink: W,
}

impl<W: io::Write> MaskedWriter<W> {
    /// Masks what is written to this sink.
    pub fn new(mask: Arc<Mask>, sink: W) -> Self {
        Self { stream: MaskedStream::new(mask), sink }
    }

    /// Writes what was held back.
    pub fn finish(mut self) -> io::Result<()> {
        let rest = self.stream.finish();
        self.sink.write_all(&rest)?;
        self.sink.flush()
    }
}

impl<W: io::Write> io::Write for MaskedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shown = self.stream.feed(bytes);
        self.sink.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
