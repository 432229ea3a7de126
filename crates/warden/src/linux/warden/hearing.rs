//! Handles the warden's connections: who they are, what they ask for, and what they are told.

use std::time::{Duration, Instant};

use rustix::{
    net::{SocketFlags, accept_with},
    process::Signal,
};

use super::{WardenProcess, starting::sandbox_failure};
use crate::{
    linux::{
        peer::{Peer, PendingInput},
        run::bounded,
        watching::Watching,
    },
    protocol::{FromWarden, Order, ToWarden, WardenFrame, version},
};

/// Most observers at a time.
const OBSERVERS_MAX: usize = 64;

/// How long no connection is accepted after accepting one failed.
const DEAF: Duration = Duration::from_millis(200);

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

    /// Tells those who came before the task did that it is here now.
    pub(super) fn greet_again(&mut self, owner: usize) {
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

    pub(super) fn accept(&mut self) {
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

    pub(super) fn hear_peers(&mut self) {
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
            ToWarden::Start(spec) if is_owner && self.run.is_none() => self.start(place, *spec),
            ToWarden::Confine(profile) if is_owner => {
                let confined = self.sandboxes.confine(*profile);
                if let Some(peer) = self.peers.get_mut(place) {
                    peer.send(&WardenFrame::about_warden(match confined {
                        Ok(enforcement) => FromWarden::Confined(enforcement),
                        Err(error) => FromWarden::StartFailed(sandbox_failure(&error)),
                    }));
                }
            }
            ToWarden::Start(_) | ToWarden::Confine(_) | ToWarden::Handles(_) => {}
            ToWarden::Order { task, order } => {
                if self.run.as_ref().is_some_and(|run| run.task == task) {
                    self.obey_order(place, is_owner, order);
                } else if let Some(peer) = self.peers.get_mut(place) {
                    peer.tell(&task, FromWarden::NotHeld);
                }
            }
        }
    }

    fn obey_order(&mut self, place: usize, is_owner: bool, order: Order) {
        match order {
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
            Order::Spill => self.spill_for(place),
            Order::Report => self.report_to(place),
            Order::Measure => self.measure_for(place),
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
            Order::Adopt => {
                self.adopt(place);
                self.tell_held(true);
            }
            Order::AnswerProgram { number, allowed } if is_owner => {
                self.run.iter_mut().for_each(|run| run.answer_program(number, allowed));
            }
            Order::AnswerName { number, allowed } if is_owner => {
                self.sandboxes.door.iter_mut().for_each(|door| door.answer(number, allowed));
            }
            // Only the owner's word counts.
            Order::Committed | Order::AnswerProgram { .. } | Order::AnswerName { .. } => {}
            Order::Input(bytes) => self.take_input(place, bytes),
            Order::WithdrawInput => self.withdraw_input(place),
            Order::EndInput => self.end_input(place),
        }
    }

    fn spill_for(&mut self, place: usize) {
        self.spill_now();
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            peer.tell(&run.task, FromWarden::Spilled(run.is_spilled()));
        }
    }

    fn report_to(&mut self, place: usize) {
        let background = if self.childless { Vec::new() } else { self.left_behind() };
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            peer.tell(&run.task, FromWarden::Report(Box::new(run.report(background))));
        }
    }

    fn measure_for(&mut self, place: usize) {
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            let measured = run.measure(|pid| self.sandboxes.is_ours(pid));
            peer.tell(&run.task, FromWarden::Measured(measured));
        }
    }

    /// Tells the owner of programs and names that wait for an answer: of the new ones, or of all.
    pub(super) fn tell_held(&mut self, all: bool) {
        let owner = self.peers.first_mut().filter(|_| self.has_owner);
        if let (Some(owner), Some(run)) = (owner, &mut self.run) {
            for held in run.held_programs(all) {
                owner.tell(&run.task, FromWarden::ProgramHeld(held));
            }
            for held in self.sandboxes.door.iter_mut().flat_map(|door| door.held(all)) {
                owner.tell(&run.task, FromWarden::NameHeld(held));
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
            self.note_alone(None);
        }
    }

    fn take_input(&mut self, place: usize, bytes: Vec<u8>) {
        if let Some(peer) = self.peers.get_mut(place) {
            peer.input = Some(PendingInput { rest: bytes, taken: 0 });
        }
        self.feed();
    }

    fn withdraw_input(&mut self, place: usize) {
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &self.run) {
            let taken = peer.input.as_ref().map_or(0, |input| input.taken);
            peer.answer_input(&run.task, taken, None);
        }
    }

    fn end_input(&mut self, place: usize) {
        if let (Some(peer), Some(run)) = (self.peers.get_mut(place), &mut self.run) {
            let refusal = run.end_input();
            peer.answer_input(&run.task, 0, refusal);
        }
    }

    /// Writes the input that waits, as far as the command takes it.
    pub(super) fn feed(&mut self) {
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
    pub(super) fn look_around(&mut self, now: Instant) {
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

    /// Tells everybody something about the run.
    pub(super) fn tell_all(&mut self, message: FromWarden) {
        let Some(run) = &self.run else { return };
        let frame = WardenFrame::about_run(&run.task, message);
        for peer in &mut self.peers {
            peer.send(&frame);
        }
    }

    pub(super) fn notify_followers(&mut self) {
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
}
