//! Messages as bytes: a little-endian `u32` length, and a postcard body of that length.

use serde::{Serialize, de::DeserializeOwned};

/// Longest frame body that is read; a longer one is an error, not an allocation.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) const HEADER_BYTES: usize = 4;

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is over [`FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The body does not decode.
    #[error("a frame that does not decode")]
    Malformed,
}

/// Encodes one frame.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame =
        postcard::to_extend(message, vec![0; HEADER_BYTES]).map_err(|_| FrameError::Malformed)?;
    let length = frame.len() - HEADER_BYTES;
    let header = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_BYTES_MAX)
        .ok_or(FrameError::TooLong(length))?;
    for (place, byte) in frame.iter_mut().zip(header.to_le_bytes()) {
        *place = byte;
    }
    Ok(frame)
}

/// Takes frames out of a stream of bytes, however they were cut by the reads.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds bytes that were read.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, or says that more bytes are needed.
    pub fn next_frame<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((header, rest)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(body).map_err(|_| FrameError::Malformed)?;
        self.buffer.drain(..HEADER_BYTES + length);
        Ok(Some(message))
    }
}
