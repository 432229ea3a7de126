//! The outcome of a run as it is recorded: exit, signal, limits, output totals, refusals.

use legwork_warden::{
    protocol,
    record::{CommandEnd, ExitRecord, LimitsInForce, StreamTotal, UsedResources},
};
use serde::{Deserialize, Serialize};

use super::network::ConnectionRecord;
use crate::platform::is_full;

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The exit code; none after a signal.
    pub exit_status: Option<i32>,
    /// The signal that killed it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// Why nothing is known of its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<String>,
    /// What of ours ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_by: Option<EndedBy>,
    /// Process id of the command.
    pub pid: u32,
    /// How long it ran.
    pub duration_ms: u64,
    /// What it wrote to stdout.
    pub stdout: Total,
    /// What it wrote to stderr.
    pub stderr: Total,
    /// Processes that it left running.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub background_pids: Vec<u32>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flags: Vec<Flag>,
    /// What the sandbox refused, as far as the kernel tells.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub denials: Vec<Denial>,
    /// What its connections by name came to.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connections: Vec<ConnectionRecord>,
    /// What it did that somebody should know of.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<String>,
    /// Which limits held it.
    #[serde(skip_serializing_if = "LimitsKnown::is_empty", default)]
    pub limits: LimitsKnown,
    /// What it used, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resources: Option<Box<Resources>>,
}

/// What a command and everything below it used, as far as it had ended when the command did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Processor time in its programs, in microseconds.
    pub cpu_user_us: u64,
    /// Processor time in the kernel, for them.
    pub cpu_system_us: u64,
    /// Most memory that one process had at a time: of the biggest one.
    pub memory_peak_bytes: u64,
    /// Most memory that all had together, where a cgroup counts that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tree_memory_peak_bytes: Option<u64>,
}

impl From<UsedResources> for Resources {
    fn from(used: UsedResources) -> Self {
        Self {
            cpu_user_us: used.user_us,
            cpu_system_us: used.system_us,
            memory_peak_bytes: used.process_peak_bytes,
            tree_memory_peak_bytes: used.tree_peak_bytes,
        }
    }
}

/// Which layers held the limits of a command, and what they could not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsKnown {
    /// The layers that were in force.
    pub enforced: Vec<LimitLayer>,
    /// What the cgroups of this machine cannot hold: the limit and the reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing: Vec<String>,
}

/// A layer that holds limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitLayer {
    /// The kernel's limits of each process.
    Rlimits,
    /// The limits of a cgroup, which hold for the whole tree.
    CgroupLimits,
}

impl LimitLayer {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rlimits => "rlimits",
            Self::CgroupLimits => "cgroup_limits",
        }
    }
}

impl LimitsKnown {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&LimitsInForce> for LimitsKnown {
    fn from(limits: &LimitsInForce) -> Self {
        let layers = [
            (limits.rlimits, LimitLayer::Rlimits),
            (limits.cgroup_limits, LimitLayer::CgroupLimits),
        ];
        let enforced = layers.into_iter().filter(|(held, _)| *held).map(|(_, layer)| layer);
        Self { enforced: enforced.collect(), missing: limits.missing.clone() }
    }
}

impl Outcome {
    /// An end that cannot be known, for this reason.
    pub fn lost(reason: &str) -> Self {
        Self { lost: Some(reason.into()), ..Self::default() }
    }
}

impl Outcome {
    /// What a warden tells of an end.
    pub(crate) fn of(ended: &protocol::RunEnd) -> Self {
        let denial = |denial: &protocol::RefusedCall| Denial {
            layer: "seccomp".into(),
            what: denial.call.clone(),
            program: None,
            arguments: Vec::new(),
            rule: None,
            by: RefusedBy::Sandbox,
        };
        let calls = ended.denials.iter().map(denial);
        let programs = ended.refused.iter().map(Denial::of);
        let known = Self::from(&ended.record);
        let denials = calls.chain(programs).chain(known.denials).collect();
        Self { denials, ..known }
    }
}

/// Who refused something while a command ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedBy {
    /// The sandbox: the command may not do it.
    Sandbox,
    /// A rule denies it, or asks about it and nobody has answered.
    Rule,
    /// A rule asked about it, and a person said no.
    Person,
}

/// How the reason begins of a program that a person refused.
pub(crate) const REFUSED_BY_PERSON: &str = "asked about, and refused";

/// The layer of a path that a command cannot see or write.
pub(crate) const FILES_LAYER: &str = "files";

/// The layer of a process that a command cannot signal.
pub(crate) const PROCESSES_LAYER: &str = "processes";

/// Something that was refused while a command ran, by the sandbox, a rule or a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The layer that held it: `seccomp` for a system call, `exec` or `covered` for a program,
    /// `network` for a connection, `files` for a path that the command complains of, `processes`
    /// for
    /// a process that it could not signal.
    pub layer: String,
    /// What was refused.
    pub what: String,
    /// The program that a rule has kept from being executed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<String>,
    /// Its arguments, as far as they are short.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub arguments: Vec<String>,
    /// That rule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Who refused it.
    pub by: RefusedBy,
}

impl Denial {
    /// A path that the files of a sandbox keep from a command.
    pub(crate) fn of_path(what: String) -> Self {
        Self::by_sandbox(FILES_LAYER, what)
    }

    /// A process that is not among those of a sandbox.
    pub(crate) fn of_process(what: String) -> Self {
        Self::by_sandbox(PROCESSES_LAYER, what)
    }

    fn by_sandbox(layer: &str, what: String) -> Self {
        Self {
            layer: layer.into(),
            what,
            program: None,
            arguments: Vec::new(),
            rule: None,
            by: RefusedBy::Sandbox,
        }
    }

    /// A program that was not executed.
    fn of(refused: &protocol::RefusedProgram) -> Self {
        let protocol::RefusedProgram { program, arguments, rule, asks, covered } = refused;
        let command = [&[program.clone()][..], arguments].concat().join(" ");
        let why = if *asks {
            format!("the rule {rule} asks about it, and it was not approved")
        } else {
            format!("denied by the rule {rule}")
        };
        Self {
            layer: if *covered { "covered" } else { "exec" }.to_owned(),
            what: format!("{command}: {why}"),
            program: Some(program.clone()),
            arguments: arguments.clone(),
            rule: Some(rule.clone()),
            by: RefusedBy::Rule,
        }
    }

    /// The same, with the reason of whoever was asked.
    pub(crate) fn because(&mut self, why: &str) {
        let (program, rule) = (self.program.as_deref(), self.rule.as_deref());
        if let (Some(program), Some(rule)) = (program, rule) {
            let command = [&[program.to_owned()][..], &self.arguments].concat().join(" ");
            self.what = format!("{command}: {why} (rule {rule})");
            if why.starts_with(REFUSED_BY_PERSON) {
                self.by = RefusedBy::Person;
            }
        }
    }
}

impl From<&ExitRecord> for Outcome {
    fn from(record: &ExitRecord) -> Self {
        let (exit_status, signal) = match record.end {
            CommandEnd::Exited(code) => (Some(code), None),
            CommandEnd::Signaled(signal) => (None, Some(signal)),
        };
        let dropped = record.stdout.dropped_bytes + record.stderr.dropped_bytes > 0;
        let failed = record.store_errno.filter(|_| dropped);
        let flags = [
            (record.leaked_handles, Flag::LeakedHandles),
            (dropped, Flag::OutputDropped),
            (dropped && record.low_disk, Flag::LowDisk),
            (failed.is_some_and(is_full), Flag::DiskFull),
            (failed.is_some_and(|errno| !is_full(errno)), Flag::WriteFailed),
            (record.process_limit_hit, Flag::ProcessLimitHit),
            (record.oom_killed, Flag::OomKilled),
        ];
        let connections: Vec<_> = record.connections.iter().map(ConnectionRecord::from).collect();
        Self {
            exit_status,
            signal,
            lost: None,
            ended_by: record.ended_by.map(EndedBy::from),
            pid: record.pid,
            duration_ms: record.duration_ms,
            stdout: record.stdout.into(),
            stderr: record.stderr.into(),
            background_pids: record.background_pids.clone(),
            flags: flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect(),
            denials: connections.iter().filter_map(ConnectionRecord::denial).collect(),
            connections,
            warnings: Vec::new(),
            limits: LimitsKnown::from(&record.limits),
            resources: record.used.map(|used| Box::new(used.into())),
        }
    }
}

/// What came through one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Bytes stored.
    pub bytes: u64,
    /// Newlines that came, dropped ones too.
    pub lines: u64,
    /// Bytes that are not stored.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub dropped_bytes: u64,
}

impl Total {
    /// Bytes that came, stored or not.
    pub fn came(&self) -> u64 {
        self.bytes + self.dropped_bytes
    }
}

impl From<StreamTotal> for Total {
    fn from(total: StreamTotal) -> Self {
        Self { bytes: total.bytes, lines: total.lines, dropped_bytes: total.dropped_bytes }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What of ours ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Its wall-clock limit.
    Timeout,
    /// Somebody asked.
    Stopped,
    /// No engine came back for it.
    Abandoned,
    /// Its limit of processor time.
    CpuLimit,
    /// The kernel, for its limit of memory.
    OomKilled,
    /// The kernel, for its limit of a file's size.
    FileSizeLimit,
    /// Its limit of what it may write into its copies.
    LayerLimit,
    /// The scheduler of its place: a cancelled job, its time limit, or a lost node.
    StoppedByScheduler,
}

impl EndedBy {
    /// The name in JSON and in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::Abandoned => "abandoned",
            Self::CpuLimit => "cpu_limit",
            Self::OomKilled => "oom_killed",
            Self::FileSizeLimit => "file_size_limit",
            Self::LayerLimit => "layer_limit",
            Self::StoppedByScheduler => "stopped_by_scheduler",
        }
    }

    /// Whether it is a limit of what a command may use, other than of time.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::CpuLimit | Self::OomKilled | Self::FileSizeLimit | Self::LayerLimit)
    }

    /// What to tell of it.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Timeout => "the command was stopped: it reached its time limit",
            Self::Stopped => "the command was stopped on request",
            Self::Abandoned => {
                "the command was stopped: no client was connected to it (orphan_ttl_ms)"
            }
            Self::CpuLimit => "the command was stopped: it used up its processor time (cpu_ms_max)",
            Self::OomKilled => {
                "the kernel killed processes of the command: they used more memory than memory_bytes_max"
            }
            Self::FileSizeLimit => {
                "the kernel ended the command: it wrote a file bigger than file_bytes_max"
            }
            Self::LayerLimit => {
                "the command was stopped: it wrote more into its copy of the files than may be kept \
                 (trial_bytes_max)"
            }
            Self::StoppedByScheduler => {
                "the command was stopped: its job was cancelled, came to the scheduler's time limit, \
                 or lost its node"
            }
        }
    }
}

impl From<protocol::EndCause> for EndedBy {
    fn from(by: protocol::EndCause) -> Self {
        match by {
            protocol::EndCause::Timeout => Self::Timeout,
            protocol::EndCause::Stopped => Self::Stopped,
            protocol::EndCause::Abandoned => Self::Abandoned,
            protocol::EndCause::CpuLimit => Self::CpuLimit,
            protocol::EndCause::OomKilled => Self::OomKilled,
            protocol::EndCause::FileSizeLimit => Self::FileSizeLimit,
            protocol::EndCause::LayerLimit => Self::LayerLimit,
            protocol::EndCause::Scheduler => Self::StoppedByScheduler,
        }
    }
}

/// What else is to be known of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Something still held the output pipes when the command ended.
    LeakedHandles,
    /// Some output is not stored: it was over its limit, or the disk had no room.
    OutputDropped,
    /// That is because the disk had little room left.
    LowDisk,
    /// That is because the disk was full.
    DiskFull,
    /// That is because the disk could not be written.
    WriteFailed,
    /// The kernel refused it a process because of its limit.
    ProcessLimitHit,
    /// The kernel killed a process of it because of its limit of memory.
    OomKilled,
    /// Bytes that are no text were replaced in a preview.
    InvalidUtf8,
    /// Output that was stored is not there any more.
    OutputMissing,
    /// Secrets in the output were masked.
    Masked,
}

impl Flag {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeakedHandles => "leaked_handles",
            Self::OutputDropped => "output_dropped",
            Self::LowDisk => "low_disk",
            Self::DiskFull => "disk_full",
            Self::WriteFailed => "write_failed",
            Self::ProcessLimitHit => "process_limit_hit",
            Self::OomKilled => "oom_killed",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::OutputMissing => "output_missing",
            Self::Masked => "masked",
        }
    }
}

/// The name of a signal, as in `SIGKILL`.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal - 1).ok().and_then(|place| NAMES.get(place));
    match name {
        Some(name) => format!("SIG{name}"),
        None if signal >= 34 => format!("SIGRTMIN+{}", signal - 34),
        None => format!("SIG{signal}"),
    }
}
