//! The post, which would work here for an engine elsewhere: not on Windows yet.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a post cannot work.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PostError(#[from] io::Error);

/// Refuses: no engine elsewhere is served on Windows yet.
pub async fn serve(_state: Option<PathBuf>) -> Result<(), PostError> {
    let problem = "commands of another machine are not run on Windows yet";
    Err(io::Error::new(io::ErrorKind::Unsupported, problem).into())
}

/// Refuses: no scheduler starts commands on Windows yet.
pub async fn serve_job(
    _task: &str,
    _order: &Path,
    _state: Option<PathBuf>,
    _is_in_environment: bool,
) -> Result<(), PostError> {
    let problem = "commands of a scheduler are not run on Windows yet";
    Err(io::Error::new(io::ErrorKind::Unsupported, problem).into())
}
