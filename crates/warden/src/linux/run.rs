//! One run: the command's process, its pipes and its folder.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    buffer::spare_capacity,
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    process::{Pid, Signal, WaitStatus, kill_process, kill_process_group},
};

use super::{
    command::{self, Prepared},
    keep::Keep,
    spawner::Setup,
};
use crate::{
    folder::Stream,
    protocol::{
        Ended, EndedBy, Environment, Growth, Outputs, Spec, StartFailure, StartStage, Stdin,
    },
    record::{BACKGROUND_PIDS_MAX, End, ExitRecord},
};

/// How long after the command's end its pipes may still bring output, if somebody holds them open.
const DRAIN: Duration = Duration::from_millis(50);

/// A command that runs longer than this is spilled.
const LONG: Duration = Duration::from_millis(250);

/// How long to wait after a spill that failed.
const SPILL_AGAIN: Duration = Duration::from_secs(1);

/// One read of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// One read of a pipe that has brought much.
const READ_BYTES_WIDE: usize = 256 * 1024;

/// A pipe whose reads come back full is made this big.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

/// A command that was started, until its warden ends.
#[derive(Debug)]
pub(super) struct Run {
    pub task: String,
    pub orphan_ttl: Duration,
    pub deadline: Option<Instant>,
    /// When it is to be spilled because it is long, or after that failed.
    pub spill_at: Option<Instant>,
    /// What is written as `spec` into the folder.
    note: Vec<u8>,
    /// What of ours is ending it.
    pub ended_by: Option<EndedBy>,
    pid: Pid,
    started_at: Instant,
    pipes: [Pipe; 2],
    keep: Keep,
    end: Option<ProcessEnd>,
    /// The outcome, once it has been made.
    record: Option<ExitRecord>,
}

#[derive(Debug, Clone, Copy)]
struct ProcessEnd {
    end: End,
    at: Instant,
}

/// The warden's end of one stream.
#[derive(Debug)]
struct Pipe {
    stream: Stream,
    reader: Option<OwnedFd>,
    widened: bool,
    /// Whether the last read found nothing.
    is_empty: bool,
    /// Whether everything written before the command's end has surely been read.
    caught_up: bool,
    read_since_end: usize,
}

impl Run {
    /// Starts a command; on failure no process is left.
    pub(super) fn start(
        setup: &Setup,
        spec: Spec,
        workdir: BorrowedFd<'_>,
        stdin: Option<BorrowedFd<'_>>,
    ) -> Result<Self, StartFailure> {
        let descriptors = |error: io::Error| failure(StartStage::Descriptors, &error);
        let stdin = match (spec.stdin, stdin) {
            (Stdin::Null, _) => setup.null.as_fd(),
            (Stdin::Given, Some(stdin)) => stdin,
            (Stdin::Given, None) => return Err(descriptors(io::ErrorKind::InvalidInput.into())),
        };
        let (stdout, stdout_writer) = Pipe::open(Stream::Stdout).map_err(descriptors)?;
        let (stderr, stderr_writer) = match spec.outputs {
            Outputs::Separate => Pipe::open(Stream::Stderr).map_err(descriptors)?,
            Outputs::Merged => {
                (Pipe::none(Stream::Stderr), stdout_writer.try_clone().map_err(descriptors)?)
            }
        };
        let set = environment_set(&spec.environment.set)?;
        let prepared = Prepared {
            program: c_string(&spec.program)?,
            argv: spec.argv.iter().map(|text| c_string(text)).collect::<Result<_, _>>()?,
            environment: environment(setup, &spec.environment, &set),
            workdir,
            streams: [stdin, stdout_writer.as_fd(), stderr_writer.as_fd()],
            umask: setup.umask,
            open_files: setup.open_files,
        };
        let started_at = Instant::now();
        let pid = command::start(&prepared)?;
        Ok(Self {
            task: spec.task,
            note: spec.note,
            orphan_ttl: bounded(spec.orphan_ttl_ms),
            deadline: spec.wall_ms_max.map(|limit| started_at + bounded(limit)),
            spill_at: Some(started_at + LONG),
            ended_by: None,
            pid,
            started_at,
            pipes: [stdout, stderr],
            keep: Keep::new(spec.memory_bytes_max),
            end: None,
            record: None,
        })
    }

    /// The descriptors to wait on.
    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().filter_map(|pipe| pipe.reader.as_ref()).map(AsFd::as_fd)
    }

    /// Reads what the pipes have, once each.
    pub(super) fn pump(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        let ended = self.end.is_some();
        let since_start = self.started_at.elapsed();
        for pipe in &mut self.pipes {
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
        let (stdout, stderr) =
            (self.keep.total(Stream::Stdout).bytes, self.keep.total(Stream::Stderr).bytes);
        if stdout <= stdout_bytes && stderr <= stderr_bytes {
            return None;
        }
        Some(if self.keep.is_spilled() {
            Growth::InFolder
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
        self.end = Some(ProcessEnd { end, at: Instant::now() });
        self.deadline = None;
    }

    /// Whether the command's own process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
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
        for pipe in self.pipes.iter_mut().filter(|pipe| pipe.stream == stream) {
            pipe.reader = None;
        }
    }

    /// Reads what is left in the pipes when nobody of ours can write to them any more.
    pub(super) fn drain(&mut self, tasks: BorrowedFd<'_>, buffer: &mut Vec<u8>) {
        // A stranger who was handed a pipe could write for ever: its capacity is the limit.
        for _ in 0..PIPE_BYTES_MAX / READ_BYTES * 2 {
            if self.pipes.iter().all(|pipe| pipe.reader.is_none() || pipe.is_empty) {
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
        let closed = self.pipes.iter().all(|pipe| pipe.reader.is_none());
        closed || (now >= until && self.pipes.iter().all(Pipe::is_caught_up))
    }

    /// Makes the outcome; once.
    ///
    /// A command that left something behind is spilled first, so that what is printed later has a place.
    pub(super) fn finish(
        &mut self,
        tasks: BorrowedFd<'_>,
        mut background_pids: Vec<u32>,
    ) -> Option<Ended> {
        background_pids.truncate(BACKGROUND_PIDS_MAX);
        let ended = self.end.filter(|_| !self.is_over())?;
        let leaked_handles = self.pipes.iter().any(|pipe| pipe.reader.is_some());
        let left_behind = leaked_handles || !background_pids.is_empty();
        let record = ExitRecord {
            task: self.task.clone(),
            pid: self.pid.as_raw_pid().cast_unsigned(),
            end: ended.end,
            ended_by: self.ended_by,
            ended_at_ms: wall_clock_ms(),
            duration_ms: milliseconds(ended.at.duration_since(self.started_at)),
            stdout: self.keep.total(Stream::Stdout),
            stderr: self.keep.total(Stream::Stderr),
            background_pids,
            leaked_handles,
        };
        self.record = Some(record.clone());
        self.spill_at = None;
        if left_behind || self.keep.is_spilled() {
            // If even that fails, the engine still gets the record on the channel; without an engine it
            // is tried again, and in the end the run is lost, which is the truth.
            let _ = self.spill(tasks);
        }
        Some(Ended { record, kept: self.keep.kept(), reusable: !left_behind })
    }
}

impl Pipe {
    fn open(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self { reader: Some(reader), ..Self::none(stream) }, writer))
    }

    /// A stream that brings nothing.
    fn none(stream: Stream) -> Self {
        Self {
            stream,
            reader: None,
            widened: false,
            is_empty: false,
            caught_up: false,
            read_since_end: 0,
        }
    }

    fn is_caught_up(&self) -> bool {
        self.reader.is_none() || self.caught_up || self.read_since_end >= PIPE_BYTES_MAX
    }

    /// Reads once; an empty buffer is nothing new.
    fn read(&mut self, buffer: &mut Vec<u8>, ended: bool) {
        buffer.clear();
        self.is_empty = false;
        let Some(reader) = &self.reader else { return };
        let wanted = if self.widened { READ_BYTES_WIDE } else { READ_BYTES };
        buffer.reserve(wanted);
        match rustix::io::read(reader, spare_capacity(buffer)) {
            Ok(0) => self.reader = None,
            Ok(read) => {
                if ended {
                    self.read_since_end += read;
                }
                if read >= READ_BYTES && !self.widened {
                    self.widened = true;
                    let _ = fcntl_setpipe_size(reader, PIPE_BYTES_MAX);
                }
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.is_empty = true;
                self.caught_up |= ended;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => self.reader = None,
        }
    }
}

/// What is set, as the C strings that the program gets.
fn environment_set(set: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<CString>, StartFailure> {
    set.iter().map(|(name, value)| c_string(&[name, &b"="[..], value].concat())).collect()
}

/// The whole environment: what is inherited and not set anew, then what is set.
fn environment<'a>(
    setup: &'a Setup,
    environment: &Environment,
    set: &'a [CString],
) -> Vec<&'a CStr> {
    let is_set = |name: &[u8]| environment.set.iter().any(|(other, _)| other == name);
    let inherited =
        setup.environment.iter().filter(|(name, _)| environment.inherited && !is_set(name));
    inherited.map(|(_, pair)| pair.as_c_str()).chain(set.iter().map(CString::as_c_str)).collect()
}

fn failure(stage: StartStage, error: &io::Error) -> StartFailure {
    StartFailure { stage, errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}

fn c_string(bytes: &[u8]) -> Result<CString, StartFailure> {
    CString::new(bytes)
        .map_err(|_| StartFailure { stage: StartStage::Execute, errno: libc::EINVAL })
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
