//! Questions about what a running command is about to do: their common half.

use legwork_gate::Explanation;

use super::{Judge, approval::ApprovalKey};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    model::question::{Approval, SharedAsker},
    store::{audit::AuditEntry, ledger::Task},
};

impl Judge {
    /// Asks, and returns what the person who allows it says of it; an error says why it may not be.
    /// What the question is about is added to the entry by the caller.
    pub(super) async fn ask_while_running(
        &self,
        task: &Task,
        approval: Approval,
        about: impl FnOnce(AuditEntry) -> AuditEntry,
        face: Option<&SharedAsker>,
    ) -> Result<Option<String>, ToolError> {
        let entry = AuditEntry::new("verdict")
            .own("task_id", &task.task_id)
            .own("tool", &task.tool)
            .own("verdict", "ask")
            .with("rule", approval.rule.as_str())
            .with("reason", approval.reason.as_str());
        self.store.note_first(about(entry).command(&task.command)).await?;
        let explanation = Explanation {
            rule: approval.rule.clone(),
            reason: approval.reason.clone(),
            command: approval.cause.clone(),
            ..Explanation::default()
        };
        match self.obtain(approval, face, &explanation).await {
            Ok((taken, _)) => Ok(taken.note),
            Err(error) => {
                let id = || error.details.as_ref()?.get("approval_id")?.as_str();
                if error.kind == ErrorKind::ApprovalUnavailable
                    && let Some(id) = id()
                {
                    // Nothing waits any longer: the answer is for the next time.
                    self.store.ledger.leave_approval(id).await?;
                }
                Err(error)
            }
        }
    }

    /// A question of a task that runs.
    pub(super) fn of_running(
        &self,
        task: &Task,
        key: ApprovalKey,
        rule: &str,
        reason: String,
        cause: String,
    ) -> Result<Approval, ToolError> {
        Ok(Approval {
            approval_id: Self::new_approval_id()?,
            tool: task.tool.clone(),
            command: task.command.clone(),
            description: task.description.clone(),
            interpreter: None,
            workdir: task.workdir.clone(),
            workspace: task.workspace.clone(),
            asked_by: task.asked_by.clone(),
            trust: task.trust.clone(),
            reason,
            rule: rule.to_owned(),
            cause: Some(cause),
            sandbox: task.sandbox.words(),
            refused: Vec::new(),
            may_leave_sandbox: false,
            may_try: false,
            tried: None,
            may_repeat: true,
            task_id: Some(task.task_id.clone()),
            lineage: Vec::new(),
            parts: Vec::new(),
            proposed_rule: None,
            created_at_ms: now_ms(),
            expires_at_ms: self.expiry(),
            decision: None,
            note: None,
            answered_by: None,
            key: key.into_text(),
            session: self.session.clone(),
        })
    }
}
