//! What is kept on disk: the ledger with its daybook, the audit log, and their clean-up.

pub mod audit;
pub(crate) mod ledger;
pub(crate) mod retention;
pub(crate) mod tidy;
pub(crate) mod usage;
