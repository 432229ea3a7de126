//! Judges commands that another program runs: a coding agent asks before its own shell starts one.

use std::sync::Arc;

use legwork_gate::{Decision, Explanation, Level, Verdict};

use super::{
    Tasks,
    plan::{Plan, Surroundings},
};
use crate::{
    error::{ErrorKind, ToolError},
    judge::denied,
    model::{Caller, Request},
    place::Look,
    store::audit::AuditEntry,
};

/// How a command is confined that another program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignShell {
    /// Not at all: it runs with all rights of that program.
    Unconfined,
    /// As the commands of this engine: that program hands it to `legwork sh`.
    Confined,
}

/// What was decided about a command that another program would run.
#[derive(Debug)]
pub enum ForeignVerdict {
    /// It may run.
    Allow(Explanation),
    /// A person has to be asked first, which that program can do itself.
    Ask(Explanation),
    /// It may not run now: a rule denies it, a person has refused it, or has to approve it first.
    Deny(ToolError),
}

impl Tasks {
    /// Judges a command that another program would run, and notes the verdict. Nothing is run, and
    /// nothing waited for: where `can_ask` says that the program asks nobody, a question is opened
    /// whose answer counts for the next equal command.
    pub(crate) async fn judge_foreign(
        self: &Arc<Self>,
        request: Request,
        shell: ForeignShell,
        can_ask: bool,
        caller: &Caller,
    ) -> Result<ForeignVerdict, ToolError> {
        let plan = self.foreign_plan(request, shell, caller).await?;
        let entry = AuditEntry::new("verdict")
            .own("tool", &plan.tool)
            .by(caller)
            .command(&plan.text)
            .with("workdir", plan.workdir.path.display().to_string());
        match self.judge.verdict(plan, entry).await? {
            Verdict::Allow(grant) => Ok(self.held(grant.explanation().clone(), shell)),
            Verdict::Deny(denial) => Ok(ForeignVerdict::Deny(denied(denial))),
            Verdict::Ask(question) if can_ask => {
                Ok(ForeignVerdict::Ask(question.explanation().clone()))
            }
            Verdict::Ask(question) => match self.judge.ask_later(question, caller).await {
                Ok(grant) => Ok(self.held(grant.explanation().clone(), shell)),
                Err(error) if is_answer(error.kind) => Ok(ForeignVerdict::Deny(error)),
                Err(error) => Err(error),
            },
        }
    }

    /// Decides everything about a command but whether it may run. What this machine can enforce is
    /// only found out where that could decide: a warden has to be started for it.
    async fn foreign_plan(
        &self,
        request: Request,
        shell: ForeignShell,
        caller: &Caller,
    ) -> Result<Plan, ToolError> {
        let usual = self.judge.wanted(caller.trust);
        let wanted = match shell {
            ForeignShell::Confined => usual,
            ForeignShell::Unconfined => usual.at(Some(Level::None), None),
        };
        let around = Surroundings { trust: caller.trust, wanted, sandboxed: false };
        let look: Arc<dyn Look> = self.place.clone();
        let mut plan = Plan::resolve(request, &self.ground, &self.place, &look, around)?;
        let asks = |plan: &Plan| self.judge.look(plan).verdict == Decision::Ask;
        if wanted.level > Level::None && asks(&plan) {
            // A sandbox only ever turns a question into an allow, and not each of them.
            plan.sandboxed = true;
            let matters = !asks(&plan);
            plan.sandboxed = matters && self.sandbox(wanted).await?.is_some_and(|it| it.is_whole());
        }
        Ok(plan)
    }

    /// An allow, unless the configuration lets nothing run as freely as this would.
    fn held(&self, explanation: Explanation, shell: ForeignShell) -> ForeignVerdict {
        let wants = explanation.sandbox.filter(|level| *level > Level::None);
        let problem = match wants {
            _ if shell == ForeignShell::Confined => return ForeignVerdict::Allow(explanation),
            _ if self.judge.requires_protection() => {
                "`[sandbox] required` is set, and this shell runs commands without a sandbox".into()
            }
            Some(level) => format!(
                "the rule `{}` wants a sandbox of level {}, which this shell does not have",
                explanation.rule,
                level.as_str()
            ),
            None => return ForeignVerdict::Allow(explanation),
        };
        ForeignVerdict::Deny(
            ToolError::new(ErrorKind::CommandDenied, problem)
                .hint("use Legwork's own tools for it, which run commands in a sandbox"),
        )
    }
}

/// Whether an error is what came of a question, and no failure.
fn is_answer(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ApprovalRefused | ErrorKind::ApprovalUnavailable | ErrorKind::ApprovalExpired
    )
}

impl ForeignVerdict {
    /// The verdict, in one word.
    pub fn decision(&self) -> Decision {
        match self {
            Self::Allow(_) => Decision::Allow,
            Self::Ask(_) => Decision::Ask,
            Self::Deny(_) => Decision::Deny,
        }
    }
}
