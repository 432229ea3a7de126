//! The sandbox of a command: which level it gets, what that means for files and network, and what is really in force.
//!
//! Decided here, carried out by the warden. The lists of paths are data (`paths.toml`); what stands in the
//! configuration is added to them.

mod news;
mod places;
mod recent;
mod repository;

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use legwork_gate::{Level, Mode};
use legwork_warden::sandbox::{Enforcement, Guard, Missing, Profile};
use serde::{Deserialize, Serialize};

pub(crate) use self::{news::Watch, recent::Recent};
use self::{
    places::{Places, guarded},
    repository::Repository,
};
use crate::model::Trust;

/// What was configured about sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The level, where the caller's trust does not ask for a stricter one.
    pub level: Option<Level>,
    /// Whether there is a network, where the caller's trust allows one.
    pub network: Option<bool>,
    /// Whether nothing is started unless every layer is in force.
    pub required: bool,
    /// Paths that may be written besides.
    pub writable: Vec<PathBuf>,
    /// Paths that may not be read besides.
    pub unreadable: Vec<PathBuf>,
    /// Files that decide about commands: not to be written by them.
    pub deciding: Vec<PathBuf>,
}

/// What a command is to be confined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub level: Level,
    pub network: bool,
    /// Whether the caller may change what its repository is configured to run.
    pub operator: bool,
}

impl Wanted {
    /// What this caller's commands get, unless a rule says otherwise.
    pub(crate) fn of(trust: Trust, mode: Mode, settings: &SandboxSettings) -> Self {
        let operator = matches!(trust, Trust::TrustedOperator | Trust::TrustedSystem);
        let untrusted = trust == Trust::UntrustedExternal;
        let least = if untrusted { Level::ReadOnly } else { Level::None };
        let level = match mode {
            Mode::Open => Level::None,
            _ => settings.level.unwrap_or(Level::WorkspaceWrite).max(least),
        };
        Self { level, network: operator && settings.network.unwrap_or(true), operator }.at(None)
    }

    /// The same, with the level that a rule wants.
    pub(crate) fn at(self, level: Option<Level>) -> Self {
        let level = level.unwrap_or(self.level);
        // Nothing that is not confined can be kept from the network, and what may only be read not be sent away.
        let network = match level {
            Level::None => true,
            Level::WorkspaceWrite => self.network,
            Level::ReadOnly => false,
        };
        Self { level, network, ..self }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match (self.level, self.network) {
            (Level::None, _) => "",
            (_, true) => ", with network",
            (_, false) => ", no network",
        };
        write!(formatter, "{}{network}", self.level.as_str())
    }
}

/// What kept a command in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// The level.
    pub level: Level,
    /// Whether it had a network.
    pub network: bool,
    /// The layers that were in force.
    pub enforced: Vec<String>,
    /// Those that should have been.
    pub missing: Vec<MissingLayer>,
}

/// A layer that is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLayer {
    /// Its name.
    pub layer: String,
    /// Why.
    pub reason: String,
}

impl Default for SandboxReport {
    fn default() -> Self {
        Self { level: Level::None, network: true, enforced: Vec::new(), missing: Vec::new() }
    }
}

impl SandboxReport {
    fn new(wanted: Wanted, enforcement: &Enforcement) -> Self {
        let name = |missing: &Missing| MissingLayer {
            layer: missing.layer.as_str().to_owned(),
            reason: missing.reason.clone(),
        };
        Self {
            level: wanted.level,
            network: wanted.network,
            enforced: enforcement.enforced.iter().map(|layer| layer.as_str().to_owned()).collect(),
            missing: enforcement.missing.iter().map(name).collect(),
        }
    }
}

/// A sandbox as it is on this machine.
#[derive(Debug)]
pub(crate) struct Cage {
    pub enforcement: Enforcement,
    /// The same for people and models.
    pub report: Arc<SandboxReport>,
}

impl Cage {
    /// Whether nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.enforcement.missing.is_empty()
    }
}

/// Knows the profiles of one engine, and what this machine makes of them.
#[derive(Debug)]
pub(crate) struct Sandboxing {
    settings: SandboxSettings,
    workspace: PathBuf,
    /// The workspace, and the other folders that commands may run in.
    roots: Vec<PathBuf>,
    state: PathBuf,
    /// Those that commands work in.
    repositories: Vec<Repository>,
    /// Whose artifacts may be read.
    pub recent: Recent,
    profiles: Mutex<HashMap<Wanted, Arc<Profile>>>,
    cages: Mutex<HashMap<Wanted, Arc<Cage>>>,
}

impl Sandboxing {
    pub(crate) fn new(settings: SandboxSettings, roots: &[PathBuf], state: &Path) -> Self {
        let workspace = roots.first().map_or(Path::new("/"), PathBuf::as_path);
        Self {
            settings,
            roots: roots.to_vec(),
            workspace: workspace.to_owned(),
            state: state.to_owned(),
            repositories: roots.iter().map(|root| Repository::around(root)).collect(),
            recent: Recent::new(state, &places::short_name(workspace)),
            profiles: Mutex::default(),
            cages: Mutex::default(),
        }
    }

    /// What this caller's commands get.
    pub(crate) fn wanted(&self, trust: Trust, mode: Mode) -> Wanted {
        Wanted::of(trust, mode, &self.settings)
    }

    /// Whether nothing may start with less than all of it.
    pub(crate) fn required(&self) -> bool {
        self.settings.required
    }

    /// The profile, made once.
    pub(crate) fn profile(&self, wanted: Wanted) -> Arc<Profile> {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.entry(wanted).or_insert_with(|| Arc::new(self.make(wanted))).clone()
    }

    /// What this machine makes of it, if that is known.
    pub(crate) fn known(&self, wanted: Wanted) -> Option<Arc<Cage>> {
        self.cages.lock().unwrap_or_else(PoisonError::into_inner).get(&wanted).cloned()
    }

    /// Remembers what this machine makes of it.
    pub(crate) fn learn(&self, wanted: Wanted, enforcement: Enforcement) -> Arc<Cage> {
        let report = Arc::new(SandboxReport::new(wanted, &enforcement));
        let cage = Arc::new(Cage { enforcement, report });
        let mut cages = self.cages.lock().unwrap_or_else(PoisonError::into_inner);
        cages.insert(wanted, cage.clone());
        cage
    }

    /// Looks, before a command that may write, at what others run or trust.
    pub(crate) fn watch(&self, wanted: Wanted) -> Option<Watch> {
        if wanted.level != Level::WorkspaceWrite {
            return None;
        }
        // A repository that a command makes in a folder shadows the one around it.
        let possible = self.roots.iter().map(|root| root.join(".git"));
        let known = self.repositories.iter().flat_map(Repository::folders);
        let files = self.guarded_files();
        Some(Watch::begin(known.chain(possible).collect(), files.into_iter()))
    }

    /// What is guarded in folders that may be written, but for repositories.
    fn guarded_files(&self) -> Vec<PathBuf> {
        let roots = self.roots.iter().chain(&self.settings.writable);
        let writable: Vec<PathBuf> = roots.map(|path| places::expanded(path)).collect();
        Places::shipped().unwritable(&self.settings.deciding, &writable)
    }

    fn make(&self, wanted: Wanted) -> Profile {
        let places = Places::shipped();
        let bytes = |path: PathBuf| path.into_os_string().into_encoded_bytes();
        let all = |paths: Vec<PathBuf>| paths.into_iter().map(bytes).collect();
        let (mut writable, mut unwritable) = (Vec::new(), Vec::new());
        let mut tmp = None;
        if wanted.level == Level::WorkspaceWrite {
            writable.extend(self.roots.iter().cloned());
            writable.extend(self.settings.writable.iter().map(|path| places::expanded(path)));
            writable.extend(places.caches());
            writable.extend(self.repositories.iter().flat_map(Repository::folders));
            // Whoever works there works nowhere in particular.
            writable.retain(|path| path != Path::new("/"));
            writable = outermost(&writable);
            unwritable.extend(self.repositories.iter().flat_map(|it| it.guards(wanted.operator)));
            let files = self.guarded_files().into_iter();
            unwritable.extend(files.map(|path| guarded(path, Guard::ReadOnly)));
            tmp = places::temporary(&self.state, &self.workspace).map(bytes);
        }
        let mut unreadable = places.unreadable();
        unreadable.extend(self.settings.unreadable.iter().map(|path| places::expanded(path)));
        Profile {
            network: wanted.network,
            writable: all(writable),
            shown: all(self.roots.clone()),
            unwritable,
            unreadable: all(unreadable),
            tmp,
            state: bytes(self.state.clone()),
        }
    }
}

/// Those that are in none of the others. What is in a folder that may be written must not be named again: a command
/// could put a link in its place, and what that leads to would be written by the next.
fn outermost(paths: &[PathBuf]) -> Vec<PathBuf> {
    let inner = |path: &PathBuf| paths.iter().any(|it| it != path && path.starts_with(it));
    paths.iter().filter(|path| !inner(path)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_chooses_level_and_network_and_configuration_only_narrows_it() {
        let of = |trust, settings: &SandboxSettings| {
            let wanted = Wanted::of(trust, Mode::Guarded, settings);
            (wanted.level, wanted.network)
        };
        let plain = SandboxSettings::default();
        assert_eq!(of(Trust::TrustedOperator, &plain), (Level::WorkspaceWrite, true));
        assert_eq!(of(Trust::TrustedSystem, &plain), (Level::WorkspaceWrite, true));
        assert_eq!(of(Trust::TrustedIntegration, &plain), (Level::WorkspaceWrite, false));
        assert_eq!(of(Trust::UntrustedExternal, &plain), (Level::ReadOnly, false));
        let none = SandboxSettings { level: Some(Level::None), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedOperator, &none), (Level::None, true));
        assert_eq!(of(Trust::UntrustedExternal, &none), (Level::ReadOnly, false));
        let offline = SandboxSettings { network: Some(false), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedOperator, &offline), (Level::WorkspaceWrite, false));
        let online = SandboxSettings { network: Some(true), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedIntegration, &online), (Level::WorkspaceWrite, false));
        let open = Wanted::of(Trust::UntrustedExternal, Mode::Open, &plain);
        assert_eq!((open.level, open.network), (Level::None, true));
    }

    #[test]
    fn a_rule_changes_the_level_and_reading_only_has_no_network() {
        let plain = SandboxSettings::default();
        let wanted = Wanted::of(Trust::TrustedOperator, Mode::Guarded, &plain);
        assert!(!wanted.at(Some(Level::ReadOnly)).network);
        assert!(wanted.at(Some(Level::None)).network);
        assert_eq!(wanted.at(None), wanted);
    }
}
