//! One connection of the warden: its engine, or an observer.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::io::ioctl_fionbio;

use super::{socket, watching::Watching};
use crate::protocol::{Decoder, FromWarden, InputRefusal, ToWarden, WardenFrame, encode};

/// Most bytes waiting for a peer that does not read; past it the peer is dropped.
const OUTBOX_BYTES_MAX: usize = 1024 * 1024;

/// One read of a channel; it is on the stack, which every waiting warden keeps.
const READ_BYTES: usize = 4 * 1024;

/// Most descriptors of a peer that no message has asked for; past it the peer is dropped.
const DESCRIPTORS_MAX: usize = 16;

/// Input of a peer that has not been written yet.
#[derive(Debug)]
pub(super) struct PendingInput {
    pub rest: Vec<u8>,
    /// Bytes that were written before.
    pub taken: u64,
}

/// A connection, with what is on its way in both directions.
#[derive(Debug)]
pub(super) struct Peer {
    socket: OwnedFd,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
    outbox: Vec<u8>,
    /// Set while the peer waits for output beyond these offsets.
    pub follows: Option<(u64, u64)>,
    /// Input that is not written yet.
    pub input: Option<PendingInput>,
    /// Set while the peer waits for something that has to be looked for.
    pub watching: Option<Watching>,
    /// Whether the last read had room left: whatever comes later, the poll will tell.
    is_read: bool,
    /// Whether it has asked for anything.
    pub spoke: bool,
    /// Set once the peer is gone, or did not speak the protocol.
    pub closed: bool,
}

impl Peer {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket,
            decoder: Decoder::default(),
            descriptors: VecDeque::new(),
            outbox: Vec::new(),
            follows: None,
            input: None,
            watching: None,
            is_read: false,
            spoke: false,
            closed: false,
        })
    }

    /// Sends a frame now, or as soon as the peer reads.
    pub(super) fn send(&mut self, frame: &WardenFrame) {
        match encode(frame) {
            Ok(frame) if self.outbox.len() + frame.len() <= OUTBOX_BYTES_MAX => {
                self.outbox.extend_from_slice(&frame);
                self.flush();
            }
            _ => self.closed = true,
        }
    }

    /// Tells something about the run of a task.
    pub(super) fn tell(&mut self, task: &str, message: FromWarden) {
        self.send(&WardenFrame::about_run(task, message));
    }

    /// Answers the input of the peer.
    pub(super) fn answer_input(&mut self, task: &str, bytes: u64, refusal: Option<InputRefusal>) {
        self.input = None;
        self.tell(task, FromWarden::InputTaken { bytes, refusal });
    }

    /// Sends what waits, as far as the peer takes it.
    pub(super) fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match socket::send(self.socket.as_fd(), &self.outbox, &[]) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.outbox.clear();
                    self.closed = true;
                }
            }
        }
    }

    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Reads what has come, and takes the next whole message.
    ///
    /// Call it until it returns nothing.
    pub(super) fn next(&mut self) -> Option<ToWarden> {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(message)) => return Some(message),
                Ok(None) if self.closed || std::mem::take(&mut self.is_read) => return None,
                Ok(None) => {}
                Err(_) => {
                    self.closed = true;
                    return None;
                }
            }
            let mut buffer = [0; READ_BYTES];
            match socket::receive(self.socket.as_fd(), &mut buffer) {
                Ok(received) if received.bytes == 0 => self.closed = true,
                Ok(received) => {
                    self.is_read = received.bytes < READ_BYTES;
                    self.descriptors.extend(received.descriptors);
                    self.closed |= self.descriptors.len() > DESCRIPTORS_MAX;
                    self.decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => self.closed = true,
            }
        }
    }

    /// Takes the next descriptor that came with the messages.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Order;

    #[test]
    fn a_peer_that_sends_descriptors_which_no_message_takes_is_dropped() {
        let (ours, theirs) = socket::socket_pair().unwrap();
        let mut peer = Peer::new(ours).unwrap();
        let order = ToWarden::Order { task: "t_any".into(), order: Order::Report };
        let frame = encode(&order).unwrap();
        let mut send = |count: usize| {
            let descriptors = vec![theirs.as_fd(); count];
            socket::send(theirs.as_fd(), &frame, &descriptors).unwrap();
            assert!(peer.next().is_some());
            assert!(peer.next().is_none());
            peer.closed
        };
        assert!(!send(2), "a command brings two");
        assert!(!send(8));
        assert!(send(8));
    }
}
