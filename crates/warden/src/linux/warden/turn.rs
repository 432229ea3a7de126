//! One turn of the warden's loop: sleep until something happens, then handle all of it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};

use super::{OWN_GRACE, WardenProcess};
use crate::{
    deadline::Deadline,
    linux::{proxy::Doorway, run::CommandRun, signals::Arrived, stop::Stop, watching::Watching},
    protocol::EndCause,
};

/// What a wait was ended by.
pub(super) struct WokenBy {
    signals: bool,
    pipes: bool,
    notices: bool,
    input: bool,
    peers: bool,
    listener: bool,
    /// One that was told to end has ended.
    told: bool,
    /// The next sandbox can be finished.
    sandbox: bool,
    /// Somebody connects by name, or the proxy says something.
    door: bool,
}

impl WardenProcess<'_> {
    /// Sleeps until something happens, and says what.
    pub(super) fn wait(&self) -> io::Result<WokenBy> {
        let readers: Vec<BorrowedFd<'_>> = self.run.iter().flat_map(CommandRun::readers).collect();
        let input = self.blocked_input();
        let mut interests = Vec::with_capacity(3 + self.peers.len() + readers.len());
        interests.push(PollFd::new(&self.signals, PollFlags::IN));
        interests.extend(readers.iter().map(|reader| PollFd::new(reader, PollFlags::IN)));
        let notices = self.run.as_ref().and_then(CommandRun::notices);
        interests.extend(notices.iter().map(|notices| PollFd::new(notices, PollFlags::IN)));
        interests.extend(input.iter().map(|input| PollFd::new(input, PollFlags::OUT)));
        for peer in &self.peers {
            let output = if peer.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            interests.push(PollFd::new(peer, PollFlags::IN | output));
        }
        let sandbox = self.sandboxes.pending();
        interests.extend(sandbox.iter().map(|pending| PollFd::new(pending, PollFlags::IN)));
        let door = self.sandboxes.door.as_ref().and_then(Doorway::watched);
        interests.extend(door.map(|(door, flags)| PollFd::from_borrowed_fd(door, flags)));
        let told: Vec<_> = self.stop.iter().flat_map(Stop::ends).collect();
        interests.extend(told.iter().map(|one| PollFd::new(one, PollFlags::IN)));
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
        Ok(WokenBy {
            signals,
            pipes: any_of(readers.len()),
            notices: any_of(usize::from(notices.is_some())),
            input: any_of(usize::from(input.is_some())),
            peers: any_of(self.peers.len()),
            sandbox: any_of(usize::from(sandbox.is_some())),
            door: any_of(usize::from(door.is_some())),
            told: any_of(told.len()),
            listener: any_of(1),
        })
    }

    /// Where input goes, if some of it waits to be taken.
    fn blocked_input(&self) -> Option<BorrowedFd<'_>> {
        let waits = self.peers.iter().any(|peer| peer.input.is_some());
        self.run.as_ref().filter(|_| waits).and_then(CommandRun::input_descriptor)
    }

    /// The next moment at which something is due without an event.
    fn wake_at(&self) -> Option<Instant> {
        let run = self.run.as_ref();
        [
            run.and_then(|run| run.deadline).filter(|_| self.stop.is_none()).map(Deadline::look_at),
            run.and_then(CommandRun::look_at).filter(|_| self.stop.is_none()),
            run.and_then(CommandRun::copies_look_at)
                .filter(|_| self.stop.is_none() && !self.childless),
            run.and_then(CommandRun::drain_until).filter(|_| self.stop.is_none()),
            self.stop.as_ref().map(Stop::wake_at),
            self.abandoned_at().filter(|_| self.stop.is_none()),
            self.deaf_until,
            run.and_then(|run| run.spill_at),
            self.watches().map(|watching| watching.look_at).min(),
            self.sandboxes.door.as_ref().and_then(Doorway::wake_at),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn watches(&self) -> impl Iterator<Item = &Watching> {
        self.peers.iter().filter_map(|peer| peer.watching.as_ref())
    }

    pub(super) fn abandoned_at(&self) -> Option<Instant> {
        let alone = self.alone_since.filter(|_| self.peers.is_empty());
        self.run.as_ref().zip(alone).map(|(run, since)| since + run.orphan_ttl)
    }

    /// Hears the proxy of the command's sandbox, or starts one. It is none of the command's
    /// processes, so it leaves the cgroups in which those are counted.
    fn serve_door(&mut self) {
        let (limiter, cgroup) = (&self.limiter, &self.cgroup);
        if let Some(door) = &mut self.sandboxes.door {
            door.serve(|| {
                limiter.leave();
                if let Some(cgroup) = cgroup {
                    let _ = cgroup.leave();
                }
            });
        }
    }

    /// Handles everything that has happened.
    ///
    /// Children are collected before the pipes are read: what a process wrote before its end is
    /// then surely in its pipe when the end is known.
    pub(super) fn turn(&mut self, ready: &WokenBy, buffer: &mut Vec<u8>) {
        let arrived = if ready.signals { self.signals.take() } else { Arrived::default() };
        if arrived.child || ready.told {
            self.collect();
        }
        if arrived.terminate {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndCause::Stopped);
        }
        if let Some(run) = &mut self.run
            && ready.notices
        {
            run.answer_notices();
        }
        if ready.door {
            self.serve_door();
        }
        self.tell_held(false);
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
            self.sandboxes.finish();
        }
        self.check_clock();
        self.settle();
        self.tell_later();
        self.tell_stopped();
        self.notify_followers();
    }
}
