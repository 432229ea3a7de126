//! `Far`: a place that is not this machine. A post works there ([`super::post`]): it has a
//! [`Local`] of its own, forks wardens, dials them and answers questions, all over one connection.
//!
//! The connection is opened when it is first needed, and again when it was lost. Losing it loses
//! nothing: wardens stay, keep what their commands print, and are dialed again. What tasks have
//! stored is brought here, and forgotten there once all of it is here.

mod link;
pub(super) mod message;
mod mirror;
pub(super) mod outbox;
mod program;
mod sight;
mod transport;
mod wire;

use std::{
    borrow::Cow,
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use legwork_gate::ProgramRule;
use legwork_warden::{
    protocol::{self, RunCopies, Sandboxed, Spec},
    record::{ExitRecord, RecordError},
};
use tokio::{sync::watch, time::Instant};

pub(super) use self::link::{PING, receive};
pub(crate) use self::program::remembered;
use self::{
    link::Link,
    message::{
        FarRule, Hello, Leftovers, Opening, PROGRAM_VERSION, PostQuestion, ReadyWarden,
        SandboxPaths, Starting,
    },
    sight::Sight,
    transport::Transport,
    wire::FarWire,
};
use super::{
    Channel, Folder, Inheritance, Local, LoginWish, Look, NoProgram, Place, PlaceError, Ready,
    Sandbox, Soon, Survey, Surveyed, TamperCheck, Warden,
};
use crate::{
    id::TaskId,
    model::{
        place::{PlaceSettings, at_place, place_of},
        sandbox::{SandboxReport, SandboxSettings, Wanted},
    },
    output::{SharedMask, TaskOutput},
    state::StateFolder,
    threads::in_thread,
};

/// How soon after a failure another connection is tried.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a warden may take to have a sandbox ready there.
const READY: Duration = Duration::from_secs(40);

/// Most bytes of a stdin that is there already: they are sent at once.
const GIVEN_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A place that is not this machine.
#[derive(Debug)]
pub(crate) struct Far {
    settings: PlaceSettings,
    here: Arc<Local>,
    state: Arc<StateFolder>,
    /// What the post is told of the workspace and of sandboxes.
    asked: AskedOf,
    transport: Transport,
    mask: SharedMask,
    standing: tokio::sync::Mutex<Standing>,
    /// The connection that was opened last, for a look at what it said.
    latest: Mutex<Option<Arc<Link>>>,
    known: Mutex<HashMap<Wanted, Arc<Sandbox>>>,
    /// The wardens that are in our hands: their streams, and what says that they can be used again.
    wardens: Mutex<HashMap<String, (u64, Arc<AtomicBool>)>>,
    /// Command lines of processes there, as they were last seen.
    processes: Mutex<HashMap<u32, String>>,
}

/// What the post is told of the workspace and of sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct AskedOf {
    workspace: PathBuf,
    sandbox: SandboxPaths,
    rules: Vec<FarRule>,
}

impl AskedOf {
    /// Of an engine with this workspace, sandbox and rules on programs.
    pub(crate) fn new(workspace: &Path, settings: &SandboxSettings, rules: &[ProgramRule]) -> Self {
        let sandbox = SandboxPaths {
            writable: settings.writable.clone(),
            unreadable: settings.unreadable.clone(),
            deciding: settings.deciding.clone(),
        };
        let rules = rules.iter().map(FarRule::from).collect();
        Self { workspace: workspace.to_owned(), sandbox, rules }
    }
}

/// The connection, or why there is none.
#[derive(Debug, Default)]
struct Standing {
    link: Option<Arc<Link>>,
    failed: Option<(Instant, io::ErrorKind, String)>,
}

/// What a place says of itself.
#[derive(Debug, Clone)]
pub(crate) struct FarReport {
    pub hello: Hello,
    pub leftovers: Leftovers,
    /// How long the connection took to open.
    pub opened_in: Duration,
    /// How long a question takes now.
    pub answered_in: Duration,
    /// Whether the program there is this one, byte for byte.
    pub is_same_program: bool,
}

impl Far {
    pub(crate) fn new(
        settings: PlaceSettings,
        here: Arc<Local>,
        state: Arc<StateFolder>,
        asked: AskedOf,
        mask: SharedMask,
    ) -> Self {
        let transport = Transport::new(settings.clone(), state.path());
        Self {
            settings,
            here,
            state,
            asked,
            transport,
            mask,
            standing: tokio::sync::Mutex::default(),
            latest: Mutex::default(),
            known: Mutex::default(),
            wardens: Mutex::default(),
            processes: Mutex::default(),
        }
    }

    /// How it was configured.
    pub(crate) fn settings(&self) -> &PlaceSettings {
        &self.settings
    }

    /// The connection: the one that stands, or a new one.
    async fn link(&self) -> io::Result<Arc<Link>> {
        let mut standing = self.standing.lock().await;
        if let Some(link) = standing.link.as_ref().filter(|link| link.lost().is_none()) {
            return Ok(link.clone());
        }
        if let Some((at, kind, text)) = &standing.failed
            && at.elapsed() < AGAIN
        {
            return Err(io::Error::new(*kind, text.clone()));
        }
        standing.link = None;
        match self.open().await {
            Ok(link) => {
                standing.failed = None;
                self.mask.learn(&pairs(&link.hello));
                standing.link = Some(link.clone());
                *lock(&self.latest) = Some(link.clone());
                Ok(link)
            }
            Err(error) => {
                let text = format!("place `{}`: {error}", self.settings.name);
                standing.failed = Some((Instant::now(), error.kind(), text.clone()));
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    async fn open(&self) -> io::Result<Arc<Link>> {
        let workspace = self.settings.workspace.clone();
        let opening = Opening {
            version: PROGRAM_VERSION.to_owned(),
            protocol: protocol::version(),
            mark: self.here.mark()?,
            workspace: workspace.unwrap_or_else(|| self.asked.workspace.clone()),
            sandbox: self.asked.sandbox.clone(),
            rules: self.asked.rules.clone(),
        };
        program::remember(&self.state, &self.settings)?;
        let hash = if self.transport.sends() { self.hash().await? } else { String::new() };
        match Link::open(self.transport.start(&hash)?, opening.clone()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.transport.sends() => {
                self.transport.send(&hash).await?;
                let link = Link::open(self.transport.start(&hash)?, opening).await?;
                let there: String = link.ask(PostQuestion::Hash).await?;
                if there == hash {
                    return Ok(link);
                }
                Err(io::Error::other("the program that was sent is not the one that arrived"))
            }
            opened => opened,
        }
    }

    /// The hash of this program.
    async fn hash(&self) -> io::Result<String> {
        let state = self.state.clone();
        let hash = in_thread(move || program::hash_of_this(&state)).await;
        hash.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
    }

    /// The connection if it stands.
    fn latest(&self) -> Option<Arc<Link>> {
        lock(&self.latest).clone()
    }

    /// What a place says of itself.
    pub(crate) async fn report(&self) -> io::Result<FarReport> {
        let began = Instant::now();
        let link = self.link().await?;
        let opened_in = began.elapsed();
        let asked = Instant::now();
        let leftovers = link.ask(PostQuestion::Leftovers).await?;
        let answered_in = asked.elapsed();
        let there: String = link.ask(PostQuestion::Hash).await?;
        let is_same_program = there == self.hash().await?;
        let hello = link.hello.clone();
        Ok(FarReport { hello, leftovers, opened_in, answered_in, is_same_program })
    }

    async fn take_warden(&self, wanted: Wanted) -> io::Result<Ready> {
        let link = self.link().await?;
        let stream = link.stream();
        let number = stream.number;
        let (channel, is_reusable) = FarWire::channel(stream);
        let question = PostQuestion::Ready { stream: number, wanted: wanted.into() };
        let ready: ReadyWarden = link.ask_within(question, Some(READY)).await?;
        let sandbox = ready.sandbox.map(|sandbox| {
            let report = Arc::new(SandboxReport::new(wanted, &sandbox.enforcement));
            let variables = sandbox.variables.into_iter();
            let variables = variables.map(|(name, value)| (name, value.into())).collect();
            let enforcement = sandbox.enforcement;
            Arc::new(Sandbox { enforcement, report, variables, mark: sandbox.mark })
        });
        if let Some(sandbox) = &sandbox {
            lock(&self.known).insert(wanted, sandbox.clone());
        }
        let name = at_place(&self.settings.name, &ready.name);
        let mut wardens = lock(&self.wardens);
        // Those whose channels are gone are in nobody's hands.
        wardens.retain(|_, (_, is_reusable)| Arc::strong_count(is_reusable) > 1);
        wardens.insert(name.clone(), (number, is_reusable));
        drop(wardens);
        Ok((Warden::forked(name, channel), sandbox))
    }

    /// The stream of a warden that is in our hands.
    fn stream_of(&self, warden: &str) -> Option<u64> {
        lock(&self.wardens).get(warden).map(|(stream, _)| *stream)
    }

    async fn start_there(
        &self,
        warden: &str,
        spec: Spec,
        workdir: PathBuf,
        given: Option<Arc<OwnedFd>>,
    ) -> io::Result<()> {
        let given = match given {
            Some(given) => {
                let read = in_thread(move || read_given(&given)).await;
                Some(read.unwrap_or_else(|| Err(io::Error::other("it was cut off")))?)
            }
            None => None,
        };
        let stream = self.stream_of(warden).ok_or(io::ErrorKind::NotConnected)?;
        let is_checked = spec.sandbox.is_some();
        let starting = Starting { stream, spec, workdir, given, is_checked };
        let link = self.latest().ok_or(io::ErrorKind::NotConnected)?;
        link.ask(PostQuestion::Start(Box::new(starting))).await
    }

    async fn dial_there(&self, warden: &str) -> io::Result<Channel> {
        let link = self.link().await?;
        let stream = link.stream();
        let question = PostQuestion::Dial { stream: stream.number, warden: own_name(warden) };
        let (channel, _) = FarWire::channel(stream);
        link.ask::<()>(question).await?;
        Ok(channel)
    }

    async fn survey_there(&self, survey: Survey<'_>) -> io::Result<Surveyed> {
        let link = self.link().await?;
        let workspace = link.hello.workspace.clone().map_err(|problem| {
            let text = format!("place `{}`: the workspace there: {problem}", self.settings.name);
            io::Error::new(io::ErrorKind::NotADirectory, text)
        })?;
        let folder = survey.workdir.map_or(workspace.clone(), |asked| workspace.join(asked));
        let shell = link.hello.environment.get("SHELL").cloned();
        let mut programs = survey.programs;
        programs.extend(shell.clone());
        let paths = [Some(workspace.clone()), shell.map(PathBuf::from)];
        let paths = paths.into_iter().flatten().collect();
        let look = Arc::new(Sight::survey(link, folder, programs, paths).await?);
        Ok(Surveyed { look, workspace: Folder { path: workspace, handle: None } })
    }

    async fn bring_here(&self, id: &TaskId) -> io::Result<()> {
        if matches!(self.here.exit_record(id), Ok(Ok(_))) {
            return Ok(());
        }
        let link = self.link().await?;
        mirror::bring(&link, &self.state.path().join("tasks"), id).await.map(drop)
    }

    async fn know_processes(&self, pids: Vec<u32>) {
        let Ok(link) = self.link().await else { return };
        let asked = pids.clone();
        if let Ok(found) = link.ask::<Vec<(u32, String)>>(PostQuestion::Processes(asked)).await {
            let mut known = lock(&self.processes);
            known.retain(|pid, _| !pids.contains(pid));
            known.extend(found);
        }
    }
}

impl Look for Far {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.latest()?.hello.environment.get(name).map(OsString::from)
    }

    // A plan looks through a survey, which asks; here nothing is known.
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
        Err(io::ErrorKind::NotFound.into())
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
        let latest = self.latest();
        Cow::Owned(latest.map(|link| link.hello.boot_id.clone()).unwrap_or_default())
    }

    fn refusal_to_execute(&self, _program: &Path, errno: i32) -> String {
        io::Error::from_raw_os_error(errno).to_string()
    }

    fn appears<'a>(&'a self, path: &'a Path) -> Soon<'a, ()> {
        Box::pin(async move {
            loop {
                let Ok(link) = self.link().await else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let question = PostQuestion::Appears(path.to_owned());
                if link.ask_within::<()>(question, None).await.is_ok() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        })
    }

    fn is_there<'a>(&'a self, path: &'a Path) -> Soon<'a, bool> {
        Box::pin(async move {
            let Ok(link) = self.link().await else { return false };
            link.ask(PostQuestion::Exists(path.to_owned())).await.unwrap_or(false)
        })
    }

    fn survey<'a>(&'a self, survey: Survey<'a>) -> Option<Soon<'a, io::Result<Surveyed>>> {
        Some(Box::pin(self.survey_there(survey)))
    }

    fn warm_up(&self, _usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.standing.lock().await.link = None;
            *lock(&self.latest) = None;
        })
    }

    fn ready(&self, wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        Box::pin(async move { Ok(self.take_warden(wanted).await?) })
    }

    fn start<'a>(
        &'a self,
        warden: &'a str,
        spec: Spec,
        workdir: &'a Folder,
        given: Option<&'a OwnedFd>,
    ) -> Soon<'a, io::Result<()>> {
        let given = given.map(|given| given.as_fd().try_clone_to_owned());
        Box::pin(async move {
            let given = given.transpose()?.map(Arc::new);
            self.start_there(warden, spec, workdir.path.clone(), given).await
        })
    }

    fn give_back(&self, warden: Warden) {
        if let Some((_, is_reusable)) = lock(&self.wardens).remove(&warden.name) {
            is_reusable.store(true, Ordering::Relaxed);
        }
        drop(warden);
    }

    fn let_go(&self, warden: &str) {
        lock(&self.wardens).remove(warden);
    }

    fn known_sandbox(&self, wanted: Wanted) -> Option<Arc<Sandbox>> {
        lock(&self.known).get(&wanted).cloned()
    }

    fn refused_writes(&self, wanted: Wanted, paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        Box::pin(async move {
            let Ok(link) = self.link().await else { return Vec::new() };
            let question = PostQuestion::RefusedWrites { wanted: wanted.into(), paths };
            link.ask(question).await.unwrap_or_default()
        })
    }

    fn as_seen(&self, wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async move {
            let link = self.link().await.ok()?;
            let question = PostQuestion::AsSeen { wanted: wanted.into(), path };
            link.ask(question).await.ok().flatten()
        })
    }

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

    fn tamper_check(&self, _wanted: Wanted, warden: &str) -> Option<Soon<'static, TamperCheck>> {
        let (stream, link) = (self.stream_of(warden)?, self.latest()?);
        let warnings = async move {
            let asked = link.ask(PostQuestion::Warnings { stream }).await;
            asked.unwrap_or_else(|error| {
                vec![format!("the command may have set what git runs: {error}")]
            })
        };
        Some(Box::pin(async move { TamperCheck::Far(Box::pin(warnings)) }))
    }

    fn shorten_login(
        &self,
        _wish: LoginWish<'_>,
        _spec: &mut Spec,
    ) -> Option<Soon<'static, Vec<u8>>> {
        None
    }

    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        Box::pin(self.dial_there(warden))
    }

    fn is_alive(&self, _warden: &str) -> io::Result<bool> {
        Err(io::Error::other("it has to be asked"))
    }

    fn is_alive_there<'a>(&'a self, warden: &'a str) -> Option<Soon<'a, io::Result<bool>>> {
        Some(Box::pin(async move {
            let link = self.link().await?;
            link.ask(PostQuestion::IsAlive(own_name(warden))).await
        }))
    }

    fn is_connected(&self) -> bool {
        self.latest().is_some_and(|link| link.lost().is_none())
    }

    fn is_owned(&self, warden: &str) -> bool {
        self.here.is_owned(warden)
    }

    fn inherit(&self, warden: &str) -> Option<Inheritance> {
        self.here.inherit(warden)
    }

    fn engines_ended(&self) -> watch::Receiver<u64> {
        self.here.engines_ended()
    }

    fn end_left_by(&self, _warden: &str) -> Vec<u32> {
        Vec::new()
    }

    fn end_left_there<'a>(&'a self, warden: &'a str) -> Option<Soon<'a, Vec<u32>>> {
        Some(Box::pin(async move {
            let Ok(link) = self.link().await else { return Vec::new() };
            link.ask(PostQuestion::EndLeftBy(own_name(warden))).await.unwrap_or_default()
        }))
    }

    fn clear_dead(&self, _dry_run: bool) -> u64 {
        0
    }

    fn bring<'a>(&'a self, id: &'a TaskId) -> Option<Soon<'a, io::Result<()>>> {
        Some(Box::pin(self.bring_here(id)))
    }

    fn forget(&self, id: &TaskId, is_stored: bool) {
        // Only what is here, record and all; what stays there is found by the next look.
        if let Some(link) = self.latest()
            && (!is_stored || matches!(self.here.exit_record(id), Ok(Ok(_))))
        {
            link.forget(id.as_str());
        }
    }

    fn output(&self, id: &TaskId) -> io::Result<TaskOutput> {
        self.here.output(id)
    }

    fn exit_record(&self, id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>> {
        self.here.exit_record(id)
    }

    fn has_stored(&self, id: &TaskId) -> bool {
        self.here.has_stored(id)
    }

    fn note_stored(&self, id: &TaskId) {
        // It is brought here.
        self.here.note_stored(id);
    }

    fn command_line(&self, pid: u32) -> Option<String> {
        lock(&self.processes).get(&pid).cloned()
    }

    fn learn_processes<'a>(&'a self, pids: &'a [u32]) -> Option<Soon<'a, ()>> {
        Some(Box::pin(self.know_processes(pids.to_vec())))
    }

    fn tell(&self, program: Vec<String>, line: String) -> Soon<'static, io::Result<()>> {
        self.here.tell(program, line)
    }
}

/// The name of a warden where it is.
fn own_name(warden: &str) -> String {
    place_of(warden).map_or(warden, |(_, name)| name).to_owned()
}

/// The environment there, for the mask.
fn pairs(hello: &Hello) -> Vec<(String, String)> {
    hello.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Reads a stdin that is there already.
fn read_given(given: &OwnedFd) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::from(given.try_clone()?);
    let mut bytes = Vec::new();
    file.take(GIVEN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > GIVEN_BYTES_MAX {
        let problem = format!("its stdin has more than {GIVEN_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
