//! The processes that use a state folder: on Windows they are not looked for, and what they hold
//! open cannot be deleted, which is said.

use std::{fmt, path::Path};

/// A process that uses the state folder: none is known.
#[derive(Debug)]
pub(super) struct Using {
    pub is_ours: bool,
}

impl fmt::Display for Using {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a process")
    }
}

impl Using {
    pub(super) fn is_helper(&self) -> bool {
        false
    }

    pub(super) fn is_above_us(&self) -> bool {
        false
    }
}

pub(super) fn using(_state: &Path) -> Vec<Using> {
    Vec::new()
}

pub(super) fn end(_state: &Path) -> Vec<Using> {
    Vec::new()
}
