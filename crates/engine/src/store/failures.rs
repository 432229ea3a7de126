//! Typed errors for a state folder and a ledger that cannot be used.

use rusqlite::ErrorCode;

use super::ledger::LedgerError;
use crate::{
    error::{ErrorKind, StateProblem, ToolError},
    state::StateError,
};

impl From<StateError> for ToolError {
    fn from(error: StateError) -> Self {
        let problem = match &error {
            StateError::Folder { source, .. } => StateProblem::of(source),
            StateError::NoDefault => StateProblem::NoDefault,
        };
        Self::state(problem, &error)
    }
}

impl From<LedgerError> for ToolError {
    fn from(error: LedgerError) -> Self {
        match &error {
            LedgerError::Unknown(id) => {
                Self::new(ErrorKind::UnknownTask, format!("no task has the id `{id}`"))
                    .detail("task_id", id.as_str())
            }
            LedgerError::Damaged(id) => {
                Self::state(StateProblem::Damaged, &error).detail("task_id", id.as_str())
            }
            _ => Self::state(problem(&error), &error),
        }
    }
}

fn problem(error: &LedgerError) -> StateProblem {
    match error {
        LedgerError::File(error) => StateProblem::of(error),
        LedgerError::Sqlite(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StateProblem::Busy,
            Some(ErrorCode::DiskFull) => StateProblem::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StateProblem::NotWritable,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StateProblem::Damaged,
            _ => StateProblem::Failed,
        },
        LedgerError::TooNew(_) => StateProblem::TooNew,
        LedgerError::Unsound(_) | LedgerError::Damaged(_) => StateProblem::Damaged,
        // The next try finds the one that stands there now.
        LedgerError::Replaced | LedgerError::Busy => StateProblem::Busy,
        LedgerError::Rebuilding => StateProblem::Rebuilding,
        LedgerError::Unknown(_) | LedgerError::Cut => StateProblem::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::store::ledger::Damage;

    #[test]
    fn every_error_of_the_ledger_has_its_own_kind() {
        let sqlite = |code| LedgerError::Sqlite(rusqlite::Error::SqliteFailure(code, None));
        let sqlite = |code| sqlite(rusqlite::ffi::Error::new(code));
        let full = io::Error::from(rustix::io::Errno::NOSPC);
        for (error, problem, retryable) in [
            (LedgerError::Busy, StateProblem::Busy, true),
            (sqlite(rusqlite::ffi::SQLITE_BUSY), StateProblem::Busy, true),
            (LedgerError::Rebuilding, StateProblem::Rebuilding, true),
            (sqlite(rusqlite::ffi::SQLITE_FULL), StateProblem::Full, true),
            (LedgerError::File(full), StateProblem::Full, true),
            (sqlite(rusqlite::ffi::SQLITE_READONLY), StateProblem::NotWritable, true),
            (sqlite(rusqlite::ffi::SQLITE_CORRUPT), StateProblem::Damaged, false),
            (LedgerError::Unsound(Damage::Missing), StateProblem::Damaged, false),
            (LedgerError::TooNew(99), StateProblem::TooNew, false),
            (LedgerError::Cut, StateProblem::Failed, true),
        ] {
            let error = ToolError::from(error);
            assert_eq!(error.kind, ErrorKind::StateUnavailable, "{error}");
            assert_eq!((error.state_problem(), error.retryable), (Some(problem), retryable));
        }
        let error = ToolError::from(LedgerError::Damaged("t_1".into()));
        assert_eq!(error.state_problem(), Some(StateProblem::Damaged));
        assert_eq!(error.text_detail("task_id"), Some("t_1"));
        assert_eq!(ToolError::from(LedgerError::Unknown("x".into())).kind, ErrorKind::UnknownTask);
    }
}
