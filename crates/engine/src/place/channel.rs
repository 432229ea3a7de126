//! A connection to a warden, wherever that runs: messages in order, over whatever carries them.

use std::task::{Context, Poll};
use std::{collections::VecDeque, fmt, future::poll_fn, io, os::fd::BorrowedFd};

use legwork_warden::protocol::{FromWarden, ToWarden, encode};

use super::Later;

/// What carries the messages: a socket here, a pipe of a helper program to another machine.
pub(crate) trait Wire: Send + Sync + fmt::Debug {
    /// The next message of the warden. What was read and is not a whole message stays.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<FromWarden>>;

    /// Sends as much of these frames as there is room for, and says how much that was; descriptors go
    /// along with the first byte.
    fn send(&self, frames: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize>;

    /// Waits until there is room again: hardly ever.
    fn writable(&self) -> Later<'_, io::Result<()>>;

    /// Whether the warden is known to be gone; asked only when nothing is due from it.
    fn is_closed(&self) -> bool;

    /// Lets the warden go on, if somebody has stopped it.
    fn resume(&self);
}

/// A connection to a warden.
#[derive(Debug)]
pub(crate) struct Channel {
    wire: Box<dyn Wire>,
    /// Messages that were received and given back.
    unread: VecDeque<FromWarden>,
}

impl Channel {
    pub(crate) fn new(wire: impl Wire + 'static) -> Self {
        Self { wire: Box::new(wire), unread: VecDeque::new() }
    }

    /// Lets the process at the other end go on, if somebody has stopped it.
    pub(crate) fn resume(&self) {
        self.wire.resume();
    }

    /// Whether the other end is known to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.wire.is_closed()
    }

    /// Sends a message.
    pub(crate) async fn send(&self, message: &ToWarden) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        self.send_frames(&frame, &[]).await
    }

    pub(super) async fn send_frames(
        &self,
        frames: &[u8],
        with: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest) = frames.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = if sent == 0 { with } else { &[] };
            match self.wire.send(rest, with) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wire.writable().await?;
                }
                result => sent += result?,
            }
        }
        Ok(())
    }

    /// Sends frames if there is room for them right now.
    pub(super) fn send_at_once(&self, frames: &[u8]) {
        let _ = self.wire.send(frames, &[]);
    }

    /// Gives a message back, to be received again.
    pub(crate) fn unread(&mut self, message: FromWarden) {
        self.unread.push_back(message);
    }

    /// Receives the next message. Safe to cancel: what was read stays.
    pub(crate) async fn receive(&mut self) -> io::Result<FromWarden> {
        if let Some(message) = self.unread.pop_front() {
            return Ok(message);
        }
        poll_fn(|context| self.wire.poll_receive(context)).await
    }
}
