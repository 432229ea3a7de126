//! The place where wardens run: this machine. The only code that talks to spawner and wardens.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
    time::Duration,
};

use legwork_warden::{
    Spawner,
    protocol::{
        self, Decoder, FromWarden, Order, Spec, StartFailure, ToWarden, WardenFrame, encode,
    },
    resume,
    sandbox::{Enforcement, Profile},
    send, socket_pair,
};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use tokio::{net::unix::pipe, sync::Mutex};

use crate::{owner::Owner, sandbox::Wanted, state::StateFolder, threads::in_thread};

/// Bytes read from a channel at a time.
const READ_BYTES: usize = 4 * 1024;

/// How long a new warden may take to say hello.
const HELLO: Duration = Duration::from_secs(5);

/// How long a warden may take to make a sandbox, on a machine that refuses one kind after another.
const CONFINE: Duration = Duration::from_secs(30);

/// Descriptors that no new warden gets: whoever looks at a task needs some.
const DESCRIPTORS_LEFT: u64 = 16;

/// Why there is no warden.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// The spawner or a socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The warden came up but cannot work.
    #[error("the warden cannot work: {}", io::Error::from_raw_os_error(.0.errno))]
    Unfit(StartFailure),
    /// The pool was closed meanwhile.
    #[error("the engine is being closed")]
    Closed,
    /// The warden is of another version.
    #[error("the warden speaks version {0} of the protocol")]
    Version(u32),
}

/// This machine, with the state folder that its wardens work for.
#[derive(Debug)]
pub(crate) struct Place {
    state: Arc<StateFolder>,
    /// Held while one is started, so that others wait for that one.
    spawner: Mutex<Option<Spawner>>,
    owner: OnceLock<Owner>,
}

/// A warden, ready to be given a command.
#[derive(Debug)]
pub(crate) struct Warden {
    pub name: String,
    pub channel: Channel,
    /// The task whose outcome is committed, which the warden has not been told yet.
    owed: Option<String>,
    /// Whether it was forked for this engine, and so has its environment and limits.
    pub ours: bool,
    /// What it has a sandbox ready for.
    pub confined: Option<Wanted>,
}

impl Warden {
    /// A warden that another engine has left behind.
    pub(crate) fn adopted(name: String, channel: Channel) -> Self {
        Self { name, channel, owed: None, ours: false, confined: None }
    }

    /// Starts a command. What the warden is owed goes along, so that it wakes up once and not twice.
    pub(crate) async fn start(&mut self, spec: Spec, with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut frames = self.take_owed()?;
        frames.extend(encode(&ToWarden::Start(Box::new(spec))).map_err(io::Error::other)?);
        self.channel.send_frames(&frames, with).await
    }

    /// Confines its commands from now on; says how far that goes on this machine.
    pub(crate) async fn confine(
        &mut self,
        wanted: Wanted,
        profile: &Profile,
    ) -> io::Result<Enforcement> {
        self.confined = None;
        let mut frames = self.take_owed()?;
        let order = ToWarden::Confine(Box::new(profile.clone()));
        frames.extend(encode(&order).map_err(io::Error::other)?);
        self.channel.send_frames(&frames, &[]).await?;
        match tokio::time::timeout(CONFINE, self.channel.receive_of_warden()).await {
            Ok(Ok(FromWarden::Confined(enforcement))) => {
                self.confined = Some(wanted);
                Ok(enforcement)
            }
            Ok(Ok(FromWarden::StartFailed(failure))) => {
                Err(io::Error::from_raw_os_error(failure.errno))
            }
            Ok(Ok(_)) => Err(io::Error::other("the warden answered something else")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The outcome of its task is committed: it is told with its next command, or when it is let go.
    pub(crate) fn owe_committed(&mut self, task: &str) {
        self.owed = Some(task.to_owned());
    }

    fn take_owed(&mut self) -> io::Result<Vec<u8>> {
        let committed = |task| ToWarden::Order { task, order: Order::Committed };
        let frame = self.owed.take().map(|task| encode(&committed(task))).transpose();
        Ok(frame.map_err(io::Error::other)?.unwrap_or_default())
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Untold, it would store what is in the ledger already. The socket has room for so little.
        if let Ok(frame) = self.take_owed()
            && !frame.is_empty()
        {
            let _ = send(self.channel.socket.as_fd(), &frame, &[]);
        }
    }
}

impl Place {
    pub(crate) fn new(state: Arc<StateFolder>) -> Self {
        Self { state, spawner: Mutex::new(None), owner: OnceLock::new() }
    }

    /// Forks a warden; a spawner that has died or does not answer is replaced once.
    pub(crate) async fn fork(&self) -> Result<Warden, PlaceError> {
        let owner = self.owner()?;
        let mut used = 0;
        match self.try_fork(&owner.name()?, &mut used).await {
            Err(PlaceError::Io(error)) if is_gone(&error) => {
                self.discard_spawner(used).await;
                // Another name: who does not answer now may fork the first one yet.
                self.try_fork(&owner.name()?, &mut used).await
            }
            result => result,
        }
    }

    /// The mark of this engine, which its wardens carry.
    fn owner(&self) -> io::Result<&Owner> {
        if let Some(owner) = self.owner.get() {
            return Ok(owner);
        }
        let owner = Owner::new(&self.state.engines())?;
        Ok(self.owner.get_or_init(|| owner))
    }

    /// Starts the spawner, so that the first command need not wait for it; one that does not answer is replaced once.
    pub(crate) async fn warm_up(&self) -> io::Result<u32> {
        let mut slot = self.spawner.lock().await;
        match self.launched(&mut slot).await {
            Err(error) if is_gone(&error) => Ok(self.launched(&mut slot).await?.pid()),
            launched => Ok(launched?.pid()),
        }
    }

    /// In a thread: starting a process takes a while, and its hello may never come.
    async fn launched<'a>(&self, slot: &'a mut Option<Spawner>) -> io::Result<&'a mut Spawner> {
        if let Some(spawner) = slot {
            return Ok(spawner);
        }
        let state = self.state.clone();
        let launch = move || Spawner::launch(state.tasks.as_fd(), state.wardens.as_fd());
        let panicked = || Err(io::Error::other("the spawner could not be started"));
        Ok(slot.insert(in_thread(launch).await.unwrap_or_else(panicked)?))
    }

    /// `used` becomes the process id of the spawner that was asked.
    async fn try_fork(&self, name: &str, used: &mut u32) -> Result<Warden, PlaceError> {
        let (ours, theirs) = socket_pair()?;
        if is_short_of_descriptors(&ours) {
            return Err(io::Error::from(Errno::MFILE).into());
        }
        {
            let mut slot = self.spawner.lock().await;
            let spawner = self.launched(&mut slot).await?;
            *used = spawner.pid();
            spawner.fork(name, theirs.as_fd())?;
        }
        drop(theirs);
        let mut channel = Channel::new(ours)?;
        let hello = tokio::time::timeout(HELLO, channel.receive_of_warden()).await;
        match hello.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            // Exactly ours: only then does it understand how commands are started.
            FromWarden::Hello { version, .. } if version == protocol::version() => Ok(Warden {
                name: name.to_owned(),
                channel,
                owed: None,
                ours: true,
                confined: None,
            }),
            FromWarden::Hello { version, .. } => Err(PlaceError::Version(version)),
            FromWarden::StartFailed(failure) => Err(PlaceError::Unfit(failure)),
            _ => Err(io::Error::other("the warden did not say hello first").into()),
        }
    }

    /// Lets go of a spawner that failed, unless another call has replaced it already.
    async fn discard_spawner(&self, pid: u32) {
        let mut slot = self.spawner.lock().await;
        if let Some(failed) = slot.take_if(|spawner| spawner.pid() == pid) {
            failed.give_up();
        }
    }
}

/// Whether a new descriptor is one of the last: those are left for the tasks that run already.
fn is_short_of_descriptors(new: &OwnedFd) -> bool {
    // The kernel gives out the lowest number that is free.
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    u64::from(new.as_raw_fd().unsigned_abs()) + DESCRIPTORS_LEFT.min(limit / 8) >= limit
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
            | io::ErrorKind::TimedOut
            // It has read nothing for long.
            | io::ErrorKind::WouldBlock
    )
}

/// A connection to a warden.
#[derive(Debug)]
pub(crate) struct Channel {
    /// A socket, watched like the end of a pipe: only for what can be read. That a warden has taken a message is no
    /// reason to wake up.
    socket: pipe::Receiver,
    decoder: Decoder,
    /// Messages about the task that was adopted, which were received and given back.
    unread: VecDeque<FromWarden>,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = pipe::Receiver::from_owned_fd_unchecked(socket)?;
        Ok(Self { socket, decoder: Decoder::default(), unread: VecDeque::new() })
    }

    /// Lets the process at the other end go on, if somebody has stopped it.
    pub(crate) fn resume(&self) {
        resume(&self.socket);
    }

    /// Whether the other end is known to be gone. What an idle warden still had to say about its last run is read too.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 64];
        loop {
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return true,
                Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Sends a message.
    pub(crate) async fn send(&self, message: &ToWarden) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        self.send_frames(&frame, &[]).await
    }

    async fn send_frames(&self, frame: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = if sent == 0 { with } else { &[] };
            match send(self.socket.as_fd(), rest, with) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                result => sent += result?,
            }
        }
        Ok(())
    }

    /// Waits until there is room for a message: hardly ever.
    async fn writable(&self) -> io::Result<()> {
        let again = self.socket.as_fd().try_clone_to_owned()?;
        pipe::Sender::from_owned_fd_unchecked(again)?.writable().await
    }

    /// Gives a message back, to be received again.
    pub(crate) fn unread(&mut self, message: FromWarden) {
        self.unread.push_back(message);
    }

    /// Receives the next message about the run of a task; what is about another one is dropped. Safe to cancel: what
    /// was read stays.
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

    /// Receives the next message about the warden itself; what is about a run is dropped. Safe to cancel, too.
    pub(crate) async fn receive_of_warden(&mut self) -> io::Result<FromWarden> {
        loop {
            if let Some(message) = self.next_frame().await?.of_warden() {
                return Ok(message);
            }
        }
    }

    async fn next_frame(&mut self) -> io::Result<WardenFrame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Ok(frame);
            }
            self.socket.readable().await?;
            let mut buffer = [0; READ_BYTES];
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
