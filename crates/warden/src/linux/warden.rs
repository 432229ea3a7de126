//! The warden's loop: one thread, one `poll`, no surprises.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SocketFlags, accept_with},
    process::{Signal, WaitOptions, wait},
};

use super::{
    cgroup::Cgroup,
    deadline::Deadline,
    limits::{Limiter, Pids},
    peer::{Peer, PendingInput},
    run::{Run, bounded},
    sandbox::Sandboxes,
    signals::{Arrived, Signals},
    socket,
    spawner::Setup,
    stop::{Ends, Progress, Stop},
    tree,
    watching::Watching,
};
use crate::{
    failpoint::Failpoint,
    protocol::{
        EndedBy, FromWarden, Order, Spec, StartFailure, StartStage, Stdin, ToWarden, WardenFrame,
        version,
    },
};

/// What wardens are called in a list of processes.
pub(super) const NAME: &CStr = c"legwork-warden";

/// Most observers at a time.
const OBSERVERS_MAX: usize = 64;

/// How long no connection is accepted after accepting one failed.
const DEAF: Duration = Duration::from_millis(200);

/// The grace of a stop that no caller chose.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// Runs a warden until there is nothing left for it to do.
pub(super) fn run(
    setup: &Setup,
    name: &str,
    channel: OwnedFd,
    cgroup: Option<Cgroup>,
    pids: Result<Pids, String>,
) -> io::Result<()> {
    let mut owner = Peer::new(channel)?;
    let limiter = Limiter::new(setup, name, pids, cgroup.as_ref());
    let warden = match Warden::prepare(setup, name, cgroup, limiter) {
        Ok(warden) => warden,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let failure = StartFailure { stage: StartStage::Folder, errno };
            owner.send(&WardenFrame::about_warden(FromWarden::StartFailed(failure)));
            return Err(error);
        }
    };
    warden.serve(owner)
}

struct Warden<'a> {
    setup: &'a Setup,
    name: &'a str,
    signals: Signals,
    listener: OwnedFd,
    cgroup: Option<Cgroup>,
    sandboxes: Sandboxes,
    limiter: Limiter<'a>,
    run: Option<Run>,
    stop: Option<Stop>,
    /// A stop is through with these survivors, which is told once the outcome is known.
    stopped: Option<Vec<u32>>,
    /// The kernel said that no child is left.
    childless: bool,
    /// The engine has the outcome in the ledger.
    committed: bool,
    /// A stop has been through here: it may have taken the warden out of its cgroup.
    was_stopped: bool,
    /// The run is over and left nothing behind, so the warden can take another.
    reusable: bool,
    /// Since when there is no engine.
    alone_since: Option<Instant>,
    /// It was alone for too long: whatever could not be saved by now is lost.
    given_up: bool,
    /// Connections; the first is the owner for as long as it lives.
    peers: Vec<Peer>,
    has_owner: bool,
    /// Accepting failed: no new connection before this.
    deaf_until: Option<Instant>,
}

/// What a wait was ended by.
struct Ready {
    signals: bool,
    pipes: bool,
    notices: bool,
    input: bool,
    peers: bool,
    listener: bool,
    /// The next sandbox can be finished.
    sandbox: bool,
}

fn sandbox_failure(error: &io::Error) -> StartFailure {
    StartFailure { stage: StartStage::Sandbox, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

impl<'a> Warden<'a> {
    fn prepare(
        setup: &'a Setup,
        name: &'a str,
        cgroup: Option<Cgroup>,
        limiter: Limiter<'a>,
    ) -> io::Result<Self> {
        // The spawner's control socket is our stdin: let go of it.
        rustix::stdio::dup2_stdin(&setup.null)?;
        let signals = Signals::block_all()?;
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(NAME);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let listener = socket::listen_for_adoption(setup.wardens.as_fd(), name)?;
        Ok(Self {
            setup,
            name,
            signals,
            listener,
            cgroup,
            sandboxes: Sandboxes::default(),
            limiter,
            run: None,
            stop: None,
            stopped: None,
            childless: true,
            committed: false,
            was_stopped: false,
            reusable: false,
            alone_since: None,
            given_up: false,
            peers: Vec::new(),
            has_owner: true,
            deaf_until: None,
        })
    }

    fn serve(mut self, owner: Peer) -> io::Result<()> {
        self.greet(owner);
        let mut buffer = Vec::new();
        let outcome = loop {
            match self.wait() {
                Ok(ready) => self.turn(&ready, &mut buffer),
                Err(error) => break Err(error),
            }
            if self.is_done() {
                break Ok(());
            }
        };
        if let Some(run) = &mut self.run {
            run.drain(self.setup.tasks.as_fd(), &mut buffer);
        }
        let _ = rustix::fs::unlinkat(
            &self.setup.wardens,
            format!("{}.sock", self.name),
            rustix::fs::AtFlags::empty(),
        );
        // The task's own cgroup goes first, then the spawner removes ours, unless it died before us.
        self.run = None;
        if rustix::process::getppid() != Some(self.setup.spawner) {
            self.limiter.leave();
            if let Some(cgroup) = &self.cgroup {
                let _ = cgroup.leave();
                cgroup.remove();
            }
        }
        outcome
    }

    fn greet(&mut self, mut peer: Peer) {
        peer.send(&WardenFrame::about_warden(self.hello()));
        if let Some(run) = &self.run
            && let Some(ended) = run.ended()
        {
            peer.tell(&run.task, FromWarden::Ended(Box::new(ended)));
        }
        self.peers.push(peer);
    }

    /// Tells those who came before the task did that it is here now.
    fn greet_again(&mut self, owner: usize) {
        if self.peers.len() > 1 {
            let hello = WardenFrame::about_warden(self.hello());
            for (place, peer) in self.peers.iter_mut().enumerate() {
                if place != owner {
                    peer.send(&hello);
                }
            }
        }
    }

    fn hello(&self) -> FromWarden {
        FromWarden::Hello {
            version: version(),
            pid: std::process::id(),
            task: self.run.as_ref().map(|run| run.task.clone()),
        }
    }

    /// Sleeps until something happens, and says what.
    fn wait(&self) -> io::Result<Ready> {
        let readers: Vec<BorrowedFd<'_>> = self.run.iter().flat_map(Run::readers).collect();
        let input = self.blocked_input();
        let mut interests = Vec::with_capacity(3 + self.peers.len() + readers.len());
        interests.push(PollFd::new(&self.signals, PollFlags::IN));
        interests.extend(readers.iter().map(|reader| PollFd::new(reader, PollFlags::IN)));
        let notices = self.run.as_ref().and_then(Run::notices);
        interests.extend(notices.iter().map(|notices| PollFd::new(notices, PollFlags::IN)));
        interests.extend(input.iter().map(|input| PollFd::new(input, PollFlags::OUT)));
        for peer in &self.peers {
            let output = if peer.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            interests.push(PollFd::new(peer, PollFlags::IN | output));
        }
        let sandbox = self.sandboxes.pending();
        interests.extend(sandbox.iter().map(|pending| PollFd::new(pending, PollFlags::IN)));
        if self.deaf_until.is_none() {
            interests.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let timeout = self.wake_at().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut interests, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = interests.iter().map(|interest| !interest.revents().is_empty());
        let signals = ready.next().unwrap_or(false);
        let mut any_of =
            |count: usize| ready.by_ref().take(count).fold(false, |any, one| any | one);
        Ok(Ready {
            signals,
            pipes: any_of(readers.len()),
            notices: any_of(usize::from(notices.is_some())),
            input: any_of(usize::from(input.is_some())),
            peers: any_of(self.peers.len()),
            sandbox: any_of(usize::from(sandbox.is_some())),
            listener: any_of(1),
        })
    }

    /// Where input goes, if some of it waits to be taken.
    fn blocked_input(&self) -> Option<BorrowedFd<'_>> {
        let waits = self.peers.iter().any(|peer| peer.input.is_some());
        self.run.as_ref().filter(|_| waits).and_then(Run::input_descriptor)
    }

    /// The next moment at which something is due without an event.
    fn wake_at(&self) -> Option<Instant> {
        let run = self.run.as_ref();
        [
            run.and_then(|run| run.deadline).filter(|_| self.stop.is_none()).map(Deadline::look_at),
            run.and_then(Run::look_at).filter(|_| self.stop.is_none()),
            run.and_then(Run::drain_until).filter(|_| self.stop.is_none()),
            self.stop.as_ref().map(Stop::wake_at),
            self.abandoned_at().filter(|_| self.stop.is_none()),
            self.deaf_until,
            run.and_then(|run| run.spill_at),
            self.watches().map(|watching| watching.look_at).min(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn watches(&self) -> impl Iterator<Item = &Watching> {
        self.peers.iter().filter_map(|peer| peer.watching.as_ref())
    }

    fn abandoned_at(&self) -> Option<Instant> {
        let alone = self.alone_since.filter(|_| self.peers.is_empty());
        self.run.as_ref().zip(alone).map(|(run, since)| since + run.orphan_ttl)
    }

    /// Handles everything that has happened.
    ///
    /// Children are collected before the pipes are read: what a process wrote before its end is then
    /// surely in its pipe when the end is known.
    fn turn(&mut self, ready: &Ready, buffer: &mut Vec<u8>) {
        let arrived = if ready.signals { self.signals.take() } else { Arrived::default() };
        if arrived.child {
            self.collect();
        }
        if arrived.terminate {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndedBy::Stopped);
        }
        if let Some(run) = &mut self.run
            && ready.notices
        {
            run.answer_notices();
        }
        // While it drains, only a read that finds nothing shows that all has been read.
        if let Some(run) = &mut self.run
            && (ready.pipes || run.drain_until().is_some())
        {
            run.pump(self.setup.tasks.as_fd(), buffer);
        }
        if ready.input || arrived.child {
            self.feed();
        }
        if ready.listener {
            self.accept();
        }
        if ready.peers {
            self.hear_peers();
        }
        if ready.sandbox {
            self.sandboxes.finish(self.setup);
        }
        self.check_clock();
        self.settle();
        self.tell_stopped();
        self.notify_followers();
    }

    fn collect(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    self.sandboxes.collected(pid);
                    if let Some(run) = &mut self.run {
                        run.collected(pid, status);
                    }
                }
                Ok(None) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
        // Our own inits are no part of what is supervised. Before the command's end nothing can be said, and need not;
        // once nothing is left, nothing comes.
        let ended = self.run.as_ref().is_some_and(Run::has_ended);
        if ended && !self.childless && !self.sandboxes.is_empty() {
            self.childless = tree::is_empty_but(|pid| self.sandboxes.is_ours(pid));
            if !self.childless {
                // Its init collects what is left: only by the init's own end do we learn of theirs.
                self.sandboxes.expect_last();
            }
        }
        if let Some(stop) = &mut self.stop
            && !self.childless
        {
            stop.one_ended(self.sandboxes.init());
        }
    }

    /// Processes that the command has left behind.
    fn left_behind(&self) -> Vec<u32> {
        let mut pids = tree::descendants();
        pids.retain(|pid| !self.sandboxes.is_ours(*pid));
        pids
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match accept_with(&self.listener, flags) {
                Ok(socket) if self.peers.len() <= OBSERVERS_MAX => {
                    if let Ok(peer) = Peer::new(socket) {
                        self.greet(peer);
                    }
                }
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // Out of descriptors, say: the caller stays in the queue, and we do not spin.
                Err(_) => {
                    self.deaf_until = Some(Instant::now() + DEAF);
                    return;
                }
            }
        }
    }

    fn hear_peers(&mut self) {
        let mut place = 0;
        while let Some(peer) = self.peers.get_mut(place) {
            peer.flush();
            let is_owner = self.has_owner && place == 0;
            if let Some(message) = peer.next() {
                peer.spoke = true;
                self.obey(place, is_owner, message);
            } else if peer.closed {
                let looked = self.peers.remove(place).spoke;
                if is_owner {
                    self.has_owner = false;
                    self.spill_now();
                }
                // Whoever looks at it comes back for it: the time begins anew when the last one leaves. Who only
                // knocked wanted to know whether we live.
                if !self.has_owner && (is_owner || looked) {
                    self.alone_since = Some(Instant::now());
                }
            } else {
                place += 1;
            }
        }
    }

    /// Nobody else knows of the run any more: it has to be on disk.
    fn spill_now(&mut self) {
        if let Some(run) = &mut self.run
            && !self.committed
        {
            let _ = run.spill(self.setup.tasks.as_fd());
        }
    }

    fn obey(&mut self, place: usize, is_owner: bool, message: ToWarden) {
        match message {
            ToWarden::Start(spec) if is_owner && self.run.is_none() => self.start(place, *spec),
            ToWarden::Confine(profile) if is_owner => {
                let confined = self.sandboxes.confine(self.setup, *profile);
                if let Some(peer) = self.peers.get_mut(place) {
                    peer.send(&WardenFrame::about_warden(match confined {
                        Ok(enforcement) => FromWarden::Confined(enforcement),
                        Err(error) => FromWarden::StartFailed(sandbox_failure(&error)),
                    }));
                }
            }
            ToWarden::Start(_) | ToWarden::Confine(_) => {}
            ToWarden::Order { task, order } => {
                if self.run.as_ref().is_some_and(|run| run.task == task) {
                    self.obey_order(place, is_owner, &order);
                } else if let Some(peer) = self.peers.get_mut(place) {
                    peer.tell(&task, FromWarden::NotHeld);
                }
            }
        }
    }

    fn obey_order(&mut self, place: usize, is_owner: bool, order: &Order) {
        match *order {
            Order::Follow { stdout_bytes, stderr_bytes } => {
                if let Some(peer) = self.peers.get_mut(place) {
                    peer.follows = Some((stdout_bytes, stderr_bytes));
                }
            }
            Order::Signal { signal, group } => {
                if let (Some(run), Some(signal)) = (&self.run, Signal::from_named_raw(signal)) {
                    run.signal(signal, group);
                }
            }
            Order::Close(stream) => {
                if let Some(run) = &mut self.run {
                    run.close(stream);
                }
            }
            Order::Stop { signal, grace_ms, because } => {
                let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                self.begin_stop(signal, bounded(grace_ms), because);
            }
            Order::Committed if is_owner => self.committed(),
            Order::Committed => {}
            Order::Spill => {
                self.spill_now();
                if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
                    peer.tell(&run.task, FromWarden::Spilled(run.is_spilled()));
                }
            }
            Order::Report => {
                let background = if self.childless { Vec::new() } else { self.left_behind() };
                if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
                    peer.tell(&run.task, FromWarden::Report(Box::new(run.report(background))));
                }
            }
            Order::Resize(size) => {
                if let Some(run) = &mut self.run {
                    run.resize(size);
                }
            }
            Order::Watch(watch) => {
                if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
                    peer.watching = Some(Watching::begin(watch, run.pid()));
                }
            }
            Order::Adopt => self.adopt(place),
            Order::Input(ref bytes) => self.take_input(place, bytes),
            Order::WithdrawInput => self.withdraw_input(place),
            Order::EndInput => {
                if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &mut self.run) {
                    let refusal = run.end_input();
                    peer.answer_input(&run.task, 0, refusal);
                }
            }
        }
    }

    /// Makes a peer the owner, if there is none.
    fn adopt(&mut self, place: usize) {
        let free = !self.has_owner;
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            peer.tell(&run.task, FromWarden::Adopted(free));
        }
        if free && place < self.peers.len() {
            // The owner stands first.
            self.peers.swap(0, place);
            self.has_owner = true;
            self.alone_since = None;
        }
    }

    fn take_input(&mut self, place: usize, bytes: &[u8]) {
        if let Some(peer) = self.peers.get_mut(place) {
            peer.input = Some(PendingInput { rest: bytes.to_vec(), taken: 0 });
        }
        self.feed();
    }

    fn withdraw_input(&mut self, place: usize) {
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            let taken = peer.input.as_ref().map_or(0, |input| input.taken);
            peer.answer_input(&run.task, taken, None);
        }
    }

    /// Writes the input that waits, as far as the command takes it.
    fn feed(&mut self) {
        let Some(run) = &mut self.run else { return };
        for peer in &mut self.peers {
            if let Some((taken, refusal)) =
                peer.input.as_mut().and_then(|pending| run.feed(pending))
            {
                peer.answer_input(&run.task, taken, refusal);
            }
        }
    }

    /// Looks for what peers wait for, where that is due.
    fn look_around(&mut self, now: Instant) {
        let Some(run) = &self.run else { return };
        for peer in &mut self.peers {
            let due = peer.watching.as_mut().filter(|watching| now >= watching.look_at);
            if let Some(met) = due.and_then(|watching| watching.look(run.pid(), run.input_source()))
            {
                peer.watching = None;
                peer.tell(&run.task, FromWarden::Met(met));
            }
        }
    }

    /// The outcome is safe: a clean warden forgets the run and is ready for the next one.
    fn committed(&mut self) {
        Failpoint::WardenBeforeForgetting.pass();
        if self.reusable {
            self.run = None;
            self.reusable = false;
            for peer in &mut self.peers {
                (peer.follows, peer.watching, peer.input) = (None, None, None);
            }
        } else {
            self.committed = self.run.as_ref().is_some_and(Run::is_over);
        }
    }

    fn start(&mut self, place: usize, spec: Spec) {
        let Some(owner) = self.peers.get_mut(place) else {
            return;
        };
        Failpoint::WardenBeforeStart.pass();
        let workdir = owner.take_descriptor();
        let stdin = if spec.stdin == Stdin::Given { owner.take_descriptor() } else { None };
        let task = spec.task.clone();
        let started = match workdir {
            Some(workdir) => self.begin(spec, workdir.as_fd(), stdin.as_ref().map(AsFd::as_fd)),
            None => Err(StartFailure { stage: StartStage::Descriptors, errno: libc::EBADF }),
        };
        match started {
            Ok(run) => {
                Failpoint::WardenAfterStart.pass();
                self.run = Some(run);
                self.childless = false;
                self.greet_again(place);
            }
            Err(failure) => {
                if let Some(owner) = self.peers.get_mut(place) {
                    owner.tell(&task, FromWarden::StartFailed(failure));
                }
                self.sandboxes.prepare();
            }
        }
    }

    /// Starts a command, in a sandbox if it is to be in one.
    fn begin(
        &mut self,
        spec: Spec,
        workdir: BorrowedFd<'_>,
        stdin: Option<BorrowedFd<'_>>,
    ) -> Result<Run, StartFailure> {
        let Some(sandbox) = &spec.sandbox else {
            return Run::start(self.setup, &mut self.limiter, spec, workdir, stdin, None);
        };
        let ready = self.sandboxes.take(self.setup, &sandbox.artifacts);
        let ready = ready.map_err(|error| sandbox_failure(&error))?;
        // It was agreed upon with certain protections: not with fewer.
        let entered = if ready.enforces(&sandbox.enforced) {
            Run::start(self.setup, &mut self.limiter, spec, workdir, stdin, Some(&ready))
        } else {
            Err(StartFailure { stage: StartStage::Sandbox, errno: libc::EPERM })
        };
        match entered {
            Ok(_) => self.sandboxes.entered(ready),
            Err(_) => self.sandboxes.discard(ready),
        }
        entered
    }

    fn begin_stop(&mut self, signal: Signal, grace: Duration, because: EndedBy) {
        if self.reusable {
            // Nothing is left to stop: it stays as clean as it is, for the command that may follow at once.
            return self.tell_all(FromWarden::Stopped { survivors: Vec::new() });
        }
        let Some(run) = &mut self.run else { return };
        if !run.has_ended() && run.ended_by.is_none() {
            run.ended_by = Some(because);
        }
        self.was_stopped = true;
        let hangs_up = signal == Signal::TERM && run.has_terminal();
        match &mut self.stop {
            Some(stop) => stop.hurry(signal, grace),
            None => self.stop = Some(Stop::begin(signal, grace, hangs_up)),
        }
    }

    fn check_clock(&mut self) {
        let now = Instant::now();
        self.deaf_until = self.deaf_until.filter(|until| now < *until);
        self.look_around(now);
        if self.stop.is_none() && self.abandoned_at().is_some_and(|at| now >= at) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndedBy::Abandoned);
            self.alone_since = Some(now);
            self.given_up = true;
        }
        if let Some(run) = &mut self.run
            && run.spill_at.is_some_and(|at| now >= at)
        {
            let _ = run.spill(self.setup.tasks.as_fd());
        }
        let deadline = self.run.as_ref().and_then(|run| run.deadline);
        if self.stop.is_none() && deadline.is_some_and(Deadline::is_over) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndedBy::Timeout);
        }
        if self.stop.is_none() && self.run.as_mut().is_some_and(|run| run.is_out_of_time(now)) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndedBy::CpuLimit);
        }
        let ends = Ends { cgroup: self.cgroup.as_ref(), init: self.sandboxes.init() };
        if let Some(stop) = &mut self.stop
            && let Progress::Through(survivors) = stop.advance(now, self.childless, ends)
        {
            self.stop = None;
            if let Some(run) = &mut self.run {
                // What survived a kill is not killed again and again.
                run.deadline = None;
            }
            self.stopped = Some(survivors);
        }
    }

    /// Tells that a stop is through: after the outcome, unless the command itself is what survived.
    fn tell_stopped(&mut self) {
        let known = self.run.as_ref().is_none_or(|run| run.is_over() || !run.has_ended());
        if known && let Some(survivors) = self.stopped.take() {
            self.tell_all(FromWarden::Stopped { survivors });
        }
    }

    /// Makes the outcome as soon as it can be known; a stop under way is part of it.
    fn settle(&mut self) {
        let Some(run) = &mut self.run else { return };
        if self.stop.is_some() || !run.is_drained(Instant::now()) {
            return;
        }
        let background = if self.childless { Vec::new() } else { self.left_behind() };
        let Some(run) = &mut self.run else { return };
        let tasks = self.setup.tasks.as_fd();
        if let Some(mut ended) = run.finish(tasks, &mut self.limiter, background) {
            ended.reusable &= self.childless && !self.was_stopped;
            self.reusable = ended.reusable;
            Failpoint::WardenBeforeTelling.pass();
            self.tell_all(FromWarden::Ended(Box::new(ended)));
            Failpoint::WardenAfterTelling.pass();
            if !self.has_owner {
                self.spill_now();
            }
            self.sandboxes.left(self.childless);
            if self.reusable {
                self.sandboxes.prepare();
            }
        }
    }

    /// Tells everybody something about the run.
    fn tell_all(&mut self, message: FromWarden) {
        let Some(run) = &self.run else { return };
        let frame = WardenFrame::about_run(&run.task, message);
        for peer in &mut self.peers {
            peer.send(&frame);
        }
    }

    fn notify_followers(&mut self) {
        // Where nothing is left that could print, the end has said all there is.
        let Some(run) = self.run.as_ref().filter(|_| !self.reusable) else { return };
        for peer in &mut self.peers {
            if let Some((stdout, stderr)) = peer.follows
                && let Some(growth) = run.growth(stdout, stderr)
            {
                peer.follows = None;
                peer.tell(&run.task, FromWarden::Grew(growth));
            }
        }
    }

    /// Whether there is nothing left to run, to keep or to tell.
    fn is_done(&self) -> bool {
        let ended = match &self.run {
            None => !self.has_owner,
            Some(run) if !run.is_over() || !self.childless => false,
            Some(_) if self.has_owner => self.committed,
            Some(run) => self.committed || run.spill_at.is_none() || self.given_up,
        };
        ended && self.stop.is_none() && self.stopped.is_none()
    }
}
