//! Ends a run: waits for the process, drains its pipes, then makes the outcome.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;

use super::{CommandRun, milliseconds};
use crate::{
    failpoint::Failpoint,
    folder::Stream,
    linux::{
        limits::{LimitFindings, Limiter},
        notices::Notices,
        resources::CollectedChild,
        streams::{DRAIN_READS_MAX, Pipe},
        tree,
    },
    protocol::RunEnd,
    record::{BACKGROUND_PIDS_MAX, CommandEnd, ExitRecord, UsedResources},
};

/// How long after the command's end its pipes may still bring output, if somebody holds them open.
const DRAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessEnd {
    end: CommandEnd,
    pub at: Instant,
}

impl CommandRun {
    /// Takes note of a collected child: what it used, and whether it was the command.
    pub(in crate::linux) fn collected(&mut self, child: &CollectedChild) {
        self.used.add(&child.used);
        if child.pid != self.pid || self.end.is_some() {
            return;
        }
        let end = child.end;
        Failpoint::WardenSawEnd.pass();
        self.end = Some(ProcessEnd { end, at: Instant::now() });
        self.deadline = None;
        self.streams.command_ended();
        if self.streams.terminal.is_some() {
            // Its background jobs are told, as by any terminal that closes; the kernel only tells
            // the foreground.
            tree::signal_session(self.pid, &[Signal::HUP, Signal::CONT]);
        }
    }

    /// Whether the command's own process has ended.
    pub(in crate::linux) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the outcome has been made.
    pub(in crate::linux) fn is_over(&self) -> bool {
        self.record.is_some()
    }

    /// Reads what is left in the pipes when nobody of ours can write to them any more.
    pub(in crate::linux) fn drain(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        // A stranger who was handed a pipe could write for ever: its capacity is the limit.
        for _ in 0..DRAIN_READS_MAX {
            if self.streams.pipes.iter().all(|pipe| pipe.reader.is_none() || pipe.is_empty) {
                return;
            }
            self.pump(tasks, buffer);
        }
    }

    /// When the drain after the command's end is over at the latest.
    pub(in crate::linux) fn drain_until(&self) -> Option<Instant> {
        self.end.filter(|_| !self.is_over()).map(|ended| ended.at + DRAIN)
    }

    /// Whether the command has ended and its output is complete, as far as that can be known.
    pub(in crate::linux) fn is_drained(&self, now: Instant) -> bool {
        let Some(until) = self.drain_until() else {
            return false;
        };
        let closed = self.streams.pipes.iter().all(|pipe| pipe.reader.is_none());
        closed || (now >= until && self.streams.pipes.iter().all(Pipe::is_caught_up))
    }

    /// Makes the outcome; once.
    ///
    /// A command that left something behind is spilled first, so that what is printed later has a
    /// place.
    pub(in crate::linux) fn finish(
        &mut self,
        tasks: BorrowedFd<'_>,
        limiter: &mut Limiter<'_>,
        mut background_pids: Vec<u32>,
    ) -> Option<RunEnd> {
        background_pids.truncate(BACKGROUND_PIDS_MAX);
        let ended = self.end.filter(|_| !self.is_over())?;
        let LimitFindings { ended_by, process_limit_hit, oom_killed } =
            limiter.found(&self.limits, ended.end);
        self.streams.close_terminal();
        let leaked_handles = self.streams.pipes.iter().any(|pipe| pipe.reader.is_some());
        let left_behind = leaked_handles || !background_pids.is_empty();
        let record = ExitRecord {
            task: self.task.clone(),
            pid: self.pid(),
            end: ended.end,
            ended_by: self.ended_by.or(ended_by),
            ended_at_ms: wall_clock_ms(),
            duration_ms: milliseconds(ended.at.duration_since(self.started_at)),
            stdout: self.keep.total(Stream::Stdout),
            stderr: self.keep.total(Stream::Stderr),
            background_pids,
            leaked_handles,
            process_limit_hit,
            oom_killed,
            low_disk: self.keep.was_low(),
            store_errno: self.keep.store_errno,
            limits: self.limits.report.clone(),
            used: Some(UsedResources {
                tree_peak_bytes: self.limits.memory_peak_bytes(),
                ..self.used
            }),
            connections: std::mem::take(&mut self.connections),
        };
        self.record = Some(record.clone());
        self.spill_at = None;
        if left_behind || self.keep.is_spilled() {
            // If even that fails, the engine still gets the record on the channel; without an
            // engine it is tried again, and in the end the run is lost, which is the truth.
            let _ = self.spill(tasks);
        }
        self.reusable = !left_behind;
        self.ended()
    }

    /// The end, once it has been made.
    pub(in crate::linux) fn ended(&self) -> Option<RunEnd> {
        let record = self.record.clone()?;
        let denials = self.notices.as_ref().map(Notices::denials).unwrap_or_default().to_vec();
        let refused = self.notices.as_ref().map(Notices::programs).unwrap_or_default().to_vec();
        Some(RunEnd { record, kept: self.keep.kept(), reusable: self.reusable, denials, refused })
    }
}

fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}
