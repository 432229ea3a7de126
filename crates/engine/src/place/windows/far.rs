//! `Far`: other places, which this program does not reach from Windows yet: all is refused with a
//! word.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use legwork_gate::ProgramRule;
use legwork_warden::record::{ExitRecord, RecordError};
use tokio::sync::watch;

use super::{
    Channel, Folder, Inheritance, Local, Look, NoProgram, Place, PlaceError, Ready, Sandbox, Soon,
    Survey, Surveyed, Warden, jobs::Jobs,
};
use crate::{
    id::TaskId,
    model::{
        place::PlaceSettings,
        sandbox::{SandboxSettings, Wanted},
    },
    output::{SharedMask, TaskOutput},
    state::StateFolder,
};

fn not_here() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "other places are not reached from Windows yet")
}

/// A place that was used with this state folder: none ever was.
pub(crate) fn remembered(_state: &StateFolder, _name: &str) -> Option<PlaceSettings> {
    None
}

/// What a post would be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedOf;

impl AskedOf {
    pub(crate) fn new(
        _workspace: &Path,
        _settings: &SandboxSettings,
        _rules: &[ProgramRule],
    ) -> Self {
        Self
    }
}

/// What a place says of itself.
#[derive(Debug, Clone)]
pub(crate) struct FarReport {
    pub hello: Hello,
    pub leftovers: Leftovers,
    pub opened_in: Duration,
    pub answered_in: Duration,
    pub is_same_program: bool,
    pub lacks: Vec<String>,
}

/// The machine that it is.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub host: String,
    pub workspace: Result<PathBuf, String>,
    pub state: PathBuf,
    pub processors: u64,
    pub memory_bytes: u64,
}

/// What is left there.
#[derive(Debug, Clone)]
pub(crate) struct Leftovers {
    pub wardens: u64,
    pub tasks: u64,
}

/// A place that was configured.
#[derive(Debug)]
pub(crate) struct Far {
    settings: PlaceSettings,
}

impl Far {
    pub(crate) fn new(
        settings: PlaceSettings,
        _here: Arc<Local>,
        _state: Arc<StateFolder>,
        _asked: AskedOf,
        _mask: SharedMask,
    ) -> Self {
        Self { settings }
    }

    /// The same for another configuration.
    pub(crate) fn with(&self, _here: Arc<Local>, _asked: AskedOf) -> Self {
        Self { settings: self.settings.clone() }
    }

    pub(crate) fn settings(&self) -> &PlaceSettings {
        &self.settings
    }

    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(crate) fn of_task(&self, _id: &TaskId) -> Option<Arc<Self>> {
        None
    }

    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(crate) fn leave_task(&self, _id: &TaskId) {}

    #[expect(clippy::unused_self, reason = "the signature is that of Linux")]
    pub(crate) fn jobs(&self) -> Option<&Arc<Jobs>> {
        None
    }

    #[expect(clippy::unused_async, reason = "the signature is that of Linux")]
    pub(crate) async fn report(&self) -> io::Result<FarReport> {
        Err(not_here())
    }
}

impl Look for Far {
    fn variable(&self, _name: &str) -> Option<OsString> {
        None
    }

    fn find_program(&self, _name: &OsStr, _workdir: &Path) -> Result<PathBuf, NoProgram> {
        Err(NoProgram::NotFound)
    }

    fn real_program(&self, _program: &Path) -> Option<PathBuf> {
        None
    }

    fn can_be_planted(&self, _file: &Path) -> bool {
        true
    }

    fn open_folder(&self, _path: &Path) -> io::Result<Folder> {
        Err(not_here())
    }

    fn is_still_there(&self, _folder: &Folder) -> bool {
        false
    }

    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

impl Place for Far {
    fn name(&self) -> Option<&str> {
        Some(&self.settings.name)
    }

    fn boot_id(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn survey<'a>(&'a self, _survey: Survey<'a>) -> Option<Soon<'a, io::Result<Surveyed>>> {
        Some(Box::pin(async { Err(not_here()) }))
    }

    fn refusal_to_execute(&self, _program: &Path, _errno: i32) -> String {
        not_here().to_string()
    }

    fn appears<'a>(&'a self, _path: &'a Path) -> Soon<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn warm_up(&self, _usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {})
    }

    fn ready(&self, _wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        Box::pin(async { Err(not_here().into()) })
    }

    fn give_back(&self, _warden: Warden) {}

    fn known_sandbox(&self, _wanted: Wanted) -> Option<Arc<Sandbox>> {
        None
    }

    fn refused_writes(&self, _wanted: Wanted, _paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        Box::pin(async { Vec::new() })
    }

    fn as_seen(&self, _wanted: Wanted, _path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async { None })
    }

    fn dial<'a>(&'a self, _warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        Box::pin(async { Err(not_here()) })
    }

    fn is_alive(&self, _warden: &str) -> io::Result<bool> {
        Err(not_here())
    }

    fn is_connected(&self) -> bool {
        false
    }

    fn is_owned(&self, _warden: &str) -> bool {
        false
    }

    fn inherit(&self, _warden: &str) -> Option<Inheritance> {
        None
    }

    fn engines_ended(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn end_left_by(&self, _warden: &str) -> Vec<u32> {
        Vec::new()
    }

    fn clear_dead(&self, _dry_run: bool) -> u64 {
        0
    }

    fn output(&self, _id: &TaskId) -> io::Result<TaskOutput> {
        Err(not_here())
    }

    fn exit_record(&self, _id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>> {
        Err(not_here())
    }

    fn has_stored(&self, _id: &TaskId) -> bool {
        false
    }

    fn note_stored(&self, _id: &TaskId) {}

    fn command_line(&self, _pid: u32) -> Option<String> {
        None
    }

    fn tell(&self, _program: Vec<String>, _line: String) -> Soon<'static, io::Result<()>> {
        Box::pin(async { Err(not_here()) })
    }
}
