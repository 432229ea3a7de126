//! A line of the log for each request, where requests are logged.

use std::{sync::Arc, time::Instant};

use axum::{
    body::Body,
    http::{Method, Request, Response},
};
use tracing::Level;

use super::{door::refuse_token_in, keyring::Holder, listen::HttpPeer, request_id};
use crate::log::milliseconds;

/// Most characters of a path in the log.
const PATH_CHARS_MAX: usize = 200;

/// A request as it is logged: without its query, which may have anything in it.
#[derive(Debug)]
pub(super) struct LoggedRequest {
    id: String,
    method: Method,
    path: String,
    peer: HttpPeer,
    began: Instant,
    is_answered: bool,
}

fn is_on() -> bool {
    tracing::enabled!(Level::INFO)
}

impl LoggedRequest {
    /// None where requests are not logged.
    pub(super) fn of<B>(request: &Request<B>, peer: impl FnOnce() -> HttpPeer) -> Option<Self> {
        is_on().then(|| Self {
            id: request_id::of(request.headers()).to_owned(),
            method: request.method().clone(),
            path: match refuse_token_in(request.uri()) {
                Ok(()) => request.uri().path().chars().take(PATH_CHARS_MAX).collect(),
                Err(_) => "(has a token)".to_owned(),
            },
            peer: peer(),
            began: Instant::now(),
            is_answered: false,
        })
    }

    /// Lets the line name the token.
    pub(super) fn note_holder(response: &mut Response<Body>, holder: Arc<Holder>) {
        if is_on() {
            response.extensions_mut().insert(holder);
        }
    }

    /// Logs that it was answered, or that an answer has begun which is written bit by bit.
    pub(super) fn answered(mut self, response: &Response<Body>) {
        self.is_answered = true;
        let holder = response.extensions().get::<Arc<Holder>>();
        tracing::info!(
            request_id = self.id,
            method = self.method.as_str(),
            path = self.path,
            status = response.status().as_u16(),
            duration_ms = milliseconds(self.began),
            peer = %self.peer,
            token = holder.map(|holder| holder.token.name.as_str()),
            "request"
        );
    }
}

impl Drop for LoggedRequest {
    /// Logs a request whose client has left before its answer.
    fn drop(&mut self) {
        if !self.is_answered {
            tracing::info!(
                request_id = self.id,
                method = self.method.as_str(),
                path = self.path,
                duration_ms = milliseconds(self.began),
                peer = %self.peer,
                "request given up"
            );
        }
    }
}
