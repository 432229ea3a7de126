//! Options of the verbs that start tasks, look at them and end them.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use legwork::Status;

use super::{
    common::{Rules, StateChoice},
    values,
};

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub common: RunCommon,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ShOptions {
    #[command(flatten)]
    pub common: RunCommon,
    /// The script
    pub script: String,
    /// Shell to use, by name or path [default: your shell if it is bash, zsh or sh, else sh]
    #[arg(long)]
    pub shell: Option<String>,
    /// Start a login shell
    #[arg(long)]
    pub login: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunCommon {
    /// Start the command in the background and print its task id
    #[arg(long, short)]
    pub detach: bool,
    /// Stop the command and all it started after this many seconds, or `5m`, and exit with 124; 0
    /// is no limit
    #[arg(long, value_name = "TIME", value_parser = values::seconds)]
    pub timeout: Option<Duration>,
    /// Place to run the command at, as in `legwork places` [default: local, or as configured]
    #[arg(long, value_name = "NAME")]
    pub place: Option<String>,
    /// Mask secrets in the output here, as the tools do; gives the command no terminal
    #[arg(long)]
    pub mask: bool,
    #[command(flatten)]
    pub rules: Rules,
    #[command(flatten)]
    pub state: StateChoice,
}

impl RunCommon {
    /// The limit in milliseconds.
    pub(crate) fn wall_ms_max(&self) -> Option<u64> {
        let limit = self.timeout.filter(|limit| !limit.is_zero())?;
        u64::try_from(limit.as_millis()).ok().map(|limit| limit.max(1))
    }
}

#[derive(Debug, Args)]
pub(crate) struct PsOptions {
    /// Only tasks that are running
    #[arg(long, short)]
    pub running: bool,
    /// Only tasks of this status, in the words of the column STATUS; failed is every other end;
    /// may be repeated
    #[arg(long, value_enum, conflicts_with = "running")]
    pub status: Vec<StatusName>,
    /// Only tasks of this workspace, and of folders in it
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Only tasks that were started since: `1h` ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub since: Option<i64>,
    /// Most tasks to list [default: 20; all of them with --quiet]
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print every column, uncut
    #[arg(long, short)]
    pub all_columns: bool,
    /// Print full ids only
    #[arg(long, short, conflicts_with_all = ["json", "all_columns"])]
    pub quiet: bool,
    /// Print the list again whenever a task starts or ends, until Ctrl-C
    #[arg(long, short, conflicts_with_all = ["json", "quiet"])]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

/// The statuses as a list of tasks shows them; the aliases are their names in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusName {
    // Not started yet
    Queued,
    // The command runs
    Running,
    // Being stopped
    #[value(alias = "cancelling")]
    Stopping,
    // Ended with exit code 0
    #[value(name = "exit-0", aliases = ["exit 0", "completed"])]
    Exit0,
    // Ended otherwise: another exit code, a signal, timeout, a limit, not started
    Failed,
    // Stopped on request, or for having no client
    #[value(aliases = ["no client", "cancelled"])]
    Stopped,
    // The outcome is unknown
    #[value(alias = "interrupted")]
    Lost,
}

impl StatusName {
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Queued => Status::Queued,
            Self::Running => Status::Running,
            Self::Stopping => Status::Cancelling,
            Self::Exit0 => Status::Completed,
            Self::Failed => Status::Failed,
            Self::Stopped => Status::Cancelled,
            Self::Lost => Status::Interrupted,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// Id of the task, or its first characters; @ is the newest
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// Id of the task, or its first characters
    #[arg(
        default_value = "@",
        hide_default_value = true,
        help = "\
Id of the task, or its first characters [default: the newest task]"
    )]
    pub task: String,
    /// Go on until the task has ended, and exit with its exit code
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last N lines, of those that match; with --follow, those and all that come after
    #[arg(long, short = 'n', value_name = "N")]
    pub lines: Option<usize>,
    /// Only output since: `10m` ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub since: Option<i64>,
    /// Only lines that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<String>,
    /// Print each piece as a line of JSON: {"stream","offset","text"}
    #[arg(long, conflicts_with_all = ["lines", "since", "grep"])]
    pub json: bool,
    /// Print the exact bytes, secrets included
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct AttachOptions {
    /// Id of the task, or its first characters; @ is the newest
    pub task: String,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct SendOptions {
    /// Id of the task, or its first characters; @ is the newest
    pub task: String,
    /// The line to send, or - to send all of stdin
    pub text: Option<String>,
    /// Send the text without Enter
    #[arg(long, short = 'n')]
    pub no_newline: bool,
    /// Press this key after the text: enter, ctrl-c, up, f1 and so on
    #[arg(long)]
    pub key: Option<String>,
    /// Close the input after that
    #[arg(long)]
    pub eof: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// Ids of the tasks, or their first characters; @ is the newest
    #[arg(required = true)]
    pub tasks: Vec<String>,
    /// The signal that asks them to end
    #[arg(long, short, default_value = "TERM")]
    pub signal: String,
    /// Time to end by themselves before they are killed, in milliseconds or as `5s`
    #[arg(long = "grace", visible_alias = "grace-ms", value_name = "TIME", default_value = "3s",
          value_parser = values::milliseconds)]
    pub grace_ms: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    /// Ids of the tasks, or their first characters; @ is the newest. The first one ends the wait
    #[arg(required = true)]
    pub tasks: Vec<String>,
    /// Wait until the output matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub matches: Option<String>,
    /// Wait until nothing was printed for this time, in milliseconds or as `5s`
    #[arg(long = "silence", visible_alias = "silence-ms", value_name = "TIME",
          value_parser = values::milliseconds)]
    pub silence_ms: Option<u64>,
    /// Wait until this TCP port is open
    #[arg(long)]
    pub port: Option<u16>,
    /// Wait until this path exists
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Wait until the command waits for input
    #[arg(long)]
    pub input: bool,
    /// Give up after this many seconds, or `5m`, at most an hour, and exit with 124 [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = values::seconds)]
    pub timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}
