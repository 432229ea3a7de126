//! Stores the bytes of one stream, in memory or in a file, and knows what was dropped.
//!
//! A file keeps the offsets of its stream. What is dropped from its middle becomes a hole: the disk
//! is given back, and everything behind it stays where it is.

use std::{fs::File, io};

use crate::{
    gaps::Gap,
    record::StreamTotal,
    system::files::{punch_hole, write_at},
};

/// What is stored of one stream.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub memory: Vec<u8>,
    pub file: Option<File>,
    pub gap: Option<Gap>,
    /// Bytes that came, kept or not.
    pub came: u64,
    lines: u64,
}

impl Stored {
    /// Bytes that are kept.
    pub(super) fn kept(&self) -> u64 {
        self.came - self.gap.map_or(0, |gap| gap.bytes())
    }

    /// Lines that came.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// What an exit record says of it.
    pub(super) fn total(&self) -> StreamTotal {
        let dropped_bytes = self.came - self.kept();
        StreamTotal { bytes: self.kept(), lines: self.lines, dropped_bytes }
    }

    /// Keeps what there is room for in memory; the rest is dropped.
    pub(super) fn append_to_memory(&mut self, bytes: &[u8], room: u64) {
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let (stored, dropped) = bytes.split_at(fits);
        self.memory.extend_from_slice(stored);
        self.count(stored);
        if !dropped.is_empty() {
            self.lose(dropped);
        }
    }

    /// Writes to the file, and returns what could not be written, with the reason.
    pub(super) fn append_to_file<'b>(
        &mut self,
        bytes: &'b [u8],
    ) -> Result<(), (&'b [u8], io::Error)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match &self.file {
                Some(file) => write_at(file, rest, self.came),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            match written {
                Ok(0) => return Err((rest, io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    let (stored, left) = rest.split_at(written);
                    self.count(stored);
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((rest, error)),
            }
        }
        Ok(())
    }

    /// Drops what came last. There is one gap, so what is behind an earlier one goes with it.
    pub(super) fn lose(&mut self, bytes: &[u8]) {
        let from = self.gap.map_or(self.came, |gap| gap.from);
        self.count(bytes);
        self.gap = Some(Gap { from, to: self.came });
    }

    /// The gap that leaves this much: of the head and of the tail one half each, as far as they are
    /// there.
    pub(super) fn gap_for(&self, kept: u64) -> Gap {
        let Gap { from, to } = self.gap.unwrap_or(Gap { from: self.came, to: 0 });
        let tail = kept.div_ceil(2).min(self.came.saturating_sub(to));
        let head = from.min(kept - tail);
        Gap { from: head, to: self.came - (kept - head) }
    }

    /// Gives the disk back that the gap takes.
    pub(super) fn punch(&mut self) {
        let (Some(file), Some(gap)) = (&self.file, self.gap) else { return };
        if punch_hole(file, gap.from, gap.bytes()).is_ok() {
            return;
        }
        // A filesystem without holes in the middle keeps the head, and what comes from now on.
        self.gap = Some(Gap { from: gap.from, to: self.came });
        let _ = file.set_len(gap.from);
    }

    fn count(&mut self, bytes: &[u8]) {
        self.came += bytes.len() as u64;
        self.lines += newlines(bytes);
    }
}

/// Counts newlines, of every byte that a command prints.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_gap_only_grows_and_leaves_what_was_asked_for(
            steps in proptest::collection::vec((1u64..1000, 0u64..1000), 1..30),
        ) {
            let mut stored = Stored::default();
            for (more, goal) in steps {
                stored.came += more;
                if stored.kept() <= goal {
                    continue;
                }
                let before = stored.gap;
                let gap = stored.gap_for(goal);
                stored.gap = Some(gap);
                prop_assert_eq!(stored.kept(), goal);
                prop_assert!(gap.from <= gap.to && gap.to <= stored.came);
                if let Some(before) = before {
                    prop_assert!(gap.from <= before.from && gap.to >= before.to);
                }
            }
        }
    }

    #[test]
    fn where_no_hole_can_be_made_the_head_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, [b'x'; 1000]).unwrap();
        // A file that cannot be written stands for a filesystem that knows no holes.
        let mut stored = Stored { came: 1000, file: File::open(&path).ok(), ..Stored::default() };
        stored.gap = Some(stored.gap_for(100));
        stored.punch();
        assert_eq!((stored.gap, stored.kept()), (Some(Gap { from: 50, to: 1000 }), 50));
    }

    #[test]
    fn half_is_head_and_half_is_tail() {
        let mut stored = Stored { came: 1000, ..Stored::default() };
        stored.gap = Some(stored.gap_for(100));
        assert_eq!(stored.gap, Some(Gap { from: 50, to: 950 }));
        stored.came = 5000;
        assert_eq!(stored.gap_for(100), Gap { from: 50, to: 4950 });
        assert_eq!(stored.gap_for(10), Gap { from: 5, to: 4995 });
    }
}
