//! The places of an engine: this machine, and others by name. A task's warden says where it is.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::{
    Ground, Tasks,
    failures::place_error,
    observe::Observer,
    plan::{Plan, Surroundings},
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::{
        Program, Request,
        place::{LOCAL_PLACE, PlaceSettings, place_of, task_of},
    },
    output::SharedMask,
    place::{AskedOf, Far, Local, Look, Place, PlaceError, Survey, Warden, remembered},
    platform::OwnedFd,
    state::StateFolder,
    store::ledger::Task,
    threads::begin_in_thread,
};

/// How long a command may take to read what it is given.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long after a lost connection the next is tried; the last one counts from then on.
const AGAIN_MS: [u64; 6] = [100, 500, 1_000, 2_000, 5_000, 10_000];

/// Bytes of a stdin that are passed on at a time.
const PIECE_BYTES: usize = 32 * 1024;

/// How often a judgement may find that it has to know more.
const LOOKS_MAX: usize = 16;

/// What a place is made of besides its own settings.
#[derive(Debug, Clone)]
pub(crate) struct PlaceGround {
    pub here: Arc<Local>,
    pub state: Arc<StateFolder>,
    pub asked: AskedOf,
    pub mask: SharedMask,
}

impl PlaceGround {
    fn make(&self, settings: PlaceSettings) -> Arc<Far> {
        let (here, state) = (self.here.clone(), self.state.clone());
        Arc::new(Far::new(settings, here, state, self.asked.clone(), self.mask.clone()))
    }
}

/// The places of an engine besides this machine.
#[derive(Default)]
pub(crate) struct Places {
    configured: BTreeMap<String, Arc<Far>>,
    /// Where commands run whose caller does not say.
    default: Option<String>,
    /// Those that were used once and are configured no longer.
    earlier: Mutex<HashMap<String, Arc<Far>>>,
    ground: Option<PlaceGround>,
}

impl fmt::Debug for Places {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.configured.keys()).finish()
    }
}

impl Places {
    /// These places; others that were used once are found by name.
    pub(crate) fn new(
        settings: Vec<PlaceSettings>,
        default: Option<String>,
        ground: PlaceGround,
    ) -> Self {
        Self::default().with(settings, default, ground)
    }

    /// The same by another version of the configuration. A place that is as it was keeps its
    /// connection; where only what is asked of it has changed, its next command gets a new one.
    pub(crate) fn with(
        &self,
        settings: Vec<PlaceSettings>,
        default: Option<String>,
        ground: PlaceGround,
    ) -> Self {
        let is_same = self
            .ground
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(&it.here, &ground.here) && it.asked == ground.asked);
        let place = |settings: PlaceSettings| {
            let name = settings.name.clone();
            let known = self.configured.get(&name).filter(|known| *known.settings() == settings);
            let place = match known {
                Some(known) if is_same => known.clone(),
                Some(known) => Arc::new(known.with(ground.here.clone(), ground.asked.clone())),
                None => ground.make(settings),
            };
            (name, place)
        };
        let configured: BTreeMap<_, _> = settings.into_iter().map(place).collect();
        let mut earlier = self.earlier().clone();
        earlier.extend(self.configured.iter().map(|(name, far)| (name.clone(), far.clone())));
        earlier.retain(|name, _| !configured.contains_key(name));
        Self { configured, default, earlier: Mutex::new(earlier), ground: Some(ground) }
    }

    fn earlier(&self) -> MutexGuard<'_, HashMap<String, Arc<Far>>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any was ever used with this state folder.
    pub(super) fn are_used(&self, state: &Path) -> bool {
        !self.configured.is_empty() || state.join("places").is_dir()
    }

    /// Those that are configured.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &Arc<Far>> {
        self.configured.values()
    }

    /// Where commands run whose caller does not say.
    pub(crate) fn default_name(&self) -> &str {
        self.default.as_deref().unwrap_or(LOCAL_PLACE)
    }

    /// The place of this name, if it is, or ever was, one of ours.
    fn get(&self, name: &str) -> Option<Arc<Far>> {
        if let Some(place) = self.configured.get(name) {
            return Some(place.clone());
        }
        let mut earlier = self.earlier();
        if let Some(place) = earlier.get(name) {
            return Some(place.clone());
        }
        let ground = self.ground.as_ref()?;
        let place = ground.make(remembered(&ground.state, name)?);
        earlier.insert(name.to_owned(), place.clone());
        Some(place)
    }
}

impl Places {
    /// The place of a warden: of one that a scheduler has started, its job.
    pub(super) fn at(&self, warden: &str) -> Option<Arc<Far>> {
        let place = self.get(place_of(warden)?.0)?;
        match task_of(warden).and_then(|id| place.of_task(&id)) {
            Some(job) => Some(job),
            None => Some(place),
        }
    }

    /// Lets go of the place of a task that is over.
    pub(super) fn leave_task(&self, warden: &str, id: &TaskId) {
        if let Some(place) = place_of(warden).and_then(|(name, _)| self.get(name)) {
            place.leave_task(id);
        }
    }
}

impl Tasks {
    /// The place of a warden; this machine where nobody knows it any more, which knows no such
    /// warden.
    pub(super) fn place_of(&self, warden: &str) -> Arc<dyn Place> {
        match self.places.at(warden) {
            Some(far) => far,
            None => self.place.clone(),
        }
    }

    /// Whether a task is not on this machine.
    pub(crate) fn is_far(warden: &str) -> bool {
        place_of(warden).is_some()
    }

    /// The place that a caller has chosen, or that commands run at by default.
    pub(super) fn chosen_place(&self, name: Option<&str>) -> Result<Arc<dyn Place>, ToolError> {
        let name = name.unwrap_or_else(|| self.places.default_name());
        if name == LOCAL_PLACE {
            return Ok(self.place.clone());
        }
        if let Some(place) = self.places.configured.get(name) {
            return Ok(place.clone());
        }
        let known = self.places.configured.keys().map(String::as_str);
        let known: Vec<&str> = [LOCAL_PLACE].into_iter().chain(known).collect();
        let problem = format!("there is no place `{name}`");
        Err(ToolError::new(ErrorKind::InvalidToolInput, problem)
            .detail("place", name)
            .hint(format!("the places are: {}", known.join(", "))))
    }

    /// Whether a warden lives; an error where that cannot be known now.
    pub(super) async fn is_alive(&self, warden: &str) -> io::Result<bool> {
        let Some((name, _)) = place_of(warden) else { return self.place.is_alive(warden) };
        let unknown = || io::Error::other(format!("there is no place `{name}` any more"));
        let far = self.places.at(warden).ok_or_else(unknown)?;
        match far.is_alive_there(warden) {
            Some(asking) => asking.await,
            None => far.is_alive(warden),
        }
    }

    /// Whether looking at a task now would have to open a connection first.
    pub(super) fn is_out_of_reach(&self, warden: &str) -> bool {
        Self::is_far(warden) && !self.place_of(warden).is_connected()
    }

    /// Brings what a task of another place has stored here, as far as it can be reached.
    pub(super) async fn bring(&self, warden: &str, id: &TaskId) {
        if !Self::is_far(warden) {
            return;
        }
        let place = self.place_of(warden);
        if let Some(bringing) = place.bring(id)
            && let Err(error) = bringing.await
        {
            tracing::warn!(task_id = %id, %error, "its output stays where it is");
        }
    }

    /// Lets a task be forgotten at its place, if that is another one.
    pub(super) fn forget_there(&self, warden: &str, id: &TaskId, is_stored: bool) {
        if Self::is_far(warden) {
            self.place_of(warden).forget(id, is_stored);
            if !self.is_ours(id) {
                self.places.leave_task(warden, id);
            }
        }
    }

    /// The same, and waits until it is marked there: a process that settles a task may end right
    /// after that, and whoever drives the task finds nothing left to do.
    pub(super) async fn forget_now(&self, warden: &str, id: &TaskId, is_stored: bool) {
        self.forget_there(warden, id, is_stored);
        if let Some(jobs) = self.jobs_of(warden) {
            jobs.forgotten().await;
        }
    }

    /// Plans a request for the place that it is for.
    pub(super) async fn plan_at(
        &self,
        place: &Arc<dyn Place>,
        request: Request,
        around: Surroundings,
    ) -> Result<Plan, ToolError> {
        if place.name().is_none() {
            let look: Arc<dyn Look> = place.clone();
            return Plan::resolve(request, &self.ground, place, &look, around);
        }
        let programs = programs_of(&request.program);
        let workdir = request.workdir.clone();
        let survey = Survey { workdir: workdir.as_deref(), programs };
        let Some(surveying) = place.survey(survey) else {
            let look: Arc<dyn Look> = place.clone();
            return Plan::resolve(request, &self.ground, place, &look, around);
        };
        let surveyed = surveying.await.map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => {
                ToolError::new(ErrorKind::WorkdirNotFound, error.to_string())
                    .hint("make that folder, or set `workspace` of the place in the configuration")
            }
            _ => out_of_reach(&error),
        })?;
        let roots = vec![surveyed.workspace.path.clone()];
        let ground = Ground {
            workspace: surveyed.workspace,
            roots,
            all_workspaces: self.ground.all_workspaces,
            unset: self.ground.unset.clone(),
        };
        let plan = Plan::resolve(request, &ground, place, &surveyed.look, around)?;
        // What the judgement will look at is asked for before.
        for _ in 0..LOOKS_MAX {
            self.judge.look(&plan);
            self.judge.rules_at_exec(&plan);
            let Some(asking) = surveyed.look.missing() else { break };
            asking.await.map_err(|error| out_of_reach(&error))?;
        }
        Ok(plan)
    }

    /// The place of a request.
    pub(super) fn place_for(&self, request: &Request) -> Result<Arc<dyn Place>, ToolError> {
        if request.place.is_none() && self.places.default.is_none() {
            return Ok(self.place.clone());
        }
        let place = self.chosen_place(request.place.as_deref())?;
        if request.trial.is_some() && place.name().is_some() {
            if request.place.is_none() {
                return Ok(self.place.clone());
            }
            return Err(ToolError::new(
                ErrorKind::InvalidToolInput,
                "commands can be tried on this machine only",
            )
            .hint("try it without a place"));
        }
        Ok(place)
    }

    /// The warden of a task again whose connection was lost; none if it is gone, or has another
    /// owner by now.
    pub(super) async fn rejoin(&self, id: &TaskId, warden: &str) -> Option<Warden> {
        if !Self::is_far(warden) {
            return None;
        }
        let place = self.place_of(warden);
        place.let_go(warden);
        let mut pauses = AGAIN_MS.iter().copied();
        let last = AGAIN_MS.last().copied().unwrap_or_default();
        loop {
            match self.is_alive(warden).await {
                Ok(false) => return None,
                Ok(true) => {
                    let task = self.store.ledger.find(id.as_str()).await.ok()?.pop()?;
                    if task.status.is_final() {
                        return None;
                    }
                    if let Some(channel) = self.owned_channel(&task).await {
                        tracing::info!(task_id = %id, "the connection stands again");
                        let heir = place.inherit(warden)?;
                        return Some(Warden::adopted(warden.to_owned(), channel, heir));
                    }
                }
                Err(error) => tracing::debug!(task_id = %id, %error, "out of reach"),
            }
            sleep(Duration::from_millis(pauses.next().unwrap_or(last))).await;
        }
    }
}

/// Passes a stdin of ours on to a command elsewhere, as it comes.
pub(super) async fn pass_input(tasks: Arc<Tasks>, task: Task, given: OwnedFd) {
    let Ok(mut observer) = Observer::of(tasks, task).await else { return };
    observer.begun().await;
    // One piece ahead: whoever writes waits for the command, and not we for whoever writes.
    let (sender, mut pieces) = mpsc::channel(1);
    drop(begin_in_thread(move || {
        let mut input = File::from(given);
        loop {
            let mut bytes = vec![0; PIECE_BYTES];
            let Ok(read @ 1..) = input.read(&mut bytes) else { return };
            bytes.truncate(read);
            if sender.blocking_send(bytes).is_err() {
                return;
            }
        }
    }));
    while let Some(piece) = pieces.recv().await {
        let taken = observer.own_controls().input(&piece, PATIENCE).await;
        if taken.bytes < piece.len() as u64 {
            return;
        }
    }
    let _ = observer.own_controls().end_input().await;
}

/// The programs that a request names outright.
fn programs_of(program: &Program) -> Vec<String> {
    let named = match program {
        Program::Script { shell, .. } => shell.clone().or_else(|| Some("sh".into())),
        Program::Argv(argv) => argv.first().and_then(|name| name.to_str().map(str::to_owned)),
    };
    named.into_iter().chain(["sh".to_owned()]).collect()
}

/// The typed error of a warden that cannot be had at a place.
pub(super) fn no_warden(place: &dyn Place, error: &PlaceError) -> ToolError {
    match error {
        PlaceError::Io(error) if place.name().is_some() => out_of_reach(error),
        error => place_error(error),
    }
}

/// The typed error of a place that does not answer.
pub(crate) fn out_of_reach(error: &io::Error) -> ToolError {
    let mut error = ToolError::new(ErrorKind::ToolExecutionFailed, error.to_string())
        .detail("reason", "place_unreachable")
        .hint("see that the place can be reached, or name another one");
    error.retryable = true;
    error
}
