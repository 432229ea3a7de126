//! Wardens that are made ready ahead for trials: none, since there are no trials on Windows yet.

use std::sync::Arc;

use super::pool::{Pool, Shared};

/// The wardens that wait so.
#[derive(Debug, Default)]
pub(super) struct WardensAhead;

impl WardensAhead {
    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(super) fn ready(&self) -> usize {
        0
    }
}

impl Pool {
    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(super) fn replenish_ahead(self: &Arc<Self>, _shared: &mut Shared) {}
}
