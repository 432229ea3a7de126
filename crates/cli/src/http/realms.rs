//! What the holders of tokens stand on: a service for each workspace that a token is confined to.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork::{Caller, Client, Engine, Meters, Registry, Service, ToolError};
use tokio::sync::Mutex;

use super::{
    keyring::Holder,
    tokens::{Token, TokenRole},
};
use crate::{
    arguments::{Rules, StatePlace},
    log,
};

/// The services of a server, each with the rules of its workspace.
#[derive(Debug)]
pub(super) struct Realms {
    pub place: StatePlace,
    pub rules: Rules,
    /// What all of them count.
    pub meters: Arc<Meters>,
    /// That of the server's own workspace, which knows the tasks of all.
    pub own: Service,
    /// Those that are confined to a workspace.
    confined: Mutex<HashMap<PathBuf, Service>>,
}

impl Realms {
    /// Opens the server's own.
    pub(super) async fn open(place: StatePlace, rules: Rules) -> Result<Self, ToolError> {
        let mut options = place.options(&rules)?;
        options.all_workspaces = true;
        let meters = options.meters.clone();
        let engine = Engine::open_with(options, Registry::builtin())?;
        let own = Service::begin(engine, TokenRole::Operator.usual_trust()).await?;
        Ok(Self { place, rules, meters, own, confined: Mutex::default() })
    }

    /// What the holder of a token stands on.
    pub(super) async fn of(&self, token: &Token) -> Result<Standing, ToolError> {
        let confined = match (&token.workspace, token.role) {
            (Some(workspace), _) => Some(workspace.as_path()),
            (None, TokenRole::Agent) => Some(self.own.engine().workspace()),
            (None, TokenRole::Operator | TokenRole::Viewer) => None,
        };
        let service = match confined {
            Some(workspace) => self.confined_to(workspace, token).await?,
            None => self.own.clone(),
        };
        let workspace = confined.map(|_| service.engine().workspace().display().to_string());
        Ok(Standing { client: service.client(), service, workspace })
    }

    async fn confined_to(&self, workspace: &Path, token: &Token) -> Result<Service, ToolError> {
        let mut confined = self.confined.lock().await;
        if let Some(known) = confined.get(workspace) {
            return Ok(known.clone());
        }
        let place =
            StatePlace { workspace: Some(workspace.to_owned()), state: self.place.state.clone() };
        let mut options = place.options(&self.rules)?;
        options.meters = self.meters.clone();
        let engine = Engine::open_with(options, Registry::builtin())?;
        log::keep_secrets_of(&engine);
        let service = Service::begin(engine, token.trust).await?;
        confined.insert(workspace.to_owned(), service.clone());
        Ok(service)
    }

    /// All services.
    pub(super) async fn all(&self) -> Vec<Service> {
        let confined = self.confined.lock().await;
        confined.values().chain([&self.own]).cloned().collect()
    }
}

/// What a holder of a token stands on.
#[derive(Debug)]
pub(super) struct Standing {
    pub service: Service,
    pub client: Arc<Client>,
    /// The workspace that it is confined to.
    pub workspace: Option<String>,
}

impl Standing {
    pub(super) fn engine(&self) -> &Engine {
        self.service.engine()
    }
}

/// The holder of a token as a caller.
pub(super) fn caller(holder: &Holder) -> Caller {
    let token = &holder.token;
    let mut caller = Caller::operator(format!("token {}", token.name));
    caller.trust = token.trust;
    caller.is_person = token.role == TokenRole::Operator;
    // Each request shows what it was asked for.
    caller.session = holder.known.another();
    caller
}

/// Whether a token can call a tool.
pub(super) fn may_call(token: &Token, engine: &Engine, tool: &str) -> bool {
    let offered =
        |tool: &str| engine.registry().get(tool).is_some_and(|tool| tool.definition().by_default);
    match &token.tools {
        Some(tools) => tools.iter().any(|name| name == tool),
        None => offered(tool),
    }
}
