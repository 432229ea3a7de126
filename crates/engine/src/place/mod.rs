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

#[cfg_attr(windows, expect(dead_code, reason = "no logins, jobs or other places there"))]
mod asked;
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
    sync::Arc,
};

use tokio::sync::watch;

use legwork_warden::{
    protocol::{RunCopies, Sandboxed, Spec},
    record::{ExitRecord, RecordError},
};

use self::jobs::driver::NotSubmitted;
pub(crate) use self::{
    asked::{
        Attending, Attention, Folder, Inheritance, LoginWish, NewJob, NoProgram, PlaceError,
        Sandbox, Survey, Surveyed, TamperCheck,
    },
    channel::{Channel, Wire},
    far::{AskedOf, Far, remembered},
    local::Local,
    warden::{DROP_GRACE, Warden},
};
use crate::{
    id::TaskId, meters::WardenCount, model::sandbox::Wanted, output::TaskOutput, platform::OwnedFd,
};

/// Most bytes of output that a warden holds in memory.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Something that a place does and that takes a while.
pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A warden that is ready, and the sandbox that its next command is started in.
pub(crate) type Ready = (Warden, Option<Arc<Sandbox>>);

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

    /// Whether a shell that looks for programs in its current folder first finds one there.
    fn is_in_current_folder(&self, _name: &OsStr, _workdir: &Path) -> bool {
        false
    }

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

    /// Whether commands can be tried here, as far as that can be known without one.
    fn can_try(&self) -> bool {
        false
    }

    /// A folder in which nobody looks for repositories to guard, because there are too many
    /// folders.
    fn unsearched(&self) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async { None })
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
    fn sandboxed(&self, sandbox: &Sandbox) -> Sandboxed {
        Sandboxed {
            enforced: sandbox.enforcement.enforced.clone(),
            artifacts: Vec::new(),
            exec_rules: Vec::new(),
            on_copy: false,
            names: None,
            copies: RunCopies::default(),
        }
    }

    /// Looks, before the command of a warden that may write, at what others run or trust. The look
    /// is begun at once, and waited for no longer than a bound. None where nothing is looked at.
    fn tamper_check(&self, _wanted: Wanted, _warden: &str) -> Option<Soon<'static, TamperCheck>> {
        None
    }

    /// Takes the profile out of a command that wants a login, if its effect is known; else what the
    /// profile is known to say to the sandbox. The command starts when what is returned is through:
    /// that is what stderr begins with and is to be left out.
    fn shorten_login(
        &self,
        _wish: LoginWish<'_>,
        _spec: &mut Spec,
    ) -> Option<Soon<'static, Vec<u8>>> {
        None
    }

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
