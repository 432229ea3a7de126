//! The names and the formats inside a task's folder.

use serde::{Deserialize, Serialize};

/// What was started, as the engine wrote it down.
pub const SPEC: &str = "spec";

/// Most lines of output that are held in memory and in no folder: whoever shows fewer of a longer
/// output can name its files.
pub const MEMORY_LINES_MAX: u64 = 1_500;

/// The exit record.
pub const EXIT: &str = "exit";
/// The rows that say in which order the streams grew.
pub const TIMELINE: &str = "timeline";

/// The artifact of a command with a terminal: one stream, in the place of stdout.
pub const TERMINAL: &str = "terminal";

/// One of a command's output streams; a terminal counts as stdout.
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

/// One row of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimelineRow {
    /// From `offset` on, the stream grew at this time.
    Grew {
        /// The stream that grew.
        stream: Stream,
        /// Offset in its artifact at which the new bytes begin.
        offset: u64,
        /// Microseconds since the start of the command.
        time_us: u64,
    },
    /// The terminal got this size, when its artifact had this length.
    Resized {
        /// Length of the terminal's artifact.
        offset: u64,
        /// The new size.
        size: WindowSize,
    },
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

impl Default for WindowSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

impl TimelineRow {
    /// Size of a stored row.
    pub const BYTES: usize = 16;
    const STDERR_BIT: u64 = 1 << 63;
    const RESIZED_BIT: u64 = 1 << 62;

    /// The row as it is stored: kind and offset, then the time or the size, little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let (first, second) = match self {
            Self::Grew { stream: Stream::Stdout, offset, time_us } => (offset, time_us),
            Self::Grew { stream: Stream::Stderr, offset, time_us } => {
                (offset | Self::STDERR_BIT, time_us)
            }
            Self::Resized { offset, size } => {
                (offset | Self::RESIZED_BIT, u64::from(size.rows) << 16 | u64::from(size.cols))
            }
        };
        (u128::from(second) << 64 | u128::from(first)).to_le_bytes()
    }

    /// Reads a stored row back.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let wide = u128::from_le_bytes(*bytes);
        let (first, second) = (wide as u64, (wide >> 64) as u64);
        let offset = first & !(Self::STDERR_BIT | Self::RESIZED_BIT);
        if first & Self::RESIZED_BIT != 0 {
            let size = WindowSize { rows: (second >> 16) as u16, cols: second as u16 };
            return Self::Resized { offset, size };
        }
        let stream = if first & Self::STDERR_BIT == 0 { Stream::Stdout } else { Stream::Stderr };
        Self::Grew { stream, offset, time_us: second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back() {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let row = TimelineRow::Grew { stream, offset: 1 << 40, time_us: u64::MAX - 3 };
            assert_eq!(TimelineRow::from_bytes(&row.to_bytes()), row);
        }
        let size = WindowSize { rows: 50, cols: u16::MAX };
        let row = TimelineRow::Resized { offset: 12, size };
        assert_eq!(TimelineRow::from_bytes(&row.to_bytes()), row);
    }
}
