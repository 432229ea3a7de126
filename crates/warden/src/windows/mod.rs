//! The Windows implementation: one warden process for one command, a job object, named pipes, a
//! hidden console.

mod api;
mod console;
mod facts;
pub(crate) mod files;
mod job;
mod launch;
mod operation;
mod peer;
mod pipe;
mod port;
mod process;
mod quoting;
mod run;
mod security;
mod signal;
mod starting;
mod stop;
mod streams;
mod terminal;
mod warden;
mod watching;

pub(crate) use facts::since_boot;
pub use facts::{
    FileLock, awake_ms, command_line, file_identity, lock_file, make_private_file,
    make_private_folder, process_started, replace_file, since_boot_ms, unlock_file,
};
pub use job::is_held_by_job;
pub use launch::{LaunchedWarden, WardenOffer, end_left_by, is_alive, take_over_if_spawner};
pub use pipe::warden_pipe;
pub use signal::Signal;

/// There is one heap here.
pub fn share_heap() {}

/// What is freed is kept here anyway.
pub fn keep_heap() {}

/// There is no such limit here.
pub fn raise_own_open_files() {}

/// There is no spawner here.
pub fn fork_spawner_ahead() {}

/// What is freed goes back by itself.
pub(crate) fn give_back_memory() {}

/// Ends this process at once, as if somebody else had.
#[cfg(debug_assertions)]
pub(crate) fn end_self() -> ! {
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
    // SAFETY: ends this process; nothing is looked at afterwards.
    unsafe { TerminateProcess(GetCurrentProcess(), 9) };
    std::process::abort()
}
