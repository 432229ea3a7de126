//! The verbs of the command line, one file each.

pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod completions;
mod copy;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod logs;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod show;
pub(crate) mod stop;
mod tool;
pub(crate) mod tools;
pub(crate) mod wait;
