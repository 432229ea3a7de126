//! What is kept on disk: the ledger with its daybook, the audit log, and their clean-up.
//!
//! It may call a place, to ask which wardens live; never the judge, a task or a tool.

pub mod audit;
pub(crate) mod ledger;
pub(crate) mod retention;
pub(crate) mod usage;

use std::sync::Arc;

use self::{
    audit::{Audit, Entry},
    ledger::{Ledger, LedgerError, Rebuilt},
};
use crate::{error::ToolError, output::SharedMask, state::StateFolder};

/// What one engine has open of a state folder. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub state: Arc<StateFolder>,
    pub ledger: Ledger,
    audit: Audit,
    mask: SharedMask,
}

impl Store {
    /// Opens ledger and audit log, and makes what is missing.
    pub(crate) fn open(
        state: Arc<StateFolder>,
        mask: SharedMask,
        on_rebuilt: fn(&Rebuilt),
    ) -> Result<Self, ToolError> {
        let ledger = Ledger::open(state.clone(), on_rebuilt)?;
        let audit = Audit::open(&state.audit()).map_err(|error| ToolError::state(&error))?;
        Ok(Self { state, ledger, audit, mask })
    }

    /// Notes something before anything follows from it: what cannot be noted does not happen.
    pub(crate) async fn note_first(&self, entry: Entry) -> Result<(), ToolError> {
        let noted = self.audit.append(entry, &self.mask.get()).await;
        noted.map_err(|error| ToolError::state(&error))
    }

    /// Notes something that has happened already.
    pub(crate) async fn note(&self, entry: Entry) {
        if let Err(error) = self.audit.append(entry, &self.mask.get()).await {
            tracing::warn!(%error, "the audit log cannot be written");
        }
    }
}

impl From<LedgerError> for ToolError {
    fn from(error: LedgerError) -> Self {
        Self::state(&error)
    }
}
