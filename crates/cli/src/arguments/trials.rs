//! Options of the verbs about trials.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::{common::StateChoice, tasks::RunCommon};

#[derive(Debug, Args)]
pub(crate) struct TryOptions {
    #[command(flatten)]
    pub common: RunCommon,
    /// Give the command the network that it would have otherwise
    #[arg(long)]
    pub network: bool,
    /// Try a shell script instead of a program
    #[arg(long, value_name = "SCRIPT", conflicts_with = "command")]
    pub sh: Option<String>,
    /// The program and its arguments
    #[arg(required_unless_present = "sh", trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ChangesOptions {
    /// Id of the trial, or a unique prefix [default: the newest of this workspace]
    pub trial: Option<String>,
    /// Only what is at and below this path; may be repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Show a unified diff
    #[arg(long, short)]
    pub diff: bool,
    /// List the trials
    #[arg(long, short, conflicts_with_all = ["trial", "diff", "path"])]
    pub list: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyOptions {
    /// Files and folders to bring over [default: everything that the trial changed]
    pub path: Vec<PathBuf>,
    /// Id of the trial, or a unique prefix [default: the newest of this workspace]
    #[arg(long, value_name = "TRIAL")]
    pub trial: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardOptions {
    /// Id of the trial, or a unique prefix [default: the newest of this workspace]
    pub trial: Option<String>,
    /// Forget all trials of this workspace
    #[arg(long, conflicts_with = "trial")]
    pub all: bool,
    #[command(flatten)]
    pub state: StateChoice,
}
