//! Questions about a name that a running command wants to connect to.
//!
//! Its connection waits until there is an answer. The question is bound to the name, the workspace,
//! the sandbox and the caller, and not to the command: who allows a name for the session is not
//! asked about it again by the next command of that session.

use legwork_gate::{Trust, connect_proposal};
use legwork_warden::network::{HeldName, UNKNOWN_NAME};

use super::{Judge, approval::ApprovalKey};
use crate::{
    error::ToolError,
    model::question::{Approval, SharedAsker},
    store::{audit::AuditEntry, ledger::Task},
};

impl Judge {
    /// Asks whether connections to a name may be made, and returns what the person who allows it
    /// says of it; an error says why they may not.
    pub(crate) async fn ask_about_name(
        &self,
        task: &Task,
        held: &HeldName,
        face: Option<&SharedAsker>,
    ) -> Result<Option<String>, ToolError> {
        let approval = self.about_name(task, held)?;
        let about =
            |entry: AuditEntry| entry.with("host", held.host.as_str()).own("port", &held.port);
        self.ask_while_running(task, approval, about, face).await
    }

    /// Whether a question is about this name.
    pub(crate) fn is_about_name(&self, question: &Approval, task: &Task, held: &HeldName) -> bool {
        self.about_name(task, held).is_ok_and(|about| about.key == question.key)
    }

    fn about_name(&self, task: &Task, held: &HeldName) -> Result<Approval, ToolError> {
        let (name, sandbox) = (held.pattern(), task.sandbox.words());
        let mut key = ApprovalKey::default();
        key.bind("connect");
        for part in [&name, &task.workspace, &sandbox, &task.trust, &task.asked_by] {
            key.bind(part);
        }
        let reason = format!("the command wants to connect to {name}, which no rule allows");
        let cause = format!("{}:{}", held.host, held.port);
        let mut approval = self.of_running(task, key, UNKNOWN_NAME, reason, cause)?;
        let id = format!("approved-{}", approval.approval_id.trim_start_matches("a_"));
        let trust = Trust::from_name(&task.trust).unwrap_or(Trust::TrustedOperator);
        approval.proposed_rule = Some(connect_proposal(&id, &name, &task.workspace, trust));
        Ok(approval)
    }
}
