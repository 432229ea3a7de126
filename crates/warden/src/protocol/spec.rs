//! The specification of a command that an engine sends to a warden.
//!
//! It may change freely: it only ever goes to wardens that the engine itself has forked.

use serde::{Deserialize, Serialize};

use crate::{
    exec::ExecRule,
    folder::WindowSize,
    network::NameRules,
    sandbox::{CopyOnWrite, SandboxLayer},
};

/// Everything a warden needs to start a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The task's id, and the name of its folder.
    pub task: String,
    /// The program's path, executed as it is (never searched for).
    pub program: Vec<u8>,
    /// The arguments, the program's own name first.
    pub argv: Vec<Vec<u8>>,
    /// Its environment.
    pub environment: Environment,
    /// Where stdin comes from.
    pub stdin: StdinSource,
    /// Where stdout and stderr go.
    pub outputs: OutputRoute,
    /// Output up to this size may be held in memory; past it the run spills.
    pub memory_bytes_max: u64,
    /// Wall-clock limit, after which the tree is stopped.
    pub wall_ms_max: Option<u64>,
    /// What else it may use.
    pub limits: Limits,
    /// How long the tree may run on without an engine before it is stopped.
    pub orphan_ttl_ms: u64,
    /// The sandbox it goes into: the one that the warden was last told of.
    pub sandbox: Option<Sandboxed>,
    /// What stderr is known to begin with before the command itself prints anything: it is left
    /// out, if it really comes, also where stderr goes to a terminal or to stdout.
    pub stderr_preamble: Vec<u8>,
    /// What the engine wants to be written as `spec` into the task's folder.
    pub note: Vec<u8>,
}

/// That a command goes into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandboxed {
    /// What the caller was told that it would be confined by: with less it is not started.
    pub enforced: Vec<SandboxLayer>,
    /// Tasks whose artifacts it may read.
    pub artifacts: Vec<String>,
    /// What it may not execute; only held where the sandbox was told of
    /// ([`Profile::tells_exec`](crate::sandbox::Profile::tells_exec)).
    pub exec_rules: Vec<ExecRule>,
    /// Whether its folders may be copies ([`Profile::copies`](crate::sandbox::Profile::copies)): a
    /// folder is then known by its path, not by its number.
    pub on_copy: bool,
    /// The names that it may connect to, where the sandbox was told of a proxy
    /// ([`Profile::names`](crate::sandbox::Profile::names)).
    pub names: Option<NameRules>,
    /// Its copies.
    pub copies: RunCopies,
}

/// The copies that a command writes into.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCopies {
    /// Those of its [profile](crate::sandbox::Profile::copies), by the names that their folders
    /// have now: what was made ahead is renamed when it is used.
    pub places: Vec<CopyOnWrite>,
    /// Most bytes that it may write into them; beyond that it is stopped.
    pub bytes_max: Option<u64>,
}

/// What a command and all its descendants may use; none is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time on processors, of the whole tree.
    pub cpu_ms_max: Option<u64>,
    /// Processes and threads at a time.
    pub processes_max: Option<u64>,
    /// Memory of the whole tree.
    pub memory_bytes_max: Option<u64>,
    /// Open files of each process.
    pub open_files_max: Option<u64>,
    /// Size of a file that is written.
    pub file_bytes_max: Option<u64>,
    /// Output that is kept: past it the head and the tail.
    pub output_bytes_max: Option<u64>,
    /// Space on the state folder's disk that output leaves free; none is a small share of the disk.
    pub disk_free_bytes_min: Option<u64>,
}

/// The environment of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Whether it begins with the environment that the engine was started with; else it begins
    /// empty.
    pub inherited: bool,
    /// Names and values that are set, in the place of inherited ones.
    pub set: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names that are not inherited.
    pub unset: Vec<Vec<u8>>,
}

/// Where a command's stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinSource {
    /// The null device.
    Null,
    /// The second descriptor of the [`ToWarden::Start`](super::ToWarden::Start) frame.
    Given,
    /// Open for [`Order::Input`](super::Order::Input): a pipe, or the terminal if there is one.
    Open,
}

/// Where a command's stdout and stderr go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputRoute {
    /// Each through its own pipe.
    Separate,
    /// Both through one pipe, as stdout: only so is their order exact.
    Merged,
    /// Both to a terminal of this size, which is also the controlling terminal.
    Terminal(WindowSize),
}
