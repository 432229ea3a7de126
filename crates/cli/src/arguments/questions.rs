//! Options of the verbs about permission: questions, rules, the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{
    common::{Rules, StateChoice, TrustName},
    examples, values,
};

#[derive(Debug, Args)]
pub(crate) struct ApprovalsOptions {
    /// Id of a question, or its first characters, to show all of it
    pub id: Option<String>,
    /// Ask at this terminal, as questions come
    #[arg(long, short, conflicts_with_all = ["json", "id"])]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveOptions {
    /// Id of the question, or its first characters
    pub id: String,
    /// Allow exactly this command in this folder for as long as the asking program runs
    #[arg(long)]
    pub session: bool,
    /// Allow exactly this command from now on: save the rule that the question shows
    #[arg(long, conflicts_with = "session")]
    pub rule: bool,
    /// Allow it once, outside the sandbox; only for callers that are trusted that far
    #[arg(long, conflicts_with_all = ["session", "rule"])]
    pub outside_sandbox: bool,
    /// Have it tried on a copy first: the next question says what it would change
    #[arg(long = "try", conflicts_with_all = ["session", "rule", "outside_sandbox"])]
    pub try_first: bool,
    /// Apply what it changed when it was tried, instead of running it
    #[arg(long, conflicts_with_all = ["session", "rule", "outside_sandbox", "try_first"])]
    pub apply: bool,
    /// A message to the caller
    #[arg(long)]
    pub note: Option<String>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct DenyOptions {
    /// Id of the question, or its first characters
    pub id: String,
    /// A message to the caller, such as what to do instead
    #[arg(long)]
    pub note: Option<String>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Print the verdict on a command, the reason, and the rule that would change it
    #[command(after_help = examples::POLICY_CHECK)]
    Check(PolicyCheckOptions),
    /// Run your own test cases: TOML with [[case]] input, verdict and, optionally, tool
    #[command(after_help = examples::POLICY_TEST)]
    Test(PolicyTestOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckOptions {
    /// The command, as a shell script (for `execute_command`: the program and its arguments as
    /// JSON)
    #[arg(required_unless_present_any = ["batch", "connect"])]
    pub command: Option<String>,
    /// Check whether a command could connect to this host and port by name, instead of a command
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["command", "batch"])]
    pub connect: Option<String>,
    /// Read JSON lines from stdin, {"id","input","tool"?}, and answer each with a line
    #[arg(long, conflicts_with = "command")]
    pub batch: bool,
    /// The tool that would be called
    #[arg(long, default_value = "ExecCommand")]
    pub tool: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub circumstances: PolicyCircumstances,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestOptions {
    /// The file with the cases
    pub file: PathBuf,
    #[command(flatten)]
    pub circumstances: PolicyCircumstances,
}

/// Where and for whom a command would be judged.
#[derive(Debug, Args)]
pub(crate) struct PolicyCircumstances {
    /// Folder that the command would run in; its project file counts [default: the current
    /// folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Trust in the caller
    #[arg(long, value_enum, default_value = "trusted_operator", value_name = "LEVEL")]
    pub trust: TrustName,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Print the audit log: verdicts, answers, outcomes, refusals
    #[command(after_help = examples::AUDIT_SHOW)]
    Show(AuditShowOptions),
    /// Check that no line of the log was changed, removed or inserted
    #[command(after_help = examples::AUDIT_VERIFY)]
    Verify(AuditVerifyOptions),
}

#[derive(Debug, Args)]
pub(crate) struct AuditShowOptions {
    /// Only entries about this task, by its id or its first characters
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Only verdicts of this kind
    #[arg(long, value_enum)]
    pub verdict: Option<VerdictName>,
    /// Only entries since: `1h` ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub since: Option<i64>,
    /// Only entries until this time
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub until: Option<i64>,
    /// Only the last N entries
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    /// Go on with new entries, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Print the lines of the log unchanged
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictName {
    Allow,
    Ask,
    Deny,
}

impl VerdictName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyOptions {
    /// Compare with a file of the lines that `[audit] anchor` has sent elsewhere
    #[arg(long, value_name = "FILE")]
    pub heads: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}
