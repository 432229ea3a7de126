//! Opens an engine: makes the rooms and hands each what it needs. Nothing is started.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_gate::program_rules;

use super::{Engine, Options, Registry};
use crate::{
    error::{ErrorKind, ToolError},
    judge::{Herald, Judge},
    model::place::LOCAL_PLACE,
    output::{Mask, SharedMask},
    place::{AskedOf, Far, Local, Place, remembered},
    platform::real_path,
    state::StateFolder,
    store::{Store, open_state},
    task::{Ground, Tasks, places::Places},
};

impl Engine {
    /// Opens the state folder, with tools of the caller's choice; starts nothing yet.
    pub fn open_with(options: Options, mut registry: Registry) -> Result<Self, ToolError> {
        let named = options.state.clone().map_or_else(StateFolder::default_path, Ok);
        let state = Arc::new(named.and_then(|path| open_state(&path, options.on_repair))?);
        // A root that does not exist cannot be entered either.
        let given = options.roots.iter().filter_map(|root| real_path(root).ok());
        let workspace = real_path(&options.workspace)
            .map_err(|error| no_workspace(&options.workspace, &error))?;
        let roots: Vec<PathBuf> = [workspace.clone()].into_iter().chain(given).collect();
        let rules = program_rules(&options.policy);
        let (sandbox, at_once) = (options.sandbox.clone(), options.at_once);
        let asked = AskedOf::new(&workspace, &sandbox, &rules);
        let place = Arc::new(Local::new(state.clone(), sandbox, &roots, &rules, at_once));
        let (here, folder) = (place.clone(), state.clone());
        let (settings, default) = (options.places.clone(), options.default_place.clone());
        if !settings.is_empty() {
            let others = settings.iter().map(|place| place.name.as_str());
            let all: Vec<&str> = [LOCAL_PLACE].into_iter().chain(others).collect();
            registry.offer_places(&all, default.as_deref().unwrap_or(LOCAL_PLACE));
        }
        let places = move |mask: &SharedMask| {
            let (mask, known) = (mask.clone(), folder.clone());
            let find = move |name: &str| remembered(&known, name);
            let make = move |settings| {
                let (asked, mask) = (asked.clone(), mask.clone());
                Far::new(settings, here.clone(), folder.clone(), asked, mask)
            };
            Places::new(settings, default, find, make)
        };
        Self::open_at((place, places), state, (workspace, roots), options, registry)
    }

    /// The same, at any place.
    pub(crate) fn open_at(
        (place, places): (Arc<dyn Place>, impl FnOnce(&SharedMask) -> Places),
        state: Arc<StateFolder>,
        (workspace, roots): (PathBuf, Vec<PathBuf>),
        options: Options,
        registry: Registry,
    ) -> Result<Self, ToolError> {
        let opened = place.open_folder(&workspace);
        let workspace = opened.map_err(|error| no_workspace(&workspace, &error))?;
        let mask = SharedMask::new(Mask::of_environment());
        let store = Store::open(state, mask.clone(), options.meters.clone(), options.at_once)?;
        let mut judge = Judge::new(
            options.policy,
            options.settings,
            options.sandbox,
            &workspace.path,
            store.clone(),
        );
        if !options.told.of_questions.is_empty() {
            let (place, program) = (place.clone(), options.told.of_questions);
            judge.tell_of_questions(Herald::new(move |line| place.tell(program.clone(), line)));
        }
        let (all_workspaces, unset) = (options.all_workspaces, options.variables.unset());
        let ground = Ground { workspace, roots, all_workspaces, unset };
        let places = (place, places(&mask));
        let tasks = Tasks::new(judge, store, places, mask, ground, options.orphan_ttl);
        tasks.recover_trials();
        Ok(Self {
            tasks: Arc::new(tasks),
            registry: Arc::new(registry),
            hint: options.hint,
            for_the_user: options.for_the_user,
            told_of_audit: options.told.of_audit.into(),
        })
    }
}

fn no_workspace(workspace: &Path, error: &std::io::Error) -> ToolError {
    let shown = workspace.display();
    ToolError::new(
        ErrorKind::WorkdirNotFound,
        format!("the workspace `{shown}` cannot be used: {error}"),
    )
    .hint("name an existing folder")
}
