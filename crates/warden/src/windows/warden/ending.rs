//! Ends a run, whether by itself, by a stop or by a limit.

use std::time::{Duration, Instant};

use super::{OWN_GRACE, WardenProcess};
use crate::{
    deadline::Deadline,
    failpoint::Failpoint,
    protocol::{EndCause, FromWarden},
    windows::{
        run::CommandRun,
        stop::{INTERRUPT, KILL, Stop, StopProgress},
    },
};

impl WardenProcess<'_> {
    /// Whether anything of the command is left, once it has ended itself: a process, or something
    /// that the last one has printed.
    pub(super) fn look_at_job(&mut self) {
        if let Some(run) = self.run.as_ref().filter(|run| run.has_ended() && !self.childless) {
            let is_empty = run.job.living().is_empty();
            // What the last one has printed may still be on its way to us: at the next look it is
            // here. Somebody outside may keep the pipe open for ever.
            self.childless = is_empty && run.has_read_all(self.was_empty);
            self.was_empty = is_empty;
        }
    }

    pub(super) fn begin_stop(&mut self, signal: i32, grace: Duration, because: EndCause) {
        let Some(run) = &mut self.run else { return };
        if !run.has_ended() && run.ended_by.is_none() {
            run.ended_by = Some(because);
        }
        if signal != KILL {
            run.interrupt();
        }
        match &mut self.stop {
            Some(stop) => stop.hurry(signal, grace),
            None => self.stop = Some(Stop::begin(signal, grace)),
        }
    }

    pub(super) fn check_clock(&mut self) {
        let now = Instant::now();
        self.look_around(now);
        if self.stop.is_none() && self.abandoned_at().is_some_and(|at| now >= at) {
            self.begin_stop(INTERRUPT, OWN_GRACE, EndCause::Abandoned);
            self.alone_since = Some(now);
            self.given_up = true;
        }
        if let Some(run) = &mut self.run
            && run.spill_at.is_some_and(|at| now >= at)
        {
            let _ = run.spill(&self.setup.tasks);
        }
        let deadline = self.run.as_ref().and_then(|run| run.deadline);
        if self.stop.is_none() && deadline.is_some_and(Deadline::is_over) {
            self.begin_stop(INTERRUPT, OWN_GRACE, EndCause::Timeout);
        }
        if let (Some(stop), Some(run)) = (&mut self.stop, &mut self.run)
            && let StopProgress::Through(survivors) = stop.advance(now, &run.job)
        {
            self.stop = None;
            // What survived its end is not ended again and again.
            run.deadline = None;
            self.stopped = Some(survivors);
        }
    }

    /// Tells that a stop is through: after the outcome, unless the command itself is what survived.
    pub(super) fn tell_stopped(&mut self) {
        let survived = |run: &CommandRun| !run.has_ended() && !run.job.living().is_empty();
        let known = self.run.as_ref().is_none_or(|run| run.is_over() || survived(run));
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
        if let Some(ended) = run.finish(&self.setup.tasks) {
            Failpoint::WardenBeforeTelling.pass();
            self.tell_all(FromWarden::Ended(Box::new(ended)));
            Failpoint::WardenAfterTelling.pass();
            if !self.has_owner {
                self.spill_now();
            }
        }
    }

    /// Nobody else knows of the run any more: it has to be on disk.
    pub(super) fn spill_now(&mut self) {
        if let Some(run) = &mut self.run
            && !self.committed
        {
            let _ = run.spill(&self.setup.tasks);
        }
    }
}
