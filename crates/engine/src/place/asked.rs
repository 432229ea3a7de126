//! What is asked of a place, and what it answers: plain data.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use legwork_warden::{
    protocol::{Spec, StartFailure},
    sandbox::Enforcement,
};

use super::{
    Look, Soon,
    local::{LocalTamperCheck, has_repository},
};
use crate::{
    id::TaskId,
    model::sandbox::{SandboxReport, Wanted},
    platform::OwnedFd,
    presence::Presence,
    threads::in_thread,
};

/// Why there is no warden.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The spawner or a socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The warden came up but cannot work.
    #[error("the warden cannot work: {}", io::Error::from_raw_os_error(.0.errno))]
    Unfit(StartFailure),
    /// The pool was closed meanwhile.
    #[error("the engine is being closed")]
    Closed,
    /// No copy of the files can be made for a command to be tried on.
    #[error("{0}")]
    NoCopies(String),
    /// The warden is of another version.
    #[error("the warden speaks version {0} of the protocol")]
    Version(u32),
}

/// Why a program cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoProgram {
    #[error("it is no valid name of a program")]
    Invalid,
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    #[error("it was not found on PATH")]
    NotFound,
}

/// A folder that was opened, so that what is judged and what is used are the same.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    /// Where it really is.
    pub path: PathBuf,
    /// What goes to the warden, where it is on this machine.
    pub handle: Option<Arc<OwnedFd>>,
}

/// A sandbox as a place makes it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub enforcement: Enforcement,
    /// The same for people and models.
    pub report: Arc<SandboxReport>,
    /// Variables that commands in it are given.
    pub variables: Vec<(String, OsString)>,
    /// Stands for all that it lets a command do.
    pub mark: [u8; 32],
}

impl Sandbox {
    /// Whether nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.enforcement.missing.is_empty()
    }
}

/// A command that a scheduler is to start.
#[derive(Debug)]
pub(crate) struct NewJob {
    pub id: TaskId,
    pub spec: Spec,
    pub workdir: PathBuf,
    /// A stdin that is there already.
    pub given: Option<Arc<OwnedFd>>,
    pub wanted: Wanted,
    /// The layers of the sandbox that are known to be missing.
    pub missing: Vec<String>,
    /// The file that its program really is.
    pub real_program: Option<PathBuf>,
    /// Whether somebody waits for its end.
    pub is_awaited: bool,
}

/// The place of an engine that has ended, for as long as anybody holds this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inheritance(
    #[expect(dead_code, reason = "held for as long as anything is left of that engine")]
    pub  Option<Arc<Presence>>,
);

/// How many callers wait for a command right now: work that nobody waits for is done when none
/// does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attention(Arc<AtomicUsize>);

/// A caller who waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attending(Arc<AtomicUsize>);

impl Attention {
    /// Counts a caller who waits.
    pub(crate) fn begin(&self) -> Attending {
        self.0.fetch_add(1, Ordering::Relaxed);
        Attending(self.0.clone())
    }

    /// Whether somebody waits.
    pub(crate) fn is_paid(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A command that wants a login shell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoginWish<'a> {
    /// Whether it wants nothing that only a real login could give it.
    pub is_plain: bool,
    pub program: &'a Path,
    pub script: &'a str,
    pub workdir: &'a Folder,
    pub wanted: Wanted,
    pub attention: &'a Attention,
}

/// What was looked at before a command, to be compared with afterwards.
pub(crate) enum TamperCheck {
    /// On this machine.
    Local(LocalTamperCheck),
    /// Elsewhere: the warnings, once they are asked for.
    Far(Soon<'static, Vec<String>>),
    /// By an engine that has ended, and took along what it saw of this workspace and of the other
    /// folders that commands may write.
    Missed(PathBuf, Vec<String>),
}

/// The warning of a task that cannot be compared with how things were before it.
const MISSED: &str = "Legwork did not compare what this task changed in repositories, because the \
                      process that started it ended first; check their hooks and git settings";

impl TamperCheck {
    /// What has come since then; `leaves` is whether processes of the command go on.
    pub(crate) async fn warnings(self, leaves: bool) -> Vec<String> {
        match self {
            Self::Local(check) => check.warnings(leaves).await,
            Self::Far(warnings) => warnings.await,
            Self::Missed(workspace, others) => {
                let has_one = in_thread(move || has_repository(&workspace, &others)).await;
                has_one.unwrap_or(true).then(|| MISSED.to_owned()).into_iter().collect()
            }
        }
    }
}

impl fmt::Debug for TamperCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TamperCheck")
    }
}

/// What a plan has to know of another place.
#[derive(Debug)]
pub(crate) struct Survey<'a> {
    /// The folder that was asked for.
    pub workdir: Option<&'a Path>,
    /// Names of programs.
    pub programs: Vec<String>,
}

/// Another place as a plan sees it.
#[derive(Debug)]
pub(crate) struct Surveyed {
    pub look: Arc<dyn Look>,
    pub workspace: Folder,
}
