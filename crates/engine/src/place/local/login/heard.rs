//! Listens to what a login's profile says to the sandbox, before the first command that would show
//! it.
//!
//! A profile that writes below the home complains in a sandbox each time it is read. It is read
//! twice before the first such command, which waits for that, though not for long; whatever it
//! says both times alike, of nothing but files that cannot be written, is left out where a
//! command's stderr begins with it. What is known is kept for the next process ([`kept`]).
//!
//! What is known by mistake does no harm: text that does not come is not left out. It is heard
//! again when a file changes that the profile is known to read, and every few minutes by a server.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use legwork_gate::Level;
use legwork_warden::protocol::Spec;
use tokio::{
    sync::{RwLock, watch},
    time::timeout,
};

use super::{
    Logins,
    complaints::are_of_sandbox,
    kept,
    key::{Login, LoginKey, Shell, mark_of},
    state::STDERR,
    traced::{sources, without_trace},
};
use crate::{place::Soon, threads::in_thread};

/// How long the commands of one login wait for what its profile says.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most logins that are remembered.
const KNOWN_MAX: usize = 64;

/// What a profile says to the sandbox each time; nothing, for most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaints {
    pub text: Arc<[u8]>,
    /// Files that the profile reads, beside those by which every login is known.
    pub sources: Arc<[PathBuf]>,
    /// What they were.
    pub mark: LoginKey,
}

impl Complaints {
    fn new(text: &[u8], sources: Vec<PathBuf>) -> Self {
        let mark = mark_of(&sources);
        Self { text: text.into(), sources: sources.into(), mark }
    }

    fn none() -> Self {
        Self::new(&[], Vec::new())
    }
}

/// The profiles that an engine has listened to, or listens to now.
#[derive(Debug, Default)]
pub(super) struct Heard {
    known: Mutex<HashMap<LoginKey, Hearing>>,
    /// Held to read while a profile is listened to.
    pub busy: RwLock<()>,
}

/// A profile that is listened to: what it says, once that is known.
#[derive(Debug, Clone)]
struct Hearing {
    says: watch::Receiver<Option<Complaints>>,
    since: Instant,
}

impl Heard {
    /// What is known of a login; the sender is for the caller who is to listen.
    fn find(&self, key: LoginKey) -> (Hearing, Option<watch::Sender<Option<Complaints>>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hearing) = known.get(&key)
            && hearing.is_current()
        {
            return (hearing.clone(), None);
        }
        let (sender, says) = watch::channel(None);
        let hearing = Hearing { says, since: Instant::now() };
        known.insert(key, hearing.clone());
        while known.len() > KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, known)| known.since).map(|(key, _)| *key);
            if oldest.and_then(|key| known.remove(&key)).is_none() {
                break;
            }
        }
        (hearing, Some(sender))
    }

    /// What a login says now, where it has said something else; none if it says the same, or nobody
    /// has asked.
    fn correct(&self, key: &LoginKey, text: &[u8]) -> Option<Complaints> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let hearing = known.get_mut(key)?;
        let was = hearing.says.borrow().clone()?;
        if *was.text == *text {
            return None;
        }
        let is = Complaints::new(text, was.sources.to_vec());
        hearing.says = watch::channel(Some(is.clone())).1;
        Some(is)
    }
}

impl Hearing {
    /// Whether the files that the profile reads are what they were; also while that is not known.
    fn is_current(&self) -> bool {
        let says = self.says.borrow();
        says.as_ref().is_none_or(|known| mark_of(&known.sources) == known.mark)
    }

    fn text(&self) -> Option<Vec<u8>> {
        self.says.borrow().as_ref().map(|known| known.text.to_vec())
    }
}

impl Logins {
    /// Leaves out of a command's stderr what its profile says to the sandbox. Where that is not
    /// known yet, the command is to wait for it: never longer than it may run, nor than a bound.
    pub(super) fn leave_out(
        self: &Arc<Self>,
        login: Login,
        spec: &mut Spec,
    ) -> Option<Soon<'static, Vec<u8>>> {
        if login.wanted.level == Level::None || *self.closing.borrow() {
            return None;
        }
        let key = login.complaint_key(&self.sandboxing.mark(login.wanted));
        let (mut hearing, sender) = self.heard.find(key);
        if let Some(text) = hearing.text() {
            spec.stderr_preamble = text;
            return None;
        }
        if let Some(sender) = sender {
            tokio::spawn(self.clone().listen(login, key, sender));
        }
        let most = spec.wall_ms_max.map_or(PATIENCE, Duration::from_millis).min(PATIENCE);
        let patience = most.saturating_sub(hearing.since.elapsed());
        if patience.is_zero() {
            return None;
        }
        let logins = self.clone();
        Some(Box::pin(async move {
            let known = async {
                tokio::select! {
                    _ = hearing.says.wait_for(Option::is_some) => {}
                    () = logins.closed() => {}
                }
            };
            if timeout(patience, known).await.is_err() && hearing.since.elapsed() >= PATIENCE {
                // No other process need wait for it either.
                logins.keep(key, Complaints::none()).await;
            }
            hearing.text().unwrap_or_default()
        }))
    }

    /// Finds out what a profile says, and tells those who wait.
    async fn listen(
        self: Arc<Self>,
        login: Login,
        key: LoginKey,
        sender: watch::Sender<Option<Complaints>>,
    ) {
        let _busy = self.heard.busy.read().await;
        let state = self.state.clone();
        let kept = in_thread(move || kept::read(&state, &key)).await.flatten();
        let from_before = kept.is_some();
        let complaints = match kept {
            Some(complaints) => complaints,
            None => self.hear(&login, key).await,
        };
        let bytes = complaints.text.len();
        tracing::debug!(program = ?login.program, bytes, from_before, "listened to a profile");
        sender.send_replace(Some(complaints));
    }

    /// What a profile says, kept for the next process; nothing where that cannot be known.
    async fn hear(self: &Arc<Self>, login: &Login, key: LoginKey) -> Complaints {
        let said = self.said_by(login).await;
        // Whatever was changed meanwhile was perhaps heard by halves.
        let is_same = key == login.complaint_key(&self.sandboxing.mark(login.wanted));
        let Some(complaints) = said.filter(|_| is_same) else { return Complaints::none() };
        // Before anybody goes on: the process may end with the command.
        self.keep(key, complaints.clone()).await;
        complaints
    }

    /// What a profile says to the sandbox, two times alike; none if that cannot be known.
    async fn said_by(self: &Arc<Self>, login: &Login) -> Option<Complaints> {
        let script = match login.shell {
            Some(Shell::Bash) => "\\builtin printf 'stderr\\n' >&2",
            Some(Shell::Dash) | None => "printf 'stderr\\n' >&2",
        };
        let plain = login.argv("-lc", script);
        let first = self.look(login, &plain, &login.environment).await?.stderr;
        let traced = self.look(login, &login.argv("-lxc", script), &login.environment).await;
        let traced = traced.map(|printed| printed.stderr).unwrap_or_default();
        let sources = sources(&traced);
        let text = first.strip_suffix(STDERR).filter(|text| are_of_sandbox(text));
        let Some(text) = text else { return Some(Complaints::new(&[], sources)) };
        let is_again = without_trace(&traced) == first
            || self.look(login, &plain, &login.environment).await?.stderr == first;
        Some(Complaints::new(if is_again { text } else { &[] }, sources))
    }

    /// Takes note of what a profile says now, where something else was known.
    pub(super) async fn hear_again(&self, login: &Login, text: &[u8]) {
        let key = login.complaint_key(&self.sandboxing.mark(login.wanted));
        if let Some(complaints) = self.heard.correct(&key, text) {
            self.keep(key, complaints).await;
        }
    }

    async fn keep(&self, key: LoginKey, complaints: Complaints) {
        let state = self.state.clone();
        in_thread(move || kept::write(&state, &key, &complaints)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_listens_and_what_was_heard_counts_until_a_source_changes() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("source");
        std::fs::write(&source, "one").unwrap();
        let heard = Heard::default();
        let (first, sender) = heard.find([1; 32]);
        let sender = sender.expect("the first one listens");
        let (second, nobody) = heard.find([1; 32]);
        assert!(nobody.is_none() && second.text().is_none());
        sender.send_replace(Some(Complaints::new(b"no\n", vec![source.clone()])));
        assert_eq!(first.text().as_deref(), Some(b"no\n".as_slice()));
        assert_eq!(second.text(), first.text());
        assert!(heard.find([1; 32]).1.is_none());
        assert_eq!(heard.correct(&[1; 32], b"no\n"), None);
        assert_eq!(heard.correct(&[2; 32], b"no\n"), None, "nobody has asked");
        assert!(heard.correct(&[1; 32], b"never\n").is_some());
        assert_eq!(heard.find([1; 32]).0.text().as_deref(), Some(b"never\n".as_slice()));
        std::fs::write(&source, "another").unwrap();
        assert!(heard.find([1; 32]).1.is_some(), "it is listened to again");
        for number in 0..=u8::MAX {
            heard.find([number; 32]);
        }
        assert_eq!(heard.known.lock().unwrap().len(), KNOWN_MAX);
    }
}
