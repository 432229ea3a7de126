//! `Options`: workspace, state folder, configuration and callbacks for opening an engine.

use std::{path::PathBuf, sync::Arc, time::Duration};

use legwork_gate::Policy;

use crate::{
    error::ToolError,
    judge::{
        config::{Config, Settings, UserPrograms, Variables},
        files::ConfigFiles,
    },
    meters::Meters,
    model::{place::PlaceSettings, sandbox::SandboxSettings},
    state::{Repair, StateFolder},
};

/// How long a command may run on without any engine, where nothing is configured.
pub(super) const ORPHAN_TTL: Duration = Duration::from_secs(600);

/// How an engine is set up.
///
/// ```
/// use legwork::{Options, gate::{Mode, Policy}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = Options::new("/my/project").state("/my/state");
/// options.policy = Policy::from_layers(&[], Mode::Strict)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use = "options do nothing until an engine is opened with them"]
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
    /// What commands are confined to; nothing where the policy's mode is open and no level is set.
    pub sandbox: SandboxSettings,
    /// Programs of the user's that are told of something.
    pub told: UserPrograms,
    /// Which variables of our own environment commands do not get.
    pub variables: Variables,
    /// Other places that commands can run at.
    pub places: Vec<PlaceSettings>,
    /// The place that commands run at whose caller does not say; this machine when absent.
    pub default_place: Option<String>,
    /// The files that all of this is read from again, whenever they change, before anything is
    /// judged: what was set here by hand is replaced then. None lets everything stay as it is.
    pub files: Option<ConfigFiles>,
    /// Whether the task tools know the tasks of all workspaces, as the user's own command line
    /// does.
    pub all_workspaces: bool,
    /// Whether a command follows at once: what it needs is then begun while the records are opened.
    pub at_once: bool,
    /// What is counted; engines of one program may share it.
    pub meters: Arc<Meters>,
    /// Told of what had to be repaired in the state folder, at the start or later.
    pub on_repair: fn(&Repair),
    /// What can be done about an error, in words of the face: a command line names its verbs, a
    /// page its buttons. It takes the place of the library's own hint in the answers of the tools.
    pub hint: fn(&ToolError) -> Option<String>,
    /// What the person can do about an error, apart from the caller: it goes into
    /// `details.for_the_user`, where a model does not take it for its own business.
    pub for_the_user: fn(&ToolError, &StateFolder) -> Option<String>,
}

impl Options {
    /// What was configured, for this workspace; it is read again when its files change.
    pub fn configured(workspace: impl Into<PathBuf>, config: Config) -> Self {
        let mut options = Self::new(workspace);
        options.roots = config.roots;
        options.orphan_ttl = config.orphan_ttl.unwrap_or(options.orphan_ttl);
        (options.policy, options.settings) = (config.policy, config.settings);
        (options.sandbox, options.told) = (config.sandbox, config.told);
        options.variables = config.variables;
        (options.places, options.default_place) = (config.places, config.default_place);
        options.files = config.files;
        options
    }

    /// The defaults, for this workspace.
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            roots: Vec::new(),
            state: None,
            orphan_ttl: ORPHAN_TTL,
            policy: Policy::default(),
            settings: Settings::default(),
            sandbox: SandboxSettings::default(),
            told: UserPrograms::default(),
            variables: Variables::default(),
            places: Vec::new(),
            default_place: None,
            files: None,
            all_workspaces: false,
            at_once: false,
            meters: Arc::default(),
            on_repair: |repair| tracing::warn!("{}", repair.message()),
            hint: |_| None,
            for_the_user: |_, _| None,
        }
    }

    /// The same with a state folder of its own, instead of the user's.
    pub fn state(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state = Some(folder.into());
        self
    }
}
