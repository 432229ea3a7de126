//! `OutputStream`: a task's output, chunk by chunk, while it is printed.

use std::{borrow::Cow, io, sync::Arc};

use legwork_warden::folder::Stream;

use crate::{
    error::ToolError,
    output::{ArtifactReading, Cursor, Mask, MaskedStream, Piece},
    task::observe::Observer,
};

/// A piece of what a task printed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// The stream that it was printed to; a terminal counts as stdout.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How many bytes of the stream are missing before these, because they were dropped and are not
    /// stored.
    pub missing_bytes: u64,
}

impl Chunk {
    /// The bytes as text; what is no text is replaced, also a character that goes on in the next
    /// piece.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// The output of a task, from its beginning and as it comes, until the command has ended.
///
/// Both streams in the order in which they came: exactly where the command writes both to one
/// ([`Command::merged`](super::Command::merged), or a terminal), otherwise as the kernel has shown
/// it. Letting go of it changes nothing for the command.
#[derive(Debug)]
pub struct OutputStream {
    observer: Observer,
    /// The part that is being read.
    reading: Option<ArtifactReading>,
    /// How much has been read.
    seen: Cursor,
    /// Whether there may be more than that already.
    has_news: bool,
    /// Whether the command had ended before that part was opened.
    is_last: bool,
    masks: Option<Masks>,
}

/// Holds back what may be the beginning of a secret, in each stream.
#[derive(Debug)]
struct Masks {
    stdout: MaskedStream,
    stderr: MaskedStream,
}

impl OutputStream {
    pub(super) fn new(observer: Observer, masked: bool) -> Self {
        let masks = masked.then(|| Masks::new(&observer.mask()));
        let (reading, seen) = (None, Cursor::default());
        Self { observer, reading, seen, has_news: true, is_last: false, masks }
    }

    /// The next piece; none when the command has ended and all of it was given. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ToolError> {
        loop {
            let read = self.read_on();
            if let Some(chunk) = read.map_err(|error| self.observer.unreadable(&error))? {
                return Ok(Some(chunk));
            }
            if self.is_last {
                return Ok(self.masks.as_mut().and_then(Masks::rest));
            }
            if !self.has_news {
                self.observer.changed(self.seen.stdout, self.seen.stderr).await;
                self.has_news = true;
            }
            let is_over = self.observer.is_over();
            let mut output = self.observer.output().await?;
            if self.masks.is_some() {
                // Half a secret cannot be told from other text.
                output = output.in_whole_lines();
            }
            let reading = output.read_from(self.seen);
            self.reading = Some(reading.map_err(|error| self.observer.unreadable(&error))?);
            (self.has_news, self.is_last) = (false, is_over);
        }
    }

    /// The next piece of what is open.
    fn read_on(&mut self) -> io::Result<Option<Chunk>> {
        while let Some(reading) = &mut self.reading {
            let Some(Piece { stream, offset, mut bytes }) = reading.next_piece()? else {
                self.seen = reading.end();
                self.reading = None;
                break;
            };
            let seen = match stream {
                Stream::Stdout => &mut self.seen.stdout,
                Stream::Stderr => &mut self.seen.stderr,
            };
            let missing_bytes = offset.saturating_sub(*seen);
            *seen = offset + bytes.len() as u64;
            if let Some(masks) = &mut self.masks {
                bytes = masks.pass(stream, &bytes, missing_bytes > 0);
            }
            if !bytes.is_empty() || missing_bytes > 0 {
                return Ok(Some(Chunk { stream, bytes, missing_bytes }));
            }
        }
        Ok(None)
    }
}

impl Masks {
    fn new(mask: &Arc<Mask>) -> Self {
        let stream = || MaskedStream::new(mask.clone());
        Self { stdout: stream(), stderr: stream() }
    }

    fn of(&mut self, stream: Stream) -> &mut MaskedStream {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// What can be passed on now.
    fn pass(&mut self, stream: Stream, bytes: &[u8], behind_gap: bool) -> Vec<u8> {
        let mask = self.of(stream);
        if behind_gap {
            mask.skip_gap();
        }
        mask.feed(bytes)
    }

    /// What was held back, when nothing follows any more.
    fn rest(&mut self) -> Option<Chunk> {
        [Stream::Stdout, Stream::Stderr].into_iter().find_map(|stream| {
            let bytes = self.of(stream).finish();
            (!bytes.is_empty()).then_some(Chunk { stream, bytes, missing_bytes: 0 })
        })
    }
}
