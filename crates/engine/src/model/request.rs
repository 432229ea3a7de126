//! A command that somebody wants to run.

use std::{ffi::OsString, os::fd::OwnedFd};

use legwork_warden::{folder::WindowSize, protocol::Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{TaskLimits, lower, tighter};

/// What to do when an equal command is already running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicatePolicy {
    /// Do not start another one; answer with the running task.
    #[default]
    ReuseRunning,
    /// Start another one.
    StartNew,
}

/// A command that somebody wants to run.
#[derive(Debug)]
pub struct Request {
    /// The tool or verb through which it comes.
    pub tool: String,
    /// What to run.
    pub program: Program,
    /// Where, relative to the workspace or absolute; the workspace itself when absent.
    pub workdir: Option<String>,
    /// Where that may be.
    pub confinement: Confinement,
    /// Variables that are set besides the inherited ones.
    pub environment: Vec<(String, String)>,
    /// What the caller says that it is for: the words of a model, perhaps.
    pub description: Option<String>,
    /// Where its stdin comes from.
    pub stdin: Stdin,
    /// Where its stdout and stderr go.
    pub outputs: Outputs,
    /// What to do about an equal command that runs.
    pub duplicates: DuplicatePolicy,
    /// Wall-clock limit, after which the whole tree is stopped.
    pub wall_ms_max: Option<u64>,
    /// What else it may use, where that is less than what is configured.
    pub limits: Limits,
    /// Output past this size goes to files at once, whatever else is so.
    pub memory_bytes_max: u64,
}

impl Request {
    /// Lowers what it asks for to what is configured.
    pub(crate) fn tighten(&mut self, configured: &TaskLimits) {
        self.wall_ms_max = lower(self.wall_ms_max, configured.wall_ms_max);
        self.limits = tighter(&self.limits, &configured.limits);
    }
}

/// Where a command's working directory may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In the workspace or another root.
    Roots,
    /// In the workspace, named relative to it.
    Workspace,
    /// Anywhere.
    None,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A script for a shell.
    Script {
        /// The text, passed verbatim.
        text: String,
        /// The shell; chosen from `$SHELL` when absent.
        shell: Option<String>,
        /// Whether it is started as a login shell.
        login: bool,
    },
    /// A program and its arguments, without a shell.
    Argv(Vec<OsString>),
}

/// Where a command's stdin comes from.
#[derive(Debug)]
pub enum Stdin {
    /// The null device.
    Null,
    /// A descriptor of the caller.
    Given(OwnedFd),
    /// It stays open for input that is sent later.
    Open,
}

/// Where a command's stdout and stderr go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Each to its own artifact.
    Separate,
    /// Both to stdout's, in the exact order in which they were written.
    Merged,
    /// Both to a terminal of this size.
    Terminal(WindowSize),
}
