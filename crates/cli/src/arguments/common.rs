//! Options that several verbs share: where the state is, which rules and tools count.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use legwork::{
    Config, ConfigError, Engine, ErrorKind, Guarding, Level, Options, Registry, Repair, StateError,
    StateFolder, ToolError, Trust, gate::Mode,
};

use crate::{hints, log::LogFormat, platform::STATE_HELP, render::say};

/// The variable that names the state folder where no option does.
const STATE_VARIABLE: &str = "LEGWORK_STATE";

/// The folder to work in, and the state folder.
#[derive(Debug, Args)]
pub(crate) struct StatePlace {
    /// Folder that commands run in [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateChoice,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StateChoice {
    /// The state folder.
    #[arg(long, value_name = "DIR", help = STATE_HELP)]
    pub state: Option<PathBuf>,
}

impl StatePlace {
    /// Opens the engine with these tools and rules.
    pub(crate) fn open(self, tools: Registry, rules: &Rules) -> Result<Engine, ToolError> {
        Engine::open_with(self.options(rules)?, tools)
    }

    /// The same for one who starts a command at once.
    pub(crate) fn open_to_run(self, tools: Registry, rules: &Rules) -> Result<Engine, ToolError> {
        let mut options = self.options(rules)?;
        options.at_once = true;
        Engine::open_with(options, tools)
    }

    /// How an engine is set up here with these rules.
    pub(crate) fn options(&self, rules: &Rules) -> Result<Options, ToolError> {
        let workspace = self.folder();
        let config = rules.config(&workspace)?;
        for ignored in config.policy.ignored() {
            tracing::warn!("{ignored}");
        }
        let mut options = Options::configured(workspace, config);
        options.state = self.state.chosen();
        options.on_repair = tell_of_repair;
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        Ok(options)
    }

    /// The folder that commands run in.
    pub(crate) fn folder(&self) -> PathBuf {
        self.workspace.clone().unwrap_or_else(|| ".".into())
    }
}

impl StateChoice {
    /// The folder that was named, by the option or by the environment.
    pub(crate) fn chosen(&self) -> Option<PathBuf> {
        let variable = std::env::var_os(STATE_VARIABLE).filter(|value| !value.is_empty());
        self.state.clone().or_else(|| variable.map(PathBuf::from))
    }

    /// The option that names the state folder in a command that a person is told to type; nothing
    /// where the folder is found without it.
    pub(crate) fn as_option(&self) -> String {
        let usual = StateFolder::default_path().ok();
        match self.state.as_ref().filter(|path| Some(*path) != usual.as_ref()) {
            Some(path) => format!(" --state {}", path.display()),
            None => String::new(),
        }
    }

    /// The state folder, whether it exists or not.
    pub(crate) fn path(&self) -> Result<PathBuf, StateError> {
        self.chosen().map_or_else(StateFolder::default_path, Ok)
    }

    /// Opens the engine for looking at tasks, and makes the folder if there is none.
    pub(crate) fn open(&self) -> Result<Engine, ToolError> {
        let mut options = Options::new("/");
        options.state = self.chosen();
        options.all_workspaces = true;
        options.on_repair = tell_of_repair;
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        Engine::open(options)
    }

    /// Opens the engine for looking at tasks; none if nothing was ever recorded. Makes nothing.
    pub(crate) fn existing(&self) -> Result<Option<Engine>, ToolError> {
        if has_records(&self.path()?) { self.open().map(Some) } else { Ok(None) }
    }

    /// Opens the engine for looking at a task; an error if there is none at all. Makes nothing.
    pub(crate) fn with_tasks(&self) -> Result<Engine, ToolError> {
        self.existing()?.ok_or_else(|| {
            let place = self.path().unwrap_or_default();
            let problem = format!("there are no tasks yet in {}", place.display());
            ToolError::new(ErrorKind::UnknownTask, problem)
                .hint("start one with `legwork run -d`, or name another folder with --state")
        })
    }
}

/// Whether a state folder is in use. What stands in its place and is no folder is for the engine to
/// complain about.
pub(crate) fn has_records(path: &Path) -> bool {
    let inside = |name: &str| path.join(name).symlink_metadata().is_ok();
    match path.metadata() {
        Ok(found) if found.is_dir() => inside("ledger.db") || inside("tasks"),
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Reports a repair of the state folder on stderr.
pub(crate) fn tell_of_repair(repair: &Repair) {
    say(&format!("legwork: {}", repair.message()));
}

/// How the log of a server looks.
#[derive(Debug, Args)]
pub(crate) struct LogChoice {
    /// Log every request, call and task to stderr, a line each
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// Which tools can be called, by whom, and by which rules.
#[derive(Debug, Args)]
pub(crate) struct Guard {
    /// Tools to offer, separated by commas, or all
    #[arg(long, value_name = "LIST|all")]
    pub tools: Option<String>,
    /// Trust in the caller; a rule or a person has to allow each command of an untrusted one
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

/// The rules that commands are judged by.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// When to ask a person: never, as tools and rules say, or about everything that no rule
    /// allows [default: guarded, or as configured]
    #[arg(long, value_enum)]
    pub ask: Option<AskName>,
    /// What commands may write: everything, nothing, or their workspace [default: by the caller's
    /// trust, or as configured]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub sandbox: Option<LevelName>,
    /// Both in one word: open is `--ask never --sandbox none`, guarded the default, strict
    /// `--ask strict`; a sandbox level that is set stays
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,
    /// A configuration file, besides the system's, yours and the project's; may be repeated
    #[arg(long, visible_alias = "config", value_name = "FILE")]
    pub policy: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AskName {
    Never,
    Guarded,
    Strict,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LevelName {
    None,
    ReadOnly,
    WorkspaceWrite,
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
    /// The same with more files.
    pub(crate) fn with(&self, more: &[PathBuf]) -> Self {
        let policy = self.policy.iter().chain(more).cloned().collect();
        Self { policy, ..*self }
    }

    /// Reads the configuration for a workspace.
    pub(crate) fn config(&self, workspace: &Path) -> Result<Config, ConfigError> {
        Config::load(workspace, &self.policy, self.guarding())
    }

    /// The same as arguments; `is_asked` says that a person was asked by somebody else, so that
    /// nobody has to be any more.
    pub(crate) fn as_arguments(&self, is_asked: bool) -> Vec<String> {
        let named = |option: &str, value: Option<clap::builder::PossibleValue>| {
            let value = value.map(|value| value.get_name().to_owned());
            value.map(|value| [option.to_owned(), value])
        };
        let ask = if is_asked { Some(AskName::Never) } else { self.ask };
        let chosen = [
            named("--ask", ask.as_ref().and_then(ValueEnum::to_possible_value)),
            named("--sandbox", self.sandbox.as_ref().and_then(ValueEnum::to_possible_value)),
            named("--mode", self.mode.as_ref().and_then(ValueEnum::to_possible_value)),
        ];
        let files = self.policy.iter().map(|file| {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            ["--policy".to_owned(), file.display().to_string()]
        });
        chosen.into_iter().flatten().chain(files).flatten().collect()
    }

    /// What was chosen here, besides the configuration.
    fn guarding(&self) -> Guarding {
        Guarding {
            mode: self.mode.map(|mode| match mode {
                ModeName::Open => Mode::Open,
                ModeName::Guarded => Mode::Guarded,
                ModeName::Strict => Mode::Strict,
            }),
            ask: self.ask.map(|ask| match ask {
                AskName::Never => Mode::Open,
                AskName::Guarded => Mode::Guarded,
                AskName::Strict => Mode::Strict,
            }),
            level: self.sandbox.map(|level| match level {
                LevelName::None => Level::None,
                LevelName::ReadOnly => Level::ReadOnly,
                LevelName::WorkspaceWrite => Level::WorkspaceWrite,
            }),
        }
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
