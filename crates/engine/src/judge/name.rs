//! Questions about a name that a running command wants to connect to.
//!
//! Its connection waits until there is an answer. The question is bound to the name, the workspace,
//! the sandbox and the caller, and not to the command: who allows a name for the session is not
//! asked about it again by the next command of that session.

use legwork_gate::{Explanation, Trust, connect_proposal};
use legwork_warden::network::{HeldName, UNKNOWN_NAME};

use super::{Judge, approval::ApprovalKey};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    model::{
        question::{Approval, SharedAsker},
        sandbox::Wanted,
    },
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
        let entry = AuditEntry::new("verdict")
            .own("task_id", &task.task_id)
            .own("tool", &task.tool)
            .own("verdict", "ask")
            .with("rule", UNKNOWN_NAME)
            .with("reason", approval.reason.as_str())
            .with("host", held.host.as_str())
            .own("port", &held.port)
            .command(&task.command);
        self.store.note_first(entry).await?;
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
                    // The connection waits no longer: the answer is for the next one.
                    self.store.ledger.leave_approval(id).await?;
                }
                Err(error)
            }
        }
    }

    /// Whether a question is about this name.
    pub(crate) fn is_about_name(&self, question: &Approval, task: &Task, held: &HeldName) -> bool {
        self.about_name(task, held).is_ok_and(|about| about.key == question.key)
    }

    fn about_name(&self, task: &Task, held: &HeldName) -> Result<Approval, ToolError> {
        let confined = &*task.sandbox;
        let (level, network) = (confined.level, confined.network_mode());
        let sandbox = Wanted { level, network, operator: false }.to_string();
        let name = held.pattern();
        let mut key = ApprovalKey::default();
        key.bind("connect");
        for part in [&name, &task.workspace, &sandbox, &task.trust, &task.asked_by] {
            key.bind(part);
        }
        let approval_id = Self::new_approval_id()?;
        let id = format!("approved-{}", approval_id.trim_start_matches("a_"));
        let trust = Trust::from_name(&task.trust).unwrap_or(Trust::TrustedOperator);
        Ok(Approval {
            proposed_rule: Some(connect_proposal(&id, &name, &task.workspace, trust)),
            approval_id,
            tool: task.tool.clone(),
            command: task.command.clone(),
            description: task.description.clone(),
            interpreter: None,
            workdir: task.workdir.clone(),
            workspace: task.workspace.clone(),
            asked_by: task.asked_by.clone(),
            trust: task.trust.clone(),
            reason: format!("the command wants to connect to {name}, which no rule allows"),
            rule: UNKNOWN_NAME.to_owned(),
            cause: Some(format!("{}:{}", held.host, held.port)),
            sandbox,
            refused: Vec::new(),
            may_leave_sandbox: false,
            may_try: false,
            tried: None,
            may_repeat: true,
            task_id: Some(task.task_id.clone()),
            lineage: Vec::new(),
            parts: Vec::new(),
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
