//! Wardens that are made ready ahead for a command that sees folders as copies.
//!
//! The layers of such a command are its own, so that a warden serves one and is let go. Each is
//! made with empty layers and everything mounted, by a server that has had such a command, or is to
//! have one; it is used if nothing has changed since that the view depends on.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use legwork_warden::sandbox::Profile;

use super::{
    pool::{Pool, Shared},
    sandbox::{CopiesAhead, CopiesFor},
};
use crate::{
    id::TaskId,
    place::{PlaceError, Ready, Sandbox, Warden},
};

/// Kinds of copies that are made ahead.
const KINDS_MAX: usize = 4;

/// How long one for trials waits that nobody needs.
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
    copies: CopiesAhead,
}

/// The wardens that wait so, one of each kind that was needed.
#[derive(Debug, Default)]
pub(super) struct WardensAhead(HashMap<CopiesFor, Waiting>);

#[derive(Debug, Default)]
enum Waiting {
    #[default]
    Nobody,
    IsMade,
    Ready(Box<WardenAhead>),
}

impl WardensAhead {
    /// Lets one of this kind be made ready from now on.
    pub(super) fn expect(&mut self, copies: CopiesFor) {
        if self.0.len() < KINDS_MAX {
            self.0.entry(copies).or_default();
        }
    }

    /// How many wait.
    pub(super) fn ready(&self) -> usize {
        self.0.values().filter(|it| matches!(it, Waiting::Ready(_))).count()
    }

    fn take(&mut self, copies: CopiesFor) -> Option<WardenAhead> {
        let waiting = self.0.get_mut(&copies).filter(|it| matches!(it, Waiting::Ready(_)))?;
        match std::mem::take(waiting) {
            Waiting::Ready(ahead) => Some(*ahead),
            _ => None,
        }
    }

    /// The kinds of which none waits; each is taken to be made from now on.
    fn missing(&mut self) -> Vec<CopiesFor> {
        let missing = self.0.iter_mut().filter(|(_, it)| matches!(it, Waiting::Nobody));
        let begin = |(copies, waiting): (&CopiesFor, &mut Waiting)| {
            *waiting = Waiting::IsMade;
            *copies
        };
        missing.map(begin).collect()
    }

    fn put(&mut self, copies: CopiesFor, made: Option<WardenAhead>) {
        let waiting = made.map_or(Waiting::Nobody, |ahead| Waiting::Ready(Box::new(ahead)));
        self.0.insert(copies, waiting);
    }
}

impl Pool {
    /// A warden whose next command has such copies, as a task of this id. It is let go afterwards:
    /// its end is the end of the layers' use.
    pub(super) async fn ready_with_copies(
        self: &Arc<Self>,
        copies: CopiesFor,
        id: &TaskId,
    ) -> Result<Ready, PlaceError> {
        for _ in 0..TRIES {
            let profile = self.sandboxing.current_profile(copies.wanted()).await;
            let ahead = self.lock().ahead.take(copies);
            // One that died while it waited is passed over, and one for what is different now.
            let ahead = ahead.filter(|it| Arc::ptr_eq(&it.profile, &profile));
            let alive = ahead.and_then(|mut it| (!it.warden.channel.is_closed()).then_some(it));
            let ahead = match alive {
                Some(ahead) => ahead,
                None => self.make_ahead(self.take(copies.wanted()).await?, copies).await?,
            };
            let WardenAhead { mut warden, sandbox, copies: layers, .. } = ahead;
            if let Some(given) = self.sandboxing.use_copies(layers, id, &warden.name).await? {
                warden.copies = Some(given);
                self.lock().ahead.expect(copies);
                return Ok((warden, Some(sandbox)));
            }
        }
        Err(copies.refused("the files that it depends on change all the time"))
    }

    /// Lets a warden mount everything for such a command.
    async fn make_ahead(
        &self,
        mut warden: Warden,
        copies: CopiesFor,
    ) -> Result<WardenAhead, PlaceError> {
        let profile = self.sandboxing.profile(copies.wanted()).await;
        let made = self.sandboxing.prepare_copies(copies, &profile, &warden.name).await?;
        let (with_copies, layers) = made;
        let enforcement = Box::pin(warden.confine(copies.wanted(), &Arc::new(with_copies))).await?;
        (warden.confined, warden.once) = (None, true);
        let sandbox = self.sandboxing.with_copies(copies, enforcement)?;
        Ok(WardenAhead { warden, sandbox, profile, copies: layers })
    }

    /// Makes those ready that were needed and are missing, if this is an engine that keeps wardens
    /// ready at all.
    pub(super) fn replenish_ahead(self: &Arc<Self>, shared: &mut Shared) {
        if shared.reserve > 0 {
            for copies in shared.ahead.missing() {
                tokio::spawn(Self::keep_ahead(Arc::downgrade(self), copies));
            }
        }
    }

    async fn keep_ahead(pool: Weak<Self>, copies: CopiesFor) {
        let is_trial = matches!(copies, CopiesFor::Trial(_));
        if is_trial {
            tokio::time::sleep(AFTER_TRIAL).await;
        }
        let Some(held) = pool.upgrade() else { return };
        let made = async { held.make_ahead(held.forks.fork().await?, copies).await }.await;
        let made = made.inspect_err(|error| tracing::debug!(%error, "nothing is made ahead")).ok();
        let warden = made.as_ref().map(|ahead| ahead.warden.name.clone());
        held.lock().ahead.put(copies, made);
        drop(held);
        // Commands have a layer over the home all the time, and trials now and then.
        if is_trial {
            tokio::time::sleep(AHEAD_FOR).await;
            if let Some(pool) = pool.upgrade() {
                pool.let_go_ahead(copies, warden.as_deref());
            }
        }
    }

    /// Lets go of the one of a kind that waits, if it is this one still.
    fn let_go_ahead(&self, copies: CopiesFor, warden: Option<&str>) {
        let mut shared = self.lock();
        let Some(waiting) = shared.ahead.0.get_mut(&copies) else { return };
        if matches!(waiting, Waiting::Ready(ahead) if Some(&*ahead.warden.name) == warden) {
            // What comes later is not expected any more.
            let unused = shared.ahead.0.remove(&copies);
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
