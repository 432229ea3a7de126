//! One connection: its limits, its time-outs, and its end.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep_until},
};

use super::{door::Door, listen::HttpPeer};

/// Most bytes of a request's headers; hyper answers 431 to more.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Most headers of a request.
const HEADERS_MAX: usize = 100;

/// How long a client may read nothing while something is to be written.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A place among the connections: held by whatever a connection becomes.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPlace {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl ConnectionPlace {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Arc::new(permit) }
    }
}

/// Serves a connection until it ends, or until the server does; one without a place is told that
/// there is none.
pub(super) async fn attend<S>(
    door: Arc<Door>,
    stream: S,
    peer: HttpPeer,
    place: Option<ConnectionPlace>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (closing, idle) = (door.face.closing.clone(), door.face.idle);
    let service = service_fn(move |request| {
        let (door, place) = (door.clone(), place.clone());
        // Boxed: hyper keeps room for it, and most connections wait most of the time.
        Box::pin(async move { Ok::<_, Infallible>(door.answer(peer, place, request).await) })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(Stalling::new(stream)), service)
        .with_upgrades();
    tokio::pin!(connection);
    // A connection that breaks is the client's affair.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// A stream that fails when its reader takes nothing for long: hyper would wait for ever.
struct Stalling<S> {
    inner: S,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    fn new(inner: S) -> Self {
        Self { inner, stalled: None }
    }

    /// The result of a write, or the failure if it has waited for too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timer =
            self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + STALL_MAX)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, buffers);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(context);
        self.judge(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up() {
        let (ours, theirs) = tokio::io::duplex(1);
        let mut ours = Stalling::new(ours);
        let failed = ours.write_all(b"more than fits").await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
