//! Wardens that are made ready ahead for a trial.
//!
//! The layers of a trial are its own, so that a warden serves one and is let go. Each is made with
//! empty layers and everything mounted, by a server that has had a trial; it is used if nothing has
//! changed since that the view depends on.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use legwork_warden::sandbox::Profile;

use super::{
    pool::{Pool, Shared},
    sandbox::TrialAhead,
};
use crate::{
    id::TaskId,
    model::sandbox::Wanted,
    place::{PlaceError, Ready, Sandbox, Warden},
};

/// Kinds of sandboxes that trials are made ready in.
const KINDS_MAX: usize = 4;

/// How long one waits that nobody needs.
const AHEAD_FOR: Duration = Duration::from_secs(600);

/// How long after a trial the next is made ready: its effect is shown to a person first, who takes
/// longer to answer.
const AFTER_TRIAL: Duration = Duration::from_millis(10);

/// How often another one is made because what it depends on has changed meanwhile.
const TRIES: usize = 5;

/// A warden with everything mounted that waits for its command.
#[derive(Debug)]
pub(super) struct WardenAhead {
    // Before its layers, which are removed if nobody has used them.
    warden: Warden,
    sandbox: Arc<Sandbox>,
    /// What its sandbox was made by, but for the copies.
    profile: Arc<Profile>,
    layers: TrialAhead,
}

/// The wardens that wait so, one of each kind that was needed.
#[derive(Debug, Default)]
pub(super) struct WardensAhead(HashMap<Wanted, Waiting>);

#[derive(Debug, Default)]
enum Waiting {
    #[default]
    Nobody,
    IsMade,
    Ready(Box<WardenAhead>),
}

impl WardensAhead {
    /// Lets one of this kind be made ready from now on.
    fn expect(&mut self, wanted: Wanted) {
        if self.0.len() < KINDS_MAX {
            self.0.entry(wanted).or_default();
        }
    }

    /// How many wait.
    pub(super) fn ready(&self) -> usize {
        self.0.values().filter(|it| matches!(it, Waiting::Ready(_))).count()
    }

    fn take(&mut self, wanted: Wanted) -> Option<WardenAhead> {
        let waiting = self.0.get_mut(&wanted).filter(|it| matches!(it, Waiting::Ready(_)))?;
        match std::mem::take(waiting) {
            Waiting::Ready(ahead) => Some(*ahead),
            _ => None,
        }
    }

    /// The kinds of which none waits; each is taken to be made from now on.
    fn missing(&mut self) -> Vec<Wanted> {
        let missing = self.0.iter_mut().filter(|(_, it)| matches!(it, Waiting::Nobody));
        let begin = |(wanted, waiting): (&Wanted, &mut Waiting)| {
            *waiting = Waiting::IsMade;
            *wanted
        };
        missing.map(begin).collect()
    }

    fn put(&mut self, wanted: Wanted, made: Option<WardenAhead>) {
        let waiting = made.map_or(Waiting::Nobody, |ahead| Waiting::Ready(Box::new(ahead)));
        self.0.insert(wanted, waiting);
    }
}

impl Pool {
    /// A warden whose next command is the trial of this id. It is let go afterwards: its end is the
    /// end of the layers' use.
    pub(super) async fn ready_to_try(
        self: &Arc<Self>,
        wanted: Wanted,
        id: &TaskId,
    ) -> Result<Ready, PlaceError> {
        for _ in 0..TRIES {
            let profile = self.sandboxing.current_profile(wanted).await;
            let ahead = self.lock().ahead.take(wanted);
            // One that died while it waited is passed over, and one for what is different now.
            let ahead = ahead.filter(|it| Arc::ptr_eq(&it.profile, &profile));
            let alive = ahead.and_then(|mut it| (!it.warden.channel.is_closed()).then_some(it));
            let ahead = match alive {
                Some(ahead) => ahead,
                None => self.make_ahead(self.take(wanted).await?, wanted).await?,
            };
            let WardenAhead { mut warden, sandbox, layers, .. } = ahead;
            if let Some(given) = self.sandboxing.begin_trial(layers, id).await? {
                warden.copies = Some(given);
                self.lock().ahead.expect(wanted);
                return Ok((warden, Some(sandbox)));
            }
        }
        let problem = "the files that it depends on change all the time";
        Err(PlaceError::NoCopies(problem.into()))
    }

    /// Lets a warden mount everything for a trial.
    async fn make_ahead(
        &self,
        mut warden: Warden,
        wanted: Wanted,
    ) -> Result<WardenAhead, PlaceError> {
        let profile = self.sandboxing.profile(wanted).await;
        let (with_copies, layers) = self.sandboxing.prepare_trial(&profile, &warden.name).await?;
        let enforcement = Box::pin(warden.confine(wanted, &Arc::new(with_copies))).await?;
        (warden.confined, warden.once) = (None, true);
        let sandbox = self.sandboxing.tried(wanted, enforcement)?;
        Ok(WardenAhead { warden, sandbox, profile, layers })
    }

    /// Makes those ready that were needed and are missing, if this is an engine that keeps wardens
    /// ready at all.
    pub(super) fn replenish_ahead(self: &Arc<Self>, shared: &mut Shared) {
        if shared.reserve > 0 {
            for wanted in shared.ahead.missing() {
                tokio::spawn(Self::keep_ahead(Arc::downgrade(self), wanted));
            }
        }
    }

    async fn keep_ahead(pool: Weak<Self>, wanted: Wanted) {
        tokio::time::sleep(AFTER_TRIAL).await;
        let Some(held) = pool.upgrade() else { return };
        let made = async { held.make_ahead(held.forks.fork().await?, wanted).await }.await;
        let made = made.inspect_err(|error| tracing::debug!(%error, "nothing is made ahead")).ok();
        let warden = made.as_ref().map(|ahead| ahead.warden.name.clone());
        held.lock().ahead.put(wanted, made);
        drop(held);
        tokio::time::sleep(AHEAD_FOR).await;
        if let Some(pool) = pool.upgrade() {
            pool.let_go_ahead(wanted, warden.as_deref());
        }
    }

    /// Lets go of the one of a kind that waits, if it is this one still.
    fn let_go_ahead(&self, wanted: Wanted, warden: Option<&str>) {
        let mut shared = self.lock();
        let Some(waiting) = shared.ahead.0.get_mut(&wanted) else { return };
        if matches!(waiting, Waiting::Ready(ahead) if Some(&*ahead.warden.name) == warden) {
            // What comes later is not expected any more.
            let unused = shared.ahead.0.remove(&wanted);
            drop(shared);
            drop(unused);
        }
    }

    /// Lets go of all that wait: nothing of them is left.
    pub(super) fn close(&self) {
        let mut shared = self.lock();
        shared.reserve = 0;
        let unused = std::mem::take(&mut shared.ahead);
        drop(shared);
        drop(unused);
    }
}
