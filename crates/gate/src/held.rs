//! Exports the rules that are also enforced when a program is executed, not only in the command's
//! text.
//!
//! The text is judged first. But a script, a Makefile or an interpreter runs programs that no text
//! names, so the rules of the user's own files that deny a program, or ask about one, are also
//! given to whoever starts commands, as plain data.

use crate::{
    judge::read_script,
    matching::Certainty,
    policy::Policy,
    reading::Reading,
    rule::{Decision, Rule, Target},
    unwrap::basename,
    verdict::Subject,
};

/// A rule that denies a program, or asks about one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRule {
    /// The name of the rule.
    pub id: String,
    /// Whether it denies or asks.
    pub decision: Decision,
    /// The only tool that it counts for.
    pub tool: Option<String>,
    /// The name of the program, without a folder.
    pub program: String,
    /// Alternatives for each argument, from the first on; none is the program as a whole.
    pub args: Vec<Vec<String>>,
}

impl ProgramRule {
    fn of(rule: &Rule) -> Option<Self> {
        let Target::Program { name, args } = &rule.target else { return None };
        let program = basename(name);
        (rule.decision > Decision::Allow && !program.is_empty()).then(|| Self {
            id: rule.id.clone(),
            decision: rule.decision,
            tool: rule.tool.clone(),
            program: program.to_owned(),
            args: args.clone(),
        })
    }

    /// Whether nobody is ever to run it, whatever the tool and the arguments.
    pub fn denies_program(&self) -> bool {
        self.decision == Decision::Deny && self.args.is_empty() && self.tool.is_none()
    }
}

/// The rules that deny programs, or ask about them.
pub fn program_rules(policy: &Policy) -> Vec<ProgramRule> {
    policy.rules.iter().filter_map(ProgramRule::of).collect()
}

/// Those of them that hold while a command of a tool runs.
///
/// A question that the text itself gives rise to has been answered before the command starts: that
/// rule holds no longer.
pub fn rules_at_exec(policy: &Policy, subject: &dyn Subject) -> Vec<ProgramRule> {
    let mut reading: Option<Reading> = None;
    let mut is_answered = |rule: &Rule| {
        let read = || read_script(&subject.script(), subject.shell());
        let reading = reading.get_or_insert_with(read);
        let resolved = |name: &str| subject.resolve(name);
        reading.runs.iter().any(|run| {
            let file = run.name().and_then(resolved);
            rule.speaks_of(run, file.as_deref()) > Certainty::No
        })
    };
    let holds = |rule: &&Rule| {
        rule.counts_for(subject)
            && match rule.decision {
                Decision::Allow => false,
                Decision::Ask => rule.target != Target::Everything && !is_answered(rule),
                Decision::Deny => true,
            }
    };
    policy.rules.iter().filter(holds).filter_map(ProgramRule::of).collect()
}
