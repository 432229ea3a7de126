//! Reads and writes a client's file: whole or not at all, with its rights, through links.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use crate::platform::{make_folder, mode_of, set_mode};

/// Most bytes of a client's file.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The text of a file; none if it does not exist.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if is_absent(&error) && path.symlink_metadata().is_err() => return Ok(None),
        Err(error) => return Err(error),
    };
    if !found.is_file() || found.len() > BYTES_MAX {
        return Err(io::Error::other("this is no file that could be changed"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| io::Error::other("this is no text (UTF-8)"))
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Puts a text in the place of what was read: first beside it, then over it by one step. Returns
/// the folders that had to be made.
pub(crate) fn replace(
    path: &Path,
    was: Option<&str>,
    text: &str,
    private: bool,
) -> io::Result<Vec<PathBuf>> {
    // A link stays one: what it leads to is replaced.
    let target = if was.is_some() { path.canonicalize()? } else { path.to_owned() };
    let folder = target.parent().unwrap_or(Path::new("/"));
    let folders = make_folders(folder, private)?;
    let mut beside = tempfile::Builder::new().prefix(".legwork-setup-").tempfile_in(folder)?;
    beside.write_all(text.as_bytes())?;
    let mode = match was {
        Some(_) => mode_of(&fs::metadata(&target)?),
        None if private => 0o600,
        None => 0o644,
    };
    set_mode(beside.as_file(), mode)?;
    beside.as_file().sync_all()?;
    if read(path)?.as_deref() != was {
        return Err(io::Error::other("it was changed meanwhile; try again"));
    }
    beside.persist(&target).map_err(|error| error.error)?;
    Ok(folders)
}

/// Makes a folder with those above it; returns those that were missing, the innermost first.
pub(crate) fn make_folders(folder: &Path, private: bool) -> io::Result<Vec<PathBuf>> {
    let missing = folder.ancestors().take_while(|it| !it.exists()).map(Path::to_owned);
    let missing: Vec<PathBuf> = missing.collect();
    let mode = if private { 0o700 } else { 0o755 };
    make_folder(folder, mode)?;
    Ok(missing)
}
