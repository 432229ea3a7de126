//! The state folder: where tasks, wardens and the ledger live.

pub(crate) mod aside;
pub(crate) mod repair;
pub(crate) mod reserve;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use self::aside::{FileKind, set_aside_all};
pub use self::{
    aside::SetAside,
    repair::{Rebuilt, Repair},
    reserve::LentReserve,
};
use crate::{
    id::TaskId,
    output::TaskFolder,
    platform::{FolderHandle, NO_STATE_BASE, make_private_folder, open_folder, state_base},
};

/// What belongs into a state folder, by name. The ledger, its log and its daybook are not here:
/// they belong together, and are set aside together when it is rebuilt.
const BELONGS: [(&str, FileKind); 20] = [
    ("tasks", FileKind::Folder),
    ("wardens", FileKind::Folder),
    ("engines", FileKind::Folder),
    ("askers", FileKind::Folder),
    ("tmp", FileKind::Folder),
    ("recent", FileKind::Folder),
    ("trials", FileKind::Folder),
    ("places", FileKind::Folder),
    ("ssh", FileKind::Folder),
    ("audit.jsonl", FileKind::File),
    ("reserve", FileKind::File),
    ("gc.lock", FileKind::File),
    ("retention.json", FileKind::File),
    ("retention.json.new", FileKind::File),
    ("logins.json", FileKind::File),
    ("logins.json.new", FileKind::File),
    ("ledger.db.lock", FileKind::File),
    ("ledger.db.rebuild", FileKind::File),
    ("ledger.db.new", FileKind::File),
    ("ledger.db-daybook.new", FileKind::File),
];

/// What belongs there besides, made by the rooms and the program when they need it.
const MADE_LATER: [&str; 9] = [
    "ledger.db",
    "ahead",
    "applying",
    "saved",
    "serving",
    "setup",
    "sign-in.html",
    "tokens.json",
    "watchers",
];

/// What is behind the names of files that are written anew, set aside or belong to a database.
const BEHIND: [&str; 9] =
    [".1", ".aside-", ".lock", ".new", ".rebuild", "-daybook", "-journal", "-shm", "-wal"];

/// Whether a name in a state folder is one of ours.
pub(crate) fn is_of_a_state_folder(name: &str) -> bool {
    let all = BELONGS.iter().map(|(name, _)| *name).chain(MADE_LATER);
    let is_one = |known: &str| {
        name.strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || BEHIND.iter().any(|it| rest.starts_with(it)))
    };
    name.starts_with(REMOVED) || all.into_iter().any(is_one)
}

/// What the name of a folder begins with that is being removed.
pub(crate) const REMOVED: &str = ".removed-";

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A folder cannot be made or opened.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no place for it by default.
    #[error("{NO_STATE_BASE}")]
    NoDefault,
}

/// Makes a folder, and what is missing above it, for its owner only, whatever the mask says.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_private(parent)?;
    }
    match make_private_folder(path) {
        Ok(()) => Ok(()),
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// An opened state folder.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    pub(crate) tasks: FolderHandle,
    pub(crate) wardens: FolderHandle,
    asker: AsksWardens,
    /// Is told of every repair.
    pub(crate) tell: fn(&Repair),
    /// What stood in the place of something of ours when it was opened.
    pub(crate) set_aside: Vec<SetAside>,
}

/// The names of the wardens that hold a task, by its id.
pub(crate) type Holders = HashMap<String, String>;

/// How the wardens of a state folder are asked what they hold: the place where they run knows.
#[derive(Default)]
struct AsksWardens(OnceLock<Box<AskWardens>>);

type AskWardens = dyn Fn(&StateFolder) -> Holders + Send + Sync;

impl fmt::Debug for AsksWardens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AsksWardens({})", self.0.get().is_some())
    }
}

impl StateFolder {
    /// The default place: `legwork` in the XDG state directory, on Windows in that of local data.
    pub fn default_path() -> Result<PathBuf, StateError> {
        let set =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        state_base(set).map(|base| base.join("legwork")).ok_or(StateError::NoDefault)
    }

    /// Opens the folder and makes what is missing, readable by its owner only; what is in the way
    /// is set aside.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Self::open_telling(path, |repair| tracing::warn!("{}", repair.message()))
    }

    /// The same for somebody who is told of that, and of every later repair.
    pub(crate) fn open_telling(path: &Path, tell: fn(&Repair)) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| StateError::Folder { path, source }
        };
        let path = std::path::absolute(path).map_err(failed(path))?;
        let set_aside = set_aside_all(&path, &BELONGS);
        for moved in &set_aside {
            tell(&Repair::SetAside(moved.clone()));
        }
        let folder = |name: &str| {
            let inside = path.join(name);
            make_private(&inside).map_err(failed(&inside))?;
            open_folder(&inside).map_err(failed(&inside))
        };
        let (tasks, wardens) = (folder("tasks")?, folder("wardens")?);
        Ok(Self { path, tasks, wardens, asker: AsksWardens::default(), tell, set_aside })
    }

    /// Says how the wardens are asked what they hold; only the first word counts.
    pub(crate) fn ask_wardens_by(
        &self,
        asker: impl Fn(&StateFolder) -> Holders + Send + Sync + 'static,
    ) {
        let _ = self.asker.0.set(Box::new(asker));
    }

    /// Asks every warden which task it holds; the tasks are in their folders from then on.
    pub(crate) fn roll_call(&self) -> Holders {
        self.asker.0.get().map(|ask| ask(self)).unwrap_or_default()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger's file.
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    /// A file that belongs to the ledger: its name with this behind it.
    pub(crate) fn beside_ledger(&self, suffix: &str) -> PathBuf {
        self.path.join(format!("ledger.db{suffix}"))
    }

    /// The folder of the locks of those who answer questions.
    pub(crate) fn watchers(&self) -> PathBuf {
        self.path.join("watchers")
    }

    /// The folder of the locks of those who have asked questions.
    pub(crate) fn askers(&self) -> PathBuf {
        self.path.join("askers")
    }

    /// The folder of the engines' locks.
    pub(crate) fn engines(&self) -> PathBuf {
        self.path.join("engines")
    }

    /// The audit log's file.
    pub fn audit(&self) -> PathBuf {
        self.path.join("audit.jsonl")
    }

    /// The folder of a task.
    pub fn task(&self, id: &TaskId) -> TaskFolder {
        TaskFolder::new(self.path.join("tasks").join(id.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_table_of_the_state_folder_is_ours() {
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/state-folder.md");
        let page = std::fs::read_to_string(page).unwrap();
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
        let names: Vec<&str> = cells
            .flat_map(|(cell, _)| cell.split('`'))
            .filter_map(|word| word.split('/').next())
            .filter(|name| !name.is_empty() && *name != ", " && *name != "NAME.aside-TIME")
            .collect();
        assert!(names.len() > 20 && names.contains(&"saved"), "{names:?}");
        for name in names {
            assert!(is_of_a_state_folder(name), "{name} would be kept as somebody else's");
        }
    }
}
