//! `Local`: the place that is this machine, where it runs Windows.
//!
//! The same as on Linux where that is possible: wardens are found and owned in the same way, and
//! wait in the same pool. There is no sandbox and no login shell.

mod ahead;
mod calling;
#[path = "../local/dead.rs"]
mod dead;
#[path = "../local/owner.rs"]
#[expect(dead_code, reason = "no engine of another machine is served")]
mod owner;
mod pipe;
#[path = "../local/pool.rs"]
mod pool;
mod programs;
#[path = "../local/roll_call.rs"]
mod roll_call;
mod sandbox;
mod spawning;
mod telling;

use std::{
    borrow::Cow,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::windows::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use legwork_gate::{Level, ProgramRule};
use legwork_warden::{
    end_left_by, is_alive,
    record::{ExitRecord, RecordError},
};
use tokio::{sync::watch, time::sleep};

pub(crate) use self::sandbox::{LocalTamperCheck, has_repository};
use self::{owner::Owners, pipe::Pipe, pool::Pool, sandbox::Sandboxing, spawning::Spawning};
use super::{
    Channel, Folder, Inheritance, Look, NoProgram, Place, PlaceError, Ready, Sandbox, Soon, Warden,
};
use crate::{
    id::TaskId,
    meters::WardenCount,
    model::sandbox::{SandboxSettings, Wanted},
    output::TaskOutput,
    platform::{hold_folder, look_at, look_of, real_path},
    state::StateFolder,
    threads::in_thread,
};

/// How often to look for a path that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The longest path of a folder that a program can be started in, in characters of the system.
const WORKDIR_MAX: usize = 258;

/// This machine, with the state folder that its wardens work for.
#[derive(Debug)]
pub(crate) struct Local {
    state: Arc<StateFolder>,
    owners: Arc<Owners>,
    pool: Arc<Pool>,
    sandboxing: Arc<Sandboxing>,
}

impl Local {
    /// Starts nothing yet. The first of the roots is the workspace.
    pub(crate) fn new(
        state: Arc<StateFolder>,
        _settings: SandboxSettings,
        roots: &[PathBuf],
        _rules: &[ProgramRule],
        _at_once: bool,
    ) -> Self {
        state.ask_wardens_by(roll_call::roll_call);
        let sandboxing = Arc::new(Sandboxing::new(roots, state.path()));
        let owners = Arc::new(Owners::new(state.engines()));
        let spawning = Spawning::new(state.clone(), owners.clone());
        let pool = Pool::new(Arc::new(spawning), sandboxing.clone());
        Self { state, owners, pool, sandboxing }
    }

    /// The same with other settings.
    pub(crate) fn with_settings(
        &self,
        _settings: SandboxSettings,
        roots: &[PathBuf],
        _rules: &[ProgramRule],
    ) -> Self {
        let (state, owners) = (self.state.clone(), self.owners.clone());
        let sandboxing = Arc::new(Sandboxing::new(roots, state.path()));
        let pool = Pool::new(self.pool.forks.clone(), sandboxing.clone());
        Self { state, owners, pool, sandboxing }
    }
}

impl Look for Local {
    fn variable(&self, name: &str) -> Option<OsString> {
        env::var_os(name)
    }

    fn find_program(&self, name: &OsStr, workdir: &Path) -> Result<PathBuf, NoProgram> {
        programs::find(name, workdir)
    }

    fn real_program(&self, program: &Path) -> Option<PathBuf> {
        real_path(program).ok()
    }

    fn can_be_planted(&self, file: &Path) -> bool {
        self.sandboxing.can_be_written(file)
    }

    fn is_in_current_folder(&self, name: &OsStr, workdir: &Path) -> bool {
        programs::is_in_folder(name, workdir)
    }

    fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        if path.as_os_str().encode_wide().count() > WORKDIR_MAX {
            return Err(io::Error::other(
                "Windows starts no program in a folder whose path has more than 258 characters",
            ));
        }
        let handle = hold_folder(path)?;
        // Nobody can put another one in its place while it is open.
        let path = real_path(path)?;
        Ok(Folder { path, handle: Some(Arc::new(handle.into())) })
    }

    fn is_still_there(&self, folder: &Folder) -> bool {
        let opened = folder.handle.as_ref().and_then(|handle| handle.try_clone().ok());
        let same = || {
            let opened = look_of(&File::from(opened?)).ok()?;
            Some(opened.id == look_at(&folder.path).ok()?.id)
        };
        same().unwrap_or(false)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

impl Place for Local {
    fn boot_id(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn refusal_to_execute(&self, program: &Path, errno: i32) -> String {
        programs::refusal(program, errno)
    }

    fn alone_until_ms(&self, warden: &str) -> Option<i64> {
        let listed = fs::metadata(self.state.wardens.join(format!("{warden}.sock"))).ok()?;
        let since = listed.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    }

    fn appears<'a>(&'a self, path: &'a Path) -> Soon<'a, ()> {
        Box::pin(async move {
            while !path.exists() {
                sleep(LOOK_EVERY).await;
            }
        })
    }

    fn warm_up(&self, usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        self.pool.expect(usual);
        Box::pin(async { self.pool.warm_up().await.map(|_| None) })
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {})
    }

    fn ready(&self, wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        Box::pin(self.pool.ready(wanted))
    }

    fn ready_to_try<'a>(
        &'a self,
        _wanted: Wanted,
        _id: &'a TaskId,
    ) -> Soon<'a, Result<Ready, PlaceError>> {
        Box::pin(async { Err(PlaceError::NoCopies("no copies of files on Windows yet".into())) })
    }

    fn give_back(&self, warden: Warden) {
        self.pool.give_back(warden);
    }

    fn idle_wardens(&self) -> WardenCount {
        self.pool.idle()
    }

    fn known_sandbox(&self, wanted: Wanted) -> Option<Arc<Sandbox>> {
        (wanted.level != Level::None).then(|| self.sandboxing.known(wanted)).flatten()
    }

    fn refused_writes(&self, _wanted: Wanted, _paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        // Nothing is refused where nothing is confined.
        Box::pin(async { Vec::new() })
    }

    fn as_seen(&self, _wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async { Some(path) })
    }

    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        Box::pin(Pipe::dial(warden))
    }

    fn is_alive(&self, warden: &str) -> io::Result<bool> {
        is_alive(&self.state.wardens, warden)
    }

    fn is_owned(&self, warden: &str) -> bool {
        self.owners.is_owned(warden)
    }

    fn inherit(&self, warden: &str) -> Option<Inheritance> {
        self.owners.inherit(warden)
    }

    fn engines_ended(&self) -> watch::Receiver<u64> {
        self.owners.ends()
    }

    fn end_left_by(&self, warden: &str) -> Vec<u32> {
        end_left_by(warden)
    }

    fn clear_dead(&self, dry_run: bool) -> u64 {
        dead::clear(&self.state, dry_run)
    }

    fn output(&self, id: &TaskId) -> io::Result<TaskOutput> {
        self.state.task(id).open()
    }

    fn exit_record(&self, id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>> {
        self.state.task(id).exit_record()
    }

    fn has_stored(&self, id: &TaskId) -> bool {
        self.state.task(id).path().is_dir()
    }

    fn note_stored(&self, _id: &TaskId) {}

    fn command_line(&self, pid: u32) -> Option<String> {
        legwork_warden::command_line(pid)
    }

    fn tell(&self, program: Vec<String>, line: String) -> Soon<'static, io::Result<()>> {
        Box::pin(async move {
            let told = in_thread(move || telling::tell(&program, &line)).await;
            told.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
        })
    }
}
