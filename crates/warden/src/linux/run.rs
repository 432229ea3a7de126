//! One run: the command's process, its pipes and its folder.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    buffer::spare_capacity,
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    process::{Pid, WaitStatus},
};

use super::{
    command::{self, Prepared},
    keep::{self, Keep},
    spawner::Setup,
};
use crate::{
    folder::Stream,
    protocol::{EndedBy, Outputs, Spec, StartFailure, StartStage, Stdin},
    record::{End, ExitRecord},
};

/// How long after the command's end its pipes may still bring output, if somebody holds them open.
const DRAIN: Duration = Duration::from_millis(50);

/// One read of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// A pipe whose reads come back full is made this big.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

/// A command that was started, until its warden ends.
#[derive(Debug)]
pub(super) struct Run {
    pub task: String,
    pub orphan_ttl: Duration,
    pub deadline: Option<Instant>,
    /// What of ours is ending it.
    pub ended_by: Option<EndedBy>,
    pid: Pid,
    started_at: Instant,
    pipes: [Pipe; 2],
    keep: Keep,
    end: Option<Ended>,
    over: bool,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    end: End,
    at: Instant,
}

/// The warden's end of one stream.
#[derive(Debug)]
struct Pipe {
    stream: Stream,
    reader: Option<OwnedFd>,
    widened: bool,
    /// Whether everything written before the command's end has surely been read.
    caught_up: bool,
    read_since_end: usize,
}

impl Run {
    /// Starts a command; on failure neither a process nor a folder is left.
    pub(super) fn start(
        setup: &Setup,
        spec: &Spec,
        workdir: OwnedFd,
        stdin: Option<OwnedFd>,
    ) -> Result<Self, StartFailure> {
        let keep = Keep::create(setup.tasks.as_fd(), &spec.task, &spec.note)
            .map_err(|error| failure(StartStage::Folder, &error))?;
        Self::start_kept(setup, spec, workdir, stdin, keep)
            .inspect_err(|_| keep::remove(setup.tasks.as_fd(), &spec.task))
    }

    fn start_kept(
        setup: &Setup,
        spec: &Spec,
        workdir: OwnedFd,
        stdin: Option<OwnedFd>,
        keep: Keep,
    ) -> Result<Self, StartFailure> {
        let descriptors = |error: io::Error| failure(StartStage::Descriptors, &error);
        let stdin = match (spec.stdin, stdin) {
            (Stdin::Given, Some(stdin)) => stdin,
            (Stdin::Given, None) => return Err(descriptors(io::ErrorKind::InvalidInput.into())),
            (Stdin::Null, _) => open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| descriptors(errno.into()))?,
        };
        let (stdout, stdout_writer) = Pipe::open(Stream::Stdout).map_err(descriptors)?;
        let (stderr, stderr_writer) = match spec.outputs {
            Outputs::Separate => Pipe::open(Stream::Stderr).map_err(descriptors)?,
            Outputs::Merged => (
                Pipe::none(Stream::Stderr),
                stdout_writer.try_clone().map_err(descriptors)?,
            ),
        };
        let prepared = Prepared {
            program: c_string(&spec.program)?,
            argv: spec
                .argv
                .iter()
                .map(|text| c_string(text))
                .collect::<Result<_, _>>()?,
            environment: spec
                .environment
                .iter()
                .map(|text| c_string(text))
                .collect::<Result<_, _>>()?,
            workdir,
            stdin,
            stdout: stdout_writer,
            stderr: stderr_writer,
            umask: setup.umask,
        };
        let started_at = Instant::now();
        let pid = command::start(&prepared)?;
        Ok(Self {
            task: spec.task.clone(),
            orphan_ttl: bounded(spec.orphan_ttl_ms),
            deadline: spec.wall_ms_max.map(|limit| started_at + bounded(limit)),
            ended_by: None,
            pid,
            started_at,
            pipes: [stdout, stderr],
            keep,
            end: None,
            over: false,
        })
    }

    /// The descriptors to wait on.
    pub(super) fn readers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes
            .iter()
            .filter_map(|pipe| pipe.reader.as_ref())
            .map(AsFd::as_fd)
    }

    /// Reads what the pipes have, once each.
    pub(super) fn pump(&mut self, buffer: &mut Vec<u8>) {
        let ended = self.end.is_some();
        let since_start = self.started_at.elapsed();
        for pipe in &mut self.pipes {
            pipe.pump(buffer, ended, since_start, &mut self.keep);
        }
    }

    /// Bytes stored so far of stdout and stderr.
    pub(super) fn stored(&self) -> (u64, u64) {
        (
            self.keep.total(Stream::Stdout).bytes,
            self.keep.total(Stream::Stderr).bytes,
        )
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
        self.end = Some(Ended {
            end,
            at: Instant::now(),
        });
        self.deadline = None;
    }

    /// Whether the command's own process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the outcome has been made.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Sends a signal to the command's process group, as a terminal would.
    pub(super) fn signal_group(&self, signal: rustix::process::Signal) {
        // Until its end is collected the number is the command's own, so the group is too.
        if !self.has_ended() {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }

    /// When the drain after the command's end is over at the latest.
    pub(super) fn drain_until(&self) -> Option<Instant> {
        self.end
            .filter(|_| !self.over)
            .map(|ended| ended.at + DRAIN)
    }

    /// Whether the command has ended and its output is complete, as far as that can be known.
    pub(super) fn is_drained(&self, now: Instant) -> bool {
        let Some(until) = self.drain_until() else {
            return false;
        };
        let closed = self.pipes.iter().all(|pipe| pipe.reader.is_none());
        closed || (now >= until && self.pipes.iter().all(Pipe::is_caught_up))
    }

    /// Makes the outcome and stores it in the folder; once.
    pub(super) fn finish(&mut self, background_pids: Vec<u32>) -> Option<ExitRecord> {
        let ended = self.end.filter(|_| !self.over)?;
        self.over = true;
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
            leaked_handles: self.pipes.iter().any(|pipe| pipe.reader.is_some()),
        };
        // If even the reserved space cannot be written, the engine still gets the record on the
        // channel; without an engine the run is then `lost`, which is the truth.
        let _ = self.keep.finish(&record);
        Some(record)
    }
}

impl Pipe {
    fn open(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((
            Self {
                reader: Some(reader),
                ..Self::none(stream)
            },
            writer,
        ))
    }

    /// A stream that brings nothing.
    fn none(stream: Stream) -> Self {
        Self {
            stream,
            reader: None,
            widened: false,
            caught_up: false,
            read_since_end: 0,
        }
    }

    fn is_caught_up(&self) -> bool {
        self.reader.is_none() || self.caught_up || self.read_since_end >= PIPE_BYTES_MAX
    }

    fn pump(&mut self, buffer: &mut Vec<u8>, ended: bool, since_start: Duration, keep: &mut Keep) {
        let Some(reader) = &self.reader else { return };
        buffer.clear();
        buffer.reserve(READ_BYTES);
        match rustix::io::read(reader, spare_capacity(buffer)) {
            Ok(0) => self.reader = None,
            Ok(read) => {
                keep.append(self.stream, buffer, since_start);
                if ended {
                    self.read_since_end += read;
                }
                if read >= READ_BYTES && !self.widened {
                    self.widened = true;
                    let _ = fcntl_setpipe_size(reader, PIPE_BYTES_MAX);
                }
            }
            Err(rustix::io::Errno::AGAIN) => self.caught_up |= ended,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => self.reader = None,
        }
    }
}

fn failure(stage: StartStage, error: &io::Error) -> StartFailure {
    StartFailure {
        stage,
        errno: error.raw_os_error().unwrap_or(libc::EINVAL),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, StartFailure> {
    CString::new(bytes).map_err(|_| StartFailure {
        stage: StartStage::Execute,
        errno: libc::EINVAL,
    })
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
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, milliseconds)
}
