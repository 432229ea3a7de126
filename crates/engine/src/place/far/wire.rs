//! Carries a warden's messages over a stream of a connection.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use legwork_warden::protocol::{Decoder, WardenFrame};

use super::link::LinkStream;
use crate::place::{Channel, Soon, Wire};

/// A stream, and what of its frames is read.
#[derive(Debug)]
pub(super) struct FarWire {
    stream: LinkStream,
    decoder: Decoder,
    /// Set when the warden can be used again.
    is_reusable: Arc<AtomicBool>,
}

impl FarWire {
    /// A channel over this stream, and what says at its end that its warden can be used again.
    pub(super) fn channel(stream: LinkStream) -> (Channel, Arc<AtomicBool>) {
        let is_reusable = Arc::new(AtomicBool::new(false));
        let decoder = Decoder::default();
        let wire = Self { stream, decoder, is_reusable: is_reusable.clone() };
        (Channel::new(wire), is_reusable)
    }
}

impl Wire for FarWire {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<WardenFrame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Poll::Ready(Ok(frame));
            }
            match ready!(self.stream.frames.poll_recv(context)) {
                Some(bytes) => self.decoder.feed(&bytes),
                // A connection that is lost says nothing about the warden.
                None if self.stream.is_lost() => {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                }
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    fn send(&self, frames: &[u8], _with: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.stream.send(frames.to_vec())?;
        Ok(frames.len())
    }

    fn writable(&self) -> Soon<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn is_closed(&mut self) -> bool {
        while let Ok(bytes) = self.stream.frames.try_recv() {
            self.decoder.feed(&bytes);
        }
        self.stream.frames.is_closed() || self.stream.is_lost()
    }

    fn resume(&self) {}
}

impl Drop for FarWire {
    fn drop(&mut self) {
        self.stream.close(self.is_reusable.load(Ordering::Relaxed));
    }
}
