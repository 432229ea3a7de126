//! `Local`: the place that is this machine.

mod ahead;
mod calling;
mod dead;
mod login;
mod own;
mod owner;
mod paths;
mod pool;
mod programs;
mod roll_call;
mod sandbox;
mod socket;
mod spawning;
mod telling;
mod view;

use std::{
    borrow::Cow,
    env,
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_gate::{Level, ProgramRule};
use legwork_warden::{
    connect, end_left_by, is_alive,
    protocol::{Sandboxed, Spec},
    record::{ExitRecord, RecordError},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, fstat, open, stat, statat},
    io::Errno,
};
use tokio::sync::watch;

use self::{
    login::Logins, owner::Owners, pool::Pool, sandbox::Sandboxing, socket::Socket,
    spawning::Spawning,
};
pub(crate) use self::{
    own::{hash, own_program, runtime_folder},
    sandbox::{LocalTamperCheck, has_repository},
};
use super::{
    Channel, Folder, Inheritance, LoginWish, Look, NoProgram, Place, PlaceError, Ready, Sandbox,
    Soon, Warden,
};
use crate::{
    id::TaskId,
    meters::WardenCount,
    model::sandbox::{SandboxSettings, Wanted},
    output::TaskOutput,
    state::StateFolder,
    threads::in_thread,
};

/// This machine, with the state folder that its wardens work for.
#[derive(Debug)]
pub(crate) struct Local {
    state: Arc<StateFolder>,
    boot_id: String,
    owners: Arc<Owners>,
    pool: Arc<Pool>,
    sandboxing: Arc<Sandboxing>,
    logins: Arc<Logins>,
}

impl Local {
    /// Starts nothing yet, unless a command follows at once. The first of the roots is the
    /// workspace; the rules are those on programs that commands may not execute.
    pub(crate) fn new(
        state: Arc<StateFolder>,
        settings: SandboxSettings,
        roots: &[PathBuf],
        rules: &[ProgramRule],
        at_once: bool,
    ) -> Self {
        let owners = Owners::new(state.engines());
        Self::with(owners, state, settings, roots, rules, at_once)
    }

    /// The same for an engine that is not on this machine: wardens carry its mark.
    pub(crate) fn for_engine(
        mark: &str,
        state: Arc<StateFolder>,
        settings: SandboxSettings,
        roots: &[PathBuf],
        rules: &[ProgramRule],
    ) -> Self {
        let owners = Owners::for_engine(state.engines(), mark);
        Self::with(owners, state, settings, roots, rules, false)
    }

    fn with(
        owners: Owners,
        state: Arc<StateFolder>,
        settings: SandboxSettings,
        roots: &[PathBuf],
        rules: &[ProgramRule],
        at_once: bool,
    ) -> Self {
        state.ask_wardens_by(roll_call::roll_call);
        let sandboxing = Arc::new(Sandboxing::new(settings, roots, state.path(), rules));
        let owners = Arc::new(owners);
        let mut spawning = Spawning::new(state.clone(), owners.clone());
        if at_once {
            spawning.begin();
        }
        let pool = Pool::new(Arc::new(spawning), sandboxing.clone());
        let logins = Arc::new(Logins::new(pool.clone(), sandboxing.clone(), state.clone()));
        Self { state, boot_id: boot_id(), owners, pool, sandboxing, logins }
    }

    /// The same with other settings: nothing that was made ready by those of before is used again,
    /// but the spawner stays.
    pub(crate) fn with_settings(
        &self,
        settings: SandboxSettings,
        roots: &[PathBuf],
        rules: &[ProgramRule],
    ) -> Self {
        let (state, owners) = (self.state.clone(), self.owners.clone());
        let sandboxing = Arc::new(Sandboxing::new(settings, roots, state.path(), rules));
        let pool = Pool::new(self.pool.forks.clone(), sandboxing.clone());
        let logins = Arc::new(Logins::new(pool.clone(), sandboxing.clone(), state.clone()));
        Self { state, boot_id: self.boot_id.clone(), owners, pool, sandboxing, logins }
    }

    /// The mark of this engine, which the names of its wardens begin with.
    pub(crate) fn mark(&self) -> io::Result<String> {
        Ok(self.owners.own()?.mark().to_owned())
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
        program.canonicalize().ok()
    }

    fn can_be_planted(&self, file: &Path) -> bool {
        self.sandboxing.can_be_written(file)
    }

    fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (handle, path) = match open(path, flags, Mode::empty()) {
            Ok(handle) => {
                let path = real_path(&handle)?;
                (handle, path)
            }
            // A command may have made it in the `/tmp` that those of this workspace have.
            Err(error @ Errno::NOENT) => {
                let (outside, tmp) = self.sandboxing.in_own_tmp(path).ok_or(error)?;
                let handle = open(outside, flags, Mode::empty())?;
                let real = real_path(&handle)?;
                let rest = real.strip_prefix(tmp.canonicalize()?).map_err(|_| error)?;
                (handle, Path::new("/tmp").join(rest))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Folder { path, handle: Some(Arc::new(handle)) })
    }

    fn is_still_there(&self, folder: &Folder) -> bool {
        let same = || {
            let (opened, named) = (fstat(folder.handle.as_ref()?).ok()?, stat(&folder.path).ok()?);
            Some((opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino))
        };
        same().unwrap_or(false)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

impl Place for Local {
    fn boot_id(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.boot_id)
    }

    fn refusal_to_execute(&self, program: &Path, errno: i32) -> String {
        programs::refusal(program, errno)
    }

    fn alone_until_ms(&self, warden: &str) -> Option<i64> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let socket = statat(&self.state.wardens, format!("{warden}.sock"), flags).ok()?;
        let nanoseconds = i64::try_from(socket.st_mtime_nsec).unwrap_or(0);
        Some(socket.st_mtime.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
    }

    fn appears<'a>(&'a self, path: &'a Path) -> Soon<'a, ()> {
        Box::pin(paths::appears(path))
    }

    fn warm_up(&self, usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        self.pool.expect(usual);
        self.logins.begin();
        Box::pin(async { self.pool.warm_up().await.map(Some) })
    }

    fn close(&self) -> Soon<'_, ()> {
        self.pool.close();
        Box::pin(self.logins.close())
    }

    fn ready(&self, wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        Box::pin(self.pool.ready(wanted))
    }

    fn ready_to_try<'a>(
        &'a self,
        wanted: Wanted,
        id: &'a TaskId,
    ) -> Soon<'a, Result<Ready, PlaceError>> {
        Box::pin(self.pool.ready_to_try(wanted, id))
    }

    fn can_try(&self) -> bool {
        sandbox::knows_copies()
    }

    fn unsearched(&self) -> Soon<'_, Option<PathBuf>> {
        Box::pin(self.sandboxing.unsearched())
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

    fn refused_writes(&self, wanted: Wanted, paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        Box::pin(async move {
            // What a missing layer lets through is not refused.
            if !self.known_sandbox(wanted).is_some_and(|sandbox| sandbox.is_whole()) {
                return Vec::new();
            }
            let profile = self.sandboxing.profile(wanted).await;
            let look = move || view::refused(&profile, paths);
            in_thread(look).await.unwrap_or_default()
        })
    }

    fn as_seen(&self, wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async move {
            if wanted.level == Level::None {
                return Some(path);
            }
            let profile = self.sandboxing.profile(wanted).await;
            let look = move || view::seen(&profile, &path);
            in_thread(look).await.flatten()
        })
    }

    fn sandboxed(&self, sandbox: &Sandbox) -> Sandboxed {
        self.sandboxing.sandboxed(sandbox)
    }

    fn tamper_check(
        &self,
        wanted: Wanted,
        _warden: &str,
    ) -> Option<Soon<'static, super::TamperCheck>> {
        let looking = self.sandboxing.tamper_check(wanted)?;
        Some(Box::pin(async { super::TamperCheck::Local(looking.await) }))
    }

    fn shorten_login(
        &self,
        wish: LoginWish<'_>,
        spec: &mut Spec,
    ) -> Option<Soon<'static, Vec<u8>>> {
        self.logins.shorten(wish, spec)
    }

    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        Box::pin(async move { Socket::channel(connect(&self.state.wardens, warden)?) })
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

    fn note_stored(&self, id: &TaskId) {
        self.sandboxing.recent.add(id);
    }

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

fn real_path(folder: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Identifies this boot of the machine; empty where the kernel does not tell.
fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
