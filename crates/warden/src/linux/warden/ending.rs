//! Ends a run, whether by itself, by a stop or by a limit, and decides whether the warden goes on.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{OWN_GRACE, WardenProcess};
use crate::{
    deadline::Deadline,
    failpoint::Failpoint,
    linux::{
        resources::collect_child,
        run::CommandRun,
        stop::{Ends, Stop, StopProgress},
        tree,
    },
    protocol::{EndCause, FromWarden},
};

impl WardenProcess<'_> {
    pub(super) fn collect(&mut self) {
        loop {
            match collect_child() {
                Ok(Some(child)) => {
                    let is_ours = self.sandboxes.is_ours(child.pid.as_raw_pid().cast_unsigned());
                    self.sandboxes.collected(child.pid);
                    if let Some(run) = &mut self.run
                        && !is_ours
                    {
                        run.collected(&child);
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
        // Our own inits are no part of what is supervised. Before the command's end nothing can be
        // said, and need not; once nothing is left, nothing comes.
        let ended = self.run.as_ref().is_some_and(CommandRun::has_ended);
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
    pub(super) fn left_behind(&self) -> Vec<u32> {
        let mut pids = tree::descendants();
        pids.retain(|pid| !self.sandboxes.is_ours(*pid));
        pids
    }

    pub(super) fn begin_stop(&mut self, signal: Signal, grace: Duration, because: EndCause) {
        if self.reusable {
            // Nothing is left to stop: it stays as clean as it is, for the command that may follow
            // at once.
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

    pub(super) fn check_clock(&mut self) {
        let now = Instant::now();
        self.deaf_until = self.deaf_until.filter(|until| now < *until);
        if let Some(door) = &mut self.sandboxes.door {
            door.check_clock(now);
        }
        self.look_around(now);
        if self.stop.is_none() && self.abandoned_at().is_some_and(|at| now >= at) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndCause::Abandoned);
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
            self.begin_stop(Signal::TERM, OWN_GRACE, EndCause::Timeout);
        }
        if self.stop.is_none() && self.run.as_mut().is_some_and(|run| run.is_out_of_time(now)) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndCause::CpuLimit);
        }
        // Also what it has left behind.
        let writes = self.stop.is_none() && !self.childless;
        if writes && self.run.as_mut().is_some_and(|run| run.has_copied_too_much(now)) {
            self.begin_stop(Signal::TERM, OWN_GRACE, EndCause::LayerLimit);
        }
        let ends = Ends { cgroup: self.cgroup.as_ref(), init: self.sandboxes.init() };
        if let Some(stop) = &mut self.stop
            && let StopProgress::Through(survivors) = stop.advance(now, self.childless, ends)
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
    pub(super) fn tell_stopped(&mut self) {
        let known = self.run.as_ref().is_none_or(|run| run.is_over() || !run.has_ended());
        if known && let Some(survivors) = self.stopped.take() {
            self.tell_all(FromWarden::Stopped { survivors });
        }
    }

    /// Makes the outcome as soon as it can be known; a stop under way is part of it.
    pub(super) fn settle(&mut self) {
        let Some(run) = &mut self.run else { return };
        if self.stop.is_some() || !run.is_drained(Instant::now()) {
            return;
        }
        if let Some(door) = &mut self.sandboxes.door {
            if !door.is_tallied() {
                return;
            }
            run.connections = door.totals();
            door.tell(run.connections.clone());
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

    /// Tells the owner what the processes that the command left behind sent after its end, once the
    /// last of them is gone.
    pub(super) fn tell_later(&mut self) {
        let Some(run) = self.run.as_ref().filter(|run| run.is_over() && self.childless) else {
            return;
        };
        if self.sandboxes.door.as_mut().is_none_or(|door| !door.is_tallied()) {
            return;
        }
        let later = self.sandboxes.close_door();
        if let Some(owner) = self.peers.first_mut().filter(|_| self.has_owner && !later.is_empty())
        {
            owner.tell(&run.task, FromWarden::ConnectedLater(later));
        }
    }

    /// Nobody else knows of the run any more: it has to be on disk.
    pub(super) fn spill_now(&mut self) {
        if let Some(run) = &mut self.run
            && !self.committed
        {
            let _ = run.spill(self.setup.tasks.as_fd());
        }
    }

    /// The outcome is safe: a clean warden forgets the run and is ready for the next one.
    pub(super) fn committed(&mut self) {
        Failpoint::WardenBeforeForgetting.pass();
        if self.reusable {
            self.run = None;
            self.reusable = false;
            for peer in &mut self.peers {
                (peer.follows, peer.watching, peer.input) = (None, None, None);
            }
        } else {
            self.committed = self.run.as_ref().is_some_and(CommandRun::is_over);
        }
    }
}
