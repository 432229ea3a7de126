//! Questions about commands, and their answers.

use axum::http::StatusCode;
use legwork::{Answered, Approval, ErrorKind, Reply, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    refusal::{HttpRefusal, answer as respond, failed},
    routes::{Call, Handled},
};

/// Most characters of a note to the caller.
const NOTE_CHARS_MAX: usize = 4000;

pub(in crate::http) async fn list(call: Call) -> Handled {
    Ok(match open(&call).await {
        Ok(open) => {
            let open: Vec<Value> = open.iter().map(|it| described(&call, it)).collect();
            respond(StatusCode::OK, &json!({ "questions": open }))
        }
        Err(error) => failed(&error),
    })
}

pub(in crate::http) async fn one(call: Call) -> Handled {
    Ok(match found(&call).await {
        Ok(approval) => respond(StatusCode::OK, &described(&call, &approval)),
        Err(error) => failed(&error),
    })
}

pub(in crate::http) fn answer_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["decision"],
        "properties": {
            "decision": {
                "type": "string",
                "enum": Reply::ALL.map(Reply::as_str),
                "description": "One of the question's `replies`",
            },
            "note": { "type": "string", "description": "A message to the caller" },
        },
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    decision: Reply,
    note: Option<String>,
}

pub(in crate::http) async fn answer(call: Call) -> Handled {
    let said: Said = call.body()?;
    if said.note.as_ref().is_some_and(|note| note.chars().count() > NOTE_CHARS_MAX) {
        return Err(HttpRefusal::invalid(format!("`note` is over {NOTE_CHARS_MAX} characters")));
    }
    let approval = match found(&call).await {
        Ok(approval) => approval,
        Err(error) => return Ok(failed(&error)),
    };
    let replies = call.standing.engine().replies(&approval);
    if !replies.contains(&said.decision) {
        let known: Vec<&str> = replies.into_iter().map(Reply::as_str).collect();
        let message = format!("this question can be answered with: {}", known.join(", "));
        return Err(HttpRefusal::invalid(message));
    }
    let answered = Answered {
        decision: said.decision,
        note: said.note.filter(|note| !note.trim().is_empty()),
        by: format!("token {}", call.holder.token.name),
    };
    let engine = call.standing.engine();
    Ok(match engine.answer(&approval.approval_id, answered).await {
        Ok(approval) => respond(StatusCode::OK, &described(&call, &approval)),
        Err(error) => failed(&error),
    })
}

/// The open questions that the token may see, oldest first.
async fn open(call: &Call) -> Result<Vec<Approval>, ToolError> {
    let mut open = call.standing.engine().approvals().await?;
    if let Some(own) = &call.standing.workspace {
        open.retain(|approval| approval.workspace == *own);
    }
    Ok(open)
}

async fn found(call: &Call) -> Result<Approval, ToolError> {
    let found = open(call).await?.into_iter().find(|approval| approval.approval_id == call.id);
    found.ok_or_else(|| {
        let message = format!("no open question has the id `{}`", call.id);
        ToolError::new(ErrorKind::UnknownApproval, message)
    })
}

/// A question as data, with the answers that can be given and the text that a person reads.
fn described(call: &Call, approval: &Approval) -> Value {
    let mut described = serde_json::to_value(approval).unwrap_or_default();
    if let Value::Object(fields) = &mut described {
        let engine = call.standing.engine();
        let replies: Vec<&str> = engine.replies(approval).into_iter().map(Reply::as_str).collect();
        fields.insert("replies".into(), json!(replies));
        fields.insert("text".into(), approval.question().into());
        fields.insert("asking".into(), engine.is_asking(approval).into());
    }
    described
}
