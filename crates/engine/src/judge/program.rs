//! Questions about a program that a running command is about to execute.
//!
//! The text was judged and may run; but what it runs in turn can be something that a rule asks
//! about. Its process waits until there is an answer. The question is like any other, kept in the
//! ledger and answered by whoever is first, and bound to the command, the file and the arguments.

use super::{Judge, approval::ApprovalKey};
use crate::{
    error::ToolError,
    model::question::{Approval, SharedAsker},
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
        let about = |entry: AuditEntry| entry.with("program", asked.line.as_str());
        self.ask_while_running(asked.task, approval, about, face).await
    }

    /// Whether a question is about this program, in this task.
    pub(crate) fn is_about(&self, question: &Approval, asked: &AskedProgram<'_>) -> bool {
        self.about_program(asked).is_ok_and(|about| about.key == question.key)
    }

    fn about_program(&self, asked: &AskedProgram<'_>) -> Result<Approval, ToolError> {
        let task = asked.task;
        let sandbox = task.sandbox.words();
        let mut key = ApprovalKey::default();
        key.bind("program");
        key.bind(task.fingerprint);
        for part in [&task.tool, asked.rule, &asked.file, &sandbox, &task.trust, &task.asked_by] {
            key.bind(part);
        }
        for argument in asked.argv {
            key.bind(argument);
        }
        let reason = format!("the command is about to run `{}`", asked.line);
        let approval = self.of_running(task, key, asked.rule, reason, asked.line.clone())?;
        Ok(Approval {
            interpreter: Some(asked.file.clone()),
            lineage: asked.lineage.to_vec(),
            ..approval
        })
    }
}
