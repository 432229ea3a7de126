//! Handles the warden's connections: who they are, what they ask for, and what they are told.

use std::{
    fs::File,
    time::{Instant, SystemTime},
};

use windows_sys::Win32::Foundation::ERROR_INVALID_HANDLE;

use super::{Listener, WardenProcess};
use crate::{
    failpoint::Failpoint,
    protocol::{
        FromWarden, Order, Spec, StartFailure, StartStage, StdinSource, ToWarden, WardenFrame,
        version,
    },
    sandbox::{Enforcement, SandboxLayer},
    windows::{
        facts::given,
        peer::{Peer, PendingInput},
        port::Packet,
        run::{CommandRun, bounded, listing},
        watching::Watching,
    },
};

/// Most observers at a time.
const OBSERVERS_MAX: usize = 64;

impl WardenProcess<'_> {
    pub(super) fn greet(&mut self, mut peer: Peer) {
        peer.send(&WardenFrame::about_warden(self.hello()));
        if let Some(run) = &self.run
            && let Some(ended) = run.ended()
        {
            peer.tell(&run.task, FromWarden::Ended(Box::new(ended)));
        }
        self.peers.push(peer);
    }

    fn hello(&self) -> FromWarden {
        FromWarden::Hello {
            version: version(),
            pid: std::process::id(),
            task: self.run.as_ref().map(|run| run.task.clone()),
        }
    }

    /// Takes the observer that has come, and waits for the next one.
    pub(super) fn accept(&mut self) {
        let Ok(next) = Listener::new(&self.setup.name, &mut self.port) else { return };
        let met = std::mem::replace(&mut self.listener, next);
        if self.peers.len() <= OBSERVERS_MAX
            && let Ok(peer) = met.into_peer()
        {
            self.greet(peer);
        }
    }

    pub(super) fn hear_peers(&mut self) {
        let mut place = 0;
        while let Some(peer) = self.peers.get_mut(place) {
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
                // Whoever looks at it comes back for it: the time begins anew when the last one
                // leaves. Who only knocked wanted to know whether we live.
                if !self.has_owner && (is_owner || looked) {
                    self.note_alone(Some(Instant::now()));
                }
            } else {
                place += 1;
            }
        }
    }

    fn obey(&mut self, place: usize, is_owner: bool, message: ToWarden) {
        match message {
            ToWarden::Handles(numbers) if is_owner => {
                // SAFETY: only the engine that has started us is the owner before there is a run,
                // and it has put these handles here; each number comes once.
                let handles = numbers.into_iter().filter_map(|number| unsafe { given(number) });
                let handles: Vec<_> = handles.collect();
                if let (Some(peer), None) = (self.peers.get_mut(place), &self.run) {
                    peer.handles.extend(handles);
                }
            }
            ToWarden::Start(spec) if is_owner && self.run.is_none() => self.start(place, *spec),
            ToWarden::Confine(_) if is_owner => {
                if let Some(peer) = self.peers.get_mut(place) {
                    peer.send(&WardenFrame::about_warden(FromWarden::Confined(enforcement())));
                }
            }
            ToWarden::Start(_) | ToWarden::Confine(_) | ToWarden::Handles(_) => {}
            ToWarden::Order { task, order } => {
                if self.run.as_ref().is_some_and(|run| run.task == task) {
                    self.obey_order(place, is_owner, &order);
                } else if let Some(peer) = self.peers.get_mut(place) {
                    peer.tell(&task, FromWarden::NotHeld);
                }
            }
        }
    }

    fn start(&mut self, place: usize, spec: Spec) {
        let Some(owner) = self.peers.get_mut(place) else { return };
        Failpoint::WardenBeforeStart.pass();
        let workdir = owner.handles.pop_front();
        let wants = spec.stdin == StdinSource::Given;
        let stdin = if wants { owner.handles.pop_front() } else { None };
        let task = spec.task.clone();
        let agreed = spec.sandbox.as_ref().map(|sandbox| sandbox.enforced.clone());
        let held = enforcement().enforced;
        let started = match workdir {
            // It was agreed upon with certain protections: not with fewer.
            Some(_) if agreed.is_some_and(|it| it.iter().any(|layer| !held.contains(layer))) => {
                Err(StartFailure { stage: StartStage::Sandbox, errno: 0 })
            }
            Some(workdir) => CommandRun::start(spec, &workdir, stdin, &mut self.port),
            None => Err(StartFailure {
                stage: StartStage::Descriptors,
                errno: ERROR_INVALID_HANDLE.cast_signed(),
            }),
        };
        match started {
            Ok(run) => {
                Failpoint::WardenAfterStart.pass();
                self.run = Some(run);
                (self.childless, self.was_empty) = (false, false);
                let hello = WardenFrame::about_warden(self.hello());
                self.peers.iter_mut().skip(1).for_each(|peer| peer.send(&hello));
            }
            Err(failure) => {
                if let Some(owner) = self.peers.get_mut(place) {
                    owner.tell(&task, FromWarden::StartFailed(failure));
                }
            }
        }
    }

    fn obey_order(&mut self, place: usize, is_owner: bool, order: &Order) {
        let (Some(peer), Some(run)) = (self.peers.get_mut(place), &mut self.run) else { return };
        match *order {
            Order::Follow { stdout_bytes, stderr_bytes } => {
                peer.follows = Some((stdout_bytes, stderr_bytes));
            }
            Order::Signal { signal, .. } => run.signal(signal),
            Order::Close(stream) => run.close(stream),
            Order::Stop { signal, grace_ms, because } => {
                self.begin_stop(signal, bounded(grace_ms), because);
            }
            Order::Committed if is_owner => {
                Failpoint::WardenBeforeForgetting.pass();
                self.committed = run.is_over();
            }
            Order::Spill => {
                let _ = run.spill(&self.setup.tasks);
                peer.tell(&run.task, FromWarden::Spilled(run.is_spilled()));
            }
            Order::Report => peer.tell(&run.task, FromWarden::Report(Box::new(run.report()))),
            Order::Measure => peer.tell(&run.task, FromWarden::Measured(run.measure())),
            Order::Watch(watch) => peer.watching = Some(Watching::begin(watch)),
            Order::Adopt => self.adopt(place),
            Order::Input(ref bytes) => {
                peer.input = Some(PendingInput { rest: bytes.clone(), taken: 0 });
                self.feed();
            }
            Order::WithdrawInput => {
                let taken = peer.input.as_ref().map_or(0, |input| input.taken);
                peer.answer_input(&run.task, taken, None);
            }
            Order::EndInput => {
                let refusal = run.end_input();
                peer.answer_input(&run.task, 0, refusal);
            }
            Order::Resize(size) => run.resize(size),
            // Only the owner's word counts, and nothing is held here.
            Order::Committed | Order::AnswerProgram { .. } | Order::AnswerName { .. } => {}
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
            self.note_alone(None);
        }
    }

    /// Begins to write the input that waits, if nothing is being written.
    fn feed(&mut self) {
        let Some(run) = &mut self.run else { return };
        for peer in &mut self.peers {
            let Some(pending) = &peer.input else { continue };
            let taken = pending.taken;
            let (takes, refusal) = (run.takes_input(), run.refusal());
            match &mut run.streams.input {
                Some(_) if pending.rest.is_empty() => peer.answer_input(&run.task, taken, None),
                Some(input) if input.is_busy() => return,
                Some(input) if takes => {
                    if input.write(&pending.rest).is_ok() {
                        return;
                    }
                    run.streams.input = None;
                    let refusal = run.refusal();
                    peer.answer_input(&run.task, taken, Some(refusal));
                }
                _ => peer.answer_input(&run.task, taken, Some(refusal)),
            }
        }
    }

    /// Takes note of input that was written: it was the first that waits.
    pub(super) fn input_written(&mut self, packet: &Packet) {
        let Some(run) = &mut self.run else { return };
        let input = run.streams.input.as_mut().filter(|input| input.key == packet.key);
        let Some(input) = input else { return };
        let Some(written) = input.written(packet) else { return };
        let is_ours = std::mem::take(&mut input.is_ours);
        let peer = self.peers.iter_mut().find(|peer| peer.input.is_some());
        match (written, peer.filter(|_| !is_ours).and_then(|peer| peer.input.as_mut())) {
            (Ok(bytes), Some(pending)) => {
                pending.taken += u64::from(bytes);
                pending.rest.drain(..pending.rest.len().min(bytes as usize));
            }
            (Ok(_), None) => {}
            (Err(()), _) => run.streams.input = None,
        }
        self.feed();
        // It was kept for this, where the command has ended meanwhile.
        if let Some(run) = self.run.as_mut().filter(|run| run.has_ended()) {
            run.streams.input = None;
        }
    }

    /// Notes since when there is no engine. The time of the warden's file says until when the
    /// command may run on, so that a list of tasks can tell it without a word.
    fn note_alone(&mut self, since: Option<Instant>) {
        self.alone_since = since;
        let left = self.run.as_ref().filter(|_| since.is_some()).map(|run| run.orphan_ttl);
        let until = SystemTime::now() + left.unwrap_or_default();
        let path = listing(&self.setup.wardens, &self.setup.name);
        // It is only told: nothing follows from it.
        let _ = File::options().write(true).open(path).and_then(|file| file.set_modified(until));
    }

    /// Looks for what peers wait for, where that is due.
    pub(super) fn look_around(&mut self, now: Instant) {
        let Some(run) = &self.run else { return };
        for peer in &mut self.peers {
            let due = peer.watching.as_mut().filter(|watching| now >= watching.look_at);
            if let Some(met) = due.and_then(|watching| watching.look(|| run.job.living())) {
                peer.watching = None;
                peer.tell(&run.task, FromWarden::Met(met));
            }
        }
    }

    /// Tells everybody something about the run.
    pub(super) fn tell_all(&mut self, message: FromWarden) {
        let Some(run) = &self.run else { return };
        let frame = WardenFrame::about_run(&run.task, message);
        self.peers.iter_mut().for_each(|peer| peer.send(&frame));
    }

    pub(super) fn notify_followers(&mut self) {
        let Some(run) = &self.run else { return };
        for peer in &mut self.peers {
            if let Some((stdout, stderr)) = peer.follows
                && let Some(growth) = run.growth(stdout, stderr)
            {
                peer.follows = None;
                peer.tell(&run.task, FromWarden::Grew(growth));
            }
        }
    }
}

/// How far a command can be confined here: it can be ended with all that it starts, and limited.
fn enforcement() -> Enforcement {
    let mut enforcement = Enforcement::default();
    for layer in SandboxLayer::ALL {
        let by_job = matches!(layer, SandboxLayer::CgroupKill | SandboxLayer::CgroupLimits);
        enforcement.note(layer, by_job, || "not on Windows yet".to_owned());
    }
    enforcement
}
