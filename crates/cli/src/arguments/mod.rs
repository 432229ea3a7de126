//! The command line: verbs and their options.

mod clients;
mod common;
mod examples;
mod questions;
mod serving;
mod tasks;
mod trials;
mod values;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{
    Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};
use legwork::tools::export::Format;

pub(crate) use self::{
    clients::{HookOptions, ScopeName, SetupOptions},
    common::{
        Guard, LogChoice, Rules, StateChoice, StatePlace, TrustName, chosen, has_records,
        tell_of_repair,
    },
    questions::{
        ApprovalsOptions, ApproveOptions, AuditShowOptions, AuditVerb, AuditVerifyOptions,
        DenyOptions, PolicyCheckOptions, PolicyCircumstances, PolicyTestOptions, PolicyVerb,
    },
    serving::{
        AcpOptions, ServeLinkOptions, ServeOptions, ServeVerb, TokenAddOptions, TokenListOptions,
        TokenRevokeOptions, TokenVerb,
    },
    tasks::{
        AttachOptions, LogsOptions, PsOptions, RunCommon, RunOptions, SendOptions, ShOptions,
        ShowOptions, StopOptions, TopOptions, WaitOptions,
    },
    trials::{ApplyOptions, ChangesOptions, DiscardOptions, TryOptions},
};

#[cfg(test)]
pub(crate) use self::clients::{HOOK_CLIENTS, SETUP_CLIENTS};

use crate::log::LogFormat;

/// Runs commands for AI agents: judged, sandboxed, supervised, recorded.
#[derive(Debug, Parser)]
#[command(name = "legwork", version, propagate_version = true)]
#[command(after_help = examples::EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub state: StateChoice,
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

impl Arguments {
    /// Reads the command line; `--state` counts before the verb, too.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().collect();
        if let [_, verb, rest @ ..] = words.as_slice()
            && let Some(verb) = Verb::read_alone(verb, rest)
        {
            return Ok(Self { state: StateChoice::default(), verb: Some(verb) });
        }
        let mut arguments = Self::of_all_verbs(words)?;
        let (Some(verb), Some(given)) = (&mut arguments.verb, &arguments.state.state) else {
            return Ok(arguments);
        };
        let Some(state) = verb.state() else {
            let problem = "--state: this command has no state folder";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, problem));
        };
        // What stands behind the verb goes before.
        state.state.get_or_insert_with(|| given.clone());
        Ok(arguments)
    }

    /// Reads any verb. For a word that is none, only verbs of the help are suggested.
    fn of_all_verbs(words: Vec<OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(words).map_err(|mut problem| {
            let suggested = problem.remove(ContextKind::SuggestedSubcommand);
            if let Some(ContextValue::Strings(mut names)) = suggested {
                let verbs = Self::command();
                names.retain(|name| !verbs.find_subcommand(name).is_some_and(Command::is_hide_set));
                if !names.is_empty() {
                    problem.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
                }
            }
            problem
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Set up MCP clients to use Legwork, or undo that
    #[command(after_help = examples::SETUP)]
    Setup(SetupOptions),
    /// Serve the tools to an MCP client over stdin and stdout
    #[command(after_help = examples::MCP)]
    Mcp(McpOptions),
    /// Run the terminals of an agent that speaks ACP, between it and its editor
    #[command(after_help = examples::ACP)]
    Acp(AcpOptions),
    /// Serve the tools, the tasks and the questions over HTTP
    #[command(after_help = examples::SERVE)]
    Serve(ServeOptions),
    /// Manage the tokens of `legwork serve`
    #[command(subcommand)]
    Token(TokenVerb),
    /// Call one tool and print its receipt
    #[command(after_help = examples::CALL)]
    Call(CallOptions),
    /// Run a program in the sandbox, with its output here and in the record
    #[command(after_help = examples::RUN)]
    Run(RunOptions),
    /// Run a shell script in the sandbox, with its output here and in the record
    #[command(after_help = examples::SH)]
    Sh(ShOptions),
    /// Try a command on a copy of the workspace, and show what it would change
    #[command(after_help = examples::TRY)]
    Try(TryOptions),
    /// Show what a trial changed, or list the trials
    #[command(after_help = examples::CHANGES)]
    Changes(ChangesOptions),
    /// Bring the changes of a trial into the workspace, all or some
    #[command(after_help = examples::APPLY)]
    Apply(ApplyOptions),
    /// Forget the changes of a trial
    #[command(after_help = examples::DISCARD)]
    Discard(DiscardOptions),
    /// List tasks, newest first
    #[command(visible_alias = "list", after_help = examples::PS)]
    Ps(PsOptions),
    /// Watch the tasks, their output and the questions on one screen
    #[command(after_help = examples::TOP)]
    Top(TopOptions),
    /// Show the details of a task
    #[command(visible_alias = "status", after_help = examples::SHOW)]
    Show(ShowOptions),
    /// Print a task's output
    #[command(after_help = examples::LOGS)]
    Logs(LogsOptions),
    /// Attach to a running task (Ctrl-] detaches)
    #[command(after_help = examples::ATTACH)]
    Attach(AttachOptions),
    /// Send input to a task
    #[command(after_help = examples::SEND)]
    Send(SendOptions),
    /// Stop tasks and every process they started
    #[command(visible_alias = "kill", after_help = examples::STOP)]
    Stop(StopOptions),
    /// Wait for a task to end, or for another condition
    #[command(after_help = examples::WAIT)]
    Wait(WaitOptions),
    /// List the tools, or print the instructions for a model
    #[command(after_help = examples::TOOLS)]
    Tools(ToolsOptions),
    /// List open questions, or answer them as they come
    #[command(after_help = examples::APPROVALS)]
    Approvals(ApprovalsOptions),
    /// Allow the command of a question
    #[command(after_help = examples::APPROVE)]
    Approve(ApproveOptions),
    /// Refuse the command of a question
    #[command(after_help = examples::DENY)]
    Deny(DenyOptions),
    /// Judge a command for an agent that keeps its own shell: its hook JSON on stdin, the answer
    /// on stdout
    #[command(after_help = examples::HOOK)]
    Hook(HookOptions),
    /// Check commands against the rules, without running them
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(AuditVerb),
    /// List the places that commands can run at, and check them
    #[command(after_help = examples::PLACES)]
    Places(PlacesOptions),
    /// Work for an engine at another place, over stdin and stdout
    #[command(hide = true)]
    Post(PostOptions),
    /// Check this machine, the configuration and the state folder
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorOptions),
    /// Delete expired finished tasks
    #[command(after_help = examples::GC)]
    Gc(GcOptions),
    /// Generate shell completions
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsOptions),
    /// Print ids for shell completions, one a line with a description
    #[command(hide = true)]
    CompleteIds(CompleteIdsOptions),
    /// Write manual pages, one for each command
    #[command(hide = true)]
    Man(ManOptions),
}

/// Whether a verb starts one command at once, and ends with it. A server does not: the wardens of a
/// spawner that was forked here have twice the memory of others.
pub(crate) fn starts_at_once(verb: &str) -> bool {
    matches!(verb, "run" | "sh" | "try" | "call")
}

impl Verb {
    /// Reads the options of a verb whose caller waits for every millisecond, without those of all
    /// the other verbs, which take longer to list than to read. None if it is another verb, or if
    /// there is anything to say about the options: all verbs together say it.
    fn read_alone(verb: &OsStr, rest: &[OsString]) -> Option<Self> {
        fn options<T: Args + FromArgMatches>(rest: &[OsString]) -> Option<T> {
            let command = T::augment_args(Command::new("legwork").no_binary_name(true));
            let mut found = command.try_get_matches_from(rest).ok()?;
            T::from_arg_matches_mut(&mut found).ok()
        }
        match verb.to_str()? {
            "run" => options(rest).map(Self::Run),
            "sh" => options(rest).map(Self::Sh),
            "call" => options(rest).map(Self::Call),
            "hook" => options(rest).map(Self::Hook),
            "mcp" => options(rest).map(Self::Mcp),
            "post" => options(rest).map(Self::Post),
            _ => None,
        }
    }

    /// How its log looks, where that was chosen.
    pub(crate) fn log_format(&self) -> Option<LogFormat> {
        match self {
            Self::Mcp(options) => options.log.log_format,
            Self::Serve(options) => options.log.log_format,
            _ => None,
        }
    }

    /// The state folder that it works with, if it works with one.
    fn state(&mut self) -> Option<&mut StateChoice> {
        Some(match self {
            Self::Setup(options) => &mut options.state,
            Self::Hook(options) => &mut options.state,
            Self::Mcp(options) => &mut options.place.state,
            Self::Acp(options) => &mut options.state,
            Self::Serve(options) => match &mut options.verb {
                Some(ServeVerb::Link(options)) => &mut options.state,
                None => &mut options.place.state,
            },
            Self::Token(TokenVerb::Add(options)) => &mut options.file.state,
            Self::Token(TokenVerb::List(options)) => &mut options.file.state,
            Self::Token(TokenVerb::Revoke(options)) => &mut options.file.state,
            Self::Call(options) => &mut options.place.state,
            Self::Run(options) => &mut options.common.state,
            Self::Sh(options) => &mut options.common.state,
            Self::Try(options) => &mut options.common.state,
            Self::Changes(options) => &mut options.state,
            Self::Apply(options) => &mut options.state,
            Self::Discard(options) => &mut options.state,
            Self::Ps(options) => &mut options.state,
            Self::Top(options) => &mut options.state,
            Self::Show(options) => &mut options.state,
            Self::Logs(options) => &mut options.state,
            Self::Attach(options) => &mut options.state,
            Self::Send(options) => &mut options.state,
            Self::Stop(options) => &mut options.state,
            Self::Wait(options) => &mut options.state,
            Self::Approvals(options) => &mut options.state,
            Self::Approve(options) => &mut options.state,
            Self::Deny(options) => &mut options.state,
            Self::Audit(AuditVerb::Show(options)) => &mut options.state,
            Self::Audit(AuditVerb::Verify(options)) => &mut options.state,
            Self::Places(options) => &mut options.place.state,
            Self::Doctor(options) => &mut options.place.state,
            Self::Gc(options) => &mut options.state,
            Self::CompleteIds(options) => &mut options.state,
            Self::Tools(_)
            | Self::Policy(_)
            | Self::Post(_)
            | Self::Completions(_)
            | Self::Man(_) => return None,
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Folder to write them into; it is created where there is none
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompleteIdsOptions {
    /// What to list
    #[arg(value_enum)]
    pub kind: IdKind,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IdKind {
    /// Tasks
    Tasks,
    /// Tasks that are running
    Running,
    /// Open questions
    Approvals,
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
    #[command(flatten)]
    pub log: LogChoice,
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
pub(crate) struct ToolsOptions {
    /// Print the registry as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the definitions in the form of a protocol or a model provider
    #[arg(long, value_enum, conflicts_with_all = ["json", "instructions"])]
    pub format: Option<FormatName>,
    /// Print the instructions for a model
    #[arg(long, conflicts_with = "json")]
    pub instructions: bool,
    /// Tools to list, separated by commas, or all
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
pub(crate) struct PlacesOptions {
    /// Only this place
    pub name: Option<String>,
    /// Connect to each, and show what it says of itself
    #[arg(long)]
    pub check: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: StatePlace,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Args)]
pub(crate) struct PostOptions {
    /// Folder of the tasks that run here [default: ~/.local/state/legwork-post]
    #[arg(value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Run the command of one task, as a scheduler was told
    #[arg(long, value_name = "ID", requires = "order")]
    pub task: Option<String>,
    /// The file whose last line is the order; `-` for stdin
    #[arg(long, value_name = "FILE", requires = "task")]
    pub order: Option<PathBuf>,
    /// The environment is that of the order
    #[arg(long, hide = true)]
    pub in_environment: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: StatePlace,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Args)]
pub(crate) struct GcOptions {
    /// Report what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Delete tasks that ended longer ago than this many days, or `36h`, `2w` [default: 7, or as
    /// configured]
    #[arg(long, value_name = "DAYS", value_parser = values::days)]
    pub days: Option<u64>,
    /// Delete the oldest tasks until the rest takes no more than this, in bytes or as `2GiB`
    /// [default: 10GiB, or as configured]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub bytes_max: Option<u64>,
    /// Trust the clock, although it jumped ahead since the last clean-up
    #[arg(long)]
    pub trust_clock: bool,
    /// A configuration file, besides the system's and yours; may be repeated
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(line: &str) -> Option<Verb> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (verb, rest) = words.split_first().unwrap();
        Verb::read_alone(verb, rest)
    }

    #[test]
    fn a_verb_read_alone_is_the_one_that_all_verbs_together_read() {
        let lines = [
            "run true",
            "run --mode open --state s --timeout 5s -- make -j 4 --state x",
            "run --detach sleep 5",
            "sh --login -- --help",
            "sh --shell=bash ls",
            "call ExecCommand {} --json --trust untrusted_external",
            "hook claude-code",
            "mcp --structured --workspace . --log-format json",
            "mcp",
        ];
        for line in lines {
            let words = ["legwork"].into_iter().chain(line.split(' '));
            let together = Arguments::try_parse_from(words).unwrap();
            let verb = alone(line).expect(line);
            assert_eq!(format!("{verb:?}"), format!("{:?}", together.verb.unwrap()), "{line}");
        }
    }

    #[test]
    fn what_there_is_something_to_say_about_is_left_to_all_verbs() {
        for line in
            ["run", "run --help", "sh -V", "mcp --nonsense", "call", "ps", "runs", "help run", "-h"]
        {
            assert!(alone(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_word_that_is_no_verb_suggests_verbs_of_the_help_alone() {
        for (word, tip) in [
            ("pss", Some("a similar subcommand exists: 'ps'")),
            ("pots", None),
            ("aprove", Some("'approve'")),
        ] {
            let words = ["legwork", word].map(OsString::from).to_vec();
            let problem = Arguments::of_all_verbs(words).unwrap_err().to_string();
            assert_eq!(problem.contains("tip:"), tip.is_some(), "{problem}");
            assert!(problem.contains(tip.unwrap_or(word)), "{problem}");
            assert!(!problem.contains("post"), "{problem}");
        }
    }
}
