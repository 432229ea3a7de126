//! Starts the spawner when it is needed, replaces it when it has died, and asks it for wardens.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use legwork_warden::{
    Spawner,
    protocol::{self, FromWarden},
    socket_pair,
};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use tokio::sync::{Mutex, oneshot};

use super::{
    owner::{Owner, Owners},
    pool::Forks,
    socket::Socket,
};
use crate::{
    place::{PlaceError, Soon, Warden},
    state::StateFolder,
    threads::begin_in_thread,
};

/// How long a new warden may take to say hello.
const HELLO: Duration = Duration::from_secs(5);

/// Descriptors that no new warden gets: whoever looks at a task needs some.
const DESCRIPTORS_LEFT: u64 = 16;

/// The spawner of this engine, and the state folder that its wardens work for.
#[derive(Debug)]
pub(super) struct Spawning {
    state: Arc<StateFolder>,
    /// Held while one is started, so that others wait for that one.
    started: Mutex<Started>,
    owners: Arc<Owners>,
}

#[derive(Debug, Default)]
struct Started {
    /// The warden that was begun with the first spawner. It goes before that, which waits for it.
    asked: Option<Asked>,
    spawner: Option<Spawner>,
    /// The first, if it was begun before anybody asked for it.
    begun: Option<oneshot::Receiver<io::Result<Launched>>>,
}

/// A spawner, and the warden that it was asked for at once.
type Launched = (Option<Asked>, Spawner);

/// A warden that a spawner was asked for.
#[derive(Debug)]
struct Asked {
    name: String,
    ours: OwnedFd,
}

impl Spawning {
    pub(super) fn new(state: Arc<StateFolder>, owners: Arc<Owners>) -> Self {
        Self { state, started: Mutex::default(), owners }
    }

    /// Begins with the first and with a warden, for a command that follows at once.
    pub(super) fn begin(&mut self) {
        let name = self.owners.own().and_then(Owner::name);
        if let Some(spawner) = self.forked_ahead() {
            let started = self.started.get_mut();
            started.asked = name.and_then(|name| ask(&spawner, name)).ok();
            started.spawner = Some(spawner);
            return;
        }
        let launch = self.launch();
        let begun = begin_in_thread(move || {
            let spawner = launch()?;
            // Who needs a warden asks again, and hears what is wrong.
            let asked = name.and_then(|name| ask(&spawner, name)).ok();
            Ok((asked, spawner))
        });
        self.started.get_mut().begun = Some(begun);
    }

    /// The one that was forked in `main`. It is there already, so that no thread has to wait for
    /// it.
    fn forked_ahead(&self) -> Option<Spawner> {
        Spawner::ahead(self.state.tasks.as_fd(), self.state.wardens.as_fd())
    }

    /// What starts one. For a thread: starting a process takes a while, and its hello may never
    /// come.
    fn launch(&self) -> impl FnOnce() -> io::Result<Spawner> + Send + 'static {
        let state = self.state.clone();
        move || Spawner::launch(state.tasks.as_fd(), state.wardens.as_fd())
    }

    /// Forks a warden; a spawner that has died or does not answer is replaced once.
    async fn fork_one(&self) -> Result<Warden, PlaceError> {
        let owner = self.owners.own()?;
        let mut used = 0;
        match self.try_fork(owner.name()?, &mut used).await {
            Err(PlaceError::Io(error)) if is_gone(&error) => {
                self.discard_spawner(used).await;
                // Another name: who does not answer now may fork the first one yet.
                self.try_fork(owner.name()?, &mut used).await
            }
            result => result,
        }
    }

    /// The one that there is, or a new one.
    async fn launched<'a>(&self, started: &'a mut Started) -> io::Result<&'a Spawner> {
        if started.spawner.is_none() && started.begun.is_none() {
            started.spawner = self.forked_ahead();
        }
        if started.spawner.is_none() {
            let launch = self.launch();
            let begun = started.begun.take();
            let begun = begun.unwrap_or_else(|| begin_in_thread(|| Ok((None, launch()?))));
            let panicked = |_| Err(io::Error::other("the spawner could not be started"));
            let (asked, spawner) = begun.await.unwrap_or_else(panicked)?;
            (started.asked, started.spawner) = (asked, Some(spawner));
        }
        started.spawner.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Starts the spawner; one that does not answer is replaced once.
    async fn launch_ahead(&self) -> io::Result<u32> {
        let mut started = self.started.lock().await;
        match self.launched(&mut started).await {
            Err(error) if is_gone(&error) => Ok(self.launched(&mut started).await?.pid()),
            launched => Ok(launched?.pid()),
        }
    }

    /// `used` becomes the process id of the spawner that was asked.
    async fn try_fork(&self, name: String, used: &mut u32) -> Result<Warden, PlaceError> {
        let Asked { name, ours } = {
            let mut started = self.started.lock().await;
            *used = self.launched(&mut started).await?.pid();
            match started.asked.take() {
                Some(asked) => asked,
                None => ask(self.launched(&mut started).await?, name)?,
            }
        };
        let mut channel = Socket::channel(ours)?;
        let hello = tokio::time::timeout(HELLO, channel.receive_of_warden()).await;
        match hello.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            // Exactly ours: only then does it understand how commands are started.
            FromWarden::Hello { version, .. } if version == protocol::version() => {
                Ok(Warden::forked(name, channel))
            }
            FromWarden::Hello { version, .. } => Err(PlaceError::Version(version)),
            FromWarden::StartFailed(failure) => Err(PlaceError::Unfit(failure)),
            _ => Err(io::Error::other("the warden did not say hello first").into()),
        }
    }

    /// Lets go of a spawner that failed, unless another call has replaced it already.
    async fn discard_spawner(&self, pid: u32) {
        let mut started = self.started.lock().await;
        if let Some(failed) = started.spawner.take_if(|spawner| spawner.pid() == pid) {
            failed.give_up();
        }
    }
}

impl Forks for Spawning {
    fn warm_up(&self) -> Soon<'_, io::Result<u32>> {
        Box::pin(self.launch_ahead())
    }

    fn fork(&self) -> Soon<'_, Result<Warden, PlaceError>> {
        Box::pin(self.fork_one())
    }
}

/// Asks for a warden.
fn ask(spawner: &Spawner, name: String) -> io::Result<Asked> {
    let (ours, theirs) = socket_pair()?;
    if is_short_of_descriptors(&ours) {
        return Err(Errno::MFILE.into());
    }
    spawner.fork(&name, theirs.as_fd())?;
    Ok(Asked { name, ours })
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
