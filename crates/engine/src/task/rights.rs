//! What a caller may do with a task: see it, or act on it, too.
//!
//! To see is to read its record, its output and its screen, and to wait for it. To act is to type,
//! to end its input, to give its terminal another size, and to stop it. A caller acts on what it
//! has started itself, and on tasks that can do no more than its own commands could: it is trusted
//! as far as the caller of the task was, and its commands get at least the same level of the
//! sandbox and the same network. All others see.
//!
//! A caller joins a task instead of starting an equal one where it may act on it, and who started
//! it is trusted as far: a caller of less trust could have prepared the task, and could type into
//! what a caller of more trust takes for its own.

use std::{fmt, path::Path};

use legwork_gate::{Level, NetworkMode, Script, Subject};
use serde_json::json;

use super::{
    Tasks,
    plan::{can_be_planted, judged_file},
};
use crate::{
    error::{ErrorKind, ToolError},
    model::{Caller, Trust, sandbox::Wanted},
    place::Look,
    store::ledger::Task,
};

/// The giver of the level of a command that is only tried: all that it writes is a copy.
pub(super) const TRIAL: &str = "trial";

/// The powers that a caller, or the caller of a task, has through a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    trust: Trust,
    level: Level,
    network: NetworkMode,
}

/// The reason for which a caller may only see a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnlySees {
    /// It is trusted less than who started the task.
    Trust(Trust, Trust),
    /// Its own commands are confined more than the task.
    Level(Level, Level),
    /// Its own commands have less of a network than the task.
    Network(NetworkMode, NetworkMode),
}

impl Reach {
    /// Checks whether a caller of this reach may act on a task of that one.
    fn may_act_on(self, task: Self) -> Result<(), OnlySees> {
        if !self.trust.reaches(task.trust) {
            return Err(OnlySees::Trust(self.trust, task.trust));
        }
        if self.level > task.level {
            return Err(OnlySees::Level(self.level, task.level));
        }
        if self.network > task.network {
            return Err(OnlySees::Network(self.network, task.network));
        }
        Ok(())
    }

    /// True if a caller of this reach may take a task of that one for its own.
    fn may_join(self, task: Self) -> bool {
        let same = (self.level, self.network) == (task.level, task.network);
        same && self.may_act_on(task).is_ok() && task.trust.reaches(self.trust)
    }

    /// That of a command that is confined like this.
    pub(super) fn new(trust: Trust, wanted: Wanted) -> Self {
        Self { trust, level: wanted.level, network: wanted.network }
    }

    /// That of a task. A trust that is not known here counts as the highest.
    pub(super) fn of(task: &Task) -> Self {
        let trust = Trust::from_name(&task.trust).unwrap_or_default();
        Self { trust, level: task.sandbox.level, network: task.sandbox.network_mode() }
    }
}

impl OnlySees {
    /// The part of the reach that is less than the task's.
    fn about(self) -> &'static str {
        match self {
            Self::Trust(..) => "trust",
            Self::Level(..) => "sandbox",
            Self::Network(..) => "network",
        }
    }

    /// The typed error of one who wanted to act.
    pub(crate) fn refusal(self, task: &Task) -> ToolError {
        let id = &task.task_id;
        ToolError::new(
            ErrorKind::CommandDenied,
            format!("you may read task {id}, but not act on it: {self}"),
        )
        .detail("task_id", json!(id))
        .detail("less", self.about())
        .hint("read it with TaskOutput; only the person can type into it and stop it")
    }
}

impl fmt::Display for OnlySees {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trust(own, task) => {
                write!(formatter, "its caller is {}, and you are {}", task.as_str(), own.as_str())
            }
            Self::Level(own, task) => write!(
                formatter,
                "its sandbox is `{}`, and that of your commands is `{}`",
                task.as_str(),
                own.as_str()
            ),
            Self::Network(own, task) => write!(
                formatter,
                "its network is `{}`, and that of your commands is `{}`",
                task.as_str(),
                own.as_str()
            ),
        }
    }
}

/// A task as the rules speak of it, for a caller who would start it anew.
struct StartedAnew<'a> {
    task: &'a Task,
    trust: Trust,
    level: Level,
    look: &'a dyn Look,
}

impl Subject for StartedAnew<'_> {
    fn tool(&self) -> &str {
        &self.task.tool
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(&self.task.command)
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn workspace(&self) -> Option<&str> {
        Some(&self.task.workspace)
    }

    fn level(&self) -> Level {
        self.level
    }

    fn resolve(&self, name: &str) -> Option<String> {
        judged_file(self.look, name, Path::new(&self.task.workdir))
    }

    fn can_be_planted(&self, name: &str) -> bool {
        can_be_planted(self.look, name, Path::new(&self.task.workdir))
    }
}

impl Tasks {
    /// Checks whether a caller may act on a task; all others may see it.
    pub(crate) fn right(&self, caller: &Caller, task: &Task) -> Result<(), OnlySees> {
        if caller.session.has_started(task.task_id.as_str()) {
            return Ok(());
        }
        let own = self.reach_like(caller, task);
        let unconfined = Reach { level: Level::None, network: NetworkMode::All, ..own };
        let own = if caller.is_person { unconfined } else { own };
        own.may_act_on(Reach::of(task))
    }

    /// True if a caller may be given a task in the place of an equal one of its own.
    pub(super) fn may_join(caller: &Caller, own: Reach, task: &Task) -> bool {
        caller.session.has_started(task.task_id.as_str()) || own.may_join(Reach::of(task))
    }

    /// The reach of a caller's own command in the place of a task.
    fn reach_like(&self, caller: &Caller, task: &Task) -> Reach {
        Reach::new(caller.trust, self.wanted_like(caller.trust, task))
    }

    /// The confinement of commands of this trust. What a rule gave to the task counts where the
    /// rules of now give it to an equal command; what a person gave was for the session that asked.
    fn wanted_like(&self, trust: Trust, task: &Task) -> Wanted {
        match task.sandbox.granted_by.as_deref() {
            None => self.judge.wanted(trust),
            Some(TRIAL) => self.judge.wanted(trust).to_try(true),
            Some(_) => self.judge.wanted_for(&StartedAnew {
                task,
                trust,
                level: self.judge.wanted(trust).level,
                look: &*self.place,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: Trust = Trust::TrustedOperator;
    const SYSTEM: Trust = Trust::TrustedSystem;
    const INTEGRATION: Trust = Trust::TrustedIntegration;
    const UNTRUSTED: Trust = Trust::UntrustedExternal;
    const ALL: NetworkMode = NetworkMode::All;
    const NAMES: NetworkMode = NetworkMode::Names;
    const NO: NetworkMode = NetworkMode::None;
    const OUT: Level = Level::None;
    const WRITES: Level = Level::WorkspaceWrite;
    const READS: Level = Level::ReadOnly;

    #[test]
    fn a_caller_acts_on_what_can_do_no_more_than_its_own_commands() {
        // Caller, task, and what the caller has too little of.
        let table = [
            ((OPERATOR, WRITES, ALL), (OPERATOR, WRITES, ALL), None),
            ((OPERATOR, WRITES, ALL), (SYSTEM, WRITES, ALL), None),
            ((SYSTEM, WRITES, ALL), (OPERATOR, WRITES, ALL), None),
            ((OPERATOR, WRITES, ALL), (UNTRUSTED, READS, NO), None),
            ((INTEGRATION, WRITES, NO), (UNTRUSTED, READS, NO), None),
            ((UNTRUSTED, READS, NO), (UNTRUSTED, READS, NO), None),
            ((OPERATOR, OUT, ALL), (OPERATOR, WRITES, ALL), None),
            ((OPERATOR, WRITES, NAMES), (OPERATOR, WRITES, NO), None),
            // Less trust, even with the same sandbox, or with none at all.
            ((INTEGRATION, WRITES, NO), (OPERATOR, WRITES, NO), Some("trust")),
            ((UNTRUSTED, OUT, ALL), (INTEGRATION, OUT, ALL), Some("trust")),
            ((UNTRUSTED, OUT, ALL), (OPERATOR, READS, NO), Some("trust")),
            // A stricter sandbox.
            ((OPERATOR, WRITES, ALL), (OPERATOR, OUT, ALL), Some("sandbox")),
            ((OPERATOR, READS, NO), (OPERATOR, WRITES, NO), Some("sandbox")),
            ((OPERATOR, WRITES, ALL), (UNTRUSTED, OUT, ALL), Some("sandbox")),
            // Less of a network.
            ((OPERATOR, WRITES, NO), (OPERATOR, WRITES, ALL), Some("network")),
            ((OPERATOR, WRITES, NAMES), (OPERATOR, WRITES, ALL), Some("network")),
            ((OPERATOR, WRITES, NO), (INTEGRATION, WRITES, NAMES), Some("network")),
        ];
        for (caller, task, expected) in table {
            let reach = |(trust, level, network)| Reach { trust, level, network };
            let less = reach(caller).may_act_on(reach(task)).err().map(OnlySees::about);
            assert_eq!(less, expected, "{caller:?} on {task:?}");
            // What is of less trust is acted on, and not taken for one's own.
            let kind = |trust| if trust == SYSTEM { OPERATOR } else { trust };
            let same = (kind(caller.0), caller.1, caller.2) == (kind(task.0), task.1, task.2);
            let joins = expected.is_none() && same;
            assert_eq!(reach(caller).may_join(reach(task)), joins, "{caller:?} for {task:?}");
        }
    }
}
