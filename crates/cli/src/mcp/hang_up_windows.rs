//! Notices when the client has left: on Windows that is seen when its words are read, or when
//! nothing can be written.

/// Tells nothing of its own.
pub(super) struct HangUp;

impl HangUp {
    pub(super) fn of_stdin() -> Self {
        Self
    }

    pub(super) async fn happened(&self) {
        std::future::pending::<()>().await;
    }
}
