//! The reserve: a file in the state folder that keeps room on the disk, so that a trial can be
//! discarded when the disk is full.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::platform::OpenOptionsExt;

/// The file.
const NAME: &str = "reserve";

/// Its length: room for the log and the index of the ledger, and for a line of the audit log.
const BYTES: usize = 1 << 20;

/// Keeps the reserve of a state folder, or as much of it as there is room for.
pub(crate) fn keep(state: &Path) {
    if let Err(error) = try_keep(&state.join(NAME)) {
        tracing::debug!(%error, "the reserve is not whole");
    }
}

fn try_keep(path: &Path) -> io::Result<()> {
    let has = fs::metadata(path).map_or(0, |found| found.len());
    let missing = BYTES.saturating_sub(usize::try_from(has).unwrap_or(BYTES));
    if missing == 0 {
        return Ok(());
    }
    // Zeros take no room on some file systems.
    let mut noise = vec![0; missing];
    getrandom::fill(&mut noise).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(&noise)
}

/// The room of a reserve that is lent to a verb which must work on a full disk. The reserve is kept
/// again when this is dropped.
#[derive(Debug)]
pub struct LentReserve {
    /// The state folder, if it had a reserve.
    state: Option<PathBuf>,
}

impl LentReserve {
    /// Frees the reserve of a state folder, if it has one.
    pub fn of(state: &Path) -> Self {
        let freed = fs::remove_file(state.join(NAME));
        Self { state: freed.is_ok().then(|| state.to_owned()) }
    }
}

impl Drop for LentReserve {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            keep(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_freed_while_it_is_lent_and_none_is_made_where_none_was() {
        let scratch = tempfile::tempdir().unwrap();
        let bytes = || fs::metadata(scratch.path().join(NAME)).ok().map(|found| found.len());
        drop(LentReserve::of(scratch.path()));
        assert_eq!(bytes(), None);
        keep(scratch.path());
        assert_eq!(bytes(), Some(BYTES as u64));
        let lent = LentReserve::of(scratch.path());
        assert_eq!(bytes(), None);
        drop(lent);
        assert_eq!(bytes(), Some(BYTES as u64));
        // There was room for half of it only.
        fs::write(scratch.path().join(NAME), vec![1; BYTES / 2]).unwrap();
        keep(scratch.path());
        assert_eq!(bytes(), Some(BYTES as u64));
    }
}
