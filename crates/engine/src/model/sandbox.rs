//! The sandbox as data: its levels and settings, and a report of the layers that were in force.

use std::{fmt, path::PathBuf};

use legwork_gate::{Decision, Level, Mode, ProgramRule};
use legwork_warden::sandbox::{AbsentLayer, Enforcement};
use serde::{Deserialize, Serialize};

use super::Trust;

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
        let level = match (mode, settings.level) {
            (Mode::Open, None) => Level::None,
            (_, level) => level.unwrap_or(Level::WorkspaceWrite).max(least),
        };
        Self { level, network: operator && settings.network.unwrap_or(true), operator }.at(None)
    }

    /// What a command gets that is only tried: all that it may write is a copy, so that it may
    /// write whoever asked for it, and it has no network unless somebody says so.
    pub(crate) fn to_try(self, network: bool) -> Self {
        Self { level: Level::WorkspaceWrite, network: self.network && network, ..self }
    }

    /// The same, with the level that a rule wants.
    pub(crate) fn at(self, level: Option<Level>) -> Self {
        let level = level.unwrap_or(self.level);
        // Nothing that is not confined can be kept from the network, and what may only be read not
        // be sent away.
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
        Self { level: Level::None, network: true, enforced: Vec::new(), missing: Vec::new() }
    }
}

impl SandboxReport {
    /// Of a command that a person has let out of its sandbox.
    pub(crate) fn unconfined() -> Self {
        let reason = "approved once, outside the sandbox".to_owned();
        let missing = vec![MissingLayer { layer: "sandbox".into(), reason }];
        Self { missing, ..Self::default() }
    }

    pub(crate) fn new(wanted: Wanted, enforcement: &Enforcement) -> Self {
        let name = |missing: &AbsentLayer| MissingLayer {
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
        // A level that was named is not weakened by a mode.
        let read = SandboxSettings { level: Some(Level::ReadOnly), ..SandboxSettings::default() };
        let open = Wanted::of(Trust::TrustedOperator, Mode::Open, &read);
        assert_eq!((open.level, open.network), (Level::ReadOnly, false));
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
