//! Questions about a program that a running command is about to execute.
//!
//! The text was judged and may run; but what it runs in turn can be something that a rule asks
//! about. Its process waits until there is an answer. The question is like any other, kept in the
//! ledger and answered by whoever is first, and bound to the command, the file and the arguments.

use legwork_gate::Explanation;

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

/// A program that waits to be executed, and the task that led to it.
#[derive(Debug)]
pub(crate) struct AskedProgram<'a> {
    /// The task.
    pub task: &'a Task,
    /// The rule that asks.
    pub rule: &'a str,
    /// The program with its arguments, as a shell would write them.
    pub line: String,
    /// The file that would be executed.
    pub file: String,
    /// Its arguments, to the byte.
    pub argv: &'a [Vec<u8>],
    /// The command lines of the processes that led to it, the command itself first.
    pub lineage: &'a [String],
}

impl Judge {
    /// Asks whether a program may be executed, and returns what the person who allows it says of
    /// it; an error says why it may not.
    pub(crate) async fn ask_about_program(
        &self,
        asked: AskedProgram<'_>,
        face: Option<&SharedAsker>,
    ) -> Result<Option<String>, ToolError> {
        let approval = self.about_program(&asked)?;
        let entry = AuditEntry::new("verdict")
            .own("task_id", &asked.task.task_id)
            .own("tool", &asked.task.tool)
            .own("verdict", "ask")
            .with("rule", asked.rule)
            .with("reason", approval.reason.as_str())
            .with("program", asked.line.as_str())
            .command(&asked.task.command);
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
                    // The program waits no longer: the answer is for the next equal call.
                    self.store.ledger.leave_approval(id).await?;
                }
                Err(error)
            }
        }
    }

    /// Whether a question is about this program, in this task.
    pub(crate) fn is_about(&self, question: &Approval, asked: &AskedProgram<'_>) -> bool {
        self.about_program(asked).is_ok_and(|about| about.key == question.key)
    }

    fn about_program(&self, asked: &AskedProgram<'_>) -> Result<Approval, ToolError> {
        let task = asked.task;
        let confined = &*task.sandbox;
        let (level, network) = (confined.level, confined.network_mode());
        let sandbox = Wanted { level, network, operator: false }.to_string();
        let mut key = ApprovalKey::default();
        key.bind("program");
        key.bind(task.fingerprint);
        for part in [&task.tool, asked.rule, &asked.file, &sandbox, &task.trust, &task.asked_by] {
            key.bind(part);
        }
        for argument in asked.argv {
            key.bind(argument);
        }
        Ok(Approval {
            approval_id: Self::new_approval_id()?,
            tool: task.tool.clone(),
            command: task.command.clone(),
            description: task.description.clone(),
            interpreter: Some(asked.file.clone()),
            workdir: task.workdir.clone(),
            workspace: task.workspace.clone(),
            asked_by: task.asked_by.clone(),
            trust: task.trust.clone(),
            reason: format!("the command is about to run `{}`", asked.line),
            rule: asked.rule.to_owned(),
            cause: Some(asked.line.clone()),
            sandbox,
            refused: Vec::new(),
            may_leave_sandbox: false,
            may_try: false,
            tried: None,
            may_repeat: true,
            task_id: Some(task.task_id.clone()),
            lineage: asked.lineage.to_vec(),
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
