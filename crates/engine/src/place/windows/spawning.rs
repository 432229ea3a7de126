//! Starts wardens: each is this program once more, for one command.

use std::{io, sync::Arc, time::Duration};

use legwork_warden::{
    WardenOffer,
    protocol::{self, FromWarden},
};
use tokio::net::windows::named_pipe::ClientOptions;

use super::{owner::Owners, pipe::Pipe, pool::Forks};
use crate::{
    place::{PlaceError, Soon, Warden},
    state::StateFolder,
    threads::in_thread,
};

/// How long a new warden may take to say hello: a machine that is busy starts programs slowly.
const HELLO: Duration = Duration::from_secs(20);

/// Starts the wardens of one engine.
#[derive(Debug)]
pub(super) struct Spawning {
    state: Arc<StateFolder>,
    owners: Arc<Owners>,
}

impl Spawning {
    pub(super) fn new(state: Arc<StateFolder>, owners: Arc<Owners>) -> Self {
        Self { state, owners }
    }

    async fn start(&self) -> Result<Warden, PlaceError> {
        let name = self.owners.own()?.name()?;
        let offer = WardenOffer::new(&name)?;
        // Before there is a warden: so its owner is there when it begins.
        let pipe = ClientOptions::new().open(offer.path())?;
        let state = self.state.clone();
        let launched = in_thread(move || offer.launch(&state.tasks, &state.wardens)).await;
        let cut = || io::Error::other("the warden could not be started");
        let mut channel = Pipe::to_launched(pipe, launched.ok_or_else(cut)??);
        let hello = tokio::time::timeout(HELLO, channel.receive_of_warden()).await;
        match hello.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            FromWarden::Hello { version, .. } if version == protocol::version() => {
                Ok(Warden::forked(name, channel))
            }
            FromWarden::Hello { version, .. } => Err(PlaceError::Version(version)),
            FromWarden::StartFailed(failure) => Err(PlaceError::Unfit(failure)),
            _ => Err(io::Error::other("the warden did not say hello first").into()),
        }
    }
}

impl Forks for Spawning {
    fn warm_up(&self) -> Soon<'_, io::Result<u32>> {
        Box::pin(async { Ok(std::process::id()) })
    }

    fn fork(&self) -> Soon<'_, Result<Warden, PlaceError>> {
        Box::pin(self.start())
    }
}
