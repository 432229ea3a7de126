//! What the C libraries name differently: glibc, musl.

use std::ffi::c_uint;

// The number of a limit of a process.
#[cfg(target_env = "gnu")]
pub(super) use libc::__rlimit_resource_t as LimitNumber;
#[cfg(not(target_env = "gnu"))]
pub(super) use libc::c_int as LimitNumber;

/// Closes these descriptors, or with a flag lets them be closed by an exec, where the kernel can
/// (5.9; the flag needs 5.11). By its number: musl has no name for the call.
///
/// # Safety
///
/// Nothing may use a closed descriptor afterwards.
pub(super) unsafe fn close_range(first: c_uint, last: c_uint, flags: c_uint) {
    // SAFETY: plain numbers; the caller answers for the descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}
