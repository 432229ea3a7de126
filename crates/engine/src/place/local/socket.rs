//! Carries a warden's messages over its Unix socket.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use legwork_warden::{
    protocol::{Decoder, WardenFrame},
    resume, send,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
};

use crate::place::{Channel, Soon, Wire};

/// Bytes read from a channel at a time.
const READ_BYTES: usize = 4 * 1024;

/// A socket, watched like the end of a pipe: only for what can be read. That a warden has taken a
/// message is no reason to wake up.
#[derive(Debug)]
pub(super) struct Socket {
    socket: pipe::Receiver,
    decoder: Decoder,
}

impl Socket {
    /// A channel over this socket.
    pub(super) fn channel(socket: OwnedFd) -> io::Result<Channel> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = pipe::Receiver::from_owned_fd_unchecked(socket)?;
        Ok(Channel::new(Self { socket, decoder: Decoder::default() }))
    }
}

impl Wire for Socket {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<WardenFrame>> {
        loop {
            if let Some(message) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Poll::Ready(Ok(message));
            }
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.decoder.feed(buffer.filled());
        }
    }

    fn send(&self, frames: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize> {
        send(self.socket.as_fd(), frames, with)
    }

    fn writable(&self) -> Soon<'_, io::Result<()>> {
        Box::pin(async {
            let again = self.socket.as_fd().try_clone_to_owned()?;
            pipe::Sender::from_owned_fd_unchecked(again)?.writable().await
        })
    }

    fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 64];
        loop {
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return true,
                Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn resume(&self) {
        resume(&self.socket);
    }
}
