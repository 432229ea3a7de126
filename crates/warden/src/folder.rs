//! The names and the formats inside a task's folder.

use serde::{Deserialize, Serialize};

/// What was started, as the engine wrote it down.
pub const SPEC: &str = "spec";
/// The exit record.
pub const EXIT: &str = "exit";
/// The rows that say in which order the streams grew.
pub const TIMELINE: &str = "timeline";

/// One of a command's output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Name of the stream's artifact.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One row of the timeline: from `offset` on, the stream grew at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineRow {
    /// The stream that grew.
    pub stream: Stream,
    /// Offset in its artifact at which the new bytes begin.
    pub offset: u64,
    /// Microseconds since the start of the command.
    pub time_us: u64,
}

impl TimelineRow {
    /// Size of a stored row.
    pub const BYTES: usize = 16;
    const STDERR_BIT: u64 = 1 << 63;

    /// The row as it is stored: stream and offset, then the time, little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let tag = if self.stream == Stream::Stderr { Self::STDERR_BIT } else { 0 };
        let mut bytes = [0; Self::BYTES];
        let halves =
            (self.offset | tag).to_le_bytes().into_iter().chain(self.time_us.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(halves) {
            *place = byte;
        }
        bytes
    }

    /// Reads a stored row back.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let wide = u128::from_le_bytes(*bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let first = wide as u64;
        let time_us = (wide >> 64) as u64;
        let stream = if first & Self::STDERR_BIT == 0 { Stream::Stdout } else { Stream::Stderr };
        Self { stream, offset: first & !Self::STDERR_BIT, time_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back() {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let row = TimelineRow { stream, offset: 1 << 40, time_us: u64::MAX - 3 };
            assert_eq!(TimelineRow::from_bytes(&row.to_bytes()), row);
        }
    }
}
