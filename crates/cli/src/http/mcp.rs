//! `/mcp`: MCP over Streamable HTTP, with the tools, the trust and the workspace of the token.
//!
//! Each token has sessions of its own: the session of another one is not known to it, as if it had
//! never been. A token that may answer questions is an operator's; the person behind any other is
//! not asked here, since whoever holds the token could answer for them.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use http_body_util::Full;
use legwork::Answer;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager, local::SessionConfig},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    metrics::HttpLimit,
    realms::may_call,
    refusal::HttpRefusal,
    resumption::ResumableSessions,
    routes::{Call, Handled},
    tokens::TokenRole,
};
use crate::mcp::{Offer, Server, Tally};

/// Most sessions of one token.
const SESSIONS_MAX: usize = 2000;

/// How long a session is kept that nobody uses: longer than the longest call.
const KEPT: Duration = Duration::from_secs(2 * 3600);

/// How soon a client comes back whose connection broke.
const RETRY: Duration = Duration::from_secs(1);

/// The sessions of a token.
pub(super) struct Sessions {
    service: StreamableHttpService<Server, ResumableSessions>,
    manager: Arc<ResumableSessions>,
}

/// Passes a request on to rmcp.
pub(super) async fn exchange(call: Call) -> Handled {
    let sessions = call.holder.sessions.get_or_try_init(|| open(&call)).await?;
    if begins_session(&call) && sessions.manager.local.sessions.read().await.len() >= SESSIONS_MAX {
        call.face.metrics.limit(HttpLimit::Sessions);
        let message = format!("this token has {SESSIONS_MAX} sessions already");
        return Err(HttpRefusal::new(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", message)
            .hint("end some of them with DELETE, then try again"));
    }
    let service = sessions.service.clone();
    let mut request = Request::new(Full::new(call.body));
    (*request.method_mut(), *request.uri_mut()) = (call.method, call.uri);
    *request.headers_mut() = call.headers;
    Ok(service.handle(request).await.map(Body::new))
}

/// Whether a request would begin a session.
fn begins_session(call: &Call) -> bool {
    #[derive(Deserialize)]
    struct Message {
        method: String,
    }
    call.method == Method::POST
        && !call.headers.contains_key("mcp-session-id")
        && serde_json::from_slice::<Message>(&call.body)
            .is_ok_and(|message| message.method == "initialize")
}

/// Makes a token ready for sessions, which end with it.
async fn open(call: &Call) -> Result<Sessions, HttpRefusal> {
    let (token, engine) = (&call.holder.token, call.standing.engine());
    let names = engine.registry().definitions().map(|tool| tool.name.to_owned());
    let tools = names.filter(|name| may_call(token, engine, name)).collect();
    let offer = Offer::new(engine.clone(), call.face.structured, token.trust, Some(tools)).await;
    let offer = offer.map_err(|problem| {
        HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "tool_execution_failed", problem)
    })?;
    let metrics = call.face.metrics.clone();
    let tally: Arc<Tally> = Arc::new(move |tool: &str, answer: &Answer| metrics.call(tool, answer));
    let may_answer = token.role == TokenRole::Operator;
    let offer = offer.to(&format!("token {}", token.name), may_answer, tally);
    let offer = offer.over(call.face.transport);
    let service = call.standing.service.clone();
    let mut kept = SessionConfig::default();
    (kept.keep_alive, kept.sse_retry) = (Some(KEPT), Some(RETRY));
    let (manager, over) = (Arc::new(ResumableSessions::new(kept)), CancellationToken::new());
    // The door has checked Host, Origin and the length of the body.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        // Where nothing comes before it, a result is one document: clients limit the length of an
        // event.
        .with_json_response(true)
        .with_sse_retry(Some(RETRY))
        .with_cancellation_token(over.clone());
    // Whoever holds the token is one caller, also after a connection has ended.
    let known = offer.session(call.holder.known.clone());
    service.note_session(&known);
    tokio::spawn(close_in_time(call, over, manager.clone(), known.clone()));
    let factory = move || Ok(Server::new(offer.clone(), service.client(), known.another()));
    Ok(Sessions { service: StreamableHttpService::new(factory, manager.clone(), config), manager })
}

/// Ends the sessions of a token when the token ends, or the server does.
fn close_in_time(
    call: &Call,
    over: CancellationToken,
    manager: Arc<ResumableSessions>,
    known: legwork::Session,
) -> impl Future<Output = ()> + Send + use<> {
    // The token's holder is not held on to: it has the sessions.
    let (closing, ended) = (call.face.closing.clone(), call.holder.ended());
    let engine = call.standing.engine().clone();
    async move {
        tokio::select! {
            () = closing.cancelled() => {}
            () = ended => {}
        }
        over.cancel();
        let open: Vec<_> = manager.local.sessions.read().await.keys().cloned().collect();
        for id in open {
            let _ = manager.close_session(&id).await;
        }
        engine.end_session(&known).await;
    }
}
