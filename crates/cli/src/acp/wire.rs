//! Lines of JSON between two processes, of bounded length.

use std::{io, pin::Pin};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::Mutex,
};

/// Longest message that is passed on: prompts may carry pictures.
const LINE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The next line, with its end; none at the end of the stream.
pub(super) async fn next_line<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let piece = reader.fill_buf().await?;
        if piece.is_empty() {
            return Ok((!line.is_empty()).then_some(line));
        }
        let end = piece.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(piece.len());
        line.extend(piece.iter().take(taken));
        reader.consume(taken);
        if end.is_some() {
            return Ok(Some(line));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a message is too long"));
        }
    }
}

/// Writes whole lines, from several places; nothing after its end.
pub(super) struct LineWriter(Mutex<Option<Pin<Box<dyn AsyncWrite + Send>>>>);

impl LineWriter {
    pub(super) fn new(writer: Box<dyn AsyncWrite + Send>) -> Self {
        Self(Mutex::new(Some(writer.into())))
    }

    /// Writes a line as it is.
    pub(super) async fn line(&self, line: &[u8]) -> io::Result<()> {
        let mut writer = self.0.lock().await;
        let Some(writer) = writer.as_mut() else { return Ok(()) };
        writer.write_all(line).await?;
        writer.flush().await
    }

    pub(super) async fn message(&self, message: &Value) -> io::Result<()> {
        self.line(format!("{message}\n").as_bytes()).await
    }

    /// Closes it.
    pub(super) async fn end(&self) {
        self.0.lock().await.take();
    }
}
