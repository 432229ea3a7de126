//! The life of a task: planned, started, driven, observed, waited for, settled, adopted.

pub(crate) mod adopt;
pub(crate) mod failures;
pub(crate) mod login;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod settle;
pub(crate) mod start;
pub(crate) mod wait;
