//! The state folder: where tasks, wardens and the ledger live.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, open};

use crate::{id::TaskId, output::TaskFolder};

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
    #[error("neither XDG_STATE_HOME nor HOME is set: name a folder with --state")]
    NoDefault,
}

/// An opened state folder.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    pub(crate) tasks: OwnedFd,
    pub(crate) wardens: OwnedFd,
}

impl StateFolder {
    /// The default place: `legwork` in the XDG state directory.
    pub fn default_path() -> Result<PathBuf, StateError> {
        let set = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        set("XDG_STATE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".local/state")))
            .map(|base| base.join("legwork"))
            .ok_or(StateError::NoDefault)
    }

    /// Opens the folder and makes what is missing, readable by its owner only.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| StateError::Folder { path, source }
        };
        let path = std::path::absolute(path).map_err(failed(path))?;
        let folder = |name: &str| {
            let inside = path.join(name);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&inside)
                .map_err(failed(&inside))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            open(&inside, flags, Mode::empty()).map_err(|errno| failed(&inside)(errno.into()))
        };
        let (tasks, wardens) = (folder("tasks")?, folder("wardens")?);
        Ok(Self {
            path,
            tasks,
            wardens,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger's file.
    pub fn ledger(&self) -> PathBuf {
        self.path.join("ledger.db")
    }

    /// The folder of a task.
    pub fn task(&self, id: &TaskId) -> TaskFolder {
        TaskFolder::new(self.path.join("tasks").join(id.as_str()))
    }
}
