//! Starts a command: makes its streams, sets its limits, starts its process, in this order.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::process::Pid;

use super::{CommandRun, bounded};
use crate::{
    deadline::Deadline,
    folder::{Stream, TERMINAL},
    keep::Keep,
    linux::{
        command::{self, Prepared, c_string},
        copied::CopyMeter,
        limits::{Limiter, PreparedLimits},
        notices::Notices,
        sandbox::ReadySandbox,
        spawner::Setup,
        streams::{Given, Streams},
    },
    protocol::{Environment, OutputRoute, Spec, StartFailure, StartStage, StdinSource},
    record::UsedResources,
};

/// A command that runs longer than this is spilled.
const LONG: Duration = Duration::from_millis(250);

impl CommandRun {
    /// Starts a command; on failure no process is left.
    pub(in crate::linux) fn start(
        setup: &Setup,
        limiter: &mut Limiter<'_>,
        spec: Spec,
        workdir: BorrowedFd<'_>,
        stdin: Option<BorrowedFd<'_>>,
        sandbox: Option<&ReadySandbox>,
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
        let start =
            |entered: &PreparedLimits| begin(setup, &spec, (workdir, lent), entered, sandbox);
        let started_at = Instant::now();
        let mut started = start(&entered);
        if let Err(StartFailure { stage: StartStage::Limits, errno }) = started
            && entered.enters_group()
            && sandbox.is_none_or(ReadySandbox::is_waiting)
        {
            // A cgroup that takes no process is no reason to fail: what it would hold is reported
            // as missing.
            (entered, limits) =
                limiter.prepare_without_group(&spec.limits, sandbox.is_some(), errno);
            started = start(&entered);
        }
        let (pid, notices) = started?;
        limits.tighten();
        streams.started(ends);
        streams.leave_out(spec.stderr_preamble);
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
            connections: Vec::new(),
            started_at,
            streams,
            had_input: spec.stdin == StdinSource::Open,
            limits,
            copied: spec.sandbox.as_ref().and_then(|it| {
                CopyMeter::of(&it.copies, sandbox.and_then(ReadySandbox::closed_reader))
            }),
            used: UsedResources::default(),
            keep,
            end: None,
            record: None,
            reusable: false,
        })
    }
}

/// Starts the process of a command, in a sandbox if it is to be in one.
fn begin(
    setup: &Setup,
    spec: &Spec,
    (workdir, streams): (BorrowedFd<'_>, [BorrowedFd<'_>; 3]),
    limits: &PreparedLimits,
    sandbox: Option<&ReadySandbox>,
) -> Result<(Pid, Option<Notices>), StartFailure> {
    let set = environment_set(&spec.environment.set)?;
    let prepared = Prepared {
        program: c_string(&spec.program)?,
        argv: spec.argv.iter().map(|text| c_string(text)).collect::<Result<_, _>>()?,
        environment: environment(setup, &spec.environment, &set),
        workdir,
        streams,
        terminal: matches!(spec.outputs, OutputRoute::Terminal(_)),
        umask: setup.umask,
        open_files: setup.open_files,
        limits,
    };
    match sandbox {
        Some(ready) => ready.enter(spec, &prepared),
        None => Ok((command::start(&prepared)?, None)),
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
    let Environment { inherited, set: replaced, unset } = environment;
    let is_set =
        |name: &[u8]| replaced.iter().map(|(other, _)| other).chain(unset).any(|n| n == name);
    let inherited = setup.environment.iter().filter(|(name, _)| *inherited && !is_set(name));
    inherited.map(|(_, pair)| pair.as_c_str()).chain(set.iter().map(CString::as_c_str)).collect()
}

fn failure(stage: StartStage, error: &io::Error) -> StartFailure {
    StartFailure { stage, errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}

fn is_folder(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(handle)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}
