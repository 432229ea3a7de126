//! Asks the person at the editor about a command: ACP's `session/request_permission`.

use std::sync::{Arc, Weak};

use legwork::{Answered, Approval, AskFuture, Asker, FaceAnswer, Reply, SharedAsker};
use serde_json::{Value, json};

use super::desk::Desk;

/// The person at an editor.
pub(super) struct Person {
    desk: Weak<Desk>,
    session: String,
}

impl Person {
    pub(super) fn at(desk: &Arc<Desk>, session: &str) -> SharedAsker {
        Arc::new(Self { desk: Arc::downgrade(desk), session: session.to_owned() })
    }
}

impl Asker for Person {
    fn ask(&self, approval: Approval) -> AskFuture {
        let (desk, session) = (self.desk.clone(), self.session.clone());
        Box::pin(async move {
            let Some(desk) = desk.upgrade() else { return FaceAnswer::NotShown };
            let asked = desk.ask("session/request_permission", form(&approval, &session)).await;
            asked.map_or(FaceAnswer::NotShown, |answer| answered(&answer))
        })
    }
}

/// The question. The tool call is our own: which of the agent's it belongs to is not known.
fn form(approval: &Approval, session: &str) -> Value {
    let options: Vec<Value> = approval.replies().into_iter().map(option).collect();
    let question = json!({ "type": "text", "text": approval.question() });
    json!({
        "sessionId": session,
        "toolCall": {
            "toolCallId": approval.approval_id,
            "title": approval.command,
            "kind": "execute",
            "status": "pending",
            "content": [{ "type": "content", "content": question }],
        },
        "options": options,
    })
}

fn option(reply: Reply) -> Value {
    let (name, kind) = match reply {
        Reply::TryFirst => ("Try it on a copy first", "allow_once"),
        Reply::Apply => ("Apply what it did on the copy", "allow_once"),
        Reply::AllowOnce => ("Allow once", "allow_once"),
        Reply::AllowOnceUnconfined => ("Allow once, outside the sandbox", "allow_once"),
        Reply::AllowSession => ("Allow this command for the session", "allow_always"),
        Reply::AllowRule => ("Allow this command from now on", "allow_always"),
        Reply::Deny => ("Deny", "reject_once"),
    };
    json!({ "optionId": reply.as_str(), "name": name, "kind": kind })
}

/// Asks the person, if the editor can ask.
fn answered(answer: &Value) -> FaceAnswer {
    let Some(outcome) = answer.pointer("/result/outcome") else { return FaceAnswer::NotShown };
    if outcome.get("outcome").and_then(Value::as_str) != Some("selected") {
        return FaceAnswer::Closed;
    }
    let chosen = outcome.get("optionId").and_then(Value::as_str).and_then(Reply::from_name);
    let decision = chosen.unwrap_or(Reply::Deny);
    let by = "the person at the editor (ACP)".into();
    FaceAnswer::Answered(Answered { decision, note: None, by })
}
