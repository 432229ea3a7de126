//! The handlers of `/api/v1`, by what they are about.

pub(super) mod audit;
pub(super) mod follow;
pub(super) mod machine;
pub(super) mod policy;
pub(super) mod questions;
pub(super) mod raw;
pub(super) mod tasks;
pub(super) mod trials;
