//! The judge's room: configuration, verdicts, and questions to a person.
//!
//! It may call the gate, which alone makes grants, and the store, where verdicts and questions are
//! kept; never a place or a task. What it has to know of a command it is told ([`Facts`]).

pub(crate) mod approval;
pub(crate) mod config;
pub(crate) mod files;
mod herald;
mod name;
pub(crate) mod program;
mod refusals;
mod running;

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use legwork_gate::{
    Checked, Decision, Explanation, Mode, Part, Policy, ProgramRule, Subject, Verdict, judge,
    program_rules, rules_at_exec,
};

use legwork_warden::network::{BadHost, NameRules};

use self::config::Settings;
pub(crate) use self::{
    approval::{APPROVED_UNCONFINED, Asked, Consent, outside},
    herald::Herald,
    refusals::{denied, denied_by_now},
};
use crate::{
    error::ToolError,
    id::random,
    model::{
        Trust,
        network::ConnectionCheck,
        sandbox::{SandboxSettings, Wanted},
    },
    platform::here,
    presence::Presence,
    store::{Store, audit::AuditEntry},
};

/// Judges the commands of one engine, by one version of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    /// Why nothing can be judged: a file of the configuration is broken.
    broken: Option<ToolError>,
    policy: Policy,
    /// Whether a rule speaks of a program that commands may not execute.
    holds_programs: bool,
    pub settings: Settings,
    sandbox: SandboxSettings,
    /// Names this engine, for approvals that last as long as it does.
    session: String,
    /// Says that the session is here, since it first asked.
    asking: Arc<Mutex<Option<Presence>>>,
    /// The workspace, as questions name it.
    workspace: String,
    /// Who is told when a question opens.
    herald: Option<Herald>,
    store: Store,
}

/// What the judge has to know of a command besides its text.
pub(crate) trait Facts: Subject {
    /// Equal commands have equal ones.
    fn fingerprint(&self) -> &[u8; 32];
    /// The file that is executed, and what it links to: a script's shell, or a program.
    fn executed(&self) -> String;
    /// Whether that is the shell that a script gets by default.
    fn is_default_shell(&self) -> bool;
    /// Variables that are set for it besides the inherited ones.
    fn environment(&self) -> &[(String, String)];
    /// The command as it was asked for.
    fn text(&self) -> &str;
    /// What the caller says that it is for.
    fn description(&self) -> Option<&str>;
    /// The folder that it would run in.
    fn workdir(&self) -> &Path;
    /// What it is to be confined to, unless a rule says otherwise.
    fn wanted(&self) -> Wanted;
    /// Whether a process would be started for it, which could be confined in another way.
    fn starts_anew(&self) -> bool {
        true
    }
}

impl Judge {
    pub(crate) fn new(
        policy: Policy,
        settings: Settings,
        sandbox: SandboxSettings,
        workspace: &Path,
        store: Store,
    ) -> Self {
        Self {
            broken: None,
            holds_programs: !program_rules(&policy).is_empty(),
            policy: here(policy),
            settings,
            sandbox,
            session: random("s_").unwrap_or_default(),
            asking: Arc::default(),
            workspace: workspace.display().to_string(),
            herald: None,
            store,
        }
    }

    /// The same judge, by another version of the configuration.
    pub(crate) fn by(&self, policy: Policy, settings: Settings, sandbox: SandboxSettings) -> Self {
        Self {
            broken: None,
            holds_programs: !program_rules(&policy).is_empty(),
            policy: here(policy),
            settings,
            sandbox,
            herald: None,
            ..self.clone()
        }
    }

    /// The same judge while the configuration cannot be used: it judges nothing.
    pub(crate) fn broken(&self, why: ToolError) -> Self {
        Self { broken: Some(why), ..self.clone() }
    }

    /// An error while the configuration cannot be used.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Tells from now on of each question that opens.
    pub(crate) fn tell_of_questions(&mut self, herald: Herald) {
        self.herald = Some(herald);
    }

    /// What this caller's commands are confined to, unless a rule says otherwise.
    pub(crate) fn wanted(&self, trust: Trust) -> Wanted {
        Wanted::of(trust, self.policy.mode(), &self.sandbox)
    }

    /// What a command is confined to that the rules of now allow; no more than without rules where
    /// they do not.
    pub(crate) fn wanted_for(&self, subject: &dyn Subject) -> Wanted {
        let (wanted, looked) = (self.wanted(subject.trust()), self.look(subject));
        match looked.verdict {
            Decision::Allow => self.wanted_by(wanted, &looked.explanation),
            Decision::Ask | Decision::Deny => wanted,
        }
    }

    /// What a command is confined to by what was said of it.
    pub(crate) fn wanted_by(&self, wanted: Wanted, explanation: &Explanation) -> Wanted {
        match (self.policy.mode(), self.sandbox.level) {
            (Mode::Open, None) => wanted,
            _ => wanted.at(explanation.sandbox, explanation.network),
        }
    }

    /// The rules that the commands of a caller connect by.
    pub(crate) fn name_rules(&self, trust: Trust) -> NameRules {
        self.sandbox.names.rules(self.policy.connects(), &self.workspace, trust)
    }

    /// What would be said of a connection of a caller's commands.
    pub(crate) fn check_connection(
        &self,
        trust: Trust,
        host: &str,
        port: u16,
    ) -> Result<ConnectionCheck, BadHost> {
        let mode = self.wanted(trust).network;
        ConnectionCheck::new(mode, &self.name_rules(trust), host, port)
    }

    /// Whether nothing may start with less than the whole sandbox.
    pub(crate) fn requires_protection(&self) -> bool {
        self.sandbox.required
    }

    /// Whether what no rule allows is asked for, whatever the tool.
    pub(crate) fn is_strict(&self) -> bool {
        self.policy.mode() == Mode::Strict
    }

    /// What would be said of a command, without anything following from it.
    pub(crate) fn look(&self, facts: &dyn Subject) -> Checked {
        legwork_gate::look(&self.policy, facts)
    }

    /// The rule that would allow exactly this command; none where none would.
    pub(crate) fn proposal(&self, facts: &impl Subject, id: &str) -> Option<String> {
        legwork_gate::proposal(&self.policy, facts, id)
    }

    /// The simple commands of a script, each with its place and verdict.
    pub(crate) fn parts(&self, facts: &dyn Subject) -> Vec<Part> {
        legwork_gate::parts(&self.policy, facts)
    }

    /// The rules that deny programs, or ask about them.
    pub(crate) fn program_rules(&self) -> Vec<ProgramRule> {
        program_rules(&self.policy)
    }

    /// The rules that keep a command that may run from executing something in turn.
    pub(crate) fn rules_at_exec(&self, subject: &dyn Subject) -> Vec<ProgramRule> {
        if self.holds_programs { rules_at_exec(&self.policy, subject) } else { Vec::new() }
    }

    /// Judges a command, and notes the verdict before anything follows from it.
    pub(crate) async fn verdict<F: Facts>(
        &self,
        facts: F,
        entry: AuditEntry,
    ) -> Result<Verdict<F>, ToolError> {
        self.check()?;
        let verdict = judge(&self.policy, facts);
        let (name, explanation) = match &verdict {
            Verdict::Allow(grant) => ("allow", grant.explanation()),
            Verdict::Ask(question) => ("ask", question.explanation()),
            Verdict::Deny(denial) => ("deny", &denial.explanation),
        };
        let entry = entry
            .own("verdict", name)
            .with("rule", explanation.rule.as_str())
            .with("reason", explanation.reason.as_str());
        self.store.note_first(entry).await?;
        Ok(verdict)
    }
}
