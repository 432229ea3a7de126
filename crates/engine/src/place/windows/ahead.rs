//! Wardens that are made ready ahead for a command that sees folders as copies: none, since no
//! command does on Windows yet.

use std::sync::Arc;

use super::{
    pool::{Pool, Shared},
    sandbox::CopiesFor,
};

/// The wardens that wait so.
#[derive(Debug, Default)]
pub(super) struct WardensAhead;

impl WardensAhead {
    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(super) fn expect(&mut self, _copies: CopiesFor) {}

    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(super) fn ready(&self) -> usize {
        0
    }
}

impl Pool {
    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(super) fn replenish_ahead(self: &Arc<Self>, _shared: &mut Shared) {}
}
