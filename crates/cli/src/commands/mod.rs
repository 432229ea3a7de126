//! The verbs, one file each.

pub(crate) mod call;
pub(crate) mod doctor;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod tools;
