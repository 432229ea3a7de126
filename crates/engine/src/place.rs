//! The place where wardens run: this machine. The only code that talks to spawner and wardens.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use legwork_warden::{
    Spawner,
    protocol::{Decoder, FromWarden, StartFailure, ToWarden, VERSION, encode},
    send, socket_pair,
};
use tokio::{io::Interest, net::UnixStream};

use crate::{id, state::StateFolder};

/// Bytes read from a channel at a time.
const READ_BYTES: usize = 16 * 1024;

/// Why there is no warden.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The spawner or a socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The warden came up but cannot work.
    #[error("the warden cannot work: {}", io::Error::from_raw_os_error(.0.errno))]
    Unfit(StartFailure),
    /// The warden is of another version.
    #[error("the warden speaks version {0} of the protocol, not {VERSION}")]
    Version(u32),
}

/// This machine.
#[derive(Debug, Default)]
pub(crate) struct Place {
    spawner: Mutex<Option<Spawner>>,
}

/// A warden, ready to be given a command.
#[derive(Debug)]
pub(crate) struct Warden {
    pub name: String,
    pub channel: Channel,
}

impl Place {
    /// Gets a warden; a spawner that has died is replaced once.
    pub(crate) async fn warden(&self, state: &StateFolder) -> Result<Warden, PlaceError> {
        let name = id::random("").map_err(io::Error::other)?;
        match self.fork(state, &name).await {
            Err(PlaceError::Io(error)) if is_gone(&error) => {
                self.discard_spawner();
                self.fork(state, &name).await
            }
            result => result,
        }
    }

    /// Starts the spawner, so that the first command need not wait for it.
    pub(crate) fn warm_up(&self, state: &StateFolder) -> io::Result<u32> {
        let mut slot = self.spawner.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self::launched(&mut slot, state)?.pid())
    }

    fn launched<'a>(
        slot: &'a mut Option<Spawner>,
        state: &StateFolder,
    ) -> io::Result<&'a mut Spawner> {
        match slot {
            Some(spawner) => Ok(spawner),
            None => Ok(slot.insert(Spawner::launch(state.tasks.as_fd(), state.wardens.as_fd())?)),
        }
    }

    async fn fork(&self, state: &StateFolder, name: &str) -> Result<Warden, PlaceError> {
        let (ours, theirs) = socket_pair()?;
        {
            let mut slot = self.spawner.lock().unwrap_or_else(PoisonError::into_inner);
            Self::launched(&mut slot, state)?.fork(name, theirs.as_fd())?;
        }
        drop(theirs);
        let mut channel = Channel::new(ours)?;
        match channel.receive().await? {
            FromWarden::Hello {
                version: VERSION, ..
            } => Ok(Warden {
                name: name.to_owned(),
                channel,
            }),
            FromWarden::Hello { version, .. } => Err(PlaceError::Version(version)),
            FromWarden::StartFailed(failure) => Err(PlaceError::Unfit(failure)),
            _ => Err(io::Error::other("the warden did not say hello first").into()),
        }
    }

    fn discard_spawner(&self) {
        *self.spawner.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
    )
}

/// A connection to a warden.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    decoder: Decoder,
    waiting: VecDeque<FromWarden>,
}

impl Channel {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let stream = UnixStream::from_std(socket.into())?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            waiting: VecDeque::new(),
        })
    }

    /// Sends a message, with descriptors beside it.
    pub(crate) async fn send(&self, message: &ToWarden, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = if sent == 0 { with } else { &[] };
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || send(self.stream.as_fd(), rest, with))
                .await?;
        }
        Ok(())
    }

    /// Receives the next message. Safe to cancel: what was read stays.
    pub(crate) async fn receive(&mut self) -> io::Result<FromWarden> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            self.stream.readable().await?;
            let mut buffer = [0; READ_BYTES];
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            while let Some(message) = self.decoder.next_frame().map_err(io::Error::other)? {
                self.waiting.push_back(message);
            }
        }
    }
}
