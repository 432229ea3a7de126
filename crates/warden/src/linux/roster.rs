//! The spawner's list of living wardens, in memory that the wardens do not inherit.
//!
//! A warden shares the spawner's pages until one of the two writes to them. Were this list on the
//! heap, the heap would grow with every warden, and each new one would soon have a copy of all of
//! it to itself.

use std::{io, ptr::NonNull, slice};

/// Longest name of a warden.
const NAME_BYTES_MAX: usize = 58;

/// Rows that there is room for at first: one page.
const ROWS: usize = 64;

/// A warden of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Row {
    pub pid: i32,
    pub has_cgroup: bool,
    name_bytes: u8,
    name: [u8; NAME_BYTES_MAX],
}

impl Row {
    /// None if the name is too long.
    pub(super) fn new(pid: i32, name: &str, has_cgroup: bool) -> Option<Self> {
        let mut row =
            Self { pid, has_cgroup, name_bytes: u8::try_from(name.len()).ok()?, name: [0; _] };
        row.name.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(row)
    }

    pub(super) fn name(&self) -> &str {
        let bytes = self.name.get(..usize::from(self.name_bytes)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// The list. After a fork there is nothing of it in the child, which must not touch it.
#[derive(Debug)]
pub(super) struct Roster {
    /// A mapping of our own, with room for `capacity` rows, of which the first `length` are
    /// written.
    rows: NonNull<Row>,
    capacity: usize,
    length: usize,
}

impl Roster {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { rows: map(ROWS)?, capacity: ROWS, length: 0 })
    }

    /// Makes sure that there is room for one more.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        if self.length < self.capacity {
            return Ok(());
        }
        let capacity = self.capacity * 2;
        let rows = map(capacity)?;
        // SAFETY: both mappings are ours and apart, and the old one has `length` rows that are
        // written.
        unsafe { rows.copy_from_nonoverlapping(self.rows, self.length) };
        *self = Self { rows, capacity, length: self.length };
        Ok(())
    }

    /// Adds one, for which there is room.
    pub(super) fn add(&mut self, row: Row) {
        debug_assert!(self.length < self.capacity, "reserved before");
        if self.length < self.capacity {
            // SAFETY: the place is inside the mapping.
            unsafe { self.rows.add(self.length).write(row) };
            self.length += 1;
        }
    }

    /// Takes the one of this pid out.
    pub(super) fn remove(&mut self, pid: i32) -> Option<Row> {
        let place = self.rows().iter().position(|row| row.pid == pid)?;
        let last = self.rows().last().copied()?;
        let found = std::mem::replace(self.rows_mut().get_mut(place)?, last);
        self.length -= 1;
        Some(found)
    }

    pub(super) fn rows(&self) -> &[Row] {
        // SAFETY: the first `length` rows of the mapping are written, and it lives as long as the
        // list.
        unsafe { slice::from_raw_parts(self.rows.as_ptr(), self.length) }
    }

    fn rows_mut(&mut self) -> &mut [Row] {
        // SAFETY: as above, and nobody else can have a reference to them.
        unsafe { slice::from_raw_parts_mut(self.rows.as_ptr(), self.length) }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and nobody uses it any more.
        unsafe { libc::munmap(self.rows.as_ptr().cast(), self.capacity * size_of::<Row>()) };
    }
}

/// Maps room for so many rows that no child inherits.
fn map(rows: usize) -> io::Result<NonNull<Row>> {
    let bytes = rows * size_of::<Row>();
    // SAFETY: a new mapping of nothing, at a place of the kernel's choice; `Row` has a smaller
    // alignment than a page.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // If that is refused, children inherit it after all.
        let _ = libc::madvise(start, bytes, libc::MADV_DONTFORK);
        NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_there_until_it_is_removed_however_many_there_are() {
        let mut roster = Roster::new().unwrap();
        for pid in 1..=1000 {
            roster.reserve().unwrap();
            roster.add(Row::new(pid, &format!("warden-{pid}"), pid % 2 == 0).unwrap());
        }
        for pid in (1..=1000).rev().step_by(3) {
            let row = roster.remove(pid).unwrap();
            assert_eq!((row.name(), row.has_cgroup), (&*format!("warden-{pid}"), pid % 2 == 0));
            assert_eq!(roster.remove(pid), None);
        }
        assert_eq!(roster.rows().len(), 666);
        assert!(roster.rows().iter().all(|row| row.pid % 3 != 1));
        assert_eq!(Row::new(1, &"x".repeat(NAME_BYTES_MAX + 1), false), None);
    }
}
