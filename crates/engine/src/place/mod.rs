//! The place where wardens run: the only room that assumes a machine.
//!
//! A [`Place`] forks wardens and dials them, says whether one lives and ends what a dead one left,
//! resolves programs and folders, reads what tasks have stored, watches paths, and knows the boot
//! and the environment. [`Local`] is this machine; [`Far`] is another one, or a container, where a
//! [`post`] works for this engine. Everything else in the library asks a place; the scripted one of
//! the tests holds that.
//!
//! It may call `output` for stored bytes, and the vocabulary; never the ledger, the judge or a
//! tool.

mod channel;
#[cfg(unix)]
mod far;
#[cfg(windows)]
#[path = "windows/far.rs"]
mod far;
#[cfg(unix)]
pub(crate) mod jobs;
#[cfg(windows)]
#[path = "windows/jobs.rs"]
pub(crate) mod jobs;
#[cfg(unix)]
mod local;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod local;
#[cfg(unix)]
pub(crate) mod post;
#[cfg(windows)]
#[path = "windows/post.rs"]
pub(crate) mod post;
#[cfg(test)]
pub(crate) mod scripted;
mod warden;

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::watch;

use legwork_warden::{
    protocol::{Sandboxed, Spec, StartFailure},
    record::{ExitRecord, RecordError},
    sandbox::Enforcement,
};

use self::jobs::driver::NotSubmitted;
pub(crate) use self::{
    channel::{Channel, Wire},
    far::{AskedOf, Far, remembered},
    local::{Local, is_warden_alive},
    warden::{DROP_GRACE, Warden},
};
use crate::{
    id::TaskId,
    meters::WardenCount,
    model::sandbox::{SandboxReport, Wanted},
    output::TaskOutput,
    platform::OwnedFd,
    presence::Presence,
    trial::OutsideLayers,
};

/// Most bytes of output that a warden holds in memory.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Something that a place does and that takes a while.
pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
    /// What a command writes outside its workspace cannot be kept in a layer.
    #[error("no layer over the home folder: {0}")]
    NoLayer(String),
    /// More is kept of that than may be.
    #[error("{0}")]
    LayersFull(String),
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

/// A warden that is ready, and the sandbox that its next command is started in.
pub(crate) type Ready = (Warden, Option<Arc<Sandbox>>);

/// The place of an engine that has ended, for as long as anybody holds this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inheritance(
    #[expect(dead_code, reason = "held for as long as anything is left of that engine")]
    Option<Arc<Presence>>,
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
    Local(local::LocalTamperCheck),
    /// Elsewhere: the warnings, once they are asked for.
    Far(Soon<'static, Vec<String>>),
}

impl TamperCheck {
    /// What has come since then.
    pub(crate) async fn warnings(self) -> Vec<String> {
        match self {
            Self::Local(check) => check.warnings().await,
            Self::Far(warnings) => warnings.await,
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

/// What a plan looks at. Nothing here waits: it is asked in the middle of a judgement.
pub(crate) trait Look: Send + Sync + fmt::Debug {
    /// A variable of the environment that commands inherit.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// Finds a program: a path as it is (relative to the folder it runs in), a name on `PATH`.
    fn find_program(&self, name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram>;

    /// The file that a program really is, behind all links.
    fn real_program(&self, program: &Path) -> Option<PathBuf>;

    /// Whether a sandboxed command could have put a file there.
    fn can_be_planted(&self, file: &Path) -> bool;

    /// Opens a folder first and asks afterwards where it really is, so that neither a link nor `..`
    /// can lead elsewhere between the check and the use.
    fn open_folder(&self, path: &Path) -> io::Result<Folder>;

    /// Whether a folder that was opened earlier is still the one of its name.
    fn is_still_there(&self, folder: &Folder) -> bool;

    /// Whether a path exists.
    fn exists(&self, path: &Path) -> bool;

    /// Asks for what was looked at and is not known; none where everything is.
    fn missing(&self) -> Option<Soon<'_, io::Result<()>>> {
        None
    }
}

/// Where wardens run.
pub(crate) trait Place: Look {
    /// Its name; none for this machine.
    fn name(&self) -> Option<&str> {
        None
    }

    /// The jobs of this place, where a scheduler starts commands when it finds room for them.
    fn jobs(&self) -> Option<&Arc<jobs::Jobs>> {
        None
    }

    /// The name of the warden that the job of a task will have.
    fn warden_of_job(&self, _id: &TaskId) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Asks a job that runs, and whose folder is not seen here, what it says of itself; afterwards
    /// that is known here.
    fn hear_of_job<'a>(&'a self, _id: &'a TaskId) -> Soon<'a, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Gives a command to the scheduler.
    fn submit(&self, _job: NewJob) -> Soon<'_, Result<(), NotSubmitted>> {
        Box::pin(async { Err(NotSubmitted::Refused("there is no scheduler".into())) })
    }

    /// Why nothing is known of the end of a task, where a scheduler has a word for it.
    fn why_lost(&self, _id: &TaskId) -> Option<String> {
        None
    }

    /// Identifies this boot of the machine; empty where that cannot be known.
    fn boot_id(&self) -> Cow<'_, str>;

    /// Looks ahead for a plan; none where a look takes no time.
    fn survey<'a>(&'a self, _survey: Survey<'a>) -> Option<Soon<'a, io::Result<Surveyed>>> {
        None
    }

    /// The meaning of the system's refusal to execute a program.
    fn refusal_to_execute(&self, program: &Path, errno: i32) -> String;

    /// Until when a warden lets its command run on without an engine, in milliseconds since 1970;
    /// in the past, or nothing, if it has one.
    fn alone_until_ms(&self, _warden: &str) -> Option<i64> {
        None
    }

    /// Whether a path exists, wherever that has to be asked.
    fn is_there<'a>(&'a self, path: &'a Path) -> Soon<'a, bool> {
        let exists = self.exists(path);
        Box::pin(async move { exists })
    }

    /// Resolves when the path exists. Safe to cancel.
    fn appears<'a>(&'a self, path: &'a Path) -> Soon<'a, ()>;

    /// Starts what the first command would otherwise wait for, and makes sandboxes of this kind
    /// ready ahead; returns the process id of the spawner, if there is one.
    fn warm_up(&self, usual: Wanted) -> Soon<'_, io::Result<Option<u32>>>;

    /// Ends the work that nobody waits for; called once, before the engine ends.
    fn close(&self) -> Soon<'_, ()>;

    /// A warden with this sandbox ready.
    fn ready(&self, wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>>;

    /// A warden whose next command sees all that it may write as a copy: a trial of this id is
    /// begun. It serves one command only.
    fn ready_to_try<'a>(
        &'a self,
        _wanted: Wanted,
        _id: &'a TaskId,
    ) -> Soon<'a, Result<Ready, PlaceError>> {
        Box::pin(async { Err(PlaceError::NoCopies("this place makes no copies".into())) })
    }

    /// Whether such a command writes outside its workspace into a layer.
    fn is_layered(&self, _wanted: Wanted) -> bool {
        false
    }

    /// A warden whose next command has a layer of its own over the home folder. It serves that
    /// command only.
    fn ready_in_layer<'a>(
        &'a self,
        _wanted: Wanted,
        _id: &'a TaskId,
    ) -> Soon<'a, Result<Ready, PlaceError>> {
        Box::pin(async { Err(PlaceError::NoLayer("this place makes no copies".into())) })
    }

    /// The layers of this workspace, where commands have any.
    fn outside(&self) -> Option<OutsideLayers> {
        None
    }

    /// Whether commands can be tried here, as far as that can be known without one.
    fn can_try(&self) -> bool {
        false
    }

    /// Starts a command elsewhere, where no descriptor can go along.
    fn start<'a>(
        &'a self,
        _warden: &'a str,
        _spec: Spec,
        _workdir: &'a Folder,
        _given: Option<&'a OwnedFd>,
    ) -> Soon<'a, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// Takes a warden back that can be used again.
    fn give_back(&self, warden: Warden);

    /// A warden is in our hands no longer.
    fn let_go(&self, _warden: &str) {}

    /// The wardens that wait for a command.
    fn idle_wardens(&self) -> WardenCount {
        WardenCount::default()
    }

    /// The sandbox of this kind as this place makes it, if that is known already.
    fn known_sandbox(&self, wanted: Wanted) -> Option<Arc<Sandbox>>;

    /// Those of these paths that a command in such a sandbox surely cannot write; none where that
    /// is not known.
    fn refused_writes(&self, wanted: Wanted, paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>>;

    /// Where a path is that a command in such a sandbox names; none if it is hidden there.
    fn as_seen(&self, wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>>;

    /// What a warden is told about the sandbox that its next command starts in.
    fn sandboxed(&self, sandbox: &Sandbox) -> Sandboxed;

    /// Looks, before the command of a warden that may write, at what others run or trust. The look
    /// is begun at once, and waited for no longer than a bound.
    fn tamper_check(&self, wanted: Wanted, warden: &str) -> Option<Soon<'static, TamperCheck>>;

    /// Takes the profile out of a command that wants a login, if its effect is known; else what the
    /// profile is known to say to the sandbox. The command starts when what is returned is through:
    /// that is what stderr begins with and is to be left out.
    fn shorten_login(&self, wish: LoginWish<'_>, spec: &mut Spec)
    -> Option<Soon<'static, Vec<u8>>>;

    /// Connects to a warden; an error means that it is gone, or too busy to take another connection
    /// now.
    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>>;

    /// Whether a warden lives; an error where that cannot be known.
    fn is_alive(&self, warden: &str) -> io::Result<bool>;

    /// The same where it has to be asked; none where it can be seen.
    fn is_alive_there<'a>(&'a self, _warden: &'a str) -> Option<Soon<'a, io::Result<bool>>> {
        None
    }

    /// Whether a question is answered at once, and no connection has to be made for it.
    fn is_connected(&self) -> bool {
        true
    }

    /// Whether the engine lives that a warden was forked for, or another one in its place.
    fn is_owned(&self, warden: &str) -> bool;

    /// Takes the place of the engine that a warden was forked for; none if that lives, or another
    /// one has done so.
    fn inherit(&self, warden: &str) -> Option<Inheritance>;

    /// Counts the engines that have ended since somebody first asked: a change says that there may
    /// be one more.
    fn engines_ended(&self) -> watch::Receiver<u64>;

    /// Ends what a dead warden's command has left running; names what could not be ended. Takes a
    /// while.
    fn end_left_by(&self, warden: &str) -> Vec<u32>;

    /// The same where it has to be asked for.
    fn end_left_there<'a>(&'a self, _warden: &'a str) -> Option<Soon<'a, Vec<u32>>> {
        None
    }

    /// Removes what dead wardens and engines have left of themselves, or only counts it; returns
    /// how many wardens that were.
    fn clear_dead(&self, dry_run: bool) -> u64;

    /// Brings what a task has stored elsewhere to this machine, as far as it is not here; none
    /// where it is here anyway.
    fn bring<'a>(&'a self, _id: &'a TaskId) -> Option<Soon<'a, io::Result<()>>> {
        None
    }

    /// Lets a task elsewhere be forgotten there, if all of what it has stored is here.
    fn forget(&self, _id: &TaskId, _is_stored: bool) {}

    /// Everything that a task has stored and that is on this machine, as of now.
    fn output(&self, id: &TaskId) -> io::Result<TaskOutput>;

    /// What a task's warden recorded of its end.
    fn exit_record(&self, id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>>;

    /// Whether a task has stored anything.
    fn has_stored(&self, id: &TaskId) -> bool;

    /// Takes note that a task has stored something: later commands may read it from their
    /// sandboxes.
    fn note_stored(&self, id: &TaskId);

    /// The words of a process's command line; none if there is no such process.
    fn command_line(&self, pid: u32) -> Option<String>;

    /// Those of some processes that still run, with their command lines.
    fn processes(&self, pids: &[u32]) -> Vec<(u32, String)> {
        pids.iter().filter_map(|pid| Some((*pid, self.command_line(*pid)?))).collect()
    }

    /// Asks for the command lines of processes elsewhere, which are known afterwards.
    fn learn_processes<'a>(&'a self, _pids: &'a [u32]) -> Option<Soon<'a, ()>> {
        None
    }

    /// Gives a line to a program of the user's with its arguments, or to the system's log if that
    /// is its name: not to anything that a caller chooses.
    fn tell(&self, program: Vec<String>, line: String) -> Soon<'static, io::Result<()>>;
}
