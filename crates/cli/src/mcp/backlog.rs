//! Writes messages to the client over stdout, and counts those that it has not read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use legwork::{Client, service::Unread};
use rmcp::transport::StdioWriter;
use tokio::{io::AsyncWriteExt, sync::Mutex};
use tokio_util::sync::CancellationToken;

/// Writes to the client, and counts what it has not read.
pub(super) struct Backlog {
    writer: Mutex<StdioWriter>,
    /// Nothing can be written any more.
    broken: AtomicBool,
    /// What is read from and written to the client is counted there.
    pub client: Arc<Client>,
    /// Cancelled when nobody is there to read.
    gone: CancellationToken,
}

impl Backlog {
    pub(super) fn new(writer: StdioWriter, client: Arc<Client>, gone: CancellationToken) -> Self {
        Self { writer: Mutex::new(writer), broken: AtomicBool::new(false), client, gone }
    }

    /// Writes a line that is counted as unread until then. The client has gone if it cannot be
    /// written.
    pub(super) async fn write(&self, line: &[u8], unread: Unread) -> std::io::Result<()> {
        let mut writer = self.writer.lock().await;
        if self.broken.load(Relaxed) {
            // Said once.
            return Ok(());
        }
        let written = async {
            writer.write_all(line).await?;
            writer.flush().await
        };
        let written = written.await.inspect_err(|_| {
            self.broken.store(true, Relaxed);
            self.gone.cancel();
        });
        drop(unread);
        written
    }

    pub(super) async fn close(&self) -> std::io::Result<()> {
        self.writer.lock().await.shutdown().await
    }
}
