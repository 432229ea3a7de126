//! Options of the verbs about the programs that agents live in: setup, hook.

use std::path::PathBuf;

use clap::{Args, ValueEnum, builder::PossibleValuesParser};

use super::common::{Rules, StateChoice, chosen};

/// The clients that can be set up, in the order of their table.
pub(crate) const SETUP_CLIENTS: [&str; 15] = [
    "claude-code",
    "claude-desktop",
    "cursor",
    "vscode",
    "codex",
    "gemini",
    "opencode",
    "zed",
    "windsurf",
    "copilot",
    "kilo",
    "qwen",
    "droid",
    "kimi",
    "cline",
];

/// The clients whose hooks are understood.
pub(crate) const HOOK_CLIENTS: [&str; 5] = ["claude-code", "codex", "gemini", "cursor", "copilot"];

#[derive(Debug, Args)]
pub(crate) struct SetupOptions {
    /// The clients [default: all that are found here]
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(SETUP_CLIENTS))]
    pub clients: Vec<String>,
    /// Show the changes as a diff, and write nothing
    #[arg(long)]
    pub print: bool,
    /// Remove Legwork from the clients' files; those that nobody else has changed since are then as
    /// they were before
    #[arg(long, conflicts_with_all = ["hooks", "shell_off", "workspace", "tools"])]
    pub remove: bool,
    /// Remove everything of Legwork but the program, after a question: stop what runs, discard
    /// trials, delete the state folder and your configuration, and take Legwork out of all clients
    #[arg(long, requires = "remove", conflicts_with_all = ["clients", "json", "scope"])]
    pub all: bool,
    /// Ask nothing before `--all` removes
    #[arg(long, requires = "all")]
    pub yes: bool,
    /// Your own files, or those of the project in the current folder
    #[arg(long, value_enum, default_value = "user")]
    pub scope: ScopeName,
    /// Let the client's own shell ask `legwork hook` before each command
    #[arg(long)]
    pub hooks: bool,
    /// Let that hook rewrite commands, so that they run through `legwork sh` (Claude Code)
    #[arg(long, requires = "hooks")]
    pub rewrite: bool,
    /// Switch the client's own shell tool off, where the client can
    #[arg(long)]
    pub shell_off: bool,
    /// Folder that commands run in [default: where the client starts the server, or the folder
    /// that it has open]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Tools that the client is offered: names with commas, or `all` [default: ExecCommand and the
    /// task tools; the others are `execute_command` and `run_shell_command`]
    #[arg(long, value_name = "LIST", value_parser = tools_by_name)]
    pub tools: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: StateChoice,
}

/// A list of tools, all of which there are.
fn tools_by_name(list: &str) -> Result<String, String> {
    chosen(list).map(|_| list.to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeName {
    User,
    Project,
}

#[derive(Debug, Args)]
pub(crate) struct HookOptions {
    /// The agent whose format is read and written
    #[arg(value_name = "CLIENT", value_parser = PossibleValuesParser::new(HOOK_CLIENTS))]
    pub client: String,
    /// Rewrite commands that may run, so that they run through `legwork sh` (Claude Code)
    #[arg(long)]
    pub rewrite: bool,
    #[command(flatten)]
    pub rules: Rules,
    #[command(flatten)]
    pub state: StateChoice,
}
