//! Whether the server lives, and whether a command could start.
//!
//! Both are answered without a token, since those who ask (a container's runtime, a balancer) have
//! none, and say nothing but that.

use axum::{
    body::Body,
    http::{Response, StatusCode},
    response::IntoResponse,
};
use legwork::{Engine, Trust};

/// The server answers.
pub(super) fn alive() -> Response<Body> {
    "ok\n".into_response()
}

/// The ledger takes records, and the spawner answers.
pub(super) async fn ready(engine: &Engine) -> Response<Body> {
    match engine.ready(Trust::TrustedOperator).await {
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            tracing::error!("not ready: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
        }
    }
}
