//! The sandbox of a command: which level it gets, what that means for files and network, and what
//! is really in force.
//!
//! Decided here, carried out by the warden. The lists of paths are data (`paths.toml`); what stands
//! in the configuration is added to them.

mod configs;
mod finder;
mod git_settings;
mod held;
mod news;
mod places;
mod recent;
mod repository;
mod tamper;
mod trial;
mod work_folders;

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use legwork_gate::{Level, NetworkMode, ProgramRule};
use legwork_warden::{
    CONNECT_ARGUMENT,
    network::PROXY_PORT,
    protocol::{RunCopies, Sandboxed},
    sandbox::{Enforcement, GuardKind, Guarded, Profile, SandboxLayer},
};
use sha2::{Digest, Sha256};

use self::{
    finder::Finder,
    held::HeldPrograms,
    places::{Caches, SandboxPlaces, guarded},
    recent::Recent,
    repository::{guards_of, has_hooks},
    tamper::{RepositorySurvey, Watched},
    work_folders::WorkFolders,
};
pub(crate) use self::{
    repository::has_repository,
    tamper::LocalTamperCheck,
    trial::{TrialAhead, knows_copies},
};
use crate::{
    model::{
        sandbox::{SandboxReport, SandboxSettings, Wanted, hidden_from_commands},
        trusted::TrustedNames,
    },
    place::{Sandbox, Soon},
    threads::in_thread,
};

/// How many of the repositories in what commands may write are guarded, the nearest to the top
/// first: each costs every sandbox some mounts. What happens in the others is told.
const GUARDED_MAX: usize = 64;

/// A profile, and what commands are told besides.
#[derive(Debug)]
struct Made {
    profile: Arc<Profile>,
    /// What was found in the folders that it lets commands write.
    survey: RepositorySurvey,
    /// Variables that only make sense where the profile is in force.
    variables: Vec<(String, OsString)>,
}

/// Knows the profiles of one engine, and what this machine makes of them.
#[derive(Debug)]
pub(crate) struct Sandboxing {
    settings: SandboxSettings,
    workspace: PathBuf,
    /// The workspace, and the other folders that commands may run in.
    roots: Vec<PathBuf>,
    state: PathBuf,
    /// What commands may not execute.
    held: HeldPrograms,
    /// Repositories that are guarded, besides those that commands work in, and stay so whatever
    /// commands put around them.
    guarded: Mutex<Vec<PathBuf>>,
    /// What others run or trust.
    watched: Arc<Watched>,
    /// Whose artifacts may be read.
    pub recent: Recent,
    profiles: Mutex<HashMap<Wanted, Arc<Made>>>,
    known: Mutex<HashMap<Wanted, Arc<Sandbox>>>,
    /// Where a sandboxed command can put a file, but for repositories; found out when somebody
    /// first asks.
    can_be_written: OnceLock<Vec<PathBuf>>,
}

impl Sandboxing {
    pub(crate) fn new(
        settings: SandboxSettings,
        roots: &[PathBuf],
        state: &Path,
        rules: &[ProgramRule],
    ) -> Self {
        let workspace = roots.first().map_or(Path::new("/"), PathBuf::as_path);
        let writable = roots.iter().chain(&settings.writable).map(|path| places::expanded(path));
        let writable: Vec<PathBuf> = writable.collect();
        let finder = Finder::new(Vec::new(), state.to_owned(), TrustedNames::shipped());
        let watched = Watched::new(roots.to_vec(), writable, settings.deciding.clone(), finder);
        Self {
            settings,
            roots: roots.to_vec(),
            workspace: workspace.to_owned(),
            state: state.to_owned(),
            held: HeldPrograms::of(rules),
            guarded: Mutex::default(),
            watched,
            recent: Recent::new(state, &places::short_name(workspace)),
            profiles: Mutex::default(),
            known: Mutex::default(),
            can_be_written: OnceLock::new(),
        }
    }

    /// A folder below `/tmp` as commands of the workspace have it: where it is, and where that
    /// `/tmp` is.
    pub(crate) fn in_own_tmp(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let rest = ["/tmp", "/var/tmp"].iter().find_map(|tmp| path.strip_prefix(tmp).ok())?;
        let is_below = rest.components().all(|part| matches!(part, Component::Normal(_)));
        let tmp = places::temporary(&self.state, &self.workspace);
        is_below.then(|| (tmp.join(rest), tmp))
    }

    /// What a warden is told about the sandbox that its next command starts in.
    pub(crate) fn sandboxed(&self, sandbox: &Sandbox) -> Sandboxed {
        Sandboxed {
            enforced: sandbox.enforcement.enforced.clone(),
            artifacts: self.recent.shown(),
            exec_rules: Vec::new(),
            on_copy: false,
            names: None,
            copies: RunCopies::default(),
        }
    }

    /// The profile with all that is in the folders which commands may write now.
    pub(crate) async fn current_profile(self: &Arc<Self>, wanted: Wanted) -> Arc<Profile> {
        if wanted.level == Level::WorkspaceWrite
            && let Some(survey) = self.watched.survey().await
        {
            let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
            profiles.retain(|_, made| made.survey.guards_as(&survey));
        }
        self.profile(wanted).await
    }

    /// The profile, made once, in a thread: it asks the disk where things are.
    pub(crate) async fn profile(self: &Arc<Self>, wanted: Wanted) -> Arc<Profile> {
        let profiles = || self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = profiles().get(&wanted) {
            return known.profile.clone();
        }
        // What cannot be found in time is not waited for: the look after the command says so.
        let survey = match wanted.level {
            Level::WorkspaceWrite => {
                self.watched.survey().await.unwrap_or_else(|| self.watched.unsurveyed())
            }
            _ => RepositorySurvey::default(),
        };
        let (sandboxing, given) = (self.clone(), survey.clone());
        let made = in_thread(move || sandboxing.make(wanted, given)).await;
        // It is made here if it could not be made there, which only a panic explains.
        let made = Arc::new(made.unwrap_or_else(|| self.make(wanted, survey)));
        profiles().entry(wanted).or_insert(made).profile.clone()
    }

    /// What this machine makes of it, if that is known.
    pub(crate) fn known(&self, wanted: Wanted) -> Option<Arc<Sandbox>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&wanted).cloned()
    }

    /// Remembers what this machine makes of it.
    pub(crate) fn learn(&self, wanted: Wanted, enforcement: Enforcement) -> Arc<Sandbox> {
        let mut report = SandboxReport::new(wanted, &enforcement);
        if wanted.level == Level::WorkspaceWrite {
            report.other_folders = self.watched.other_folders();
        }
        let report = Arc::new(report);
        let profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a view of its own a command has everybody's `/tmp`.
        let is_own = enforcement.enforced.contains(&SandboxLayer::MountNamespace);
        let made = profiles.get(&wanted).filter(|_| is_own);
        let variables = made.map(|made| made.variables.clone()).unwrap_or_default();
        let profile = profiles.get(&wanted).map(|made| &made.profile);
        let mark = Sha256::digest(format!("{profile:?} {enforcement:?}")).into();
        drop(profiles);
        let sandbox = Arc::new(Sandbox { enforcement, report, variables, mark });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(wanted, sandbox.clone());
        sandbox
    }

    /// The variables that commands in such a sandbox are given.
    fn variables(&self, wanted: Wanted) -> Vec<(String, OsString)> {
        let profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.get(&wanted).map(|made| made.variables.clone()).unwrap_or_default()
    }

    /// Stands for all that such a sandbox lets a command do on this machine.
    pub(crate) fn mark(&self, wanted: Wanted) -> [u8; 32] {
        self.known(wanted).map(|sandbox| sandbox.mark).unwrap_or_default()
    }

    /// Looks, before a command that may write, at what others run or trust; begins at once.
    pub(crate) fn tamper_check(&self, wanted: Wanted) -> Option<Soon<'static, LocalTamperCheck>> {
        (wanted.level == Level::WorkspaceWrite).then(|| self.watched.check())
    }

    /// A folder in which repositories are not looked for.
    pub(crate) async fn unsearched(&self) -> Option<PathBuf> {
        self.watched.survey().await?.found.beyond.clone()
    }

    /// Whether some sandboxed command can write there.
    pub(crate) fn can_be_written(&self, path: &Path) -> bool {
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let writable = self.can_be_written.get_or_init(|| {
            let caches = SandboxPlaces::shipped().caches();
            let mut all = self.writable(&caches, &WorkFolders::default());
            all.extend(temporary);
            all.push(self.state.clone());
            all
        });
        let is_in = |folder: &Path| path.starts_with(folder);
        writable.iter().any(|it| is_in(it))
            || self.watched.work_folders().repository_folders().any(|it| is_in(&it))
    }

    /// What a command may write at the level at which it may write at all.
    fn writable(&self, caches: &Caches, work_folders: &WorkFolders) -> Vec<PathBuf> {
        let mut writable = self.roots.clone();
        writable.extend(self.settings.writable.iter().map(|path| places::expanded(path)));
        writable.extend(caches.writable.iter().cloned());
        writable.extend(work_folders.repository_folders());
        // Whoever works there works nowhere in particular.
        writable.retain(|path| path != Path::new("/"));
        outermost(&writable)
    }

    fn make(&self, wanted: Wanted, survey: RepositorySurvey) -> Made {
        let places = SandboxPlaces::shipped();
        let bytes = |path: PathBuf| path.into_os_string().into_encoded_bytes();
        let all = |paths: Vec<PathBuf>| paths.into_iter().map(bytes).collect();
        let (mut writable, mut unwritable) = (Vec::new(), Vec::new());
        let (mut tmp, mut variables) = (None, Vec::new());
        if wanted.level == Level::WorkspaceWrite {
            let caches = places.caches();
            writable = self.writable(&caches, &survey.work_folders);
            variables = caches.variables;
            unwritable.extend(self.guards(&survey, wanted.operator));
            let files = self.watched.guarded().iter().cloned();
            unwritable.extend(files.map(|path| guarded(path, GuardKind::ReadOnly)));
            tmp = places::make_temporary(&self.state, &self.workspace).map(bytes);
        }
        if wanted.network == NetworkMode::Names {
            variables.extend(proxy_variables());
        }
        let mut unreadable = places.unreadable();
        unreadable.extend(self.settings.unreadable.iter().map(|path| places::expanded(path)));
        unreadable.extend(hidden_from_commands());
        let profile = Profile {
            network: wanted.network == NetworkMode::All,
            names: wanted.network == NetworkMode::Names,
            writable: all(writable),
            shown: all(self.roots.clone()),
            unwritable,
            unreadable: all(unreadable),
            tmp,
            state: bytes(self.state.clone()),
            denied: self.held.denied.clone(),
            program_folders: all(self.held.folders()),
            tells_exec: self.held.any,
            copies: Vec::new(),
        };
        Made { profile: Arc::new(profile), survey, variables }
    }

    /// What is guarded of repositories: those that commands work in, and others that they may
    /// write. One that came into the files of another is left free: it is what a build, a test or a
    /// download has made there, and has to be removed by the next.
    fn guards(&self, survey: &RepositorySurvey, operator: bool) -> Vec<Guarded> {
        let RepositorySurvey { work_folders, found, hooks } = survey;
        let own = work_folders.repositories.iter().flat_map(|it| it.guards(hooks, operator));
        let mut guarded = self.guarded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = |path: &Path| work_folders.repositories.iter().any(|it| it.is_at(path));
        guarded.retain(|path| path.is_dir() && !is_own(path));
        for path in found.free_standing().filter(|path| !is_own(path) && has_hooks(path)) {
            if guarded.len() < GUARDED_MAX && !guarded.contains(path) {
                guarded.push(path.clone());
            }
        }
        own.chain(guarded.iter().flat_map(|path| guards_of(path, hooks, operator))).collect()
    }
}

/// Variables by which programs find the proxy.
fn proxy_variables() -> Vec<(String, OsString)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let mut variables = Vec::new();
    let mut set = |name: &str, value: &str| variables.push((name.to_owned(), value.into()));
    // Programs read one spelling or the other. Some cannot do without more for a SOCKS proxy, so
    // that none is named, though the port speaks it.
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        set(name, &proxy);
        set(&name.to_uppercase(), &proxy);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        set(name, "localhost,127.0.0.1,::1");
    }
    // Node looks at these only where it is told to.
    set("NODE_USE_ENV_PROXY", "1");
    // Who has a command of their own for ssh has it for a reason.
    if std::env::var_os("GIT_SSH_COMMAND").is_none()
        && let Ok(program) = std::env::current_exe()
        && let Some(program) = program.to_str().filter(|it| !it.contains(['\'', '"', ' ', '%']))
    {
        let connector = format!("{program} {CONNECT_ARGUMENT} %h %p");
        set("GIT_SSH_COMMAND", &format!("ssh -o 'ProxyCommand={connector}'"));
    }
    variables
}

/// Those that are in none of the others. What is in a folder that may be written must not be named
/// again: a command could put a link in its place, and what that leads to would be written by the
/// next.
fn outermost(paths: &[PathBuf]) -> Vec<PathBuf> {
    let inner = |path: &PathBuf| paths.iter().any(|it| it != path && path.starts_with(it));
    paths.iter().filter(|path| !inner(path)).cloned().collect()
}
