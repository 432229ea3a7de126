//! What is kept on disk: the ledger with its daybook, the audit log, and their clean-up.
//!
//! It may call a place, to ask which wardens live; never the judge, a task or a tool.

pub(crate) mod anchor;
pub mod audit;
mod failures;
pub(crate) mod ledger;
pub(crate) mod retention;
pub(crate) mod usage;

use std::{io, path::Path, sync::Arc};

use self::{
    audit::{Audit, AuditEntry},
    ledger::Ledger,
};
use crate::{
    error::{StateProblem, ToolError},
    meters::Meters,
    output::SharedMask,
    state::{Repair, StateError, StateFolder},
};

/// Opens a state folder and makes what is missing, readable by its owner only. What is in the way
/// is set aside and noted in the audit log; of that, and of every later repair, is told.
pub fn open_state(path: &Path, tell: fn(&Repair)) -> Result<StateFolder, StateError> {
    let state = StateFolder::open_telling(path, tell)?;
    for moved in &state.set_aside {
        audit::note_repair(&state, &Repair::SetAside(moved.clone()));
    }
    Ok(state)
}

/// What one engine has open of a state folder. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub state: Arc<StateFolder>,
    pub ledger: Ledger,
    pub meters: Arc<Meters>,
    audit: Audit,
    mask: SharedMask,
}

impl Store {
    /// Opens ledger and audit log, and makes what is missing; `briefly` for one command.
    pub(crate) fn open(
        state: Arc<StateFolder>,
        mask: SharedMask,
        meters: Arc<Meters>,
        briefly: bool,
    ) -> Result<Self, ToolError> {
        let open = if briefly { Ledger::open_briefly } else { Ledger::open_counting };
        let ledger = open(state.clone(), meters.clone())?;
        let audit = Audit::open(&state).map_err(|error| no_audit(&error))?;
        audit.tell_head(ledger.audit_head());
        Ok(Self { state, ledger, meters, audit, mask })
    }

    /// Notes something before anything follows from it: what cannot be noted does not happen.
    pub(crate) async fn note_first(&self, entry: AuditEntry) -> Result<(), ToolError> {
        let noted = self.audit.append(entry, &self.mask.get()).await;
        noted.map_err(|error| no_audit(&error))
    }

    /// Notes something that has happened already.
    pub(crate) async fn note(&self, entry: AuditEntry) {
        if let Err(error) = self.audit.append(entry, &self.mask.get()).await {
            tracing::warn!(%error, "the audit log cannot be written");
        }
    }
}

/// An audit log that cannot be written.
fn no_audit(error: &io::Error) -> ToolError {
    ToolError::state(StateProblem::of(error), &format!("the audit log: {error}"))
}
