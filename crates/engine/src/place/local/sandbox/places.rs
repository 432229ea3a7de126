//! Paths outside the workspace: what is secret, what others trust, and which caches may be written.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

use data_encoding::BASE32HEX_NOPAD;
use legwork_warden::sandbox::{GuardKind, Guarded};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::state::{
    aside::{FileKind, set_aside_strange},
    make_private,
};

/// The lists that come with the program.
static SHIPPED: LazyLock<SandboxPlaces> =
    LazyLock::new(|| serde_json::from_str(SHIPPED_TEXT).unwrap_or_default());
const SHIPPED_TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/paths.json"));

/// Lists of paths.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SandboxPlaces {
    unreadable: Vec<PathBuf>,
    unwritable: Vec<PathBuf>,
    cache: Vec<Cache>,
}

/// The cache of one program.
#[derive(Debug, Deserialize)]
struct Cache {
    program: String,
    /// By which it is told where that is.
    variable: Option<String>,
    /// The same where it takes an option besides others, to be followed by the place.
    option: Option<(String, String)>,
    base: PathBuf,
    folders: Vec<PathBuf>,
    #[serde(default)]
    files: Vec<PathBuf>,
}

/// The caches of programs, as commands of a workspace are given them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Caches {
    /// What may be written.
    pub writable: Vec<PathBuf>,
    /// Variables that lead programs to a cache in the commands' own `/tmp`, where there is none in
    /// the home.
    pub variables: Vec<(String, OsString)>,
}

/// Where those are.
const OWN_CACHES: &str = "/tmp/.cache";

impl SandboxPlaces {
    pub(super) fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// What may not be read.
    pub(super) fn unreadable(&self) -> Vec<PathBuf> {
        self.unreadable.iter().flat_map(|path| everywhere(path)).collect()
    }

    /// What may not be written although it is in a folder that may.
    pub(super) fn unwritable(&self, deciding: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
        let known = self.unwritable.iter().flat_map(|path| everywhere(path));
        let deciding = deciding.iter().filter_map(|path| std::path::absolute(path).ok());
        // What a link leads to decides as much.
        let both = |path: PathBuf| path.canonicalize().into_iter().chain([path]);
        let all: BTreeSet<PathBuf> = known.chain(deciding).flat_map(both).collect();
        let is_inside = |path: &PathBuf| writable.iter().any(|folder| path.starts_with(folder));
        all.into_iter().filter(is_inside).collect()
    }

    /// The caches of the programs that are installed.
    pub(super) fn caches(&self) -> Caches {
        let mut caches = Caches::default();
        for cache in self.cache.iter().filter(|cache| is_installed(&cache.program)) {
            cache.add_to(&mut caches);
        }
        caches
    }
}

impl Cache {
    /// Nothing appears in a home that no command has written: a cache that is not there is a place
    /// of the command's own, which its program is told by a variable. A folder is made only where
    /// its user has named it, or inside the program's own, which is there.
    fn add_to(&self, caches: &mut Caches) {
        let set = self.variable.as_ref().and_then(env::var_os).map(PathBuf::from);
        let set = set.filter(|path| path.is_absolute());
        let is_set = set.is_some();
        let base = set.unwrap_or_else(|| expanded(&self.base));
        // Without a home there is nothing to expand to.
        if !base.is_absolute() {
            return;
        }
        let folders: Vec<PathBuf> =
            self.folders.iter().map(|folder| plain(&base.join(folder))).collect();
        if is_set || base.is_dir() {
            for folder in &folders {
                let _ = make_private(folder);
            }
        } else {
            caches.variables.extend(self.elsewhere());
        }
        // What comes later may be written then.
        caches.writable.extend(folders);
        caches.writable.extend(self.files.iter().map(|file| base.join(file)));
    }

    /// The variable that leads the program to another place.
    fn elsewhere(&self) -> Option<(String, OsString)> {
        let place = format!("{OWN_CACHES}/{}", self.program);
        if let Some(variable) = &self.variable {
            return Some((variable.clone(), place.into()));
        }
        let (variable, option) = self.option.as_ref()?;
        let mut value = env::var_os(variable).unwrap_or_default();
        if !value.is_empty() {
            value.push(" ");
        }
        value.push(format!("{option}{place}"));
        Some((variable.clone(), value))
    }
}

pub(super) fn guarded(path: PathBuf, guard: GuardKind) -> Guarded {
    Guarded { path: path.into_os_string().into_encoded_bytes(), guard }
}

/// A name as text, which no other name has: its bytes need not be text.
pub(super) fn show_bytes(name: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        shown.push_str(&chunk.valid().replace('\\', r"\\"));
        shown.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}")));
    }
    shown
}

/// A path with the home folder in the place of `~`.
pub(super) fn expanded(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Folders of the home that may be somewhere else, each with the variable that says so.
const MOVABLE: [(&str, &str); 3] = [
    ("~/.config", "XDG_CONFIG_HOME"),
    ("~/.local/share", "XDG_DATA_HOME"),
    ("~/.cache", "XDG_CACHE_HOME"),
];

/// Where a listed path is: in the home, where a variable says, or both.
pub(super) fn everywhere(path: &Path) -> Vec<PathBuf> {
    let moved = MOVABLE.iter().find_map(|(folder, variable)| {
        Some((env::var_os(variable)?, path.strip_prefix(folder).ok()?))
    });
    let named = path.to_str().and_then(|text| text.strip_prefix('$')).map(|text| {
        let (variable, rest) = text.split_once('/').unwrap_or((text, ""));
        (env::var_os(variable).unwrap_or_default(), Path::new(rest))
    });
    let listed = named.is_none().then(|| expanded(path));
    let set = moved.or(named).map(|(value, rest)| {
        // Some variables name several.
        let all: Vec<PathBuf> = env::split_paths(&value).filter(|it| it.is_absolute()).collect();
        all.into_iter().map(move |base| plain(&base.join(rest)))
    });
    listed.into_iter().chain(set.into_iter().flatten()).collect()
}

fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Makes the folder that commands of a workspace see as `/tmp`, kept between calls.
pub(super) fn make_temporary(state: &Path, workspace: &Path) -> Option<PathBuf> {
    let folder = temporary(state, workspace);
    if let Ok(Some(moved)) = set_aside_strange(&folder, FileKind::Folder) {
        tracing::warn!("{}", moved.message());
    }
    make_private(&folder).ok()?;
    // It is in use: the clean-up goes by this time.
    let _ = fs::File::open(&folder).and_then(|opened| opened.set_modified(SystemTime::now()));
    Some(folder)
}

/// The folder that the commands of a workspace have as `/tmp`.
pub(super) fn temporary(state: &Path, workspace: &Path) -> PathBuf {
    state.join("tmp").join(short_name(workspace))
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
    fn two_names_are_never_shown_alike() {
        for (name, text) in [
            (b"a/\xc3\xa9".as_slice(), "a/é"),
            (b"a/\xff", r"a/\xff"),
            (b"a/\xfe", r"a/\xfe"),
            (br"a/\xff", r"a/\\xff"),
        ] {
            assert_eq!(show_bytes(OsStr::from_bytes(name)), text);
        }
    }

    #[test]
    fn the_shipped_lists_are_read_whole() {
        let places: SandboxPlaces = serde_json::from_str(SHIPPED_TEXT).unwrap();
        assert!(places.unreadable.len() > 80 && places.unwritable.len() > 40);
        assert!(places.cache.iter().any(|cache| cache.program == "cargo"));
        for path in places.unreadable.iter().chain(&places.unwritable) {
            let rooted = path.starts_with("~") || path.to_string_lossy().starts_with('$');
            assert!(rooted || path.is_absolute(), "{}", path.display());
        }
    }
}
