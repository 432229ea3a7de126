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
pub use socket::{is_alive, send, socket_pair};
pub use spawner::{Spawner, take_over_if_spawner};
