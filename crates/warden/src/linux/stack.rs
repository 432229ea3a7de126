//! The stack of a process that lives in the warden's memory until it executes or ends.

use std::{ffi::c_void, fmt, mem::MaybeUninit};

/// Memory for such a stack. Whoever drops it answers for that the process does not use it any more.
pub(super) struct Stack(Vec<MaybeUninit<u8>>);

impl Stack {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Where it begins: it grows down.
    pub(super) fn top(&mut self) -> *mut c_void {
        // SAFETY: the end of a live allocation, aligned down inside it.
        unsafe {
            let top = self.0.as_mut_ptr().add(self.0.capacity());
            top.sub(top.addr() & 15).cast()
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stack").finish_non_exhaustive()
    }
}
