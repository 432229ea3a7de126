//! The mask of one engine, which grows with the secrets that commands are given.

use std::sync::{Arc, PoisonError, RwLock};

use super::Mask;

/// What no answer, event or note may show. Cheap to clone; all clones are the same mask.
#[derive(Debug, Clone)]
pub struct SharedMask(Arc<RwLock<Arc<Mask>>>);

impl SharedMask {
    pub(crate) fn new(mask: Mask) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(mask))))
    }

    /// The mask as it is now.
    pub fn get(&self) -> Arc<Mask> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of the secrets among these variables.
    pub(crate) fn learn(&self, variables: &[(String, String)]) {
        if let Some(more) = self.get().with(variables) {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(more);
        }
    }
}
