//! Answers that are no results: errors as JSON, with the HTTP status that fits them.

use axum::{
    body::Body,
    http::{Response, StatusCode, header},
    response::IntoResponse,
};
use legwork::{ErrorKind, ToolError};
use serde::Serialize;
use serde_json::json;

/// An error of the HTTP face itself, in the shape of a tool's error.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HttpRefusal {
    #[serde(skip)]
    pub status: StatusCode,
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_hint: Option<String>,
    retryable: bool,
    /// What a client has to bring, as a WWW-Authenticate header.
    #[serde(skip)]
    challenge: Option<String>,
}

impl HttpRefusal {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let retryable =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        Self {
            status,
            kind,
            message: message.into(),
            recovery_hint: None,
            retryable,
            challenge: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.recovery_hint = Some(hint.into());
        self
    }

    pub(super) fn challenge(mut self, challenge: String) -> Self {
        self.challenge = Some(challenge);
        self
    }

    /// A request whose shape is wrong.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// A token that may not do this.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response<Body> {
        let status = self.status;
        let mut response = answer(status, &json!({ "error": self }));
        if self.retryable {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        if let Some(challenge) = self.challenge.and_then(|text| text.parse().ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// JSON with a status.
pub(super) fn answer(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// An error of the engine.
pub(super) fn failed(error: &ToolError) -> Response<Body> {
    let mut response = answer(status_of(error.kind), &json!({ "error": error }));
    if error.kind == ErrorKind::LimitExceeded {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// The HTTP status of a kind of error.
fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidToolInput
        | ErrorKind::WorkdirNotFound
        | ErrorKind::ExecutionRootViolation => StatusCode::BAD_REQUEST,
        ErrorKind::CommandDenied
        | ErrorKind::CommandSubstitutionDenied
        | ErrorKind::ApprovalRefused
        | ErrorKind::ApprovalUnavailable
        | ErrorKind::ApprovalExpired => StatusCode::FORBIDDEN,
        ErrorKind::UnknownTool | ErrorKind::UnknownTask | ErrorKind::UnknownApproval => {
            StatusCode::NOT_FOUND
        }
        ErrorKind::ChangedUnderneath => StatusCode::CONFLICT,
        ErrorKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::StateUnavailable | ErrorKind::SandboxUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
