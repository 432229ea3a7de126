//! Calls of tools: answered, noted in the audit log, and their receipts kept or rendered again.

use serde_json::Value;

use super::{Answer, Engine};
use crate::{
    error::ToolError,
    model::{Caller, Outcome},
    store::{audit::AuditEntry, ledger::Task, receipts},
    threads::in_thread,
};

impl Engine {
    /// Calls a tool by name.
    pub async fn call(&self, tool: &str, input: Value, caller: &Caller) -> Answer {
        let named = input.get("task_id").and_then(Value::as_str).map(str::to_owned);
        let engine = self.for_one_call().await;
        let answer = self.registry.call(&engine, tool, input, caller).await;
        self.note_call(tool, named, caller, &answer).await;
        answer
    }

    /// Keeps the answer to a call that started a task, where nothing else tells what it was.
    pub(super) async fn keep_receipt(&self, answer: &Answer) {
        let Some(task) = answer.keeps().cloned() else { return };
        let (state, text) = (self.store.state.clone(), answer.receipt().to_owned());
        let kept = in_thread(move || receipts::keep(&state, &task, &text)).await;
        if let Some(Err(error)) = kept {
            tracing::warn!(%error, "the answer to a call is not kept");
        }
    }

    /// The answer to the call that started a task, as its caller got it. None where that is not
    /// known: the call waits still or has failed, it was no call of a tool, or a program that kept
    /// no answers has answered it.
    ///
    /// What is a secret here, and was none where the call was answered, is masked.
    pub async fn receipt(&self, task: &Task) -> Result<Option<String>, ToolError> {
        let (state, id) = (self.store.state.clone(), task.task_id.clone());
        let kept = in_thread(move || receipts::read(&state, &id)).await;
        let unreadable = |error| ToolError::unreadable(task.task_id.as_str(), &error);
        if let Some(text) = kept.transpose().map_err(unreadable)?.flatten() {
            return Ok(Some(self.mask().text(&text).into_owned()));
        }
        // A program that keeps answers also records what commands use.
        let known = task.outcome.as_ref().filter(|outcome| outcome.resources.is_some());
        let Some(Outcome { stdout, stderr, .. }) = known else { return Ok(None) };
        let mut output = self.latest().output(&task.task_id).await?;
        // What was printed later was not in it.
        output.stdout = output.stdout.with_totals(stdout.came(), stdout.lines);
        output.stderr = output.stderr.with_totals(stderr.came(), stderr.lines);
        Ok(self.registry.again(self, task, &output).map(|answer| answer.receipt().to_owned()))
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
