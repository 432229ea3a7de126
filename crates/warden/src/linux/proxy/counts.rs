//! What connections came to, counted in memory that a proxy and its warden share: a proxy that is
//! killed takes no number along.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::TOTALS_MAX;

/// The verdicts that names beyond [`TOTALS_MAX`] are counted together by.
const OTHERS_MAX: usize = 6;

/// Names, and verdicts on all others, that there are numbers of.
pub(super) const PLACES: usize = TOTALS_MAX + OTHERS_MAX;

/// The numbers of one name.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct NameCounts {
    pub connections: AtomicU64,
    pub bytes_out: AtomicU64,
    pub bytes_in: AtomicU64,
}

impl NameCounts {
    /// Connections, bytes out and bytes in, as of now.
    pub(super) fn read(&self) -> [u64; 3] {
        [&self.connections, &self.bytes_out, &self.bytes_in].map(|number| number.load(Relaxed))
    }
}

/// The numbers of all names. They are the same in a process that is forked afterwards.
#[derive(Debug)]
pub(super) struct SharedCounts {
    start: NonNull<[NameCounts; PLACES + 1]>,
}

// SAFETY: what it leads to is atomic, and stays for as long as this does.
unsafe impl Send for SharedCounts {}
// SAFETY: as above.
unsafe impl Sync for SharedCounts {}

impl SharedCounts {
    const BYTES: usize = size_of::<[NameCounts; PLACES + 1]>();

    pub(super) fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, wherever the kernel likes, that nobody else has.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), Self::BYTES, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start })
    }

    /// The numbers of the name with this place; those beyond the last share one.
    pub(super) fn at(&self, place: usize) -> &NameCounts {
        // SAFETY: the memory is as large as this array, aligned to a page, and was filled with
        // zeros, which are numbers; it is freed only when this is dropped.
        let [beyond, all @ ..] = unsafe { self.start.as_ref() };
        all.get(place).unwrap_or(beyond)
    }
}

impl Drop for SharedCounts {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody can reach it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_counted_is_known() {
        let counts = SharedCounts::new().unwrap();
        let last = PLACES - 1;
        // SAFETY: the child counts, and is killed by itself; it uses nothing that a lock guards.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                counts.at(last).bytes_out.fetch_add(7, Relaxed);
                libc::raise(libc::SIGKILL);
            }
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
        }
        assert_eq!(counts.at(last).read(), [0, 7, 0]);
        assert_eq!([counts.at(0).read(), counts.at(PLACES).read()], [[0; 3]; 2]);
    }
}
