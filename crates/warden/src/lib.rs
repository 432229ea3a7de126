//! Supervises one command and all its descendants.
//!
//! Theory of operation. An *engine* starts one *spawner*: the same program, executed again, so that
//! it has a small address space and one thread; a program that runs one command and ends forks it
//! instead, which is quicker. For each command the spawner forks a *warden*. The
//! warden is a child subreaper in its own session: whatever the command starts stays below it. It
//! owns the pipes, keeps the output in the task's folder, enforces the deadline, stops the whole
//! tree when asked, and writes the exit record. It outlives the engine: dropping a channel never
//! stops a command.
//!
//! The engine talks to a warden through [`protocol`] frames on a socket, and reads what the warden
//! left in the task's folder ([`folder`], [`record`]). Nothing else passes between them.
//!
//! Everything that is of one platform lives in the `linux` or the `windows` module; what it offers
//! to the rest is re-exported here and is the whole seam. On Windows there is no spawner: an engine
//! starts a warden for each command, which is the same program, executed again.

#[cfg_attr(windows, allow(dead_code, reason = "programs are held on Linux only"))]
pub mod exec;
pub mod failpoint;
pub mod folder;
pub mod gaps;
pub mod network;
pub mod protocol;
pub mod record;
pub mod sandbox;

mod deadline;
#[cfg_attr(windows, allow(dead_code, reason = "some of it is for Linux only"))]
mod keep;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "linux")]
pub use linux::{
    CONNECT_ARGUMENT, CgroupKill, Spawner, cgroup_kill, cgroup_limits, command_line, connect,
    end_left_by, fork_spawner_ahead, is_alive, keep_heap, raise_own_open_files, resume, send,
    share_heap, socket_pair, take_over_if_spawner,
};

#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;
#[cfg(windows)]
pub use windows::{
    FileLock, LaunchedWarden, Signal, WardenOffer, awake_ms, command_line, end_left_by,
    file_identity, fork_spawner_ahead, is_alive, is_held_by_job, keep_heap, lock_file,
    make_private_file, make_private_folder, process_started, raise_own_open_files, replace_file,
    share_heap, since_boot_ms, take_over_if_spawner, unlock_file, warden_pipe,
};

#[cfg(not(any(target_os = "linux", windows)))]
compile_error!("the warden has been built for Linux and Windows only so far");
