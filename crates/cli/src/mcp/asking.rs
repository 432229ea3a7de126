//! Asks the person at an MCP client about a command (elicitation), as each version of the protocol
//! does it.
//!
//! Before 2026-07-28 the server sends the client a request and waits. Since then a call is answered
//! with what is needed (`input_required`), and the client calls again with the person's answer and
//! the state that it was given. That state names the question; it is sealed, bound to the very
//! call, expires, and is good for one answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use legwork::{
    Answer, Answered, Approval, AskFuture, Asker, Engine, ErrorKind, FaceAnswer, Reply,
    SharedAsker, ToolError,
};
use rmcp::{
    Peer, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult,
        ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult, ProtocolVersion,
        RequestMetaObject, RequestStateCodec, SealOptions,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

/// The name of our question among those that a client has to answer.
const KEY: &str = "approval";

/// Has the fields of a question beside its text, for a client that is a program.
const QUESTION: &str = "legwork/question";

/// Clients that say they can show a question and end when they are given one.
const DIE_WHEN_ASKED: &str = include_str!("die_when_asked.txt");

/// Which way a client can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a request of ours, while the call waits.
    Request,
    /// By the call's own answer.
    Retry,
    /// Not at all.
    None,
}

impl Way {
    pub(super) fn of(context: &RequestContext<RoleServer>, elicits: bool) -> Self {
        let dies = context.client_info().is_some_and(|client| {
            DIE_WHEN_ASKED.lines().any(|name| !name.starts_with('#') && name.trim() == client.name)
        });
        if dies || !elicits {
            return Self::None;
        }
        let elicits = context
            .client_capabilities()
            .and_then(|capabilities| capabilities.elicitation)
            .is_some_and(|form| form.form.is_some() || form.url.is_none());
        let version = context.protocol_version();
        match version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
            _ if !elicits => Self::None,
            true => Self::Retry,
            false => Self::Request,
        }
    }
}

/// A client of the older era.
pub(super) fn by_request(client: Peer<RoleServer>, name: String) -> SharedAsker {
    Arc::new(Client { client, name })
}

struct Client {
    client: Peer<RoleServer>,
    /// Its name, for the audit log.
    name: String,
}

impl Asker for Client {
    fn ask(&self, approval: Approval) -> AskFuture {
        let (client, name) = (self.client.clone(), self.name.clone());
        Box::pin(async move {
            let Some(form) = form(&approval) else { return FaceAnswer::NotShown };
            match client.create_elicitation(form).await {
                Ok(result) => answered(&result, &name),
                Err(_) => FaceAnswer::NotShown,
            }
        })
    }
}

/// What the person is asked.
fn form(approval: &Approval) -> Option<ElicitRequestParams> {
    let choices: Vec<&str> = approval.replies().into_iter().map(Reply::as_str).collect();
    let title = if approval.tried.is_some() { "Apply what it did?" } else { "May it run?" };
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": title,
                "enum": choices,
                "default": "deny",
            },
            "note": { "type": "string", "title": "Note for the model" },
        },
        "required": ["decision"],
    });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let message = approval.question();
    let mut meta = RequestMetaObject::default();
    meta.insert(QUESTION.to_owned(), serde_json::to_value(approval).ok()?);
    let meta = Some(meta);
    Some(ElicitRequestParams::FormElicitationParams { meta, message, requested_schema })
}

/// What the person said; anything but a clear yes is a no.
fn answered(result: &ElicitResult, client: &str) -> FaceAnswer {
    if matches!(result.action, ElicitationAction::Cancel) {
        return FaceAnswer::Closed;
    }
    let content = result.content.as_ref();
    let text = |name: &str| content.and_then(|content| content.get(name)).and_then(Value::as_str);
    let decision = match result.action {
        ElicitationAction::Accept => text("decision").and_then(Reply::from_name),
        _ => None,
    };
    FaceAnswer::Answered(Answered {
        decision: decision.unwrap_or(Reply::Deny),
        note: text("note").map(str::trim).filter(|note| !note.is_empty()).map(str::to_owned),
        by: format!("the person behind the client {client}"),
    })
}

/// The seal of a server, which nobody else has.
pub(super) struct Seal(RequestStateCodec);

impl Seal {
    pub(super) fn new() -> Result<Self, String> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| error.to_string())?;
        RequestStateCodec::try_new(key).map(Self).map_err(|error| error.to_string())
    }

    /// What a call is, so that a state is good for no other one.
    fn call(request: &CallToolRequestParams) -> Vec<u8> {
        json!([request.name, request.arguments]).to_string().into_bytes()
    }

    /// Turns an answer that nobody could be asked about into a question to the client.
    pub(super) async fn question(
        &self,
        engine: &Engine,
        request: &CallToolRequestParams,
        answer: &Answer,
    ) -> Option<CallToolResponse> {
        let error = answer.error().filter(|error| error.kind == ErrorKind::ApprovalUnavailable)?;
        let id = error.details.as_ref()?.get("approval_id")?.as_str()?;
        let open = engine.approvals().await.ok()?;
        let approval = open.into_iter().find(|approval| approval.approval_id == id)?;
        let asked = InputRequest::Elicitation(ElicitRequest::new(form(&approval)?));
        let lifetime = u64::try_from(approval.expires_at_ms - approval.created_at_ms).unwrap_or(0);
        let call = Self::call(request);
        let options =
            SealOptions::new().associated_data(&call).ttl(Duration::from_millis(lifetime));
        let state = self.0.seal_with(id.as_bytes(), &options);
        let requests = BTreeMap::from([(KEY.to_owned(), asked)]);
        Some(InputRequiredResult::new(Some(requests), Some(state)).into())
    }

    /// Takes the answer that comes with a call which was made again; an error if it cannot be
    /// trusted.
    pub(super) async fn take_answer(
        &self,
        engine: &Engine,
        request: &CallToolRequestParams,
        client: &str,
    ) -> Result<(), ToolError> {
        let Some(state) = &request.request_state else { return Ok(()) };
        let refused = || {
            ToolError::new(
                ErrorKind::ApprovalRefused,
                "the answer to the question cannot be used: its state was altered, used before or is over",
            )
            .hint("make the call again, without any state, to be asked again")
        };
        let id = self.0.open_with(state, &Self::call(request)).map_err(|_| refused())?;
        let id = String::from_utf8(id).map_err(|_| refused())?;
        let response = request.input_responses.as_ref().and_then(|responses| responses.get(KEY));
        let result: ElicitResult = response
            .and_then(|response| serde_json::from_value(response.clone()).ok())
            .ok_or_else(refused)?;
        let FaceAnswer::Answered(answered) = answered(&result, client) else {
            return Err(ToolError::new(
                ErrorKind::ApprovalUnavailable,
                "this has to be approved, and the question was closed without an answer",
            )
            .detail("approval_id", id.as_str())
            .hint(format!(
                "ask the person to approve question `{id}`, then make the same call again"
            )));
        };
        let (decision, note) = (answered.decision, answered.note.clone());
        engine.answer(&id, answered).await.map_err(|_| refused())?;
        if decision == Reply::Deny {
            let said = note.map(|note| format!("; the person says: {note}")).unwrap_or_default();
            return Err(ToolError::new(
                ErrorKind::ApprovalRefused,
                format!("this had to be approved, and it was refused{said}"),
            )
            .detail("approval_id", id)
            .hint("do without this command, or ask the person what to do instead"));
        }
        Ok(())
    }
}
