//! The heap of the program.

/// Gives unused heap back: a run that spills is long, and there may be thousands of them.
pub(crate) fn give_back_memory() {
    // SAFETY: it only releases what the allocator itself knows to be free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets all threads of this process allocate from one heap. The library would give each thread one
/// of its own, which grows page by page, with a system call each, and keeps what is freed in it;
/// ours do one short job after another. For a program, not for a library: call it first in `main`.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator, before there are threads.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Lets this process keep the memory that it frees: giving it back and asking for it again with
/// every command costs more than the command's own bookkeeping. For a program that serves many;
/// wardens do the opposite.
pub fn keep_heap() {
    #[cfg(target_env = "gnu")]
    {
        const KEPT_BYTES: libc::c_int = 4 * 1024 * 1024;
        // SAFETY: sets a number of the allocator, before anything depends on it.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) };
    }
}
