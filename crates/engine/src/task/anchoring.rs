//! Sends the hash at the end of the audit log to a program or to syslog (`[audit] anchor`), out of
//! reach of whoever can write the state folder.

use std::{sync::Arc, time::Duration};

use serde::Serialize;

use super::{Tasks, versions::LatestTasks};
use crate::{clock::now_ms, store::anchor::AuditHead};

/// What happens within this time is sent at once.
const TOGETHER: Duration = Duration::from_secs(1);

/// A line that is sent.
#[derive(Serialize)]
struct SentHead<'a> {
    at_ms: i64,
    state: String,
    #[serde(flatten)]
    head: &'a AuditHead,
}

impl Tasks {
    /// Sends the end of the audit log to this program whenever that has moved, for as long as these
    /// tasks live.
    pub(crate) fn send_heads(self: &Arc<Self>, to: Vec<String>) {
        if !to.is_empty() {
            tokio::spawn(keep_sending(self.downgrade(), to));
        }
    }

    async fn send_head(&self, head: &AuditHead, to: &[String]) {
        let state = self.store.state.path().display().to_string();
        let line = serde_json::to_string(&SentHead { at_ms: now_ms(), state, head });
        let told = self.place.tell(to.to_vec(), line.unwrap_or_default()).await;
        if let Err(error) = told {
            tracing::warn!(%error, "the end of the audit log could not be sent: [audit] anchor");
        }
    }
}

async fn keep_sending(tasks: LatestTasks, to: Vec<String>) {
    let Some(head) = tasks.upgrade().map(|tasks| tasks.store.ledger.audit_head()) else { return };
    let mut moved = head.moved();
    let mut sent = None;
    while moved.changed().await.is_ok() {
        tokio::time::sleep(TOGETHER).await;
        moved.mark_unchanged();
        let Some(tasks) = tasks.upgrade() else { return };
        let known = head.known();
        if let Some(head) = known.as_ref().filter(|_| known != sent) {
            tasks.send_head(head, &to).await;
        }
        sent = known;
    }
}
