//! One run: the command's process, its pipes and its folder.

mod end;
mod input;
mod start;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use self::end::ProcessEnd;
use super::{copied::CopyMeter, limits::Held, notices::Notices, streams::Streams};
use crate::{
    deadline::Deadline,
    folder::{Stream, WindowSize},
    keep::Keep,
    network::ConnectionTotal,
    protocol::{EndCause, HeldProgram, LiveResources, NewOutput, Report},
    record::{ExitRecord, UsedResources},
};

/// How long to wait after a spill that failed.
const SPILL_AGAIN: Duration = Duration::from_secs(1);

/// A command that was started, until its warden ends.
#[derive(Debug)]
pub(super) struct CommandRun {
    pub task: String,
    pub orphan_ttl: Duration,
    pub deadline: Option<Deadline>,
    /// When it is to be spilled because it is long, or after that failed.
    pub spill_at: Option<Instant>,
    /// What is written as `spec` into the folder.
    note: Vec<u8>,
    /// What of ours is ending it.
    pub ended_by: Option<EndCause>,
    pid: Pid,
    started_at: Instant,
    streams: Streams,
    /// Where its refused system calls are told.
    notices: Option<Notices>,
    /// What its connections by name came to, once that is known.
    pub connections: Vec<ConnectionTotal>,
    /// Whether it was started with an open stdin.
    had_input: bool,
    limits: Held,
    /// Looks at what it writes into its copies, where that has a limit.
    copied: Option<CopyMeter>,
    /// What those of its processes used that were collected.
    used: UsedResources,
    keep: Keep,
    end: Option<ProcessEnd>,
    /// The outcome, once it has been made.
    record: Option<ExitRecord>,
    /// Whether it left nothing behind.
    reusable: bool,
}

impl CommandRun {
    /// The descriptors to wait on.
    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.pipes.iter().filter_map(|pipe| pipe.reader.as_ref()).map(AsFd::as_fd)
    }

    /// The descriptor by which the kernel asks about refused system calls.
    pub(super) fn notices(&self) -> Option<BorrowedFd<'_>> {
        self.notices.as_ref().and_then(Notices::listener)
    }

    /// Answers what the kernel asks about.
    pub(super) fn answer_notices(&mut self) {
        if let Some(notices) = &mut self.notices {
            notices.answer();
        }
    }

    /// Programs that wait for an answer of the owner: the new ones, or all.
    pub(super) fn held_programs(&mut self, all: bool) -> Vec<HeldProgram> {
        self.notices.as_mut().map(|notices| notices.held(all)).unwrap_or_default()
    }

    /// Lets a program that waits be executed, or not.
    pub(super) fn answer_program(&mut self, number: u64, allowed: bool) {
        if let Some(notices) = &mut self.notices {
            notices.answer_held(number, allowed);
        }
    }

    /// Reads what the pipes have, once each.
    pub(super) fn pump(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        let ended = self.end.is_some();
        let since_start = self.started_at.elapsed();
        for pipe in &mut self.streams.pipes {
            pipe.read(buffer, ended);
            if !buffer.is_empty() {
                if self.keep.would_overflow(buffer) {
                    // If that fails, what fits stays in memory and the rest is counted as dropped.
                    let _ = self.keep.spill(tasks, &self.task, &self.note);
                }
                self.keep.append(pipe.stream, buffer, since_start);
            }
        }
    }

    /// Moves everything into the task's folder: the run is long, or alone. Tries again if it fails.
    pub(super) fn spill(&mut self, tasks: BorrowedFd<'_>) -> io::Result<()> {
        let spilled = self.keep.spill(tasks, &self.task, &self.note).and_then(|()| {
            self.record.as_ref().map_or(Ok(()), |record| self.keep.record_exit(record))
        });
        // Where the state folder itself is gone, there is nothing to wait for.
        let hopeful = spilled.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
        self.spill_at = hopeful.then(|| Instant::now() + SPILL_AGAIN);
        spilled
    }

    /// New output for a follower who has seen this much.
    pub(super) fn growth(&self, stdout_bytes: u64, stderr_bytes: u64) -> Option<NewOutput> {
        let (stdout, stderr) = (self.keep.reach(Stream::Stdout), self.keep.reach(Stream::Stderr));
        if stdout <= stdout_bytes && stderr <= stderr_bytes {
            return None;
        }
        Some(if self.keep.is_spilled() {
            NewOutput::InFolder { stdout_bytes: stdout, stderr_bytes: stderr }
        } else {
            NewOutput::Bytes {
                stdout: self.keep.fresh(Stream::Stdout, stdout_bytes),
                stderr: self.keep.fresh(Stream::Stderr, stderr_bytes),
            }
        })
    }

    /// When its processor time is to be looked at again.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.limits.look_at().filter(|_| !self.has_ended())
    }

    /// Whether its processor time is used up, as far as that is due to be known.
    pub(super) fn is_out_of_time(&mut self, now: Instant) -> bool {
        !self.has_ended() && self.limits.is_out_of_time(now)
    }

    /// When the size of its copies is to be looked at again.
    pub(super) fn copies_look_at(&self) -> Option<Instant> {
        self.copied.as_ref().map(CopyMeter::look_at)
    }

    /// Whether it has written more into its copies than it may, as far as that is due to be known.
    pub(super) fn has_copied_too_much(&mut self, now: Instant) -> bool {
        self.copied.as_mut().is_some_and(|copied| copied.is_over(now))
    }

    /// Sends a signal to the command's process group, or to its process alone.
    pub(super) fn signal(&self, signal: Signal, group: bool) {
        // Until its end is collected the number is the command's own, so the group is too.
        if !self.has_ended() {
            let send = if group { kill_process_group } else { kill_process };
            let _ = send(self.pid, signal);
        }
    }

    /// Closes our end of a stream: the next write to it fails, as if its reader had gone.
    pub(super) fn close(&mut self, stream: Stream) {
        for pipe in self.streams.pipes.iter_mut().filter(|pipe| pipe.stream == stream) {
            pipe.reader = None;
        }
    }

    /// Whether it runs on a terminal.
    pub(super) fn has_terminal(&self) -> bool {
        self.streams.terminal.is_some()
    }

    /// Process id of the command.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// What there is to know at this moment.
    pub(super) fn report(&self, left_behind: Vec<u32>) -> Report {
        let ended = self.end.map_or_else(Instant::now, |end| end.at);
        let source = self.input_source();
        Report {
            pid: self.pid(),
            duration_ms: milliseconds(ended.duration_since(self.started_at)),
            takes_input: self.streams.input.is_some(),
            terminal: self.streams.terminal.as_ref().map(|terminal| terminal.size),
            waiting_for_input: source.map_or(Some(false), |source| source.is_waited_for()),
            background_pids: if self.has_ended() { left_behind } else { Vec::new() },
            limits: self.limits.report.clone(),
        }
    }

    /// What it uses at this moment; what `ours` says is none of it.
    pub(super) fn measure(&self, ours: impl Fn(u32) -> bool) -> LiveResources {
        let live = self.used.with_living(ours);
        let memory_bytes = self.limits.memory_bytes().unwrap_or(live.memory_bytes);
        LiveResources { memory_bytes, ..live }
    }

    /// Whether the output is in the folder.
    pub(super) fn is_spilled(&self) -> bool {
        self.keep.is_spilled()
    }

    /// Gives the terminal another size.
    pub(super) fn resize(&mut self, size: WindowSize) {
        if let Some(terminal) = &mut self.streams.terminal {
            terminal.resize(size);
            self.keep.note_size(terminal.size);
        }
    }
}

/// A duration that can be added to any moment without passing the end of time.
pub(super) fn bounded(milliseconds: u64) -> Duration {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    Duration::from_millis(milliseconds).min(TEN_YEARS)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
