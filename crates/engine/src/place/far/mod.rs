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
mod serving;
mod sight;
mod transport;
mod way;
mod wire;

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use legwork_gate::ProgramRule;
use legwork_warden::protocol::{self, Spec};
use tokio::time::Instant;

pub(super) use self::link::{PING, receive};
pub(crate) use self::program::remembered;
use self::way::PostWay;
use self::{
    link::Link,
    message::{
        FarRule, Hello, Leftovers, Opening, PROGRAM_VERSION, PostQuestion, ReadyWarden,
        SandboxPaths, Starting,
    },
    mirror::Source,
    sight::Sight,
    transport::{Started, Transport},
    wire::FarWire,
};
use super::{Channel, Folder, Local, Place, Ready, Sandbox, Survey, Surveyed, Warden, jobs::Jobs};
use crate::{
    id::TaskId,
    model::{
        place::{PlaceSettings, SEPARATOR, place_of},
        sandbox::{SandboxReport, SandboxSettings, Wanted},
    },
    output::SharedMask,
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
    way: PostWay,
    /// The places of tasks, where each has one of its own.
    of_tasks: Arc<Mutex<HashMap<TaskId, Arc<Self>>>>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// What a scheduler there lacks.
    pub lacks: Vec<String>,
}

impl Far {
    pub(crate) fn new(
        settings: PlaceSettings,
        here: Arc<Local>,
        state: Arc<StateFolder>,
        asked: AskedOf,
        mask: SharedMask,
    ) -> Self {
        let way = PostWay::to(&settings, &asked.workspace, state.path());
        Self::by(way, settings, here, state, asked, mask)
    }

    /// The same for another configuration. It has a connection of its own, and shares the jobs.
    pub(crate) fn with(&self, here: Arc<Local>, asked: AskedOf) -> Self {
        let (settings, state) = (self.settings.clone(), self.state.clone());
        let way = match &self.way {
            PostWay::Head(jobs) => PostWay::Head(jobs.clone()),
            PostWay::Job(jobs, id) => PostWay::Job(jobs.clone(), id.clone()),
            PostWay::Direct(_) => PostWay::to(&settings, &asked.workspace, state.path()),
        };
        let of_tasks = self.of_tasks.clone();
        Self { of_tasks, ..Self::by(way, settings, here, state, asked, self.mask.clone()) }
    }

    /// The same by another way.
    fn by(
        way: PostWay,
        settings: PlaceSettings,
        here: Arc<Local>,
        state: Arc<StateFolder>,
        asked: AskedOf,
        mask: SharedMask,
    ) -> Self {
        Self {
            settings,
            here,
            state,
            asked,
            way,
            of_tasks: Arc::default(),
            mask,
            standing: tokio::sync::Mutex::default(),
            latest: Mutex::default(),
            known: Mutex::default(),
            wardens: Mutex::default(),
            processes: Mutex::default(),
        }
    }

    /// The name of a warden there, with its place.
    fn warden_name(&self, warden: &str) -> String {
        format!("{}{SEPARATOR}{warden}", self.settings.name)
    }

    /// How it was configured.
    pub(crate) fn settings(&self) -> &PlaceSettings {
        &self.settings
    }

    /// The jobs of this place, where a scheduler starts what runs there.
    pub(crate) fn jobs(&self) -> Option<&Arc<Jobs>> {
        match &self.way {
            PostWay::Head(jobs) | PostWay::Job(jobs, _) => Some(jobs),
            PostWay::Direct(_) => None,
        }
    }

    /// The place of one task, where each has one of its own: its job.
    pub(crate) fn of_task(&self, id: &TaskId) -> Option<Arc<Self>> {
        let PostWay::Head(jobs) = &self.way else { return None };
        let mut known = lock(&self.of_tasks);
        let place = known.entry(id.clone()).or_insert_with(|| {
            let way = PostWay::Job(jobs.clone(), id.clone());
            let (settings, here) = (self.settings.clone(), self.here.clone());
            let (state, asked) = (self.state.clone(), self.asked.clone());
            Arc::new(Self::by(way, settings, here, state, asked, self.mask.clone()))
        });
        Some(place.clone())
    }

    /// Lets go of the place of a task that is over.
    pub(crate) fn leave_task(&self, id: &TaskId) {
        lock(&self.of_tasks).remove(id);
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

    fn opening(&self) -> io::Result<Opening> {
        let workspace = self.settings.workspace.clone();
        Ok(Opening {
            version: PROGRAM_VERSION.to_owned(),
            protocol: protocol::version(),
            mark: self.here.mark()?,
            workspace: workspace.unwrap_or_else(|| self.asked.workspace.clone()),
            sandbox: self.asked.sandbox.clone(),
            rules: self.asked.rules.clone(),
        })
    }

    async fn open(&self) -> io::Result<Arc<Link>> {
        let opening = self.opening()?;
        program::remember(&self.state, &self.settings)?;
        match &self.way {
            PostWay::Direct(transport) => self.open_by(transport, opening).await,
            PostWay::Head(jobs) => {
                jobs.driver().check().await?;
                let words = [self.program(jobs).await?, "post".into(), jobs.state().into()];
                let words = jobs.driver().reach(None, &words.map(PathBuf::into_os_string));
                Link::open(Started::by(words)?, opening).await
            }
            PostWay::Job(jobs, id) => {
                let words = [self.program(jobs).await?, "post".into(), jobs.folder(id).path()];
                let words = jobs.reach(id, &words.map(PathBuf::into_os_string)).await?;
                Link::open(Started::by(words)?, opening).await
            }
        }
    }

    async fn open_by(&self, transport: &Transport, opening: Opening) -> io::Result<Arc<Link>> {
        let hash = if transport.sends() { self.hash().await? } else { String::new() };
        match Link::open(transport.start(&hash)?, opening.clone()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound && transport.sends() => {
                transport.send(&hash).await?;
                let link = Link::open(transport.start(&hash)?, opening).await?;
                let there: String = link.ask(PostQuestion::Hash).await?;
                if there == hash {
                    return Ok(link);
                }
                Err(io::Error::other("the program that was sent is not the one that arrived"))
            }
            opened => opened,
        }
    }

    /// The program that a scheduler starts.
    async fn program(&self, jobs: &Arc<Jobs>) -> io::Result<PathBuf> {
        if let Some(program) = &self.settings.program {
            return Ok(program.into());
        }
        let (hash, jobs) = (self.hash().await?, jobs.clone());
        let program = in_thread(move || jobs.program(&hash)).await;
        program.unwrap_or_else(|| Err(io::Error::other("it was cut off")))
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
        let lacks = match self.jobs() {
            Some(jobs) => jobs.driver().check().await?,
            None => Vec::new(),
        };
        Ok(FarReport { hello, leftovers, opened_in, answered_in, is_same_program, lacks })
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
        let name = self.warden_name(&ready.name);
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
        let source = match &self.way {
            PostWay::Job(jobs, _) if jobs.said(id).await.0.is_some() => {
                Source::Folder(jobs.stored(id))
            }
            _ => Source::Link(self.link().await?),
        };
        mirror::bring(source, &self.state.path().join("tasks"), id).await.map(drop)
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
