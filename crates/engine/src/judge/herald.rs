//! Telling a program of the user's that a question has opened.

use std::{fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::timeout};

use crate::model::question::Approval;

/// How long a call that cannot wait for an answer waits until that program has heard.
const PATIENCE: Duration = Duration::from_secs(1);

type Telling = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Gives a line to the program.
#[derive(Clone)]
pub(crate) struct Herald(Arc<dyn Fn(String) -> Telling + Send + Sync>);

impl fmt::Debug for Herald {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Herald")
    }
}

/// A line that is on its way.
pub(super) struct Announcement(Option<JoinHandle<()>>);

impl Herald {
    pub(crate) fn new(tell: impl Fn(String) -> Telling + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Begins to tell of a question.
    pub(super) fn tell(&self, approval: &Approval) -> Announcement {
        let telling = (self.0)(serde_json::to_string(approval).unwrap_or_default());
        Announcement(Some(tokio::spawn(async move {
            if let Err(error) = telling.await {
                tracing::warn!(%error, "nobody was told of a question: [approval] notify");
            }
        })))
    }
}

impl Announcement {
    /// Nobody is told.
    pub(super) fn nobody() -> Self {
        Self(None)
    }

    /// Waits until the program has heard, but not for long.
    pub(super) async fn heard(self) {
        if let Some(telling) = self.0 {
            let _ = timeout(PATIENCE, telling).await;
        }
    }
}
