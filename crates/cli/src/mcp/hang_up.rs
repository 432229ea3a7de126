//! Notices when the client has left.

use tokio::{io::Interest, net::unix::pipe};

/// Tells when the client has closed our stdin, even though nothing is read from it.
pub(super) struct HangUp(Option<pipe::Receiver>);

impl HangUp {
    /// Only a pipe is looked at; of another stdin the end is seen when it is read, or when nothing
    /// can be written.
    pub(super) fn of_stdin() -> Self {
        Self(pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").ok())
    }

    pub(super) async fn happened(&self) {
        // Nothing has priority in a pipe: this waits for its end alone, whatever there is to read.
        match &self.0 {
            Some(stdin) if stdin.ready(Interest::PRIORITY).await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}
