//! Why something about a trial could not be done.

use std::{io, path::PathBuf};

/// Why something about a trial could not be done. Nothing of the workspace is changed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    #[error("there is no such trial")]
    Unknown,
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// These are not as they were when the trial ran.
    #[error("changed underneath: {}", shown(.0))]
    ChangedUnderneath(Vec<PathBuf>),
    /// It is not what was looked at before.
    #[error("{} was changed in the trial after its changes were listed", .0.display())]
    ChangedInTrial(PathBuf),
    /// Somebody was at the copies.
    #[error("something else was put in the place of the copy of {}", .0.display())]
    Swapped(PathBuf),
    #[error("the trial has no change at {}", .0.display())]
    NoChange(PathBuf),
    #[error("{} became something else in the trial: apply the whole of it", .0.display())]
    NotInPart(PathBuf),
    #[error("{} cannot be brought over: {why}", path.display())]
    Unfit { path: PathBuf, why: &'static str },
    #[error("more than {0} files were changed")]
    TooMany(usize),
    #[error("there are folders too deep in one another")]
    TooDeep,
    /// An apply that was cut off can neither be finished nor undone by itself.
    #[error(
        "an apply that was cut off can be neither finished nor undone, because {} was changed or \
         moved since; what it replaced is in {}",
        path.display(),
        kept.display()
    )]
    Stuck { path: PathBuf, kept: PathBuf },
}

impl TrialError {
    pub(super) fn io(what: impl Into<String>, error: &io::Error) -> Self {
        let copy = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        Self::Io { what: what.into(), error: copy }
    }

    /// Whether it is that nothing more can be written.
    pub(super) fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { error, .. } if matches!(error.kind(), StorageFull | QuotaExceeded))
    }

    pub(super) fn at(path: &std::path::Path) -> impl Fn(io::Error) -> Self + '_ {
        move |error| Self::io(short(path), &error)
    }
}

/// A path; of a long one, how it begins.
fn short(path: &std::path::Path) -> String {
    const SHOWN: usize = 200;
    let whole = path.display().to_string();
    match whole.char_indices().nth(SHOWN).and_then(|(at, _)| whole.get(..at)) {
        Some(begin) => format!("{begin}…"),
        None => whole,
    }
}

/// Paths in one line; of many, the first.
fn shown(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<String> = paths.iter().take(SHOWN).map(|path| short(path)).collect();
    if paths.len() > SHOWN {
        text.push(format!("and {} more", paths.len() - SHOWN));
    }
    text.join(", ")
}
