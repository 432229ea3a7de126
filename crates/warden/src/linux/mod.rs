//! The Linux side: subreaper, pidfd, `/proc`, cgroup.

mod cgroup;
mod command;
mod deadline;
mod input;
mod keep;
mod left;
mod limits;
mod notices;
mod peer;
mod room;
mod roster;
mod run;
mod sandbox;
mod signals;
mod socket;
mod spawner;
mod stop;
mod stored;
mod streams;
mod tree;
mod warden;
mod watching;

pub use cgroup::{CgroupKill, probe as cgroup_kill};
pub use left::end_left_by;
pub use limits::probe as cgroup_limits;
pub use socket::{connect, is_alive, resume, send, socket_pair};
pub use spawner::keep_heap;
pub use spawner::{Spawner, raise_own_open_files, take_over_if_spawner};
