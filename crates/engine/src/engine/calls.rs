//! Calls of tools: answered, and noted in the audit log.

use serde_json::Value;

use super::{Answer, Engine};
use crate::{error::ToolError, model::Caller, store::audit::AuditEntry};

impl Engine {
    /// Calls a tool by name.
    pub async fn call(&self, tool: &str, input: Value, caller: &Caller) -> Answer {
        let named = input.get("task_id").and_then(Value::as_str).map(str::to_owned);
        let engine = self.for_one_call().await;
        let answer = self.registry.call(&engine, tool, input, caller).await;
        self.note_call(tool, named, caller, &answer).await;
        answer
    }

    /// An error as it may leave: with the hint of the face, without secrets, and not too long.
    pub(super) fn told(&self, mut error: ToolError) -> ToolError {
        error.recovery_hint = (self.hint)(&error).or(error.recovery_hint);
        if let Some(told) = (self.for_the_user)(&error, self.state()) {
            error = error.detail("for_the_user", told);
        }
        error.told(&self.mask())
    }

    /// Notes what a verdict does not: calls that were refused, and those that change a task.
    async fn note_call(&self, tool: &str, task: Option<String>, caller: &Caller, answer: &Answer) {
        let entry = match answer.error() {
            Some(error) if error.noted => return,
            Some(error) => AuditEntry::refused(error),
            None if task.is_some() && self.registry.changes_something(tool) => {
                AuditEntry::new("request").with("summary", answer.envelope().summary_text.clone())
            }
            None => return,
        };
        self.store.note(entry.with("tool", tool).with("task_id", task).by(caller)).await;
    }
}
