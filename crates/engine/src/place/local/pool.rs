//! The pool of wardens: some are forked ahead, and each serves one command after another.
//!
//! Whoever needs a warden takes an idle one, or waits in a queue that is fed by wardens that come
//! back and by a few forks at a time. So a burst of short commands is served by the wardens it
//! needs, not by one for each call, and a burst of long ones by one fork after the other. What has
//! not been used for a while is let go, down to a small reserve.

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use legwork_gate::Level;
use tokio::sync::oneshot;

use super::{ahead::WardensAhead, sandbox::Sandboxing};
use crate::{
    meters::WardenCount,
    model::sandbox::Wanted,
    place::{PlaceError, Ready, Sandbox, Soon, Warden},
};

/// Wardens that are kept ready when nothing happens.
const RESERVE: usize = 2;

/// Most idle wardens.
const IDLE_MAX: usize = 64;

/// Most forks at a time.
const FORKS_MAX: usize = 2;

/// An idle warden beyond the reserve is let go after this long.
const IDLE_FOR: Duration = Duration::from_secs(10);

/// What makes wardens: the spawner, or the script of a test.
pub(super) trait Forks: Send + Sync + fmt::Debug {
    /// Makes ready to fork, so that the first command need not wait for it; says who will.
    fn warm_up(&self) -> Soon<'_, io::Result<u32>>;
    /// Forks a warden.
    fn fork(&self) -> Soon<'_, Result<Warden, PlaceError>>;
}

/// The wardens of one engine.
#[derive(Debug)]
pub(super) struct Pool {
    // Before what forks, which is dropped after it: a spawner stays for as long as it has wardens.
    shared: Mutex<Shared>,
    pub(super) forks: Arc<dyn Forks>,
    pub(super) sandboxing: Arc<Sandboxing>,
    /// What new wardens make a sandbox ready for.
    usual: OnceLock<Wanted>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The most recently used one is last, and taken first: its memory is warm.
    idle: VecDeque<(Warden, Instant)>,
    waiting: VecDeque<oneshot::Sender<Result<Warden, PlaceError>>>,
    forks: usize,
    /// How many are to be kept ready.
    pub(super) reserve: usize,
    /// Those for trials.
    pub(super) ahead: WardensAhead,
    /// Whether a task watches for idle wardens to let go.
    watched: bool,
}

impl Shared {
    /// The most recently used one is the warmest. A sandbox is made anew after each use, so of
    /// those that have the right one, the one that was used longest ago is surely ready.
    fn pick(&mut self, wanted: Wanted) -> Option<(Warden, Instant)> {
        if wanted.level != Level::None {
            let fits = |(warden, _): &(Warden, Instant)| warden.confined == Some(wanted);
            if let Some(place) = self.idle.iter().position(fits) {
                return self.idle.remove(place);
            }
        }
        self.idle.pop_back()
    }
}

impl Pool {
    pub(super) fn new(forks: Arc<dyn Forks>, sandboxing: Arc<Sandboxing>) -> Arc<Self> {
        Arc::new(Self { shared: Mutex::default(), forks, sandboxing, usual: OnceLock::new() })
    }

    /// Lets new wardens make a sandbox ready, for the first who asks.
    pub(super) fn expect(&self, wanted: Wanted) {
        if wanted.level != Level::None {
            let _ = self.usual.set(wanted);
        }
    }

    /// Starts the spawner and a reserve, so that no command need wait for them; returns the
    /// spawner's process id. An engine that runs one command and ends does without.
    pub(super) async fn warm_up(self: &Arc<Self>) -> io::Result<u32> {
        let pid = self.forks.warm_up().await?;
        let mut shared = self.lock();
        shared.reserve = RESERVE;
        self.replenish(&mut shared);
        self.replenish_ahead(&mut shared);
        Ok(pid)
    }

    /// A warden with this sandbox ready.
    pub(super) async fn ready(self: &Arc<Self>, wanted: Wanted) -> Result<Ready, PlaceError> {
        let mut warden = self.take(wanted).await?;
        let sandbox = self.confine(&mut warden, wanted).await?;
        Ok((warden, sandbox))
    }

    /// Makes a warden have the right sandbox ready.
    async fn confine(
        &self,
        warden: &mut Warden,
        wanted: Wanted,
    ) -> Result<Option<Arc<Sandbox>>, PlaceError> {
        if wanted.level == Level::None {
            return Ok(None);
        }
        let profile = self.sandboxing.current_profile(wanted).await;
        if warden.is_confined_by(wanted, &profile)
            && let Some(known) = self.sandboxing.known(wanted)
        {
            return Ok(Some(known));
        }
        // Rare, and long: what is boxed here keeps the way of a usual start short.
        let enforcement = Box::pin(warden.confine(wanted, &profile)).await?;
        Ok(Some(self.sandboxing.learn(wanted, enforcement)))
    }

    /// Takes a warden: an idle one, or the next that comes. One that has the right sandbox is
    /// preferred.
    pub(super) async fn take(self: &Arc<Self>, wanted: Wanted) -> Result<Warden, PlaceError> {
        loop {
            let next = {
                let mut shared = self.lock();
                if let Some((warden, _)) = shared.pick(wanted) {
                    self.replenish(&mut shared);
                    Ok(warden)
                } else {
                    let (sender, receiver) = oneshot::channel();
                    shared.waiting.push_back(sender);
                    self.replenish(&mut shared);
                    Err(receiver)
                }
            };
            let mut warden = match next {
                Ok(warden) => warden,
                Err(receiver) => receiver.await.unwrap_or(Err(PlaceError::Closed))?,
            };
            // One that died while it was idle is passed over.
            if !warden.channel.is_closed() {
                return Ok(warden);
            }
        }
    }

    /// Gives a warden back that can be used again.
    pub(super) fn give_back(self: &Arc<Self>, warden: Warden) {
        let mut shared = self.lock();
        // What was made for one command, or by another engine, is of no use to the next.
        if warden.ours && !warden.once {
            self.deliver(&mut shared, warden);
        } else if warden.once {
            self.replenish_ahead(&mut shared);
        }
    }

    /// How many wait for a command.
    pub(super) fn idle(&self) -> WardenCount {
        let shared = self.lock();
        let confined = shared.idle.iter().filter(|(warden, _)| warden.confined.is_some()).count();
        let ahead = shared.ahead.ready();
        WardenCount { ready: shared.idle.len() + ahead, confined: confined + ahead, busy: 0 }
    }

    /// Starts forks for those who wait, and for the reserve.
    fn replenish(self: &Arc<Self>, shared: &mut Shared) {
        let wanted = shared.waiting.len().max(shared.reserve.saturating_sub(shared.idle.len()));
        while shared.forks < wanted.min(FORKS_MAX) {
            shared.forks += 1;
            tokio::spawn(Self::fork(self.clone()));
        }
    }

    /// Forks until nobody waits.
    async fn fork(self: Arc<Self>) {
        loop {
            let forked = self.forks.fork().await;
            let forked = self.made_ready(forked).await;
            let mut shared = self.lock();
            match forked {
                Ok(warden) => self.deliver(&mut shared, warden),
                // The one who has waited longest is told; the others get their own try.
                Err(error) => {
                    if let Some(waiting) = shared.waiting.pop_front() {
                        let _ = waiting.send(Err(error));
                    } else {
                        tracing::debug!(%error, "no warden for the reserve");
                    }
                }
            }
            if shared.waiting.is_empty() {
                shared.forks -= 1;
                return;
            }
        }
    }

    /// Lets a new warden make a sandbox ready; one that cannot is of use all the same.
    async fn made_ready(&self, forked: Result<Warden, PlaceError>) -> Result<Warden, PlaceError> {
        let mut warden = forked?;
        if let Some(wanted) = self.usual.get() {
            let profile = self.sandboxing.profile(*wanted).await;
            let enforcement = warden.confine(*wanted, &profile).await?;
            self.sandboxing.learn(*wanted, enforcement);
        }
        Ok(warden)
    }

    /// Hands a warden to the first who still waits, or keeps it.
    fn deliver(self: &Arc<Self>, shared: &mut Shared, mut warden: Warden) {
        while let Some(waiting) = shared.waiting.pop_front() {
            match waiting.send(Ok(warden)) {
                Err(Ok(returned)) => warden = returned,
                _ => return,
            }
        }
        shared.idle.push_back((warden, Instant::now()));
        if shared.idle.len() > IDLE_MAX {
            shared.idle.pop_front();
        }
        if shared.idle.len() > RESERVE && !shared.watched {
            shared.watched = true;
            tokio::spawn(Self::watch(Arc::downgrade(self)));
        }
    }

    /// Lets wardens go that are not used any more; ends when only the reserve is left.
    async fn watch(pool: Weak<Self>) {
        loop {
            tokio::time::sleep(IDLE_FOR / 2).await;
            let Some(pool) = pool.upgrade() else { return };
            let mut shared = pool.lock();
            while shared.idle.len() > RESERVE
                && shared.idle.front().is_some_and(|(_, since)| since.elapsed() > IDLE_FOR)
            {
                shared.idle.pop_front();
            }
            if shared.idle.len() <= RESERVE {
                shared.watched = false;
                return;
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
