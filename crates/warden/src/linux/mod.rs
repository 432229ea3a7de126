//! The Linux implementation: child subreaper, pidfds, `/proc`, cgroups, namespaces.

mod cgroup;
mod clock;
mod command;
mod copied;
mod execs;
pub(crate) mod files;
mod input;
mod launch;
mod left;
mod libcs;
mod limits;
mod memory;
mod notices;
mod peer;
mod proxy;
mod resources;
mod roster;
mod run;
mod sandbox;
mod signals;
mod socket;
mod spawner;
mod stack;
mod stop;
mod streams;
mod tree;
mod warden;
mod watching;

pub(crate) use clock::since_boot;
pub(crate) use memory::give_back_memory;
#[cfg(debug_assertions)]
pub(crate) use signals::end_self;

pub use cgroup::{CgroupKill, probe as cgroup_kill};
pub use execs::command_line;
pub use launch::{Spawner, fork_spawner_ahead, raise_own_open_files, take_over_if_spawner};
pub use left::end_left_by;
pub use limits::probe as cgroup_limits;
pub use memory::{keep_heap, share_heap};
pub use proxy::CONNECT_ARGUMENT;
pub use socket::{connect, is_alive, resume, send, socket_pair};
