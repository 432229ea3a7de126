//! Frames on their way to the other end of a control socket, which is never waited for.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use crate::linux::socket;

/// What one end has to say and the other has not taken yet. Neither says much: a proxy tells of so
/// many names and questions and no more, a warden answers those.
#[derive(Debug, Default)]
pub(super) struct ControlOutbox {
    bytes: Vec<u8>,
}

impl ControlOutbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a frame, and sends what can be sent now, these descriptors with the first of it.
    pub(super) fn send(&mut self, socket: impl AsFd, frame: &[u8], with: &[BorrowedFd<'_>]) {
        self.bytes.extend_from_slice(frame);
        self.send_on(socket.as_fd(), with);
    }

    /// Sends what can be sent now.
    pub(super) fn flush(&mut self, socket: impl AsFd) {
        self.send_on(socket.as_fd(), &[]);
    }

    fn send_on(&mut self, socket: BorrowedFd<'_>, mut with: &[BorrowedFd<'_>]) {
        while !self.bytes.is_empty() {
            match socket::send(socket, &self.bytes, with) {
                Ok(sent) => drop(self.bytes.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Whoever is gone is noticed by its end.
                Err(_) => return self.bytes.clear(),
            }
            with = &[];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_read_is_not_waited_for_and_loses_nothing() {
        let (ours, theirs) = socket::nonblocking_pair().unwrap();
        let mut outbox = ControlOutbox::default();
        let frames: Vec<Vec<u8>> = (0..100_u8).map(|mark| vec![mark; 20_000]).collect();
        for frame in &frames {
            outbox.send(&ours, frame, &[]);
        }
        assert!(!outbox.is_empty(), "more than a socket takes");
        let mut taken = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while taken.len() < 2_000_000 {
            let received = socket::receive(theirs.as_fd(), &mut buffer).unwrap();
            taken.extend_from_slice(&buffer[..received.bytes]);
            outbox.flush(&ours);
        }
        assert!(outbox.is_empty() && taken == frames.concat());
    }
}
