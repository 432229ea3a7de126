//! Paths outside the workspace: what is secret, what others trust, and which caches may be written.

use std::{
    env, fs,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Component, Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

use data_encoding::BASE32HEX_NOPAD;
use legwork_warden::sandbox::{Guard, Guarded};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The lists that come with the program.
static SHIPPED: LazyLock<Places> =
    LazyLock::new(|| toml::from_str(include_str!("paths.toml")).unwrap_or_default());

/// Lists of paths.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Places {
    unreadable: Vec<PathBuf>,
    unwritable: Vec<PathBuf>,
    cache: Vec<Cache>,
}

/// The cache of one program.
#[derive(Debug, Deserialize)]
struct Cache {
    program: String,
    variable: Option<String>,
    base: PathBuf,
    folders: Vec<PathBuf>,
    #[serde(default)]
    files: Vec<PathBuf>,
}

impl Places {
    pub(super) fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// What may not be read.
    pub(super) fn unreadable(&self) -> Vec<PathBuf> {
        self.unreadable.iter().map(|path| expanded(path)).collect()
    }

    /// What may not be written although it is in the workspace.
    pub(super) fn unwritable(&self, workspace: &Path) -> Vec<Guarded> {
        let inside = self.unwritable.iter().map(|path| expanded(path));
        let inside = inside.filter(|path| path.starts_with(workspace));
        let policy = workspace.join(".legwork.toml");
        inside.chain([policy]).map(|path| guarded(path, Guard::ReadOnly)).collect()
    }

    /// Caches that may be written; those of programs that are installed are made.
    pub(super) fn caches(&self) -> Vec<PathBuf> {
        self.cache
            .iter()
            .filter(|cache| is_installed(&cache.program))
            .flat_map(Cache::paths)
            .collect()
    }
}

impl Cache {
    fn paths(&self) -> Vec<PathBuf> {
        let set = self.variable.as_ref().and_then(env::var_os).map(PathBuf::from);
        let base = set.filter(|path| path.is_absolute()).unwrap_or_else(|| expanded(&self.base));
        // Without a home there is nothing to expand to.
        if !base.is_absolute() {
            return Vec::new();
        }
        let folders = self.folders.iter().map(|folder| plain(&base.join(folder)));
        for folder in folders.clone() {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        folders.chain(self.files.iter().map(|file| base.join(file))).collect()
    }
}

pub(super) fn guarded(path: PathBuf, guard: Guard) -> Guarded {
    Guarded { path: path.into_os_string().into_encoded_bytes(), guard }
}

/// A path with the home folder in the place of `~`.
pub(super) fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The folder that commands of a workspace see as `/tmp`, kept between calls.
pub(super) fn temporary(state: &Path, workspace: &Path) -> Option<PathBuf> {
    let folder = state.join("tmp").join(short_name(workspace));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    // It is in use: the clean-up goes by this time.
    let _ = fs::File::open(&folder).and_then(|opened| opened.set_modified(SystemTime::now()));
    Some(folder)
}

/// A name for what belongs to a workspace.
pub(super) fn short_name(workspace: &Path) -> String {
    let digest = Sha256::digest(workspace.as_os_str().as_bytes());
    BASE32HEX_NOPAD.encode(digest.get(..10).unwrap_or_default()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_lists_are_read_whole() {
        let places: Places = toml::from_str(include_str!("paths.toml")).unwrap();
        assert!(places.unreadable.len() > 80 && places.unwritable.len() > 40);
        assert!(places.cache.iter().any(|cache| cache.program == "cargo"));
        for path in places.unreadable.iter().chain(&places.unwritable) {
            assert!(path.starts_with("~") || path.is_absolute(), "{}", path.display());
        }
    }
}
