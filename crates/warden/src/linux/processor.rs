//! Which processors a warden may run on: with its engine while a command is young, anywhere else later.
//!
//! Waking a process on another, sleeping processor costs more than all else that a warden does for a short
//! command. The command itself is never bound.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the warden may run, and where it is bound to.
#[derive(Debug)]
pub(super) struct Processors {
    /// As it was started: what commands get.
    pub all: Option<CpuSet>,
    bound_to: Option<u32>,
}

impl Processors {
    pub(super) fn new() -> Self {
        Self { all: sched_getaffinity(None).ok(), bound_to: None }
    }

    /// Binds the warden to a processor, or to none.
    pub(super) fn bind(&mut self, processor: Option<u32>) {
        let Some(all) = self.all.filter(|_| self.bound_to != processor) else { return };
        let mut one = CpuSet::new();
        let wanted = match processor.and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number < CpuSet::MAX_CPU && all.is_set(number) => {
                one.set(number);
                &one
            }
            _ => &all,
        };
        // A hint: where it cannot be followed, the command runs all the same.
        if sched_setaffinity(None, wanted).is_ok() {
            self.bound_to = processor;
        }
    }
}
