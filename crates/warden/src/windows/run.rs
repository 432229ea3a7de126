//! One run: the command's process, its job, its pipes and its folder.

use std::{
    io,
    os::windows::io::OwnedHandle,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    console,
    files::TasksPlace,
    job::{self, Job},
    port::{Packet, Port},
    process::Process,
    starting::{failure, suspended},
    stop::{INTERRUPT, KILL},
    streams::{Input, Streams},
};
use crate::{
    deadline::Deadline,
    failpoint::Failpoint,
    folder::{Stream, TERMINAL, WindowSize},
    keep::Keep,
    protocol::{
        EndCause, InputRefusal, LiveResources, NewOutput, Report, RunEnd, Spec, StartFailure,
        StartStage, StdinSource,
    },
    record::{BACKGROUND_PIDS_MAX, CommandEnd, ExitRecord, LimitsInForce},
};

/// A command that runs longer than this is spilled.
const LONG: Duration = Duration::from_millis(250);

/// How long to wait after a spill that failed.
const SPILL_AGAIN: Duration = Duration::from_secs(1);

/// How long after the command's end its pipes may still bring output, if somebody holds them open.
const DRAIN: Duration = Duration::from_millis(50);

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
    process: Process,
    pub job: Job,
    started_at: Instant,
    pub streams: Streams,
    had_input: bool,
    limits: LimitsInForce,
    keep: Keep,
    end: Option<(CommandEnd, Instant)>,
    /// The outcome, once it has been made.
    record: Option<ExitRecord>,
}

impl CommandRun {
    /// Starts a command; on failure no process is left.
    pub(super) fn start(
        spec: Spec,
        workdir: &OwnedHandle,
        stdin: Option<OwnedHandle>,
        port: &mut Port,
    ) -> Result<Self, StartFailure> {
        let failed = |stage| move |error: io::Error| failure(stage, &error);
        let (mut streams, ends) = Streams::open(spec.stdin, spec.outputs, stdin, port)
            .map_err(failed(StartStage::Descriptors))?;
        let key = port.new_key();
        let job = Job::new(&spec.limits, port, key).map_err(failed(StartStage::Limits))?;
        let started_at = Instant::now();
        let process = suspended(&spec, workdir, &streams, ends.as_ref(), &job)?;
        drop(ends);
        streams.outputs.retain_mut(super::streams::Output::read);
        process
            .tell_end(port.raw())
            .and_then(|()| process.resume())
            .map_err(failed(StartStage::Process))?;
        let terminal = streams.terminal.as_ref().map(|terminal| terminal.size);
        let stdout = if terminal.is_some() { TERMINAL } else { Stream::Stdout.file_name() };
        let mut keep = Keep::new(spec.memory_bytes_max, &spec.limits, stdout);
        if let Some(size) = terminal {
            keep.note_size(size);
        }
        // The screen of a terminal is made from files.
        let spill_at = started_at + if terminal.is_some() { Duration::ZERO } else { LONG };
        Ok(Self {
            task: spec.task,
            orphan_ttl: bounded(spec.orphan_ttl_ms),
            deadline: spec.wall_ms_max.map(|limit| Deadline::after(bounded(limit))),
            spill_at: Some(spill_at),
            note: spec.note,
            ended_by: None,
            process,
            limits: job::in_force(&spec.limits),
            job,
            started_at,
            streams,
            had_input: spec.stdin == StdinSource::Open,
            keep,
            end: None,
            record: None,
        })
    }

    /// Takes what a packet says, if it is about one of its outputs.
    pub(super) fn came(&mut self, packet: &Packet, tasks: TasksPlace<'_>) {
        let place = self.streams.outputs.iter().position(|output| output.key == packet.key);
        let Some(output) = place.and_then(|place| self.streams.outputs.get_mut(place)) else {
            return;
        };
        let stream = output.stream;
        let since_start = self.started_at.elapsed();
        let goes_on = match output.came(packet) {
            Some(bytes) => {
                if !bytes.is_empty() {
                    if self.keep.would_overflow(bytes) {
                        // If that fails, what fits stays in memory and the rest counts as dropped.
                        let _ = self.keep.spill(tasks, &self.task, &self.note);
                    }
                    self.keep.append(stream, bytes, since_start);
                }
                output.read()
            }
            None => false,
        };
        if !goes_on {
            self.close(stream);
        }
    }

    /// Takes note that the command's process has ended.
    pub(super) fn process_ended(&mut self) {
        if self.end.is_none() {
            Failpoint::WardenSawEnd.pass();
            let end = CommandEnd::Exited(self.process.exit_code().cast_signed());
            self.end = Some((end, Instant::now()));
            self.deadline = None;
            // What it has read before it ended may not be told to us yet.
            if !self.streams.input.as_ref().is_some_and(Input::is_busy) {
                self.streams.input = None;
            }
            // It goes with its command, and whatever else is on it with it.
            self.streams.terminal = None;
        }
    }

    /// Whether the command's own process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the outcome has been made.
    pub(super) fn is_over(&self) -> bool {
        self.record.is_some()
    }

    /// When the drain after the command's end is over at the latest.
    pub(super) fn drain_until(&self) -> Option<Instant> {
        self.end.filter(|_| !self.is_over()).map(|(_, at)| at + DRAIN)
    }

    /// Whether the command has ended and its output is complete, as far as that can be known.
    pub(super) fn is_drained(&self, now: Instant) -> bool {
        let Some(until) = self.drain_until() else { return false };
        self.streams.are_closed() || (now >= until && self.streams.are_caught_up())
    }

    /// Whether its pipes have ended, or at least have nothing in them where that is enough.
    pub(super) fn has_read_all(&self, is_enough: bool) -> bool {
        self.streams.are_closed() || (is_enough && self.streams.are_caught_up())
    }

    /// Moves everything into the task's folder: the run is long, or alone. Tries again if it fails.
    pub(super) fn spill(&mut self, tasks: TasksPlace<'_>) -> io::Result<()> {
        let spilled = self.keep.spill(tasks, &self.task, &self.note).and_then(|()| {
            self.record.as_ref().map_or(Ok(()), |record| self.keep.record_exit(record))
        });
        // Where the state folder itself is gone, there is nothing to wait for.
        let hopeful = spilled.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
        self.spill_at = hopeful.then(|| Instant::now() + SPILL_AGAIN);
        spilled
    }

    /// Whether the output is in the folder.
    pub(super) fn is_spilled(&self) -> bool {
        self.keep.is_spilled()
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

    /// Sends one of the two signals that there are here: Ctrl-C, which everything on its console
    /// hears, or the end of everything.
    pub(super) fn signal(&mut self, signal: i32) {
        match signal {
            KILL if !self.has_ended() => self.job.terminate(1),
            INTERRUPT if !self.has_ended() => self.interrupt(),
            _ => {}
        }
    }

    /// Presses Ctrl-C, on its terminal or on the console that it shares with us.
    pub(super) fn interrupt(&mut self) {
        if !self.streams.type_on_terminal(b"\x03") {
            console::interrupt();
        }
    }

    /// Gives its terminal another size.
    pub(super) fn resize(&mut self, size: WindowSize) {
        if let Some(terminal) = &mut self.streams.terminal {
            terminal.resize(size);
            self.keep.note_size(terminal.size);
        }
    }

    /// Closes our end of a stream: the next write to it fails, as if its reader had gone.
    pub(super) fn close(&mut self, stream: Stream) {
        self.streams.outputs.retain(|output| output.stream != stream);
    }

    /// Ends the input.
    pub(super) fn end_input(&mut self) -> Option<InputRefusal> {
        if self.had_input && self.streams.type_on_terminal(b"\x1a\r") {
            return None;
        }
        match self.streams.input.take() {
            Some(_) => None,
            None => Some(self.refusal()),
        }
    }

    /// Whether somebody can write to it: a terminal that takes no input has one all the same.
    pub(super) fn takes_input(&self) -> bool {
        self.had_input && !self.has_ended() && self.streams.input.is_some()
    }

    /// Why no input is taken.
    pub(super) fn refusal(&self) -> InputRefusal {
        if self.has_ended() {
            InputRefusal::Ended
        } else if self.had_input {
            InputRefusal::Closed
        } else {
            InputRefusal::NoInput
        }
    }

    /// What there is to know at this moment.
    pub(super) fn report(&self) -> Report {
        let ended = self.end.map_or_else(Instant::now, |(_, at)| at);
        Report {
            pid: self.process.pid,
            duration_ms: milliseconds(ended.duration_since(self.started_at)),
            takes_input: self.takes_input(),
            terminal: self.streams.terminal.as_ref().map(|terminal| terminal.size),
            waiting_for_input: if self.takes_input() { None } else { Some(false) },
            background_pids: if self.has_ended() { self.job.living() } else { Vec::new() },
            limits: self.limits.clone(),
        }
    }

    /// What it uses at this moment.
    pub(super) fn measure(&self) -> LiveResources {
        self.job.live()
    }

    /// Makes the outcome; once. A command that left something behind is spilled first, so that what
    /// is printed later has a place.
    pub(super) fn finish(&mut self, tasks: TasksPlace<'_>) -> Option<RunEnd> {
        let (end, at) = self.end.filter(|_| !self.is_over())?;
        let mut background_pids = self.job.living();
        background_pids.truncate(BACKGROUND_PIDS_MAX);
        let leaked_handles = !self.streams.are_closed();
        let left_behind = leaked_handles || !background_pids.is_empty();
        self.record = Some(ExitRecord {
            task: self.task.clone(),
            pid: self.process.pid,
            end,
            ended_by: self.ended_by,
            ended_at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds),
            duration_ms: milliseconds(at.duration_since(self.started_at)),
            stdout: self.keep.total(Stream::Stdout),
            stderr: self.keep.total(Stream::Stderr),
            background_pids,
            leaked_handles,
            process_limit_hit: false,
            oom_killed: false,
            low_disk: self.keep.was_low(),
            store_errno: self.keep.store_errno,
            limits: self.limits.clone(),
            used: Some(self.job.used()),
            connections: Vec::new(),
        });
        self.spill_at = None;
        if left_behind || self.keep.is_spilled() {
            // If even that fails, the engine still gets the record on the channel; without an
            // engine it is tried again, and in the end the run is lost, which is the truth.
            let _ = self.spill(tasks);
        }
        self.ended()
    }

    /// The end, once it has been made. A command can have changed the console, so no other one
    /// follows it here.
    pub(super) fn ended(&self) -> Option<RunEnd> {
        Some(RunEnd {
            record: self.record.clone()?,
            kept: self.keep.kept(),
            reusable: false,
            denials: Vec::new(),
            refused: Vec::new(),
        })
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

/// The path of the file that lists a warden.
pub(super) fn listing(wardens: &Path, warden: &str) -> PathBuf {
    wardens.join(format!("{warden}.sock"))
}
