//! Gaps: the part of each stream that was not kept, noted behind the exit record in its file.
//!
//! Artifacts keep the offsets of the streams: a byte is where it was when it came, whatever was
//! dropped before it. A gap is noted before its bytes are removed, so that whoever reads first and
//! looks here afterwards never takes what is gone for zeros that were printed. The space is
//! reserved together with the record's.

use crate::{folder::Stream, record::RECORD_BYTES};

/// Where the gaps begin in the file of the exit record.
pub const GAPS_AT: u64 = RECORD_BYTES as u64;

/// Size of the stored gaps.
pub const GAPS_BYTES: usize = 36;

const CHECKSUM_AT: usize = GAPS_BYTES - 4;

/// A stretch of a stream that is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first byte that is not kept.
    pub from: u64,
    /// The first byte behind it that is.
    pub to: u64,
}

impl Gap {
    /// How many bytes are not kept.
    pub fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The gaps of both streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Of stdout.
    pub stdout: Option<Gap>,
    /// Of stderr.
    pub stderr: Option<Gap>,
}

impl Gaps {
    /// That of one stream.
    pub fn of(&self, stream: Stream) -> Option<Gap> {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    /// The gaps as they are stored: four offsets and their CRC-32, little-endian.
    pub fn to_bytes(self) -> [u8; GAPS_BYTES] {
        let ends = |gap: Option<Gap>| gap.map_or([0, 0], |gap| [gap.from, gap.to]);
        let offsets = [ends(self.stdout), ends(self.stderr)];
        let mut body: Vec<u8> =
            offsets.as_flattened().iter().flat_map(|at| at.to_le_bytes()).collect();
        body.extend(crc32fast::hash(&body).to_le_bytes());
        body.try_into().unwrap_or([0; GAPS_BYTES])
    }

    /// Reads them back; none if they are torn. Where nothing was ever noted there is no gap.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::default());
        }
        let (body, checksum) = bytes.split_at_checked(CHECKSUM_AT)?;
        if crc32fast::hash(body).to_le_bytes() != checksum {
            return None;
        }
        let (numbers, _) = body.as_chunks::<8>();
        let mut offsets = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut gap = || {
            let gap = Gap { from: offsets.next()?, to: offsets.next()? };
            (gap.bytes() > 0).then_some(gap)
        };
        Some(Self { stdout: gap(), stderr: gap() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_read_back_and_torn_ones_do_not() {
        let gap = Some(Gap { from: 3, to: u64::MAX });
        for gaps in [
            Gaps { stdout: gap, stderr: None },
            Gaps { stdout: None, stderr: gap },
            Gaps { stdout: gap, stderr: gap },
        ] {
            let bytes = gaps.to_bytes();
            assert_eq!(Gaps::from_bytes(&bytes), Some(gaps));
            for place in 0..GAPS_BYTES {
                let mut altered = bytes;
                altered[place] ^= 4;
                assert_eq!(Gaps::from_bytes(&altered), None, "{place}");
            }
        }
        assert_eq!(Gaps::from_bytes(&[0; GAPS_BYTES]), Some(Gaps::default()));
    }
}
