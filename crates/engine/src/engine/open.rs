//! Opens an engine: makes the rooms and hands each what it needs. Nothing is started.
//!
//! What depends on the configuration is made again when its files change, by the same functions.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use legwork_gate::{ProgramRule, program_rules};

use super::{Engine, Options, Registry, options::ORPHAN_TTL};
use crate::{
    error::{ErrorKind, ToolError},
    judge::{
        Herald, Judge,
        config::{Config, UserPrograms},
    },
    model::{place::LOCAL_PLACE, sandbox::SandboxSettings},
    output::{Mask, SharedMask},
    place::{AskedOf, Local, Look as _, Place as _},
    platform::real_path,
    state::StateFolder,
    store::{Store, open_state},
    task::{
        Ground, Tasks,
        places::{PlaceGround, Places},
        versions::Versions,
    },
};

impl Engine {
    /// Opens the state folder, with tools of the caller's choice; starts nothing yet.
    pub fn open_with(options: Options, mut registry: Registry) -> Result<Self, ToolError> {
        let named = options.state.clone().map_or_else(StateFolder::default_path, Ok);
        let state = Arc::new(named.and_then(|path| open_state(&path, options.on_repair))?);
        let workspace = real_path(&options.workspace)
            .map_err(|error| no_workspace(&options.workspace, &error))?;
        let made_of = LocalParts::of(&workspace, &options.roots, options.sandbox, &options.policy);
        let place = Arc::new(made_of.make(state.clone(), options.at_once));
        if !options.places.is_empty() {
            let others = options.places.iter().map(|place| place.name.as_str());
            let all: Vec<&str> = [LOCAL_PLACE].into_iter().chain(others).collect();
            registry.offer_places(&all, options.default_place.as_deref().unwrap_or(LOCAL_PLACE));
        }
        let opened = place.open_folder(&workspace);
        let opened = opened.map_err(|error| no_workspace(&workspace, &error))?;
        let mask = SharedMask::new(Mask::of_environment());
        let (meters, at_once) = (options.meters.clone(), options.at_once);
        let store = Store::open(state.clone(), mask.clone(), meters, at_once)?;
        let sandbox = made_of.sandbox.clone();
        let judge =
            Judge::new(options.policy, options.settings, sandbox, &opened.path, store.clone());
        let judge = telling(judge, &place, &options.told);
        let ground = Ground {
            workspace: opened,
            roots: made_of.roots.clone(),
            all_workspaces: options.all_workspaces,
            unset: options.variables.unset(),
        };
        let maker = Maker { workspace, state, mask, local: Mutex::new((place.clone(), made_of)) };
        let (here, asked) = maker.latest();
        let places = Places::new(options.places, options.default_place, maker.ground(&here, asked));
        let (places, mask) = ((place as Arc<_>, places), maker.mask.clone());
        let tasks = Tasks::new(judge, store, places, mask, ground, options.orphan_ttl);
        let make = move |before: &Tasks, config| maker.version(before, config);
        let versions = Versions::new(tasks, options.files, make);
        versions.latest().recover_trials();
        Ok(Self::of(versions, registry, options.hint, options.for_the_user, options.told.of_audit))
    }
}

/// What this machine as a place is made of.
#[derive(Debug, PartialEq)]
struct LocalParts {
    sandbox: SandboxSettings,
    /// The workspace first.
    roots: Vec<PathBuf>,
    rules: Vec<ProgramRule>,
}

impl LocalParts {
    fn of(
        workspace: &Path,
        roots: &[PathBuf],
        sandbox: SandboxSettings,
        policy: &legwork_gate::Policy,
    ) -> Self {
        // A root that does not exist cannot be entered either.
        let given = roots.iter().filter_map(|root| real_path(root).ok());
        let roots = [workspace.to_owned()].into_iter().chain(given).collect();
        Self { sandbox, roots, rules: program_rules(policy) }
    }

    fn make(&self, state: Arc<StateFolder>, at_once: bool) -> Local {
        Local::new(state, self.sandbox.clone(), &self.roots, &self.rules, at_once)
    }

    fn questions_for(&self, workspace: &Path) -> AskedOf {
        AskedOf::new(workspace, &self.sandbox, &self.rules)
    }
}

/// Makes what depends on the configuration, again and again.
struct Maker {
    workspace: PathBuf,
    state: Arc<StateFolder>,
    mask: SharedMask,
    /// The place that was made last, and of what.
    local: Mutex<(Arc<Local>, LocalParts)>,
}

impl Maker {
    fn latest(&self) -> (Arc<Local>, AskedOf) {
        let known = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        (known.0.clone(), known.1.questions_for(&self.workspace))
    }

    fn ground(&self, here: &Arc<Local>, asked: AskedOf) -> PlaceGround {
        let (state, mask) = (self.state.clone(), self.mask.clone());
        PlaceGround { here: here.clone(), state, asked, mask }
    }

    /// A version of an engine's tasks by another configuration. A place that was made of the same
    /// stays, with all that was made ready there.
    fn version(&self, before: &Tasks, config: Config) -> Tasks {
        let parts =
            LocalParts::of(&self.workspace, &config.roots, config.sandbox.clone(), &config.policy);
        let roots = parts.roots.clone();
        self.keep_or_make(parts);
        let (here, asked) = self.latest();
        let ground = self.ground(&here, asked);
        let places = before.places.with(config.places, config.default_place, ground);
        let judge = before.judge.by(config.policy, config.settings, config.sandbox);
        let judge = telling(judge, &here, &config.told);
        let unset = config.variables.unset();
        let ground = Ground { roots, unset, ..Ground::clone(&before.ground) };
        let orphan_ttl = config.orphan_ttl.unwrap_or(ORPHAN_TTL);
        before.by(judge, (here, places), ground, orphan_ttl)
    }

    fn keep_or_make(&self, parts: LocalParts) {
        let mut known = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if known.1 != parts {
            let local = known.0.with_settings(parts.sandbox.clone(), &parts.roots, &parts.rules);
            *known = (Arc::new(local), parts);
        }
    }
}

/// The same judge, who tells the user's program of each question.
fn telling(mut judge: Judge, place: &Arc<Local>, told: &UserPrograms) -> Judge {
    if !told.of_questions.is_empty() {
        let (place, program) = (place.clone(), told.of_questions.clone());
        judge.tell_of_questions(Herald::new(move |line| place.tell(program.clone(), line)));
    }
    judge
}

fn no_workspace(workspace: &Path, error: &std::io::Error) -> ToolError {
    let shown = workspace.display();
    ToolError::new(
        ErrorKind::WorkdirNotFound,
        format!("the workspace `{shown}` cannot be used: {error}"),
    )
    .hint("name an existing folder")
}
