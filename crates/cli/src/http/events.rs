//! The engine's event stream as server-sent events.
//!
//! The id of an event is its cursor, so that a client that comes back with Last-Event-ID goes on
//! where it was, also at another server of the same state folder. What it cannot be told any more
//! is said as an event `lagged`: look anew. A client that does not read holds a few frames here;
//! the rest stays in the engine's ring, whose length is bounded.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{Response, header},
    response::IntoResponse,
};
use http_body_util::channel::{Channel, Sender};
use legwork::{Event, EventCursor, Events, Interest, ToolError};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    keyring::Holder,
    realms::Standing,
    refusal::{HttpRefusal, failed},
    routes::{Call, Handled},
    tokens::TokenRole,
};

/// Frames that wait for a client.
const FRAMES_MAX: usize = 16;

/// How often a client hears something when nothing happens, so that proxies and both ends know that
/// the other is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How soon a client comes back after the end of a stream.
const RETRY_MS: u32 = 1000;

pub(super) const QUERY: &[(&str, &str, &str)] = &[
    ("after", "string", "The id of the last event that was seen; the header Last-Event-ID wins"),
    ("live", "boolean", "Also tell when tasks print or wait for input"),
    (
        "answering",
        "boolean",
        "Somebody here answers questions: callers wait for that (operators only)",
    ),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    after: Option<String>,
    #[serde(default)]
    live: bool,
    #[serde(default)]
    answering: bool,
}

pub(super) async fn stream(call: Call) -> Handled {
    let wanted: Wanted = call.query()?;
    if wanted.answering && call.holder.token.role != TokenRole::Operator {
        return Err(HttpRefusal::forbidden("only an operator answers questions"));
    }
    let last = call.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.map(str::to_owned).or(wanted.after);
    let after: Option<EventCursor> = last.as_ref().and_then(|last| last.parse().ok());
    let interest = if wanted.live { Interest::Live } else { Interest::Changes };
    // One stream for everybody, so that a cursor means the same to all.
    let engine = call.face.realms.own.engine();
    // Who sees the questions of one workspace alone keeps nobody waiting elsewhere.
    let own = &call.standing.workspace;
    let opened = async {
        let answerer =
            wanted.answering.then(|| engine.watch_approvals(own.as_deref())).transpose()?;
        Ok::<_, ToolError>((engine.events(after, interest).await?, answerer))
    };
    let (events, answerer) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return Ok(failed(&error)),
    };
    let (sender, body) = Channel::<Bytes, Infallible>::new(FRAMES_MAX);
    let follower = Follower {
        sender,
        events,
        // A cursor that is none of ours: whatever it stood for is not known.
        lost: last.is_some() && after.is_none(),
        standing: call.standing,
        holder: call.holder,
        closing: call.face.closing.clone(),
    };
    tokio::spawn(async move {
        follower.follow().await;
        drop(answerer);
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    let response: Response<Body> = (headers, Body::new(body)).into_response();
    Ok(response)
}

/// One client that follows.
struct Follower {
    sender: Sender<Bytes, Infallible>,
    events: Events,
    lost: bool,
    standing: Arc<Standing>,
    holder: Arc<Holder>,
    closing: CancellationToken,
}

impl Follower {
    /// Tells what happens until the client leaves, its token ends, or the server does.
    async fn follow(mut self) {
        let (holder, closing) = (self.holder.clone(), self.closing.clone());
        tokio::select! {
            () = self.tell_all() => {}
            () = holder.ended() => {}
            () = closing.cancelled() => {}
        }
    }

    async fn tell_all(&mut self) {
        let begin = if self.lost { "lagged" } else { "following" };
        let cursor = self.events.cursor();
        let first = format!("retry: {RETRY_MS}\nid: {cursor}\nevent: {begin}\ndata: {{}}\n\n");
        let mut frame = Some(first);
        loop {
            if let Some(frame) = frame.take()
                && self.sender.send_data(frame.into()).await.is_err()
            {
                return;
            }
            frame = match tokio::time::timeout(HEARTBEAT, self.events.next()).await {
                Ok(Ok(event)) if self.concerns(&event).await => Some(shown(&event)),
                Ok(Ok(_)) => None,
                Ok(Err(lagged)) => {
                    Some(format!("id: {}\nevent: lagged\ndata: {{}}\n\n", lagged.cursor))
                }
                // An id by itself: a client whose events are few does not fall behind by that.
                Err(_) => Some(format!("id: {}\n\n", self.events.cursor())),
            };
        }
    }

    /// Whether the token may hear of an event.
    async fn concerns(&self, event: &Event) -> bool {
        let Some(own) = &self.standing.workspace else { return true };
        match (&event.workspace, event.what.task_id()) {
            (Some(workspace), _) => **workspace == **own,
            (None, Some(task)) => self.standing.engine().task_here(task.as_str()).await.is_ok(),
            (None, None) => false,
        }
    }
}

fn shown(event: &Event) -> String {
    let data = serde_json::to_value(event).unwrap_or_default();
    let name = data.get("event").and_then(serde_json::Value::as_str).unwrap_or("event").to_owned();
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.cursor)
}
