//! The path by which other programs start this one.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The absolute path of the running program: by the name that stays the same when a new version
/// comes (a link in a folder of `PATH`), where one leads to it.
pub(crate) fn path() -> Result<String, String> {
    let own = env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    if !own.is_file() {
        return Err(format!("{} was replaced or removed; start it anew", own.display()));
    }
    let own = on_path(&own).unwrap_or(own);
    let shown = own.to_str().map(str::to_owned);
    shown.ok_or_else(|| format!("{} cannot be written as text", own.display()))
}

/// The name in a folder of `PATH` that leads to a file.
fn on_path(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?;
    let folders = env::var_os("PATH")?;
    let mut named =
        env::split_paths(&folders).filter(|it| it.is_absolute()).map(|it| it.join(name));
    named.find(|path| path.canonicalize().is_ok_and(|real| real == file))
}
