//! Verdicts without running anything, for `legwork policy check`.

use serde::Serialize;

use crate::{
    explain::Explanation,
    judge::weigh,
    policy::Policy,
    rule::Decision,
    verdict::{Manners, Script, Subject, Trust},
};

/// The circumstances of a check.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances<'c> {
    /// How far the caller would be trusted.
    pub trust: Trust,
    /// How the tool wants its commands to be judged.
    pub manners: Manners,
    /// The workspace of the caller, by its absolute path.
    pub workspace: Option<&'c str>,
    /// Whether a sandbox would be in force.
    pub sandboxed: bool,
    /// The shell that would read the text; bash when absent.
    pub shell: Option<&'c str>,
    /// The programs that are in the current folder, where `cmd.exe` looks first.
    pub in_current_folder: &'c [&'c str],
}

/// What would be said of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The verdict.
    pub verdict: Decision,
    /// The names of the simple commands, `?` for one that is known only after expansion.
    pub commands: Vec<String>,
    /// Those, and the names of what the wrappers among them run.
    pub runs: Vec<String>,
    /// Whether the shell would perform a substitution.
    pub substitution: bool,
    /// Whether everything was understood.
    pub understood: bool,
    /// The rule that decided, when one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The reason.
    pub reason: String,
    /// The whole explanation.
    #[serde(skip)]
    pub explanation: Explanation,
}

/// A command that is only looked at.
struct Supposed<'s> {
    tool: &'s str,
    script: Script<'s>,
    circumstances: Circumstances<'s>,
}

impl Subject for Supposed<'_> {
    fn tool(&self) -> &str {
        self.tool
    }

    fn script(&self) -> Script<'_> {
        self.script
    }

    fn manners(&self) -> Manners {
        self.circumstances.manners
    }

    fn trust(&self) -> Trust {
        self.circumstances.trust
    }

    fn workspace(&self) -> Option<&str> {
        self.circumstances.workspace
    }

    fn sandboxed(&self) -> bool {
        self.circumstances.sandboxed
    }

    fn shell(&self) -> Option<&str> {
        self.circumstances.shell
    }

    fn is_in_current_folder(&self, name: &str) -> bool {
        self.circumstances.in_current_folder.contains(&name)
    }
}

/// Checks a command of a tool.
pub fn check(
    policy: &Policy,
    tool: &str,
    script: Script<'_>,
    circumstances: Circumstances<'_>,
) -> Checked {
    look(policy, &Supposed { tool, script, circumstances })
}

/// What would be said of a subject, by the function that judges it before it runs.
pub fn look(policy: &Policy, subject: &dyn Subject) -> Checked {
    let (reading, finding) = weigh(policy, subject);
    let explanation = finding.explanation;
    let names = |names: Vec<Option<&str>>| names.into_iter().flatten().map(str::to_owned).collect();
    Checked {
        verdict: finding.decision,
        commands: names(reading.commands.iter().map(|command| command.name()).collect()),
        runs: names(reading.runs.iter().map(|run| run.name()).collect()),
        substitution: reading.substitution.is_some(),
        understood: reading.understood,
        rule: Some(explanation.rule.clone()).filter(|rule| rule != "default"),
        reason: explanation.reason.clone(),
        explanation,
    }
}
