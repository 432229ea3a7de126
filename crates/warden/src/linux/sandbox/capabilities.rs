//! Drops all capabilities: no sandboxed process has the rights of an administrator.

/// Gives up every capability, for good. Whether none is left.
///
/// # Safety
///
/// System calls about the calling process alone; safe between clone and exec.
pub(super) unsafe fn drop_capabilities() -> bool {
    /// `SECBIT_NOROOT`, `SECBIT_NO_SETUID_FIXUP`, `SECBIT_NO_CAP_AMBIENT_RAISE`, each with its
    /// lock.
    const NO_ROOT: u64 = 0b1110_1111;
    const VERSION_3: u32 = 0x2008_0522;
    const CAPABILITIES: u64 = 64;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // SAFETY: plain data on this stack, of the layout that the kernel documents.
    unsafe {
        for capability in 0..CAPABILITIES {
            // The first number that the kernel does not know ends it.
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0);
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        let header = Header { version: VERSION_3, pid: 0 };
        let none = [0_u32; 6];
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) == 0
    }
}
