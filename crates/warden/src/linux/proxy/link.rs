//! The warden's side of a proxy: the listener, the process that serves it, and what it reports.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{FromProxy, ProxyTask, ToProxy, live};
use crate::{
    linux::{cgroup, socket},
    network::{ConnectionTotal, HeldName, NameRules},
    protocol::{Decoder, encode},
};

/// How long a proxy may take to say what a command's connections came to.
const TALLY: Duration = Duration::from_millis(500);

/// How long no proxy is started after starting one failed, or after one was killed.
const REST: Duration = Duration::from_millis(100);

/// One read of what a proxy says.
const READ_BYTES: usize = 16 * 1024;

/// The way out of one sandbox.
#[derive(Debug)]
pub(in crate::linux) struct Doorway {
    listener: OwnedFd,
    rules: NameRules,
    proxy: Option<ProxyProcess>,
    /// What proxies reported that are gone.
    past: Vec<ConnectionTotal>,
    /// Names that wait for an answer.
    held: Vec<HeldConnections>,
    answered: Vec<(String, bool)>,
    last_number: u64,
    tally: Tally,
    rest_until: Option<Instant>,
}

/// A proxy that runs.
#[derive(Debug)]
struct ProxyProcess {
    pid: Pid,
    socket: OwnedFd,
    decoder: Decoder,
    totals: Vec<ConnectionTotal>,
    /// Whether it has closed its socket: nothing more comes of it.
    is_silent: bool,
}

#[derive(Debug)]
struct HeldConnections {
    told: HeldName,
    is_new: bool,
}

/// Whether the proxy has said what a command's connections came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tally {
    NotAsked,
    Awaited(Instant),
    Done,
}

impl Doorway {
    pub(in crate::linux) fn new(listener: OwnedFd, rules: NameRules) -> Self {
        Self {
            listener,
            rules,
            proxy: None,
            past: Vec::new(),
            held: Vec::new(),
            answered: Vec::new(),
            last_number: 0,
            tally: Tally::NotAsked,
            rest_until: None,
        }
    }

    /// Becomes readable when there is something to [serve](Self::serve).
    pub(in crate::linux) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match &self.proxy {
            Some(proxy) => (!proxy.is_silent).then(|| proxy.socket.as_fd()),
            None => self.rest_until.is_none().then(|| self.listener.as_fd()),
        }
    }

    /// When to look again without an event.
    pub(in crate::linux) fn wake_at(&self) -> Option<Instant> {
        let tally = match self.tally {
            Tally::Awaited(until) => Some(until),
            _ => None,
        };
        self.rest_until.into_iter().chain(tally).min()
    }

    /// The process of the proxy, if there is one.
    pub(in crate::linux) fn pid(&self) -> Option<Pid> {
        self.proxy.as_ref().map(|proxy| proxy.pid)
    }

    /// Looks at the clock.
    pub(in crate::linux) fn check_clock(&mut self, now: Instant) {
        self.rest_until = self.rest_until.filter(|until| now < *until);
        if matches!(self.tally, Tally::Awaited(until) if now >= until) {
            self.tally = Tally::Done;
        }
    }

    /// Hears the proxy, or starts one because somebody has connected; `leave` takes it out of what
    /// is counted as the command's.
    pub(in crate::linux) fn serve(&mut self, leave: impl FnOnce()) {
        if self.proxy.is_some() {
            self.hear();
        } else if self.rest_until.is_none() && self.start(leave).is_err() {
            self.rest_until = Some(Instant::now() + REST);
        }
    }

    fn start(&mut self, leave: impl FnOnce()) -> io::Result<()> {
        let (ours, theirs) = socket::socket_pair()?;
        let task = ProxyTask {
            rules: self.rules.clone(),
            answered: self.answered.clone(),
            bytes_out: self.past.iter().map(|total| total.bytes_out).sum(),
            last_number: self.last_number,
        };
        let frame = encode(&ToProxy::Serve(Box::new(task))).map_err(io::Error::other)?;
        let pid = cgroup::fork(None)?;
        if pid == 0 {
            leave();
            live(theirs.as_fd());
        }
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let (decoder, totals, is_silent) = (Decoder::default(), Vec::new(), false);
        let proxy = ProxyProcess { pid, socket: ours, decoder, totals, is_silent };
        // If that fails it ends by itself, and is collected.
        proxy.send(&frame, &[self.listener.as_fd()]);
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Takes what the proxy says.
    fn hear(&mut self) {
        let Some(proxy) = &mut self.proxy else { return };
        let mut buffer = vec![0; READ_BYTES];
        let received = socket::receive(proxy.socket.as_fd(), &mut buffer);
        let bytes = received.map_or(0, |received| received.bytes);
        if bytes == 0 {
            // It has ended, or is of no use; it is collected when the kernel says so.
            let _ = kill_process(proxy.pid, Signal::KILL);
            proxy.is_silent = true;
            return;
        }
        proxy.decoder.feed(buffer.get(..bytes).unwrap_or_default());
        while let Some(proxy) = &mut self.proxy
            && let Ok(Some(message)) = proxy.decoder.next_frame()
        {
            match message {
                FromProxy::Held(told) => {
                    self.last_number = self.last_number.max(told.number);
                    self.held.push(HeldConnections { told, is_new: true });
                }
                FromProxy::Total { place, total } => {
                    let place = usize::try_from(place).unwrap_or(usize::MAX);
                    match proxy.totals.get_mut(place) {
                        Some(known) => *known = total,
                        None => proxy.totals.push(total),
                    }
                }
                FromProxy::Tallied => self.tally = Tally::Done,
            }
        }
    }

    /// A child was collected. If that was the proxy, what it knew is kept, and what waited in it
    /// waits no longer; whoever connects next gets another.
    pub(in crate::linux) fn collected(&mut self, pid: Pid) {
        if self.pid() != Some(pid) {
            return;
        }
        while let Some(proxy) = &self.proxy
            && !proxy.is_silent
        {
            self.hear();
        }
        if let Some(proxy) = self.proxy.take() {
            merge(&mut self.past, proxy.totals);
        }
        self.held.clear();
        self.rest_until = Some(Instant::now() + REST);
        if matches!(self.tally, Tally::Awaited(_)) {
            self.tally = Tally::Done;
        }
    }

    /// Names that wait for an answer: the new ones, or all.
    pub(in crate::linux) fn held(&mut self, all: bool) -> Vec<HeldName> {
        let new = self.held.iter_mut().filter(|held| all || held.is_new);
        new.map(|held| {
            held.is_new = false;
            held.told.clone()
        })
        .collect()
    }

    /// Lets connections to a name be made, or not.
    pub(in crate::linux) fn answer(&mut self, number: u64, allowed: bool) {
        let Some(place) = self.held.iter().position(|held| held.told.number == number) else {
            return;
        };
        let held = self.held.swap_remove(place);
        self.answered.push((held.told.pattern(), allowed));
        if let Some(proxy) = &self.proxy
            && let Ok(frame) = encode(&ToProxy::Answer { number, allowed })
        {
            proxy.send(&frame, &[]);
        }
    }

    /// Whether what the command's connections came to is known as well as can be; asks for it.
    pub(in crate::linux) fn is_tallied(&mut self) -> bool {
        let Some(proxy) = &self.proxy else { return true };
        if self.tally == Tally::NotAsked
            && let Ok(frame) = encode(&ToProxy::Tally)
        {
            proxy.send(&frame, &[]);
            self.tally = Tally::Awaited(Instant::now() + TALLY);
        }
        self.tally == Tally::Done
    }

    /// What the connections came to.
    pub(in crate::linux) fn totals(&self) -> Vec<ConnectionTotal> {
        let mut all = self.past.clone();
        merge(&mut all, self.proxy.iter().flat_map(|proxy| proxy.totals.clone()).collect());
        all
    }

    /// Ends it, and says which process is going.
    pub(in crate::linux) fn end(mut self) -> Option<Pid> {
        let proxy = self.proxy.take()?;
        let _ = kill_process(proxy.pid, Signal::KILL);
        Some(proxy.pid)
    }
}

impl ProxyProcess {
    /// Sends a frame; one that is gone is noticed by its end.
    fn send(&self, frame: &[u8], with: &[BorrowedFd<'_>]) {
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = if sent == 0 { with } else { &[] };
            match socket::send(self.socket.as_fd(), rest, with) {
                Ok(bytes) => sent += bytes,
                Err(_) => return,
            }
        }
    }
}

/// Adds totals to those of the same name and verdict.
fn merge(all: &mut Vec<ConnectionTotal>, more: Vec<ConnectionTotal>) {
    for one in more {
        let is_same = |known: &&mut ConnectionTotal| {
            (&known.host, known.port, known.verdict, &known.rule)
                == (&one.host, one.port, one.verdict, &one.rule)
        };
        match all.iter_mut().find(is_same) {
            Some(known) => known.add(&one),
            None => all.push(one),
        }
    }
}
