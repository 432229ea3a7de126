//! Replaces login shells by ordinary ones with the same environment, where that is proved to have
//! the same effect.
//!
//! A login shell reads the user's profile first, which can cost a hundred times as much as the
//! command. Most profiles change nothing but the environment. Then the command is run with that
//! environment and without the profile: the same effect. Whether a profile is of that kind is not
//! read from its text but seen: two real logins and one start without the profile print everything
//! that a script could see ([`state`]), and all three must be equal. What a profile does outside of
//! its shell cannot be seen so: one whose text ([`text`]) may write files is not replaced, and what
//! a program that it calls writes is not written again each time.
//!
//! Any doubt means a real login: another shell, a terminal, an open stdin, output, a profile that
//! hangs, that changes from one look to the next, or that could not be looked at. No call waits for
//! a look: until something is known, its login is real. Only an engine that stays looks at all.

mod complaints;
mod key;
mod probe;
mod screen;
mod state;
mod text;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use legwork_warden::protocol::{Environment, Spec};
use tokio::sync::watch;

use self::key::{Login, LoginKey};
use super::{pool::Pool, sandbox::Sandboxing};
use crate::{
    place::{Attention, LoginWish},
    state::StateFolder,
};

/// What was seen counts for this long at most: a profile may depend on more than we look at.
const AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// What is still in use at this age is looked at again, so that no call has to be slow.
const RENEW_AT: Duration = Duration::from_secs(4 * 60);

/// Most logins that are remembered.
const KNOWN_MAX: usize = 64;

/// How often it is asked whether nobody waits for a command.
const QUIET: Duration = Duration::from_millis(100);

/// After so many times a look comes anyway: who logs in all the time has the most to gain.
const QUIET_TRIES: u32 = 10;

/// How long the end of a look is waited for when the engine ends.
const CLOSING: Duration = Duration::from_secs(2);

/// What one engine knows of logins.
#[derive(Debug)]
pub(super) struct Logins {
    pool: Arc<Pool>,
    sandboxing: Arc<Sandboxing>,
    state: Arc<StateFolder>,
    /// Set in an engine that stays.
    looks: AtomicBool,
    known: Mutex<HashMap<LoginKey, Known>>,
    /// Held while one is looked at: one at a time.
    turn: tokio::sync::Mutex<()>,
    closing: watch::Sender<bool>,
}

/// What a look at a login has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    /// The environment that does the same; none if it has to be a real login.
    environment: Option<Arc<Environment>>,
    /// What the profile says to the sandbox each time, where the login has to be real.
    complaints: Arc<[u8]>,
}

/// What was seen of a login.
#[derive(Debug, Clone)]
struct Known {
    shown: Shown,
    since: Instant,
    /// Somebody looks, or will.
    pending: bool,
}

impl Logins {
    pub(super) fn new(
        pool: Arc<Pool>,
        sandboxing: Arc<Sandboxing>,
        state: Arc<StateFolder>,
    ) -> Self {
        Self {
            pool,
            sandboxing,
            state,
            looks: AtomicBool::new(false),
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            closing: watch::Sender::default(),
        }
    }

    /// From now on logins are looked at.
    pub(super) fn begin(&self) {
        self.looks.store(true, Ordering::Relaxed);
    }

    /// Ends a look that is under way, and lets no other begin.
    pub(super) async fn close(&self) {
        self.looks.store(false, Ordering::Relaxed);
        self.closing.send_replace(true);
        let _ = tokio::time::timeout(CLOSING, self.turn.lock()).await;
    }

    /// Waits until nothing is looked at any more.
    async fn closed(&self) {
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Waits for this long; none if nothing is looked at any more.
    async fn pause(&self, duration: Duration) -> Option<()> {
        tokio::select! {
            () = self.closed() => None,
            () = tokio::time::sleep(duration) => Some(()),
        }
    }

    /// What is known of a login, and whether the caller is to look.
    fn find(&self, key: LoginKey) -> (Shown, bool) {
        let mut known = self.lock();
        let unknown = || Known { shown: Shown::default(), since: Instant::now(), pending: false };
        let is_new = !known.contains_key(&key);
        let entry = known.entry(key).or_insert_with(unknown);
        let age = entry.since.elapsed();
        let look = !entry.pending && (is_new || age > RENEW_AT);
        entry.pending |= look;
        let shown = if age < AGE_MAX { entry.shown.clone() } else { Shown::default() };
        forget_oldest(&mut known);
        (shown, look)
    }

    /// Remembers what was seen, counted from when the look began.
    fn remember(&self, key: LoginKey, shown: Shown, since: Instant) {
        self.lock().insert(key, Known { shown, since, pending: false });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LoginKey, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_oldest(known: &mut HashMap<LoginKey, Known>) {
    while known.len() > KNOWN_MAX {
        let oldest = known.iter().min_by_key(|(_, known)| known.since).map(|(key, _)| *key);
        if oldest.and_then(|key| known.remove(&key)).is_none() {
            return;
        }
    }
}

impl Logins {
    /// Takes the profile out of a command that wants a login, if its effect is known to be the
    /// environment alone.
    pub(super) fn shorten(self: &Arc<Self>, wish: LoginWish<'_>, spec: &mut Spec) {
        if !self.looks.load(Ordering::Relaxed) {
            return;
        }
        let Some(login) = Login::of(wish, spec) else { return };
        let (shown, look) = self.find(login.key());
        if let Some(environment) = shown.environment
            && !screen::sees_the_difference(login.shell, wish.script)
        {
            spec.argv = login.shell.without_profile(&spec.argv);
            spec.environment = (*environment).clone();
        } else {
            spec.stderr_preamble = shown.complaints.to_vec();
        }
        if look {
            tokio::spawn(self.clone().look_at(login, wish.attention.clone()));
        }
    }

    /// Looks at a login when nobody waits for anything, and remembers what was seen.
    async fn look_at(self: Arc<Self>, login: Login, attention: Attention) {
        let _turn = self.turn.lock().await;
        for _ in 0..QUIET_TRIES {
            if self.pause(QUIET).await.is_none() {
                return;
            }
            if !attention.is_paid() {
                break;
            }
        }
        let (key, since) = (login.key(), Instant::now());
        let shown = self.prove(&login).await;
        let replaced = shown.environment.is_some();
        tracing::debug!(program = ?login.program, replaced, "looked at a login");
        // Whatever was changed meanwhile was perhaps seen by halves.
        let is_same = login.key() == key;
        self.remember(key, if is_same { shown } else { Shown::default() }, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::sandbox::SandboxSettings,
        place::local::{owner::Owners, spawning::Spawning},
    };

    fn logins() -> Logins {
        let scratch = tempfile::tempdir().unwrap();
        let state = Arc::new(StateFolder::open(scratch.path()).unwrap());
        let settings = SandboxSettings::default();
        let sandboxing = Arc::new(Sandboxing::new(settings, &[], state.path(), &[]));
        let owners = Arc::new(Owners::new(state.engines()));
        let forks = Box::new(Spawning::new(state.clone(), owners));
        Logins::new(Pool::new(forks, sandboxing.clone()), sandboxing, state)
    }

    fn shown() -> Shown {
        let environment = Environment { inherited: false, set: Vec::new(), unset: Vec::new() };
        Shown { environment: Some(Arc::new(environment)), complaints: Arc::default() }
    }

    #[test]
    fn one_caller_looks_and_what_was_seen_is_used_for_five_minutes_at_most() {
        let logins = logins();
        assert_eq!(logins.find([1; 32]), (Shown::default(), true));
        assert_eq!(logins.find([1; 32]), (Shown::default(), false), "somebody looks already");
        let now = Instant::now();
        logins.remember([1; 32], shown(), now);
        assert_eq!(logins.find([1; 32]), (shown(), false));
        assert_eq!(logins.find([2; 32]), (Shown::default(), true), "another login");
        let Some(old) = now.checked_sub(RENEW_AT + Duration::from_secs(1)) else { return };
        logins.remember([1; 32], shown(), old);
        assert_eq!(logins.find([1; 32]), (shown(), true), "renewed in time");
        let Some(too_old) = now.checked_sub(AGE_MAX) else { return };
        logins.remember([1; 32], shown(), too_old);
        assert_eq!(logins.find([1; 32]), (Shown::default(), true), "too old to be used");
        logins.remember([1; 32], Shown::default(), now);
        assert_eq!(
            logins.find([1; 32]),
            (Shown::default(), false),
            "a real login is remembered as well"
        );
    }

    #[test]
    fn no_more_than_a_few_logins_are_remembered() {
        let logins = logins();
        for name in 0..=u8::MAX {
            logins.find([name; 32]);
        }
        assert_eq!(logins.lock().len(), KNOWN_MAX);
        assert!(logins.lock().contains_key(&[u8::MAX; 32]));
    }
}
