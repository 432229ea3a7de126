//! One run: the command's process, its pipes and its folder.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, WaitStatus, kill_process, kill_process_group};

use super::{
    command::{self, Prepared, c_string},
    deadline::Deadline,
    input::InputSource,
    keep::Keep,
    limits::{Found, Held, Limiter, PreparedLimits},
    notices::Notices,
    peer::PendingInput,
    sandbox::Ready,
    spawner::Setup,
    streams::{DRAIN_READS_MAX, Given, Pipe, Streams},
    tree,
};
use crate::{
    failpoint::Failpoint,
    folder::{Stream, TERMINAL, WindowSize},
    protocol::{
        Ended, EndedBy, Environment, Growth, InputRefusal, Report, Spec, StartFailure, StartStage,
        Stdin,
    },
    record::{BACKGROUND_PIDS_MAX, End, ExitRecord},
};

/// How long after the command's end its pipes may still bring output, if somebody holds them open.
const DRAIN: Duration = Duration::from_millis(50);

/// A command that runs longer than this is spilled.
const LONG: Duration = Duration::from_millis(250);

/// How long to wait after a spill that failed.
const SPILL_AGAIN: Duration = Duration::from_secs(1);

/// A command that was started, until its warden ends.
#[derive(Debug)]
pub(super) struct Run {
    pub task: String,
    pub orphan_ttl: Duration,
    pub deadline: Option<Deadline>,
    /// When it is to be spilled because it is long, or after that failed.
    pub spill_at: Option<Instant>,
    /// What is written as `spec` into the folder.
    note: Vec<u8>,
    /// What of ours is ending it.
    pub ended_by: Option<EndedBy>,
    pid: Pid,
    started_at: Instant,
    streams: Streams,
    /// Where its refused system calls are told.
    notices: Option<Notices>,
    /// Whether it was started with an open stdin.
    had_input: bool,
    limits: Held,
    keep: Keep,
    end: Option<ProcessEnd>,
    /// The outcome, once it has been made.
    record: Option<ExitRecord>,
    /// Whether it left nothing behind.
    reusable: bool,
}

#[derive(Debug, Clone, Copy)]
struct ProcessEnd {
    end: End,
    at: Instant,
}

impl Run {
    /// Starts a command; on failure no process is left.
    pub(super) fn start(
        setup: &Setup,
        limiter: &mut Limiter<'_>,
        spec: Spec,
        workdir: BorrowedFd<'_>,
        stdin: Option<BorrowedFd<'_>>,
        sandbox: Option<&Ready>,
    ) -> Result<Self, StartFailure> {
        if sandbox.is_some() && stdin.is_some_and(is_folder) {
            // It would lead past the sandbox's own mounts, and there is nothing to read in it.
            return Err(StartFailure { stage: StartStage::Descriptors, errno: libc::EISDIR });
        }
        let terminals = sandbox.and_then(|ready| ready.terminals.as_ref());
        let given = Given { null: setup.null.as_fd(), stdin, terminals };
        let (mut streams, ends) = Streams::open(spec.stdin, spec.outputs, &given)
            .map_err(|error| failure(StartStage::Descriptors, &error))?;
        let [stdin, stdout, stderr] = &ends;
        let lent = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let terminal = streams.terminal.is_some();
        let (mut entered, mut limits) = limiter.prepare(&spec.limits, sandbox.is_some());
        let start = |entered: &PreparedLimits| match sandbox {
            Some(ready) => ready.enter(&spec, workdir, lent, terminal, entered),
            None => start_plainly(setup, &spec, workdir, lent, terminal, entered),
        };
        let started_at = Instant::now();
        let mut started = start(&entered);
        if let Err(StartFailure { stage: StartStage::Limits, errno }) = started
            && entered.enters_group()
        {
            // A cgroup that takes no process is no reason to fail: what it would hold is reported as missing.
            (entered, limits) =
                limiter.prepare_without_group(&spec.limits, sandbox.is_some(), errno);
            started = start(&entered);
        }
        let (pid, notices) = started?;
        streams.started(ends);
        let stdout_name = if terminal { TERMINAL } else { Stream::Stdout.file_name() };
        let mut keep = Keep::new(spec.memory_bytes_max, &spec.limits, stdout_name);
        let mut spill_at = started_at + LONG;
        if let Some(terminal) = &streams.terminal {
            keep.note_size(terminal.size);
            // Its screen is made from files.
            spill_at = started_at;
        }
        Ok(Self {
            task: spec.task,
            note: spec.note,
            orphan_ttl: bounded(spec.orphan_ttl_ms),
            deadline: spec.wall_ms_max.map(|limit| Deadline::after(bounded(limit))),
            spill_at: Some(spill_at),
            ended_by: None,
            pid,
            notices,
            started_at,
            streams,
            had_input: spec.stdin == Stdin::Open,
            limits,
            keep,
            end: None,
            record: None,
            reusable: false,
        })
    }

    /// The descriptors to wait on.
    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.pipes.iter().filter_map(|pipe| pipe.reader.as_ref()).map(AsFd::as_fd)
    }

    /// The descriptor by which the kernel asks about refused system calls.
    pub(super) fn notices(&self) -> Option<BorrowedFd<'_>> {
        self.notices.as_ref().and_then(Notices::listener)
    }

    /// Refuses what the kernel asks about.
    pub(super) fn answer_notices(&mut self) {
        if let Some(notices) = &mut self.notices {
            notices.answer();
        }
    }

    /// Reads what the pipes have, once each.
    pub(super) fn pump(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        let ended = self.end.is_some();
        let since_start = self.started_at.elapsed();
        for pipe in &mut self.streams.pipes {
            pipe.read(buffer, ended);
            if !buffer.is_empty() {
                if self.keep.would_overflow(buffer.len()) {
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
    pub(super) fn growth(&self, stdout_bytes: u64, stderr_bytes: u64) -> Option<Growth> {
        let (stdout, stderr) = (self.keep.reach(Stream::Stdout), self.keep.reach(Stream::Stderr));
        if stdout <= stdout_bytes && stderr <= stderr_bytes {
            return None;
        }
        Some(if self.keep.is_spilled() {
            Growth::InFolder { stdout_bytes: stdout, stderr_bytes: stderr }
        } else {
            Growth::Bytes {
                stdout: self.keep.fresh(Stream::Stdout, stdout_bytes),
                stderr: self.keep.fresh(Stream::Stderr, stderr_bytes),
            }
        })
    }

    /// Takes note of a collected child; only the command's own end matters here.
    pub(super) fn collected(&mut self, pid: Pid, status: WaitStatus) {
        if pid != self.pid || self.end.is_some() {
            return;
        }
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Exited(code),
            (None, Some(signal)) => End::Signaled(signal),
            (None, None) => return,
        };
        Failpoint::WardenSawEnd.pass();
        self.end = Some(ProcessEnd { end, at: Instant::now() });
        self.deadline = None;
        self.streams.command_ended();
        if self.streams.terminal.is_some() {
            // Its background jobs are told, as by any terminal that closes; the kernel only tells the
            // foreground.
            tree::signal_session(self.pid, &[Signal::HUP, Signal::CONT]);
        }
    }

    /// Whether the command's own process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// When its processor time is to be looked at again.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.limits.look_at().filter(|_| !self.has_ended())
    }

    /// Whether its processor time is used up, as far as that is due to be known.
    pub(super) fn is_out_of_time(&mut self, now: Instant) -> bool {
        !self.has_ended() && self.limits.is_out_of_time(now)
    }

    /// Whether the outcome has been made.
    pub(super) fn is_over(&self) -> bool {
        self.record.is_some()
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

    /// Reads what is left in the pipes when nobody of ours can write to them any more.
    pub(super) fn drain(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        // A stranger who was handed a pipe could write for ever: its capacity is the limit.
        for _ in 0..DRAIN_READS_MAX {
            if self.streams.pipes.iter().all(|pipe| pipe.reader.is_none() || pipe.is_empty) {
                return;
            }
            self.pump(tasks, buffer);
        }
    }

    /// When the drain after the command's end is over at the latest.
    pub(super) fn drain_until(&self) -> Option<Instant> {
        self.end.filter(|_| !self.is_over()).map(|ended| ended.at + DRAIN)
    }

    /// Whether the command has ended and its output is complete, as far as that can be known.
    pub(super) fn is_drained(&self, now: Instant) -> bool {
        let Some(until) = self.drain_until() else {
            return false;
        };
        let closed = self.streams.pipes.iter().all(|pipe| pipe.reader.is_none());
        closed || (now >= until && self.streams.pipes.iter().all(Pipe::is_caught_up))
    }

    /// Makes the outcome; once.
    ///
    /// A command that left something behind is spilled first, so that what is printed later has a place.
    pub(super) fn finish(
        &mut self,
        tasks: BorrowedFd<'_>,
        limiter: &mut Limiter<'_>,
        mut background_pids: Vec<u32>,
    ) -> Option<Ended> {
        background_pids.truncate(BACKGROUND_PIDS_MAX);
        let ended = self.end.filter(|_| !self.is_over())?;
        let Found { ended_by, process_limit_hit, oom_killed } =
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
        };
        self.record = Some(record.clone());
        self.spill_at = None;
        if left_behind || self.keep.is_spilled() {
            // If even that fails, the engine still gets the record on the channel; without an engine it
            // is tried again, and in the end the run is lost, which is the truth.
            let _ = self.spill(tasks);
        }
        self.reusable = !left_behind;
        self.ended()
    }

    /// The end, once it has been made.
    pub(super) fn ended(&self) -> Option<Ended> {
        let record = self.record.clone()?;
        let denials = self.notices.as_ref().map(Notices::denials).unwrap_or_default().to_vec();
        Some(Ended { record, kept: self.keep.kept(), reusable: self.reusable, denials })
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

    /// Whether the output is in the folder.
    pub(super) fn is_spilled(&self) -> bool {
        self.keep.is_spilled()
    }

    /// What it would be reading if it waited for input; none if there is no input.
    pub(super) fn input_source(&self) -> Option<InputSource> {
        self.streams.input_source()
    }

    /// The descriptor that takes input.
    pub(super) fn input_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.streams.input.as_ref().map(AsFd::as_fd)
    }

    /// Writes what is taken now; says what was written in all once nothing is left to wait for.
    pub(super) fn feed(
        &mut self,
        pending: &mut PendingInput,
    ) -> Option<(u64, Option<InputRefusal>)> {
        let Some(input) = &mut self.streams.input else {
            return Some((pending.taken, Some(self.refusal())));
        };
        match input.write(&pending.rest) {
            Ok(written) => {
                pending.taken += written as u64;
                pending.rest.drain(..written);
                pending.rest.is_empty().then_some((pending.taken, None))
            }
            Err(refusal) => {
                self.streams.input = None;
                Some((pending.taken, Some(refusal)))
            }
        }
    }

    /// Ends the input.
    pub(super) fn end_input(&mut self) -> Option<InputRefusal> {
        let Some(input) = &mut self.streams.input else {
            return Some(self.refusal());
        };
        if let Some(typed) = input.end_of_file() {
            let refusal = input.write_whole(&typed);
            return refusal;
        }
        self.streams.input = None;
        None
    }

    fn refusal(&self) -> InputRefusal {
        if self.has_ended() {
            InputRefusal::Ended
        } else if self.had_input {
            InputRefusal::Closed
        } else {
            InputRefusal::NoInput
        }
    }

    /// Gives the terminal another size.
    pub(super) fn resize(&mut self, size: WindowSize) {
        if let Some(terminal) = &mut self.streams.terminal {
            terminal.resize(size);
            self.keep.note_size(terminal.size);
        }
    }
}

/// Starts a command that is not confined.
fn start_plainly(
    setup: &Setup,
    spec: &Spec,
    workdir: BorrowedFd<'_>,
    streams: [BorrowedFd<'_>; 3],
    terminal: bool,
    limits: &PreparedLimits,
) -> Result<(Pid, Option<Notices>), StartFailure> {
    let set = environment_set(&spec.environment.set)?;
    let prepared = Prepared {
        program: c_string(&spec.program)?,
        argv: spec.argv.iter().map(|text| c_string(text)).collect::<Result<_, _>>()?,
        environment: environment(setup, &spec.environment, &set),
        workdir,
        streams,
        terminal,
        umask: setup.umask,
        open_files: setup.open_files,
        limits,
    };
    Ok((command::start(&prepared)?, None))
}

/// What is set, as the C strings that the program gets.
pub(super) fn environment_set(set: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<CString>, StartFailure> {
    set.iter().map(|(name, value)| c_string(&[name, &b"="[..], value].concat())).collect()
}

/// The whole environment: what is inherited and not set anew, then what is set.
pub(super) fn environment<'a>(
    setup: &'a Setup,
    environment: &Environment,
    set: &'a [CString],
) -> Vec<&'a CStr> {
    let Environment { inherited, set: replaced, unset } = environment;
    let is_set =
        |name: &[u8]| replaced.iter().map(|(other, _)| other).chain(unset).any(|n| n == name);
    let inherited = setup.environment.iter().filter(|(name, _)| *inherited && !is_set(name));
    inherited.map(|(_, pair)| pair.as_c_str()).chain(set.iter().map(CString::as_c_str)).collect()
}

fn failure(stage: StartStage, error: &io::Error) -> StartFailure {
    StartFailure { stage, errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}

/// A duration that can be added to any moment without passing the end of time.
pub(super) fn bounded(milliseconds: u64) -> Duration {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    Duration::from_millis(milliseconds).min(TEN_YEARS)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds)
}

fn is_folder(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(handle)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}
