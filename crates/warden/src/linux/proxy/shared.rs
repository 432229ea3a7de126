//! What all connections of a proxy share: their numbers, their limits, and who is asked about what.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Resource, getrlimit},
};

use super::{
    FromProxy, ProxyTask, QUESTIONS_MAX, TOTALS_MAX, ToProxy,
    counts::{NameCounts, SharedCounts},
    outbox::ControlOutbox,
};
use crate::{
    linux::socket,
    network::{ConnectionTotal, ConnectionVerdict, HeldName, NameRules, OTHER_NAMES, pattern_of},
    protocol::encode,
};

/// How long connections of a command that has ended may take to be counted to their end.
const COUNTED: Duration = Duration::from_millis(30);

/// Descriptors of a proxy without connections, those of open questions included.
const OWN_DESCRIPTORS: u64 = 12 + 2 * QUESTIONS_MAX as u64;

/// Descriptors of a connection: both sides, two pipes, and what resolves its name.
const CONNECTION_DESCRIPTORS: u64 = 8;

/// Whether one more connection is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vacancy {
    One,
    /// Not before one of the others ends.
    None,
    /// The same, or the limit of this process is raised, of which nobody tells.
    NoDescriptors,
}

/// What all connections share.
pub(super) struct Proxy {
    pub rules: NameRules,
    pub control: OwnedFd,
    /// Wakes the main thread.
    wake: OwnedFd,
    counts: SharedCounts,
    shared: Mutex<ProxyState>,
    /// Told when a connection has ended.
    ended: Condvar,
    /// Bytes that have been sent, all together.
    bytes_out: AtomicU64,
    /// Pipes that were made large.
    pub large_pipes: AtomicU32,
}

#[derive(Default)]
struct ProxyState {
    active: u32,
    /// The names, by their places among the numbers.
    names: Vec<ConnectionTotal>,
    standings: HashMap<String, NameStanding>,
    last_number: u64,
    outbox: ControlOutbox,
}

/// Where a question about a name stands.
enum NameStanding {
    /// Nobody has answered; those who wait hear on the first socket that the second is closed.
    Waiting {
        number: u64,
        woken: Arc<OwnedFd>,
        _wake: OwnedFd,
    },
    Answered(bool),
}

/// What a connection is counted as.
pub(super) struct Decided<'a> {
    pub verdict: ConnectionVerdict,
    pub rule: &'a str,
    pub reason: &'a str,
}

impl Proxy {
    pub(super) fn new(
        task: ProxyTask,
        control: OwnedFd,
        wake: OwnedFd,
        counts: SharedCounts,
    ) -> Self {
        let answered = task.answered.into_iter();
        let standings = answered.map(|(name, yes)| (name, NameStanding::Answered(yes))).collect();
        let state =
            ProxyState { standings, last_number: task.last_number, ..ProxyState::default() };
        Self {
            rules: task.rules,
            control,
            wake,
            counts,
            shared: Mutex::new(state),
            ended: Condvar::new(),
            bytes_out: AtomicU64::new(task.bytes_out),
            large_pipes: AtomicU32::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more connection may be; others wait in the kernel's queue.
    pub(super) fn room(&self) -> Vacancy {
        let active = self.lock().active;
        if active >= self.rules.limits.connections_max.max(1) {
            return Vacancy::None;
        }
        let Some(descriptors) = getrlimit(Resource::Nofile).current else { return Vacancy::One };
        // Each that is accepted has all that it will need: none is refused half-way.
        let needed = OWN_DESCRIPTORS + CONNECTION_DESCRIPTORS * (u64::from(active) + 1);
        if needed <= descriptors || active == 0 { Vacancy::One } else { Vacancy::NoDescriptors }
    }

    pub(super) fn begin(&self) {
        self.lock().active += 1;
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.active = state.active.saturating_sub(1);
        drop(state);
        self.ended.notify_all();
        self.wake();
    }

    /// Wakes the main thread; one that has not looked at so many of these wakes anyway.
    fn wake(&self) {
        let _ = socket::send(self.wake.as_fd(), &[0], &[]);
    }

    pub(super) fn obey(&self, order: &ToProxy) {
        match *order {
            ToProxy::Serve(_) => {}
            ToProxy::Answer { number, allowed } => {
                let mut state = self.lock();
                let asked = state.standings.values_mut().find(|standing| {
                    matches!(standing, NameStanding::Waiting { number: it, .. } if *it == number)
                });
                if let Some(standing) = asked {
                    // Those who wait hear their sockets close.
                    *standing = NameStanding::Answered(allowed);
                }
            }
            ToProxy::Tally => self.tally(),
        }
    }

    /// Says so once the connections of the dead have been read to their ends.
    fn tally(&self) {
        let until = Instant::now() + COUNTED;
        let mut state = self.lock();
        while state.active > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        self.tell(&mut state, &FromProxy::Tallied);
    }

    /// Tells the warden, as soon as it takes it.
    fn tell(&self, state: &mut ProxyState, message: &FromProxy) {
        let Ok(frame) = encode(message) else { return };
        state.outbox.send(&self.control, &frame, &[]);
        if !state.outbox.is_empty() {
            self.wake();
        }
    }

    /// Whether the warden has not taken all that it was told.
    pub(super) fn has_to_tell(&self) -> bool {
        !self.lock().outbox.is_empty()
    }

    /// Goes on telling the warden.
    pub(super) fn tell_on(&self) {
        self.lock().outbox.flush(&self.control);
    }

    /// Counts a connection, and returns where its bytes are counted.
    pub(super) fn count(&self, host: &str, port: u16, decided: &Decided<'_>) -> &NameCounts {
        let mut state = self.lock();
        let place = self.place(&mut state, host, port, decided);
        let counts = self.counts.at(place);
        counts.connections.fetch_add(1, Relaxed);
        counts
    }

    /// The place of a name among the numbers; the warden is told of a new one.
    fn place(&self, state: &mut ProxyState, host: &str, port: u16, decided: &Decided<'_>) -> usize {
        let Decided { verdict, rule, reason } = *decided;
        let find = |state: &ProxyState, host: &str, port: u16, rule: &str| {
            state.names.iter().position(|it| {
                (it.host.as_str(), it.port, it.verdict, it.rule.as_str())
                    == (host, port, verdict, rule)
            })
        };
        if let Some(place) = find(state, host, port, rule) {
            return place;
        }
        let is_full = state.names.len() >= TOTALS_MAX;
        let (host, port, rule, reason) =
            if is_full { (OTHER_NAMES, 0, "", "") } else { (host, port, rule, reason) };
        if let Some(place) = find(state, host, port, rule).filter(|_| is_full) {
            return place;
        }
        let name = ConnectionTotal {
            host: host.to_owned(),
            port,
            verdict,
            rule: rule.to_owned(),
            reason: reason.to_owned(),
            count: 0,
            bytes_out: 0,
            bytes_in: 0,
        };
        let place = state.names.len();
        state.names.push(name.clone());
        self.tell(state, &FromProxy::Name(name));
        place
    }

    /// Takes up to this many bytes of those that may be sent.
    pub(super) fn reserve(&self, bytes: usize) -> usize {
        let wanted = bytes as u64;
        let Some(most) = self.rules.limits.bytes_out_max else {
            self.bytes_out.fetch_add(wanted, Relaxed);
            return bytes;
        };
        let mut granted = 0;
        let _ = self.bytes_out.fetch_update(Relaxed, Relaxed, |sent| {
            granted = wanted.min(most.saturating_sub(sent));
            Some(sent + granted)
        });
        usize::try_from(granted).unwrap_or(bytes)
    }

    /// Asks whether connections to a name may be made, once for each; waits for the answer for as
    /// long as the client does. None is that the client has gone.
    pub(super) fn ask(&self, host: &str, port: u16, client: &OwnedFd) -> Option<bool> {
        let pattern = pattern_of(host, port);
        let woken = {
            let mut state = self.lock();
            match state.standings.get(&pattern) {
                Some(NameStanding::Answered(yes)) => return Some(*yes),
                Some(NameStanding::Waiting { woken, .. }) => woken.clone(),
                None if state.standings.len() >= QUESTIONS_MAX => return Some(false),
                None => {
                    let (woken, wake) = socket::socket_pair().ok()?;
                    let (number, woken) = (state.last_number + 1, Arc::new(woken));
                    let standing =
                        NameStanding::Waiting { number, woken: woken.clone(), _wake: wake };
                    state.standings.insert(pattern.clone(), standing);
                    state.last_number = number;
                    let held = HeldName { number, host: host.to_owned(), port };
                    self.tell(&mut state, &FromProxy::Held(held));
                    woken
                }
            }
        };
        loop {
            let mut interests =
                [PollFd::new(&*woken, PollFlags::IN), PollFd::new(client, PollFlags::RDHUP)];
            match poll(&mut interests, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            }
            let [answered, gone] = interests.map(|interest| !interest.revents().is_empty());
            if answered {
                let state = self.lock();
                let standing = state.standings.get(&pattern);
                return Some(matches!(standing, Some(NameStanding::Answered(true))));
            }
            if gone {
                return None;
            }
        }
    }
}
