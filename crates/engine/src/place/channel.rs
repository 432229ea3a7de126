//! A connection to a warden: sends and receives messages in order, over any transport.

use std::task::{Context, Poll};
use std::{collections::VecDeque, fmt, future::poll_fn, io};

use legwork_warden::protocol::{FromWarden, ToWarden, WardenFrame, encode};

use super::Soon;
use crate::platform::BorrowedFd;

/// What carries the messages: a socket here, a pipe of a helper program to another machine.
pub(crate) trait Wire: Send + Sync + fmt::Debug {
    /// The next frame of the warden. What was read and is not a whole one stays.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<WardenFrame>>;

    /// Sends as much of these frames as there is room for, and says how much that was; descriptors
    /// go along with the first byte.
    fn send(&self, frames: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize>;

    /// Waits until there is room again: hardly ever.
    fn writable(&self) -> Soon<'_, io::Result<()>>;

    /// Whether the warden is known to be gone. What it still had to say about its last run is read
    /// too.
    fn is_closed(&mut self) -> bool;

    /// Lets the warden go on, if somebody has stopped it.
    fn resume(&self);
}

/// A connection to a warden.
#[derive(Debug)]
pub(crate) struct Channel {
    wire: Box<dyn Wire>,
    /// Messages about the task that was adopted, which were received and given back.
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
    pub(crate) fn is_closed(&mut self) -> bool {
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

    /// Receives the next message about the run of a task; what is about another one is dropped.
    /// Safe to cancel: what was read stays.
    pub(crate) async fn receive(&mut self, task: &str) -> io::Result<FromWarden> {
        if let Some(message) = self.unread.pop_front() {
            return Ok(message);
        }
        loop {
            if let Some(message) = self.next_frame().await?.of_run(task) {
                return Ok(message);
            }
        }
    }

    /// Receives the next message about the warden itself; what is about a run is dropped. Safe to
    /// cancel.
    pub(crate) async fn receive_of_warden(&mut self) -> io::Result<FromWarden> {
        loop {
            if let Some(message) = self.next_frame().await?.of_warden() {
                return Ok(message);
            }
        }
    }

    /// The next frame, whatever it is about. Safe to cancel.
    pub(super) async fn next_frame(&mut self) -> io::Result<WardenFrame> {
        poll_fn(|context| self.wire.poll_receive(context)).await
    }
}
