//! The configuration: files of rules and settings, layer over layer.
//!
//! System and user files come first, then the project's own, which may only tighten, then what the
//! caller names. The gate reads the rules of all of them and checks every key; here are the
//! settings besides.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use legwork_gate::{Layer, Level, Mode, Origin, Policy, PolicyError};
use serde::Deserialize;

use crate::{
    error::{ErrorKind, ToolError},
    model::limits::{self, TaskLimits},
    model::sandbox::SandboxSettings,
    plain_file::{read_text, read_text_itself},
    store::retention::Retention,
};

/// The system's file.
const SYSTEM: &str = "/etc/legwork/config.toml";

/// The project's file, in its workspace.
const PROJECT: &str = ".legwork.toml";

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file says something that it may not.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A setting has a value of the wrong type.
    #[error("{file}: {problem}")]
    Setting {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

impl From<ConfigError> for ToolError {
    fn from(error: ConfigError) -> Self {
        Self::new(ErrorKind::ConfigurationInvalid, format!("the configuration: {error}"))
            .hint("fix the file, or leave it out, then try again")
    }
}

/// Everything that was configured.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The rules.
    pub policy: Policy,
    /// The settings.
    pub settings: Settings,
    /// What commands are confined to.
    pub sandbox: SandboxSettings,
    /// Folders that commands may run in besides the workspace.
    pub roots: Vec<PathBuf>,
    /// How long a command may run on alone.
    pub orphan_ttl: Option<Duration>,
}

/// Limits of what is shown and waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Tokens of output that are shown where the caller does not say.
    pub output_tokens: u64,
    /// Most tokens of output that are shown, whatever the caller says.
    pub output_tokens_max: u64,
    /// A stream up to this size is complete in the results of the tools that promise that.
    pub complete_bytes_max: u64,
    /// The limit of `run_shell_command`.
    pub shell_timeout: Duration,
    /// How long a call waits for an approval where nobody is known to be there.
    pub approval_wait: Duration,
    /// How long a question stays open.
    pub approval_expires: Duration,
    /// Most tasks that may run at a time, of all processes of the state folder.
    pub tasks_max: u64,
    /// What is kept of tasks that are over.
    pub retention: Retention,
    /// What every task may use at most.
    pub task_limits: TaskLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            output_tokens: 8_000,
            output_tokens_max: 64_000,
            complete_bytes_max: 1024 * 1024,
            shell_timeout: Duration::from_secs(600),
            approval_wait: Duration::ZERO,
            approval_expires: Duration::from_secs(600),
            tasks_max: 4096,
            retention: Retention::default(),
            task_limits: TaskLimits::default(),
        }
    }
}

/// A file, as far as it is about settings.
#[derive(Debug, Default, Deserialize)]
struct File {
    roots: Option<Vec<PathBuf>>,
    orphan_ttl_ms: Option<u64>,
    #[serde(default)]
    output: Output,
    #[serde(default)]
    run_shell_command: RunShellCommand,
    #[serde(default)]
    approval: Approval,
    #[serde(default)]
    sandbox: Sandbox,
    #[serde(default)]
    limits: limits::Section,
    #[serde(default)]
    retention: Kept,
}

#[derive(Debug, Default, Deserialize)]
struct Sandbox {
    level: Option<Level>,
    network: Option<bool>,
    required: Option<bool>,
    #[serde(default)]
    writable: Vec<PathBuf>,
    #[serde(default)]
    unreadable: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
struct Output {
    default_tokens: Option<u64>,
    max_tokens: Option<u64>,
    complete_bytes_max: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct RunShellCommand {
    timeout_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct Approval {
    wait_ms: Option<u64>,
    expires_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct Kept {
    days: Option<u64>,
    bytes_max: Option<u64>,
}

impl Config {
    /// Reads all layers: those that exist, and those that are given, which must.
    pub fn load(workspace: &Path, given: &[PathBuf], mode: Mode) -> Result<Self, ConfigError> {
        let mut files = Vec::new();
        let found = [
            (Origin::System, Some(PathBuf::from(SYSTEM))),
            (Origin::User, user_file()),
            (Origin::Project, Some(workspace.join(PROJECT))),
        ];
        for (origin, path) in found {
            let Some(path) = path else { continue };
            // A project's file may be a command's work.
            let read = if origin == Origin::Project { read_text_itself } else { read_text };
            match read(&path) {
                Ok(text) => files.push((origin, path, text)),
                Err(error) if is_absent(&error) => {}
                Err(source) => return Err(ConfigError::File { path, source }),
            }
        }
        for path in given {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::File { path: path.clone(), source })?;
            files.push((Origin::Given, path.clone(), text));
        }
        let mut config = Self::of(&files, mode)?;
        // Whoever may write one of these decides; one that is not there yet is told of here all the
        // same.
        config.sandbox.deciding.extend(user_file());
        config.sandbox.deciding.push(workspace.join(PROJECT));
        config.sandbox.deciding.extend(given.iter().cloned());
        Ok(config)
    }

    fn of(files: &[(Origin, PathBuf, String)], mode: Mode) -> Result<Self, ConfigError> {
        let names: Vec<String> =
            files.iter().map(|(_, path, _)| path.display().to_string()).collect();
        let layers: Vec<Layer<'_>> = files
            .iter()
            .zip(&names)
            .map(|((origin, _, text), name)| Layer { origin: *origin, name, text })
            .collect();
        let mut config = Self { policy: Policy::from_layers(&layers, mode)?, ..Self::default() };
        // The project's own comes last, since nothing may loosen what it tightens.
        let is_project = |layer: &&Layer<'_>| layer.origin == Origin::Project;
        let others = layers.iter().filter(|layer| !is_project(layer));
        for layer in others.chain(layers.iter().filter(is_project)) {
            config.take(layer)?;
        }
        Ok(config)
    }

    fn take(&mut self, layer: &Layer<'_>) -> Result<(), ConfigError> {
        let wrong = |problem: toml::de::Error| ConfigError::Setting {
            file: layer.name.to_owned(),
            problem: problem.to_string(),
        };
        let file: File = toml::from_str(layer.text).map_err(wrong)?;
        let File { roots, orphan_ttl_ms, output, run_shell_command, approval, .. } = file;
        let (sandbox, limits, retention) = (file.sandbox, file.limits, file.retention);
        if layer.origin == Origin::Project {
            // A project may tighten the rules and the limits, and that is all.
            let settings = &mut self.settings;
            settings.task_limits = limits.tightening(&settings.task_limits);
            settings.tasks_max = limits.tasks_max.unwrap_or(u64::MAX).min(settings.tasks_max);
            return Ok(());
        }
        self.roots.extend(roots.unwrap_or_default());
        self.sandbox.level = sandbox.level.or(self.sandbox.level);
        self.sandbox.network = sandbox.network.or(self.sandbox.network);
        self.sandbox.required = sandbox.required.unwrap_or(self.sandbox.required);
        self.sandbox.writable.extend(sandbox.writable);
        self.sandbox.unreadable.extend(sandbox.unreadable);
        let duration = |value: Option<u64>| value.map(Duration::from_millis);
        self.orphan_ttl = duration(orphan_ttl_ms).or(self.orphan_ttl);
        let settings = &mut self.settings;
        let known = *settings;
        *settings = Settings {
            output_tokens: output.default_tokens.unwrap_or(known.output_tokens),
            output_tokens_max: output.max_tokens.unwrap_or(known.output_tokens_max),
            complete_bytes_max: output.complete_bytes_max.unwrap_or(known.complete_bytes_max),
            shell_timeout: duration(run_shell_command.timeout_ms).unwrap_or(known.shell_timeout),
            approval_wait: duration(approval.wait_ms).unwrap_or(known.approval_wait),
            approval_expires: duration(approval.expires_ms).unwrap_or(known.approval_expires),
            tasks_max: limits.tasks_max.unwrap_or(known.tasks_max),
            retention: Retention {
                days: retention.days.unwrap_or(known.retention.days),
                bytes_max: retention.bytes_max.unwrap_or(known.retention.bytes_max),
            },
            task_limits: limits.over(&known.task_limits),
        };
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The user's file: `legwork/config.toml` in the XDG configuration directory.
pub fn user_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("legwork/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(files: &[(Origin, &str)]) -> Result<Config, ConfigError> {
        let files: Vec<_> = files
            .iter()
            .map(|(origin, text)| (*origin, PathBuf::from("f.toml"), (*text).to_owned()))
            .collect();
        Config::of(&files, Mode::Guarded)
    }

    #[test]
    fn later_layers_win_and_a_project_sets_nothing() {
        let config = config(&[
            (Origin::System, "orphan_ttl_ms = 5\n[output]\nmax_tokens = 10\ndefault_tokens = 3"),
            (Origin::User, "roots = [\"/a\"]\n[output]\nmax_tokens = 20"),
            (Origin::Project, "roots = [\"/\"]\n[output]\nmax_tokens = 99"),
            (Origin::Given, "[run_shell_command]\ntimeout_ms = 7"),
        ])
        .unwrap();
        let Settings { output_tokens, output_tokens_max, shell_timeout, .. } = config.settings;
        assert_eq!((output_tokens, output_tokens_max), (3, 20));
        assert_eq!(shell_timeout, Duration::from_millis(7));
        assert_eq!(config.roots, [PathBuf::from("/a")]);
        assert_eq!(config.orphan_ttl, Some(Duration::from_millis(5)));
    }

    #[test]
    fn limits_are_set_by_layers_and_a_project_only_tightens_them() {
        let config = config(&[
            (
                Origin::User,
                "[limits]\nprocesses_max = 9000\ncpu_ms_max = 50\ndisk_free_bytes_min = 5",
            ),
            (
                Origin::Project,
                "[limits]\nprocesses_max = 10000\ncpu_ms_max = 40\nwall_ms_max = 3\n\
                 disk_free_bytes_min = 7",
            ),
            (Origin::Given, "[limits]\ncpu_ms_max = 60"),
        ])
        .unwrap();
        let TaskLimits { wall_ms_max, limits } = config.settings.task_limits;
        assert_eq!((wall_ms_max, limits.cpu_ms_max), (Some(3), Some(40)));
        assert_eq!((limits.processes_max, limits.disk_free_bytes_min), (Some(9000), Some(7)));
        assert_eq!(limits.output_bytes_max, Some(4 << 30), "the default");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let error = config(&[(Origin::User, "\n[output]\nmax_token = 3")]).unwrap_err();
        assert!(error.to_string().starts_with("f.toml:3:1: "), "{error}");
        assert!(error.to_string().contains("max_tokens"), "{error}");
        assert!(config(&[(Origin::User, "orphan_ttl_ms = \"x\"")]).is_err());
    }
}
