//! The proxy: the only way out of a sandbox that may connect by name.
//!
//! The sandbox has a network namespace with nothing but its loopback. A listener that was made *in*
//! there is handed out to the warden, which starts a proxy when somebody first connects. The proxy
//! accepts inside and connects outside; nothing lies in between, and nothing else gets out. There
//! is one for each command that connects, so that every connection is known by its task, and one
//! that dies takes nobody else's along.
//!
//! It is a fork of the warden that lets go of everything but its socket, confines itself, and then
//! has a thread for each connection: names are resolved by the C library, which blocks, and nothing
//! is ever forked from here. It ends with its warden. [`link`] is the warden's side of it.

mod connection;
mod link;
mod opening;
mod relay;
mod resolve;
mod tunnel;

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SocketFlags, accept_with, sockopt},
    process::Signal,
};
use serde::{Deserialize, Serialize};

pub use self::tunnel::CONNECT_ARGUMENT;
pub(super) use self::{link::Doorway, opening::listen_inside, tunnel::be_connector_if_asked};
use super::{
    sandbox::{confine_proxy, keep_only},
    socket,
};
use crate::{
    network::{ConnectionTotal, ConnectionVerdict, HeldName, NameRules, OTHER_NAMES, pattern_of},
    protocol::{Decoder, encode},
};

/// The stack of a thread; a resolver takes the most of it.
const STACK_BYTES: usize = 512 * 1024;

/// Most names that totals are kept of; what comes beyond is counted together.
const TOTALS_MAX: usize = 64;

/// How long nobody is accepted after that failed.
const REST: Duration = Duration::from_millis(100);

/// Most names that a person is asked about, of one task.
const QUESTIONS_MAX: usize = 64;

/// How long connections of a command that has ended may take to be counted to their end.
const COUNTED: Duration = Duration::from_millis(30);

/// What a warden tells its proxy.
#[derive(Debug, Serialize, Deserialize)]
enum ToProxy {
    /// First: serve the listener that stands beside this frame.
    Serve(Box<ProxyTask>),
    /// Answers [`FromProxy::Held`].
    Answer { number: u64, allowed: bool },
    /// The command has ended: say what its connections came to.
    Tally,
}

/// What a proxy has to know; a second one goes on where the first was killed.
#[derive(Debug, Serialize, Deserialize)]
struct ProxyTask {
    rules: NameRules,
    /// Names that a person has been asked about, with the answer.
    answered: Vec<(String, bool)>,
    /// Bytes that were sent before.
    bytes_out: u64,
    /// The number of the last question.
    last_number: u64,
}

/// What a proxy tells its warden.
#[derive(Debug, Serialize, Deserialize)]
enum FromProxy {
    /// Connections to a name wait for an answer.
    Held(HeldName),
    /// What the connections to one name came to so far.
    Total { place: u32, total: ConnectionTotal },
    /// All totals have been told.
    Tallied,
}

/// The whole life of a proxy.
fn live(socket: BorrowedFd<'_>) -> ! {
    let code = match keep_only(socket).and_then(serve) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    // SAFETY: ends this process at once: what the warden had registered for its own end is not ours
    // to run.
    unsafe { libc::_exit(code) }
}

/// Serves until the warden lets go of it.
fn serve(control: OwnedFd) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"legwork-proxy");
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut orders = Orders { decoder: Decoder::default(), descriptors: VecDeque::new() };
    let (task, listener) = loop {
        if !orders.read(control.as_fd())? {
            return Ok(());
        }
        if let Some(ToProxy::Serve(task)) = orders.next()? {
            let listener = orders.descriptors.pop_front().ok_or(io::ErrorKind::InvalidData)?;
            break (*task, listener);
        }
    };
    confine_proxy()?;
    let (woken, wake) = socket::socket_pair()?;
    let proxy = Arc::new(Proxy::new(task, control, wake));
    loop {
        let mut interests =
            vec![PollFd::new(&proxy.control, PollFlags::IN), PollFd::new(&woken, PollFlags::IN)];
        if proxy.has_room() {
            interests.push(PollFd::new(&listener, PollFlags::IN));
        }
        match poll(&mut interests, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = interests.iter().map(|interest| !interest.revents().is_empty());
        let (told, ended) = (ready.next().unwrap_or(false), ready.next().unwrap_or(false));
        let knocked = ready.next().unwrap_or(false);
        if told {
            if !orders.read(proxy.control.as_fd())? {
                return Ok(());
            }
            while let Some(order) = orders.next()? {
                proxy.obey(&order);
            }
        }
        if ended {
            let _ = rustix::io::read(&woken, &mut [0; 256][..]);
        }
        if knocked {
            accept(&proxy, &listener);
        }
    }
}

/// Takes one connection, and gives it to a thread of its own.
fn accept(proxy: &Arc<Proxy>, listener: &OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let client = match accept_with(listener, flags) {
        Ok(client) => client,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
        Err(_) => {
            // Most likely there is no descriptor left, and the next look would find the same.
            thread::sleep(REST);
            return;
        }
    };
    let _ = sockopt::set_socket_send_buffer_size(&client, relay::NEAR_BYTES);
    proxy.begin();
    let served = proxy.clone();
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        connection::serve(&served, &client);
        drop(client);
        served.end();
    });
    if thread.is_err() {
        proxy.end();
    }
}

/// Frames of the warden, and what came with them.
struct Orders {
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

impl Orders {
    /// Reads once; false is the end.
    fn read(&mut self, control: BorrowedFd<'_>) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let received = socket::receive(control, &mut buffer)?;
        self.descriptors.extend(received.descriptors);
        self.decoder.feed(buffer.get(..received.bytes).unwrap_or_default());
        Ok(received.bytes > 0)
    }

    fn next(&mut self) -> io::Result<Option<ToProxy>> {
        self.decoder.next_frame().map_err(io::Error::other)
    }
}

/// What all connections share.
struct Proxy {
    rules: NameRules,
    control: OwnedFd,
    /// Wakes the main thread when a connection ends.
    wake: OwnedFd,
    shared: Mutex<ProxyState>,
    /// Told when a connection has ended.
    ended: Condvar,
    /// Bytes that have been sent, all together.
    bytes_out: AtomicU64,
}

#[derive(Default)]
struct ProxyState {
    active: u32,
    totals: Vec<Arc<CountedName>>,
    standings: HashMap<String, NameStanding>,
    last_number: u64,
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

/// What the connections to one name came to, while they go on.
struct CountedName {
    place: u32,
    /// The numbers in here are not those that count.
    about: ConnectionTotal,
    count: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
}

impl CountedName {
    fn total(&self) -> ConnectionTotal {
        ConnectionTotal {
            count: self.count.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            ..self.about.clone()
        }
    }
}

/// What a connection is counted as.
struct Decided<'a> {
    verdict: ConnectionVerdict,
    rule: &'a str,
    reason: &'a str,
}

impl Proxy {
    fn new(task: ProxyTask, control: OwnedFd, wake: OwnedFd) -> Self {
        let answered = task.answered.into_iter();
        let standings = answered.map(|(name, yes)| (name, NameStanding::Answered(yes))).collect();
        let state =
            ProxyState { standings, last_number: task.last_number, ..ProxyState::default() };
        Self {
            rules: task.rules,
            control,
            wake,
            shared: Mutex::new(state),
            ended: Condvar::new(),
            bytes_out: AtomicU64::new(task.bytes_out),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more connection may be; others wait in the kernel's queue.
    fn has_room(&self) -> bool {
        self.lock().active < self.rules.limits.connections_max.max(1)
    }

    fn begin(&self) {
        self.lock().active += 1;
    }

    fn end(&self) {
        let mut state = self.lock();
        state.active = state.active.saturating_sub(1);
        drop(state);
        self.ended.notify_all();
        let _ = socket::send(self.wake.as_fd(), &[0], &[]);
    }

    fn obey(&self, order: &ToProxy) {
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

    /// Tells what all connections came to, once those of the dead have been read to their ends.
    fn tally(&self) {
        let until = Instant::now() + COUNTED;
        let mut state = self.lock();
        while state.active > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for counted in &state.totals {
            let (place, total) = (counted.place, counted.total());
            self.tell(&FromProxy::Total { place, total });
        }
        self.tell(&FromProxy::Tallied);
    }

    /// Tells the warden. Only with the state locked, so that frames do not mix.
    fn tell(&self, message: &FromProxy) {
        let Ok(frame) = encode(message) else { return };
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            match socket::send(self.control.as_fd(), rest, &[]) {
                Ok(bytes) => sent += bytes,
                // The warden is gone, and so are we in a moment.
                Err(_) => return,
            }
        }
    }

    /// Counts a connection, and returns where its bytes are counted.
    fn count(&self, host: &str, port: u16, decided: &Decided<'_>) -> Arc<CountedName> {
        let Decided { verdict, rule, reason } = *decided;
        let mut state = self.lock();
        let is_full = state.totals.len() >= TOTALS_MAX;
        let find = |host: &str, port: u16| {
            let is_it = |it: &&Arc<CountedName>| {
                let about = &it.about;
                (about.host.as_str(), about.port) == (host, port)
                    && (about.verdict, about.rule.as_str()) == (verdict, rule)
            };
            state.totals.iter().find(is_it).cloned()
        };
        let known = match find(host, port) {
            None if is_full => find(OTHER_NAMES, 0),
            known => known,
        };
        let counted = known.unwrap_or_else(|| {
            let (host, port, reason) =
                if is_full { (OTHER_NAMES, 0, "") } else { (host, port, reason) };
            let about = ConnectionTotal {
                host: host.to_owned(),
                port,
                verdict,
                rule: rule.to_owned(),
                reason: reason.to_owned(),
                count: 0,
                bytes_out: 0,
                bytes_in: 0,
            };
            let place = u32::try_from(state.totals.len()).unwrap_or(u32::MAX);
            let zero = || AtomicU64::new(0);
            let (count, bytes_out, bytes_in) = (zero(), zero(), zero());
            let counted = Arc::new(CountedName { place, about, count, bytes_out, bytes_in });
            state.totals.push(counted.clone());
            counted
        });
        counted.count.fetch_add(1, Relaxed);
        self.tell(&FromProxy::Total { place: counted.place, total: counted.total() });
        counted
    }

    /// Tells how far a connection came that has ended.
    fn counted(&self, counted: &CountedName) {
        let _state = self.lock();
        self.tell(&FromProxy::Total { place: counted.place, total: counted.total() });
    }

    /// Takes up to this many bytes of those that may be sent.
    fn reserve(&self, bytes: usize) -> usize {
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
    fn ask(&self, host: &str, port: u16, client: &OwnedFd) -> Option<bool> {
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
                    self.tell(&FromProxy::Held(HeldName { number, host: host.to_owned(), port }));
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
