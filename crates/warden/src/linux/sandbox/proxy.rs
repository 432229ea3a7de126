//! Confines the proxy of a sandbox: it reads files and connects, and that is all.

use std::{io, os::fd::AsRawFd, path::PathBuf};

use super::{capabilities::drop_capabilities, landlock::FileRules, seccomp::Filter};

/// Gives up what a proxy does not need, for this process and all of its threads to come. It reads
/// what hostile code sends, so a fault in it must not be worth much.
pub(in crate::linux) fn confine_proxy() -> io::Result<()> {
    const SET_FILTER: libc::c_int = 1;
    let is_root = rustix::process::geteuid().is_root();
    let filter = Filter::of_proxy(is_root);
    let program = filter.program();
    let rules = FileRules {
        readable: vec![PathBuf::from("/")],
        writable: Vec::new(),
        devices: Vec::new(),
        refuse_tcp: false,
    };
    // SAFETY: plain numbers, a ruleset's descriptor and a program that outlives the call; all of it
    // is about this process alone, which has one thread.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        if !drop_capabilities() || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        // A kernel without Landlock has the rest.
        if let Ok(rules) = rules.build()
            && libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
        if libc::syscall(libc::SYS_seccomp, SET_FILTER, 0, &raw const program) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
