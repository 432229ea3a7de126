//! The verbs of the command line, one file each.

pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod audit;
mod background;
pub(crate) mod call;
pub(crate) mod complete_ids;
pub(crate) mod completions;
mod copy;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod hook;
mod listed;
mod log_lines;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod overview;
pub(crate) mod places;
pub(crate) mod policy;
pub(crate) mod post;
mod program;
pub(crate) mod ps;
mod remedy;
mod resources;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod setup;
pub(crate) mod show;
pub(crate) mod stop;
pub(crate) mod token;
mod tool;
pub(crate) mod tools;
#[cfg(unix)]
pub(crate) mod top;
#[cfg(windows)]
#[path = "../windows/top.rs"]
pub(crate) mod top;
pub(crate) mod trials;
pub(crate) mod wait;
