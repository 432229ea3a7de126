//! What can be typed.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use legwork::{
    Config, ConfigError, Engine, Options, Registry, Repair, ToolError, Trust, gate::Mode,
    tools::export::Format,
};

use crate::{hints, render::say};

/// Runs commands for AI agents: judged, supervised, recorded.
#[derive(Debug, Parser)]
#[command(name = "legwork", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Exit codes of `run` and `sh`: the command's own; 124 timed out, 125 failure of legwork itself,
126 denied or not executable, 127 not found, 128+n ended by signal n.
Exit codes of `call`: 0 for a result, 126 denied or refused, 125 any other error.
`logs -f`, `attach` and `wait` end with the task's own exit code, as `run` does.

Environment: LEGWORK_LOG=debug logs to stderr.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve the tools to an MCP client over stdin and stdout
    Mcp(McpOptions),
    /// Call one tool and print its receipt
    Call(CallOptions),
    /// Run a program as if it were called directly, supervised and recorded
    Run(RunOptions),
    /// Run a shell script as if it were called directly, supervised and recorded
    Sh(ShOptions),
    /// List tasks, newest first
    Ps(PsOptions),
    /// Show what is known of a task
    Show(TaskOptions),
    /// Print what a task has written
    Logs(LogsOptions),
    /// Take part in a running task: its terminal (Ctrl-] leaves it), or its streams
    Attach(AttachOptions),
    /// Send a line to a task's stdin, or type it on its terminal
    Send(SendOptions),
    /// Stop tasks and everything that they started
    Stop(StopOptions),
    /// Wait for a task to end, or for something else
    Wait(WaitOptions),
    /// List the tools, or what a model is told about them
    Tools(ToolsOptions),
    /// List the questions that wait for an answer, or answer them as they come
    Approvals(ApprovalsOptions),
    /// Allow what a question is about, once
    Approve(ApproveOptions),
    /// Refuse what a question is about
    Deny(DenyOptions),
    /// Judge commands without running them
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Look at the audit log
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Check what this machine can do
    Doctor(DoctorOptions),
    /// Remove tasks that are past their time; never one that runs
    Gc(GcOptions),
    /// Print what makes a shell complete our words
    Completions(CompletionsOptions),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that is to read it, for example by `source <(legwork completions bash)`
    pub shell: clap_complete::Shell,
}

/// Where to work, and where to keep what is known.
#[derive(Debug, Args)]
pub(crate) struct StatePlace {
    /// Folder that commands run in by default [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StateChoice {
    /// Folder for the ledger and the tasks' output [default: legwork in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

impl StatePlace {
    /// Opens the engine with these tools and rules.
    pub(crate) fn open(self, tools: Registry, rules: &Rules) -> Result<Engine, ToolError> {
        let workspace = self.workspace.unwrap_or_else(|| ".".into());
        let config = rules.config(&workspace)?;
        let mut options = Options::configured(workspace, config);
        options.state = self.state.state;
        options.on_repair = tell_of_repair;
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        Engine::open_with(options, tools)
    }
}

impl StateChoice {
    /// Opens the engine for looking at tasks.
    pub(crate) fn open(self) -> Result<Engine, ToolError> {
        let mut options = Options::new("/");
        options.state = self.state;
        options.all_workspaces = true;
        options.on_repair = tell_of_repair;
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        Engine::open(options)
    }
}

/// Says on stderr what had to be repaired in the state folder.
pub(crate) fn tell_of_repair(repair: &Repair) {
    say(&format!("legwork: {}", repair.message()));
}

/// What may be called, and what is asked before.
#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Which tools there are: names with commas between them, or all
    #[arg(long, value_name = "LIST|all")]
    pub tools: Option<String>,
    /// How far the caller is trusted; what an untrusted one asks for has to be allowed by a rule or
    /// a person
    #[arg(long, value_enum, default_value = "trusted_operator", value_name = "LEVEL")]
    pub trust: TrustName,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum TrustName {
    TrustedOperator,
    TrustedSystem,
    TrustedIntegration,
    UntrustedExternal,
}

impl TrustName {
    pub(crate) fn trust(self) -> Trust {
        match self {
            Self::TrustedOperator => Trust::TrustedOperator,
            Self::TrustedSystem => Trust::TrustedSystem,
            Self::TrustedIntegration => Trust::TrustedIntegration,
            Self::UntrustedExternal => Trust::UntrustedExternal,
        }
    }
}

/// By which rules commands are judged.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// How much is asked: nothing, what the tools and rules say, or everything that no rule allows
    #[arg(long, value_enum, default_value = "guarded")]
    pub mode: ModeName,
    /// A file of rules and settings, besides the system's, the user's and the project's; may be
    /// repeated
    #[arg(long, visible_alias = "config", value_name = "FILE")]
    pub policy: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ModeName {
    Open,
    Guarded,
    Strict,
}

impl Guard {
    /// The tools that were chosen, or those that a model is offered by default.
    pub(crate) fn offered(&self) -> Result<Registry, String> {
        if let Some(list) = &self.tools {
            return chosen(list);
        }
        let mut registry = Registry::builtin();
        registry.keep_default();
        Ok(registry)
    }

    /// The tools that were chosen, or all.
    pub(crate) fn callable(&self) -> Result<Registry, String> {
        chosen(self.tools.as_deref().unwrap_or("all"))
    }
}

impl Rules {
    /// Reads all files of rules for a workspace.
    pub(crate) fn config(&self, workspace: &Path) -> Result<Config, ConfigError> {
        let mode = match self.mode {
            ModeName::Open => Mode::Open,
            ModeName::Guarded => Mode::Guarded,
            ModeName::Strict => Mode::Strict,
        };
        Config::load(workspace, &self.policy, mode)
    }
}

/// The tools of a list.
pub(crate) fn chosen(list: &str) -> Result<Registry, String> {
    let mut registry = Registry::builtin();
    if list != "all" {
        let names: Vec<&str> =
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        registry.keep(&names).map_err(|name| {
            let known = Registry::builtin();
            let known: Vec<&str> = known.definitions().map(|tool| tool.name).collect();
            format!("there is no tool `{name}`; the tools are: {}", known.join(", "))
        })?;
    }
    Ok(registry)
}

#[derive(Debug, Args)]
pub(crate) struct McpOptions {
    #[command(flatten)]
    pub place: StatePlace,
    #[command(flatten)]
    pub guard: Guard,
    /// Add the JSON envelope to each result as structuredContent (several clients then drop the
    /// text)
    #[arg(long)]
    pub structured: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CallOptions {
    /// Name of the tool, as in `legwork tools`
    pub tool: String,
    /// Its input as JSON, or - to read it from stdin
    pub input: String,
    /// Print the JSON envelope instead of the receipt
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: StatePlace,
    #[command(flatten)]
    pub guard: Guard,
}

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
    /// Stop the command and all it started after this many seconds, and exit with 124; 0 is no
    /// limit
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
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

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it must be a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) => Ok(limit),
        // Past the end of time is no limit.
        Err(_) if seconds > 0.0 => Ok(Duration::MAX),
        Err(_) => Err("it must not be negative".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct PsOptions {
    /// Only tasks that are running
    #[arg(long, short)]
    pub running: bool,
    /// Most tasks to list
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct TaskOptions {
    /// Id of the task, or the beginning of it; @ is the newest
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// Id of the task, or the beginning of it; @ is the newest
    pub task: String,
    /// Go on until the task has ended, and exit as it did
    #[arg(long, short)]
    pub follow: bool,
    /// Print each piece as a line of JSON: {"stream","offset","text"}
    #[arg(long)]
    pub json: bool,
    /// Print the exact bytes, with the secrets among them
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct AttachOptions {
    /// Id of the task, or the beginning of it; @ is the newest
    pub task: String,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct SendOptions {
    /// Id of the task, or the beginning of it; @ is the newest
    pub task: String,
    /// The line to send, or - to read all of stdin and send it as it is
    pub text: Option<String>,
    /// Send the text as it is, without Enter behind it
    #[arg(long, short = 'n')]
    pub no_newline: bool,
    /// Press this key after the text: enter, ctrl-c, up, f1 and so on
    #[arg(long)]
    pub key: Option<String>,
    /// End the input after that
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
    /// Ids of the tasks, or the beginnings of them; @ is the newest
    #[arg(required = true)]
    pub tasks: Vec<String>,
    /// The signal that asks them to end
    #[arg(long, default_value = "TERM")]
    pub signal: String,
    /// How long they may take to end by themselves before they are killed, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    pub grace_ms: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    /// Ids of the tasks, or the beginnings of them; @ is the newest. The first one ends the wait
    #[arg(required = true)]
    pub tasks: Vec<String>,
    /// Wait until the output matches this regular expression
    #[arg(long, value_name = "REGEX")]
    pub matches: Option<String>,
    /// Wait until nothing was printed for this many milliseconds
    #[arg(long, value_name = "MS")]
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
    /// Give up after this many seconds, up to an hour, and exit with 124 [default: an hour]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600))]
    pub timeout: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsOptions {
    /// Print the registry as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the definitions in the form that a protocol or a model provider takes
    #[arg(long, value_enum, conflicts_with_all = ["json", "instructions"])]
    pub format: Option<FormatName>,
    /// Print what a model is told about using the tools
    #[arg(long, conflicts_with = "json")]
    pub instructions: bool,
    /// Which tools: names with commas between them, or all
    #[arg(long, value_name = "LIST|all", default_value = "all")]
    pub tools: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormatName {
    Mcp,
    #[value(name = "openai")]
    OpenAi,
    Anthropic,
    Gemini,
}

impl FormatName {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Mcp => Format::Mcp,
            Self::OpenAi => Format::OpenAi,
            Self::Anthropic => Format::Anthropic,
            Self::Gemini => Format::Gemini,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ApprovalsOptions {
    /// Show and answer questions as they come
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveOptions {
    /// Id of the question, or the beginning of it
    pub id: String,
    /// Allow exactly this command in this folder for as long as the asking program runs
    #[arg(long)]
    pub session: bool,
    /// Allow exactly this command from now on: save the rule that the question shows
    #[arg(long, conflicts_with = "session")]
    pub rule: bool,
    /// Allow it once, outside the sandbox; only where the caller is trusted that far
    #[arg(long, conflicts_with_all = ["session", "rule"])]
    pub outside_sandbox: bool,
    /// A word to the caller
    #[arg(long)]
    pub note: Option<String>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct DenyOptions {
    /// Id of the question, or the beginning of it
    pub id: String,
    /// What the caller should do instead, say
    #[arg(long)]
    pub note: Option<String>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say what would become of a command, and why
    Check(PolicyCheckOptions),
    /// Run your own cases: TOML with [[case]] input, verdict and, if you like, tool
    Test(PolicyTestOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckOptions {
    /// The command, as a shell script (for `execute_command`: the program and its arguments as
    /// JSON)
    #[arg(required_unless_present = "batch")]
    pub command: Option<String>,
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
    /// Folder that the command would run in, and whose project file counts [default: the current
    /// folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// How far the caller would be trusted
    #[arg(long, value_enum, default_value = "trusted_operator", value_name = "LEVEL")]
    pub trust: TrustName,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Print what was asked, decided and done
    Show(AuditShowOptions),
    /// Check that nothing in the log was changed, removed or put in
    Verify(AuditVerifyOptions),
}

#[derive(Debug, Args)]
pub(crate) struct AuditShowOptions {
    /// Only entries of this task, by its id or the beginning of it
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Only entries with this verdict: allow, ask or deny
    #[arg(long)]
    pub verdict: Option<String>,
    /// Only entries since this time, as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<jiff::Timestamp>,
    /// Only entries until this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<jiff::Timestamp>,
    /// Print the lines as they are in the log
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyOptions {
    /// Compare with what `[audit] anchor` has sent elsewhere: a file of its lines
    #[arg(long, value_name = "FILE")]
    pub heads: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Args)]
pub(crate) struct GcOptions {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove what ended longer ago than this [default: 7, or as configured]
    #[arg(long, value_name = "N")]
    pub days: Option<u64>,
    /// Remove the oldest until the rest takes no more than this [default: 10 GiB, or as configured]
    #[arg(long, value_name = "N")]
    pub bytes_max: Option<u64>,
    /// The clock is right, although it went ahead since the last clean-up
    #[arg(long)]
    pub trust_clock: bool,
    /// A file of settings, besides the system's and the user's; may be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}
