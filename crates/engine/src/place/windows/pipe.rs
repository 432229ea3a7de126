//! Carries a warden's messages over its named pipe.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use legwork_warden::{
    LaunchedWarden,
    protocol::{Decoder, ToWarden, WardenFrame, encode},
    warden_pipe,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::windows::named_pipe::{ClientOptions, NamedPipeClient},
    time::sleep,
};

use crate::{
    place::{Channel, Soon, Wire},
    platform::BorrowedFd,
};

/// Bytes read from a channel at a time.
const READ_BYTES: usize = 4 * 1024;

/// Every end of the pipe has its client at this moment; there is a new one soon.
const PIPE_BUSY: i32 = 231;
const BUSY_FOR: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// A pipe to a warden.
#[derive(Debug)]
pub(super) struct Pipe {
    client: NamedPipeClient,
    decoder: Decoder,
    /// The warden, if this engine has started it: only such a one can be given handles.
    warden: Option<LaunchedWarden>,
}

impl Pipe {
    /// A channel over a pipe that was opened before its warden was started.
    pub(super) fn to_launched(client: NamedPipeClient, warden: LaunchedWarden) -> Channel {
        Channel::new(Self { client, decoder: Decoder::default(), warden: Some(warden) })
    }

    /// Connects to a warden.
    pub(super) async fn dial(warden: &str) -> io::Result<Channel> {
        let patience = Instant::now() + BUSY_FOR;
        loop {
            match ClientOptions::new().open(warden_pipe(warden)) {
                Ok(client) => {
                    return Ok(Channel::new(Self {
                        client,
                        decoder: Decoder::default(),
                        warden: None,
                    }));
                }
                Err(error)
                    if error.raw_os_error() == Some(PIPE_BUSY) && Instant::now() < patience =>
                {
                    sleep(BUSY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The frame that names handles which were given to the warden.
    fn given(&self, with: &[BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        let Some(warden) = &self.warden else { return Err(io::ErrorKind::Unsupported.into()) };
        let numbers = with.iter().map(|handle| warden.give(*handle)).collect::<io::Result<_>>()?;
        encode(&ToWarden::Handles(numbers)).map_err(io::Error::other)
    }
}

impl Wire for Pipe {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<WardenFrame>> {
        loop {
            if let Some(message) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Poll::Ready(Ok(message));
            }
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.client).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.decoder.feed(buffer.filled());
        }
    }

    fn send(&self, frames: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize> {
        if with.is_empty() {
            return self.client.try_write(frames);
        }
        // A pipe takes all of a write or nothing.
        let given = self.given(with)?;
        let sent = self.client.try_write(&[&given, frames].concat())?;
        Ok(sent.saturating_sub(given.len()))
    }

    fn writable(&self) -> Soon<'_, io::Result<()>> {
        Box::pin(self.client.writable())
    }

    fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 64];
        loop {
            match self.client.try_read(&mut buffer) {
                Ok(0) => return true,
                Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    fn resume(&self) {}
}
