//! The sandbox as data: its levels and settings, and a report of the layers that were in force.

use std::{
    fmt,
    path::PathBuf,
    sync::{PoisonError, RwLock},
};

use legwork_gate::{Decision, Level, Mode, NetworkMode, ProgramRule};
use legwork_warden::sandbox::{AbsentLayer, Enforcement, SandboxLayer};
use serde::{Deserialize, Serialize};

use super::{Trust, network::NetworkSettings};

/// Files of this process that no command may read, whatever is configured.
static HIDDEN: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Hides a file of this process from all commands in sandboxes that it makes from now on: its log,
/// say.
pub fn hide_from_commands(file: PathBuf) {
    HIDDEN.write().unwrap_or_else(PoisonError::into_inner).push(file);
}

/// The files that are hidden from commands.
pub fn hidden_from_commands() -> Vec<PathBuf> {
    HIDDEN.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What was configured about sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The level, where the caller's trust does not ask for a stricter one.
    pub level: Option<Level>,
    /// Whether there is a network, where the caller's trust allows one.
    pub network: Option<bool>,
    /// Which network that is.
    pub names: NetworkSettings,
    /// Whether nothing is started unless every layer is in force.
    pub required: bool,
    /// Paths that may be written besides.
    pub writable: Vec<PathBuf>,
    /// Paths that may not be read besides.
    pub unreadable: Vec<PathBuf>,
    /// Files that decide about commands: not to be written by them.
    pub deciding: Vec<PathBuf>,
    /// Most bytes that a command may write which is only tried.
    pub trial_bytes_max: u64,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        const TRIAL_BYTES_MAX: u64 = 10 << 30;
        Self {
            level: None,
            network: None,
            names: NetworkSettings::default(),
            required: false,
            writable: Vec::new(),
            unreadable: Vec::new(),
            deciding: Vec::new(),
            trial_bytes_max: TRIAL_BYTES_MAX,
        }
    }
}

/// What a command is to be confined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub level: Level,
    pub network: NetworkMode,
    /// Whether the caller may change what its repository is configured to run.
    pub operator: bool,
}

impl Wanted {
    /// What this caller's commands get, unless a rule says otherwise.
    pub(crate) fn of(trust: Trust, mode: Mode, settings: &SandboxSettings) -> Self {
        let operator = matches!(trust, Trust::TrustedOperator | Trust::TrustedSystem);
        let untrusted = trust == Trust::UntrustedExternal;
        let least = if untrusted { Level::ReadOnly } else { Level::None };
        let level = match (mode, settings.level) {
            (Mode::Open, None) => Level::None,
            (_, level) => level.unwrap_or(Level::WorkspaceWrite).max(least),
        };
        let network = match settings.network {
            Some(false) => NetworkMode::None,
            _ => settings.names.of(trust),
        };
        Self { level, network, operator }.at(None, None)
    }

    /// What a command gets that is only tried: all that it may write is a copy, so that it may
    /// write whoever asked for it, and it has no network unless somebody says so.
    pub(crate) fn to_try(self, network: bool) -> Self {
        let network = if network { self.network } else { NetworkMode::None };
        Self { level: Level::WorkspaceWrite, network, ..self }
    }

    /// Whether that is more than the other lets a command do.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.level < other.level || self.network < other.network
    }

    /// The same, with the level and the network that a rule wants.
    pub(crate) fn at(self, level: Option<Level>, network: Option<NetworkMode>) -> Self {
        let level = level.unwrap_or(self.level);
        // Nothing that is not confined can be kept from the network, and what may only be read not
        // be sent away, unless somebody has said where to.
        let most = match level {
            Level::None => return Self { level, network: NetworkMode::All, ..self },
            Level::ReadOnly if self.operator && network != Some(NetworkMode::Names) => {
                NetworkMode::None
            }
            Level::WorkspaceWrite | Level::ReadOnly => self.network,
        };
        Self { level, network: network.unwrap_or(most).max(most), ..self }
    }
}

impl Wanted {
    /// The level and the network, with who lets a command out of the sandbox.
    pub(crate) fn words(self, outside: Option<&str>) -> String {
        outside.map_or_else(|| self.to_string(), |outside| format!("{self}, {outside}"))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match (self.level, self.network) {
            (Level::None, _) => "",
            (_, NetworkMode::All) => ", with network",
            (_, NetworkMode::Names) => ", network by name",
            (_, NetworkMode::None) => ", no network",
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
    /// Whether that was of hosts that rules allow, by their names.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub network_by_name: bool,
    /// That a rule or a person let it run outside the sandbox, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outside: Option<String>,
    /// The layers that were in force.
    pub enforced: Vec<String>,
    /// Those that should have been.
    pub missing: Vec<MissingLayer>,
    /// What gave it more than the commands of its caller get by default: the rule, `approved` for
    /// an answer of a person, or `trial`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub granted_by: Option<String>,
    /// Folders besides the workspace that it could write because they are configured.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub other_folders: Vec<String>,
}

/// How a rule that denies a program, or asks about one, is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRule {
    /// The rule.
    pub rule: String,
    /// Whether it denies or asks.
    pub decision: Decision,
    /// The program.
    pub program: String,
    /// By what.
    pub held: Vec<Hold>,
}

/// What holds a rule on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The text of a command is judged before it runs.
    Text,
    /// Whatever a command executes is judged, by its arguments as they are read then.
    Exec,
    /// The program's files cannot be seen.
    Covered,
}

impl Hold {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Exec => "exec",
            Self::Covered => "covered",
        }
    }
}

impl HeldRule {
    /// How a rule is held in a sandbox, or without one.
    pub(crate) fn new(rule: ProgramRule, enforcement: Option<&Enforcement>) -> Self {
        let told = enforcement.is_some_and(|it| it.tells_exec);
        let covered =
            enforcement.is_some_and(|it| rule.denies_program() && it.covered.contains(&rule.id));
        let holds = [(true, Hold::Text), (told, Hold::Exec), (covered, Hold::Covered)];
        Self {
            rule: rule.id,
            decision: rule.decision,
            program: rule.program,
            held: holds.into_iter().filter(|(holds, _)| *holds).map(|(_, hold)| hold).collect(),
        }
    }
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
        Self {
            level: Level::None,
            network: true,
            network_by_name: false,
            outside: None,
            enforced: Vec::new(),
            missing: Vec::new(),
            granted_by: None,
            other_folders: Vec::new(),
        }
    }
}

impl SandboxReport {
    /// Of a command that a person has let out of its sandbox.
    pub(crate) fn unconfined() -> Self {
        let reason = "approved once, outside the sandbox".to_owned();
        let missing = vec![MissingLayer { layer: "sandbox".into(), reason }];
        Self { missing, ..Self::default() }
    }

    /// The level and the network, in words.
    pub fn words(&self) -> String {
        let (level, network) = (self.level, self.network_mode());
        Wanted { level, network, operator: false }.words(self.outside.as_deref())
    }

    /// Whether anything keeps a command to the files that its level names.
    pub fn holds_files(&self) -> bool {
        let layers = [SandboxLayer::MountNamespace, SandboxLayer::Landlock];
        layers.iter().any(|layer| self.enforced.iter().any(|name| name == layer.as_str()))
    }

    /// The network that it had.
    pub fn network_mode(&self) -> NetworkMode {
        match (self.network, self.network_by_name) {
            (true, false) => NetworkMode::All,
            (true, true) => NetworkMode::Names,
            (false, _) => NetworkMode::None,
        }
    }

    pub(crate) fn new(wanted: Wanted, enforcement: &Enforcement) -> Self {
        let name = |missing: &AbsentLayer| MissingLayer {
            layer: missing.layer.as_str().to_owned(),
            reason: missing.reason.clone(),
        };
        // Where commands have no network of their own there is no proxy either.
        let by_name = wanted.network == NetworkMode::Names;
        let has_own = enforcement.enforced.contains(&SandboxLayer::NetworkNamespace);
        Self {
            level: wanted.level,
            network: wanted.network == NetworkMode::All || by_name && has_own,
            network_by_name: by_name && has_own,
            outside: None,
            enforced: enforcement.enforced.iter().map(|layer| layer.as_str().to_owned()).collect(),
            missing: enforcement.missing.iter().map(name).collect(),
            granted_by: None,
            other_folders: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: NetworkMode = NetworkMode::None;
    const ALL: NetworkMode = NetworkMode::All;

    #[test]
    fn trust_chooses_level_and_network_and_configuration_only_narrows_it() {
        let of = |trust, settings: &SandboxSettings| {
            let wanted = Wanted::of(trust, Mode::Guarded, settings);
            (wanted.level, wanted.network)
        };
        let plain = SandboxSettings::default();
        assert_eq!(of(Trust::TrustedOperator, &plain), (Level::WorkspaceWrite, ALL));
        assert_eq!(of(Trust::TrustedSystem, &plain), (Level::WorkspaceWrite, ALL));
        assert_eq!(of(Trust::TrustedIntegration, &plain), (Level::WorkspaceWrite, NO));
        assert_eq!(of(Trust::UntrustedExternal, &plain), (Level::ReadOnly, NO));
        let none = SandboxSettings { level: Some(Level::None), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedOperator, &none), (Level::None, ALL));
        assert_eq!(of(Trust::UntrustedExternal, &none), (Level::ReadOnly, NO));
        let offline = SandboxSettings { network: Some(false), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedOperator, &offline), (Level::WorkspaceWrite, NO));
        let online = SandboxSettings { network: Some(true), ..SandboxSettings::default() };
        assert_eq!(of(Trust::TrustedIntegration, &online), (Level::WorkspaceWrite, NO));
        let open = Wanted::of(Trust::UntrustedExternal, Mode::Open, &plain);
        assert_eq!((open.level, open.network), (Level::None, ALL));
        // A level that was named is not weakened by a mode.
        let read = SandboxSettings { level: Some(Level::ReadOnly), ..SandboxSettings::default() };
        let open = Wanted::of(Trust::TrustedOperator, Mode::Open, &read);
        assert_eq!((open.level, open.network), (Level::ReadOnly, NO));
    }

    #[test]
    fn a_rule_changes_the_level_and_reading_only_has_no_network() {
        let plain = SandboxSettings::default();
        let wanted = Wanted::of(Trust::TrustedOperator, Mode::Guarded, &plain);
        let at = |level, network| wanted.at(level, network).network;
        assert_eq!(at(Some(Level::ReadOnly), None), NO);
        assert_eq!(at(Some(Level::None), None), ALL);
        assert_eq!(wanted.at(None, None), wanted);
    }

    #[test]
    fn a_rule_gives_at_most_the_network_that_its_caller_has() {
        const NAMES: NetworkMode = NetworkMode::Names;
        let names = NetworkSettings { mode: Some(NAMES), ..NetworkSettings::default() };
        let of = |trust, names: &NetworkSettings| {
            let settings = SandboxSettings { names: names.clone(), ..SandboxSettings::default() };
            Wanted::of(trust, Mode::Guarded, &settings)
        };
        let operator = of(Trust::TrustedOperator, &names);
        assert_eq!(operator.network, NAMES);
        assert_eq!(operator.at(None, Some(ALL)).network, NAMES);
        assert_eq!(operator.at(None, Some(NO)).network, NO);
        assert_eq!(operator.at(Some(Level::ReadOnly), None).network, NO);
        assert_eq!(operator.at(Some(Level::ReadOnly), Some(NAMES)).network, NAMES);
        assert_eq!(of(Trust::UntrustedExternal, &names).network, NO);
        let lent = NetworkSettings { untrusted_connect: true, ..names };
        let untrusted = of(Trust::UntrustedExternal, &lent);
        assert_eq!((untrusted.level, untrusted.network), (Level::ReadOnly, NAMES));
    }
}
