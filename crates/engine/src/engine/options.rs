//! How an engine is set up.

use std::{path::PathBuf, time::Duration};

use legwork_gate::Policy;

use crate::{
    judge::config::{Config, Settings},
    model::sandbox::SandboxSettings,
    store::ledger::Rebuilt,
};

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that commands run in by default.
    pub workspace: PathBuf,
    /// Folders that commands may run in besides the workspace.
    pub roots: Vec<PathBuf>,
    /// The state folder; the default place when absent.
    pub state: Option<PathBuf>,
    /// How long a command may run on without any engine before its warden stops it.
    pub orphan_ttl: Duration,
    /// The rules by which commands are judged.
    pub policy: Policy,
    /// Limits of what is shown and waited for.
    pub settings: Settings,
    /// What commands are confined to, unless the policy's mode is open.
    pub sandbox: SandboxSettings,
    /// Whether the task tools know the tasks of all workspaces, as the user's own command line does.
    pub all_workspaces: bool,
    /// Told when the ledger had to be rebuilt, at the start or later.
    pub on_rebuilt: fn(&Rebuilt),
}

impl Options {
    /// What was configured, for this workspace.
    pub fn configured(workspace: impl Into<PathBuf>, config: Config) -> Self {
        let mut options = Self::new(workspace);
        options.roots = config.roots;
        options.orphan_ttl = config.orphan_ttl.unwrap_or(options.orphan_ttl);
        (options.policy, options.settings) = (config.policy, config.settings);
        options.sandbox = config.sandbox;
        options
    }

    /// The defaults, for this workspace.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            roots: Vec::new(),
            state: None,
            orphan_ttl: Duration::from_secs(600),
            policy: Policy::default(),
            settings: Settings::default(),
            sandbox: SandboxSettings::default(),
            all_workspaces: false,
            on_rebuilt: |rebuilt| tracing::warn!("{}", rebuilt.message()),
        }
    }
}
