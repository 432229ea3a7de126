//! The Linux side: subreaper, pidfd, `/proc`, cgroup.

mod cgroup;
mod command;
mod keep;
mod peer;
mod run;
mod signals;
mod socket;
mod spawner;
mod stop;
mod tree;
mod warden;

pub use cgroup::{CgroupKill, probe as cgroup_kill};
pub use socket::{ADOPTION_PATH_PREFIX, Received, connect, is_alive, receive, send, socket_pair};
pub use spawner::{SPAWNER_ARGUMENT, Spawner, take_over_if_spawner};
