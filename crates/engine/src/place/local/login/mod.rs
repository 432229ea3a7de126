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
//! that: until something is known, its login is real. Only an engine that stays looks at all.
//!
//! A real login in a sandbox lets the profile say what it may not write. Any engine listens to that
//! before it shows it to anybody ([`heard`]): that is what the first such command waits for.

mod complaints;
mod heard;
mod kept;
mod key;
mod probe;
mod screen;
mod state;
mod text;
mod traced;

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

use self::{
    heard::Heard,
    key::{Login, LoginKey, Shell},
};
use super::{pool::Pool, sandbox::Sandboxing};
use crate::{
    place::{Attention, LoginWish, Soon},
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
    /// What profiles say to the sandbox.
    heard: Heard,
    /// Held while one is looked at: one at a time.
    turn: tokio::sync::Mutex<()>,
    closing: watch::Sender<bool>,
}

/// The environment that does the same as a login; none if it has to be a real one.
type Shown = Option<Arc<Environment>>;

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
            heard: Heard::default(),
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
        let over = async { (self.turn.lock().await, self.heard.busy.write().await) };
        let _ = tokio::time::timeout(CLOSING, over).await;
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
        let unknown = || Known { shown: None, since: Instant::now(), pending: false };
        let is_new = !known.contains_key(&key);
        let entry = known.entry(key).or_insert_with(unknown);
        let age = entry.since.elapsed();
        let look = !entry.pending && (is_new || age > RENEW_AT);
        entry.pending |= look;
        let shown = if age < AGE_MAX { entry.shown.clone() } else { None };
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
    /// environment alone; else what it says to the sandbox. The command is to wait for what is
    /// returned: that is left out of its stderr.
    pub(super) fn shorten(
        self: &Arc<Self>,
        wish: LoginWish<'_>,
        spec: &mut Spec,
    ) -> Option<Soon<'static, Vec<u8>>> {
        let login = Login::of(wish, spec)?;
        if let Some(shell) = login.shell
            && wish.is_plain
            && self.looks.load(Ordering::Relaxed)
            && self.replace(shell, wish, spec)
        {
            return None;
        }
        self.leave_out(login, spec)
    }

    /// Replaces a login by the environment that does the same, if that is known, and lets it be
    /// looked at if it is not.
    fn replace(self: &Arc<Self>, shell: Shell, wish: LoginWish<'_>, spec: &mut Spec) -> bool {
        let Some(login) = Login::of(wish, spec) else { return false };
        let (shown, look) = self.find(login.key());
        if look {
            tokio::spawn(self.clone().look_at(login, shell, wish.attention.clone()));
        }
        match shown.filter(|_| !screen::sees_the_difference(shell, wish.script)) {
            Some(environment) => {
                spec.argv = shell.without_profile(&spec.argv);
                spec.environment = (*environment).clone();
                true
            }
            None => false,
        }
    }

    /// Looks at a login when nobody waits for anything, and remembers what was seen.
    async fn look_at(self: Arc<Self>, login: Login, shell: Shell, attention: Attention) {
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
        let shown = self.prove(&login, shell).await;
        let replaced = shown.is_some();
        tracing::debug!(program = ?login.program, replaced, "looked at a login");
        // Whatever was changed meanwhile was perhaps seen by halves.
        let is_same = login.key() == key;
        self.remember(key, shown.filter(|_| is_same), since);
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
        let forks = Arc::new(Spawning::new(state.clone(), owners));
        Logins::new(Pool::new(forks, sandboxing.clone()), sandboxing, state)
    }

    fn environment() -> Arc<Environment> {
        let environment = Environment { inherited: false, set: Vec::new(), unset: Vec::new() };
        Arc::new(environment)
    }

    #[test]
    fn one_caller_looks_and_what_was_seen_is_used_for_five_minutes_at_most() {
        let logins = logins();
        assert_eq!(logins.find([1; 32]), (None, true));
        assert_eq!(logins.find([1; 32]), (None, false), "somebody looks already");
        let now = Instant::now();
        logins.remember([1; 32], Some(environment()), now);
        assert_eq!(logins.find([1; 32]), (Some(environment()), false));
        assert_eq!(logins.find([2; 32]), (None, true), "another login");
        let Some(old) = now.checked_sub(RENEW_AT + Duration::from_secs(1)) else { return };
        logins.remember([1; 32], Some(environment()), old);
        assert_eq!(logins.find([1; 32]), (Some(environment()), true), "renewed in time");
        let Some(too_old) = now.checked_sub(AGE_MAX) else { return };
        logins.remember([1; 32], Some(environment()), too_old);
        assert_eq!(logins.find([1; 32]), (None, true), "too old to be used");
        logins.remember([1; 32], None, now);
        assert_eq!(logins.find([1; 32]), (None, false), "a real login is remembered as well");
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
