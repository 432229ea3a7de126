//! The warden's side of a proxy: the listener, the process that serves it, and what it reports.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};

use super::{
    FromProxy, ProxyTask, QUESTIONS_MAX, ToProxy,
    counts::{PLACES, SharedCounts},
    live,
    outbox::ControlOutbox,
};
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
    /// What the result of the command says.
    told: Vec<ConnectionTotal>,
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
    /// The process itself: its pid may be another's once it was collected.
    handle: OwnedFd,
    socket: OwnedFd,
    decoder: Decoder,
    outbox: ControlOutbox,
    /// The names that it counts connections of, and their numbers.
    names: Vec<ConnectionTotal>,
    counts: SharedCounts,
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
            told: Vec::new(),
            held: Vec::new(),
            answered: Vec::new(),
            last_number: 0,
            tally: Tally::NotAsked,
            rest_until: None,
        }
    }

    /// What becomes ready when there is something to [serve](Self::serve).
    pub(in crate::linux) fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let Some(proxy) = &self.proxy else {
            return self.rest_until.is_none().then(|| (self.listener.as_fd(), PollFlags::IN));
        };
        let output = if proxy.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        (!proxy.is_silent).then(|| (proxy.socket.as_fd(), PollFlags::IN | output))
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
        if let Some(proxy) = &mut self.proxy {
            proxy.outbox.flush(&proxy.socket);
            self.hear();
        } else if self.rest_until.is_none() && self.start(leave).is_err() {
            self.rest_until = Some(Instant::now() + REST);
        }
    }

    fn start(&mut self, leave: impl FnOnce()) -> io::Result<()> {
        let (ours, theirs) = socket::nonblocking_pair()?;
        let counts = SharedCounts::new()?;
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
            live(theirs.as_fd(), counts);
        }
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // Nobody has collected it yet.
            let _ = kill_process(pid, Signal::KILL);
        })?;
        let mut proxy = ProxyProcess {
            pid,
            handle,
            socket: ours,
            decoder: Decoder::default(),
            outbox: ControlOutbox::default(),
            names: Vec::new(),
            counts,
            is_silent: false,
        };
        // If that fails it ends by itself, and is collected.
        proxy.outbox.send(&proxy.socket, &frame, &[self.listener.as_fd()]);
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Takes what the proxy has said, some of it at a time; it reads what hostile code sends, and
    /// may say what it will. False is that nothing more is there.
    fn hear(&mut self) -> bool {
        let Some(proxy) = self.proxy.as_mut().filter(|proxy| !proxy.is_silent) else {
            return false;
        };
        let mut buffer = vec![0; READ_BYTES];
        let bytes = match socket::receive(proxy.socket.as_fd(), &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            received => received.map_or(0, |received| received.bytes),
        };
        proxy.decoder.feed(buffer.get(..bytes).unwrap_or_default());
        let is_known = loop {
            match proxy.decoder.next_frame() {
                Ok(Some(FromProxy::Held(told))) if self.held.len() < QUESTIONS_MAX => {
                    self.last_number = self.last_number.max(told.number);
                    self.held.push(HeldConnections { told, is_new: true });
                }
                Ok(Some(FromProxy::Name(name))) if proxy.names.len() < PLACES => {
                    proxy.names.push(name);
                }
                Ok(Some(FromProxy::Tallied)) => self.tally = Tally::Done,
                Ok(None) => break true,
                Ok(Some(_)) | Err(_) => break false,
            }
        };
        if bytes == 0 || !is_known {
            // It has ended, or is of no use; it is collected when the kernel says so.
            proxy.kill();
            proxy.is_silent = true;
        }
        !proxy.is_silent
    }

    /// A child was collected. If that was the proxy, what it knew is kept, and what waited in it
    /// waits no longer; whoever connects next gets another.
    pub(in crate::linux) fn collected(&mut self, pid: Pid) {
        if self.pid() != Some(pid) {
            return;
        }
        while self.hear() {}
        if let Some(proxy) = self.proxy.take() {
            merge(&mut self.past, proxy.totals());
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
        if let Some(proxy) = &mut self.proxy {
            proxy.tell(&ToProxy::Answer { number, allowed });
        }
    }

    /// Whether what the command's connections came to is known as well as can be; asks for it.
    pub(in crate::linux) fn is_tallied(&mut self) -> bool {
        let Some(proxy) = &mut self.proxy else { return true };
        if self.tally == Tally::NotAsked {
            proxy.tell(&ToProxy::Tally);
            self.tally = Tally::Awaited(Instant::now() + TALLY);
        }
        self.tally == Tally::Done
    }

    /// What the connections came to.
    pub(in crate::linux) fn totals(&self) -> Vec<ConnectionTotal> {
        let mut all = self.past.clone();
        merge(&mut all, self.proxy.iter().flat_map(ProxyProcess::totals).collect());
        all
    }

    /// These were told as what the command's connections came to; what is left running may go on.
    pub(in crate::linux) fn tell(&mut self, totals: Vec<ConnectionTotal>) {
        self.told = totals;
        self.tally = Tally::NotAsked;
    }

    /// What they came to since that was told.
    pub(in crate::linux) fn later(&self) -> Vec<ConnectionTotal> {
        let mut all = self.totals();
        for total in &mut all {
            if let Some(before) = self.told.iter().find(|it| it.is_alike(total)) {
                total.subtract(before);
            }
        }
        all.retain(|total| !total.is_nothing());
        all
    }

    /// Ends it, and says which process is going.
    pub(in crate::linux) fn end(mut self) -> Option<Pid> {
        let proxy = self.proxy.take()?;
        proxy.kill();
        Some(proxy.pid)
    }
}

impl ProxyProcess {
    /// Tells it something; one that is gone is noticed by its end.
    fn tell(&mut self, order: &ToProxy) {
        if let Ok(frame) = encode(order) {
            self.outbox.send(&self.socket, &frame, &[]);
        }
    }

    fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// What the connections to each name came to, as of now.
    fn totals(&self) -> Vec<ConnectionTotal> {
        let counted = self.names.iter().enumerate().map(|(place, name)| {
            let [count, bytes_out, bytes_in] = self.counts.at(place).read();
            ConnectionTotal { count, bytes_out, bytes_in, ..name.clone() }
        });
        counted.filter(|total| !total.is_nothing()).collect()
    }
}

/// Adds totals to those of the same name and verdict.
fn merge(all: &mut Vec<ConnectionTotal>, more: Vec<ConnectionTotal>) {
    for one in more {
        match all.iter_mut().find(|known| known.is_alike(&one)) {
            Some(known) => known.add(&one),
            None => all.push(one),
        }
    }
}
