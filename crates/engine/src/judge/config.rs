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

use legwork_gate::{
    Layer, Level, Mode, NetworkMode, Origin, Policy, PolicyError, Trust, Values,
    keys::{PLACES, RUN_SHELL_COMMAND},
};

use super::files::ConfigFiles;
use crate::{
    error::{ErrorKind, ToolError},
    model::limits::{self, TaskLimits},
    model::network::NetworkSettings,
    model::place::{PlaceReach, PlaceSettings},
    model::sandbox::SandboxSettings,
    platform::{config_base, real_path, system_file},
    store::retention::Retention,
};

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
}

impl From<ConfigError> for ToolError {
    fn from(error: ConfigError) -> Self {
        let hint = match &error {
            ConfigError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "name a file that exists, then try again"
            }
            ConfigError::File { .. } => "make that file readable, then try again",
            ConfigError::Policy(_) => "fix that line, then try again",
        };
        Self::new(ErrorKind::ConfigurationInvalid, format!("the configuration: {error}")).hint(hint)
    }
}

/// How much is asked and what commands are confined to, as a caller chooses it: that goes before
/// what the files say. A mode is a name for a pair of both.
///
/// ```
/// use legwork::{Guarding, Level, gate::Mode};
///
/// // Nobody is asked, and commands may still write nowhere but in their workspace.
/// let guarding = Guarding { ask: Some(Mode::Open), ..Guarding::default() };
/// // The same, but they may only read.
/// let reading = Guarding { level: Some(Level::ReadOnly), ..Mode::Open.into() };
/// # let _ = (guarding, reading);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guarding {
    /// How much is asked; and in open mode, no sandbox where no level is named.
    pub mode: Option<Mode>,
    /// How much is asked, whatever the mode.
    pub ask: Option<Mode>,
    /// The level of the sandbox; no mode weakens it.
    pub level: Option<Level>,
}

impl From<Mode> for Guarding {
    fn from(mode: Mode) -> Self {
        Self { mode: Some(mode), ..Self::default() }
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
    /// The programs of the user's that are told of something.
    pub told: UserPrograms,
    /// Which variables commands get.
    pub variables: Variables,
    /// How much is asked, where the caller does not choose.
    pub ask: Option<Mode>,
    /// Other places that commands can run at.
    pub places: Vec<PlaceSettings>,
    /// The place that commands run at whose caller does not say; this machine when absent.
    pub default_place: Option<String>,
    /// The files that all of this was read from: an engine reads them again when they change. None
    /// where it stays as it is.
    pub files: Option<ConfigFiles>,
}

/// Which variables of our own environment commands do not get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those that they get although a client has set them for itself.
    pub kept: Vec<String>,
    /// Those that they do not get.
    pub dropped: Vec<String>,
}

/// Variables that clients set for themselves.
const FOREIGN_VARIABLES: &str = include_str!("foreign_variables.txt");

impl Variables {
    /// The names that are taken out of every command's environment.
    pub(crate) fn unset(&self) -> Vec<String> {
        let foreign = FOREIGN_VARIABLES.lines().map(str::trim);
        let foreign = foreign.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let foreign = foreign.filter(|name| !self.kept.iter().any(|kept| kept == name));
        foreign.map(str::to_owned).chain(self.dropped.iter().cloned()).collect()
    }
}

/// Programs of the user's that are told of something, each with its arguments; none if empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPrograms {
    /// Of a question that opens.
    pub of_questions: Vec<String>,
    /// Of the end of the audit log; `syslog` is the system's log.
    pub of_audit: Vec<String>,
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
    /// Whether a client that can show questions is asked to.
    pub elicit: bool,
    /// How long a call of a client waits that asks for no progress.
    pub answer_within: Duration,
    /// Most tasks that may run at a time, of all processes of the state folder.
    pub tasks_max: u64,
    /// Whether a hook that cannot judge a command lets it run.
    pub hook_fails_open: bool,
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
            elicit: true,
            answer_within: Duration::from_secs(50),
            tasks_max: 4096,
            hook_fails_open: false,
            retention: Retention::default(),
            task_limits: TaskLimits::default(),
        }
    }
}

impl Config {
    /// Reads all layers: those that exist, and those that are given, which must.
    pub fn load(
        workspace: &Path,
        given: &[PathBuf],
        guarding: impl Into<Guarding>,
    ) -> Result<Self, ConfigError> {
        // A folder of this name later is where commands run then: files are named from the root on.
        let workspace = real_path(workspace).unwrap_or_else(|_| absolute(workspace));
        let given: Vec<PathBuf> = given.iter().map(|path| absolute(path)).collect();
        ConfigFiles::read(&workspace, &given, guarding.into()).config()
    }

    /// The files that count for a workspace and exist, in the order in which they do.
    pub fn files(workspace: &Path, given: &[PathBuf]) -> Vec<PathBuf> {
        let usual = usual_files(workspace).into_iter().map(|(_, path)| path);
        let files = usual.filter(|path| path.exists()).chain(given.iter().cloned());
        files.map(|path| absolute(&path)).collect()
    }

    pub(super) fn of(
        files: &[(Origin, PathBuf, String)],
        guarding: Guarding,
    ) -> Result<Self, ConfigError> {
        let names: Vec<String> =
            files.iter().map(|(_, path, _)| path.display().to_string()).collect();
        let layers: Vec<Layer<'_>> = files
            .iter()
            .zip(&names)
            .map(|((origin, _, text), name)| Layer { origin: *origin, name, text })
            .collect();
        let policy = Policy::from_layers(&layers, Mode::default())?;
        let mut config = Self { policy, ..Self::default() };
        // The project's own comes last, since nothing may loosen what it tightens.
        let is_project = |layer: &&Layer<'_>| layer.origin == Origin::Project;
        let others = layers.iter().filter(|layer| !is_project(layer));
        for layer in others.chain(layers.iter().filter(is_project)) {
            config.take(layer)?;
        }
        config.guard(guarding);
        Ok(config)
    }

    /// Asks and confines as the caller chooses, or as the files say.
    fn guard(&mut self, guarding: Guarding) {
        let asked = guarding.ask.or(guarding.mode).or(self.ask);
        let mode = asked.unwrap_or_default();
        self.policy = std::mem::take(&mut self.policy).in_mode(mode);
        let level = guarding.level.or(self.sandbox.level);
        // An open mode confines nothing, unless a level is named. Where only asking is switched
        // off, commands stay as confined as they are.
        self.sandbox.level = level.or(match (guarding.mode, mode) {
            (Some(Mode::Open), Mode::Open) => None,
            (Some(Mode::Open), _) => Some(Level::None),
            (_, Mode::Open) => Some(Level::WorkspaceWrite),
            _ => None,
        });
    }

    fn take(&mut self, layer: &Layer<'_>) -> Result<(), ConfigError> {
        let values = Values::read(layer)?;
        let limits = limits::Section::of(&values);
        if layer.origin == Origin::Project {
            // A project may tighten the rules and the limits, and that is all.
            let settings = &mut self.settings;
            settings.task_limits = limits.tightening(&settings.task_limits);
            settings.tasks_max = limits.tasks_max.unwrap_or(u64::MAX).min(settings.tasks_max);
            tighten_network(&mut self.sandbox.names, &values);
            return Ok(());
        }
        let paths = |section, name| values.texts(section, name).iter().map(PathBuf::from);
        self.roots.extend(paths("", "roots"));
        self.ask = values.text("", "ask").and_then(Mode::asking).or(self.ask);
        let sandbox = &mut self.sandbox;
        let level = values.text("sandbox", "level").and_then(Level::from_name);
        sandbox.level = level.or(sandbox.level);
        sandbox.network = values.flag("sandbox", "network").or(sandbox.network);
        take_network(&mut sandbox.names, &values);
        sandbox.required = values.flag("sandbox", "required").unwrap_or(sandbox.required);
        sandbox.writable.extend(paths("sandbox", "writable"));
        sandbox.unreadable.extend(paths("sandbox", "unreadable"));
        let trial_bytes_max = values.number("sandbox", "trial_bytes_max");
        sandbox.trial_bytes_max = trial_bytes_max.unwrap_or(sandbox.trial_bytes_max);
        let duration = |section, name| values.number(section, name).map(Duration::from_millis);
        self.orphan_ttl = duration("", "orphan_ttl_ms").or(self.orphan_ttl);
        let texts = |section, name| values.texts(section, name).to_vec();
        self.variables.kept.extend(texts("environment", "keep"));
        self.variables.dropped.extend(texts("environment", "drop"));
        for (section, name, told) in [
            ("approval", "notify", &mut self.told.of_questions),
            ("audit", "anchor", &mut self.told.of_audit),
        ] {
            let words = values.texts(section, name);
            if !words.is_empty() {
                *told = words.to_vec();
            }
        }
        take_places(self, &values);
        let known = self.settings;
        let on_failure = values.text("hook", "on_failure").map(|choice| choice == "allow");
        let number = |section, name, known| values.number(section, name).unwrap_or(known);
        let time = |section, name, known| duration(section, name).unwrap_or(known);
        self.settings = Settings {
            output_tokens: number("output", "default_tokens", known.output_tokens),
            output_tokens_max: number("output", "max_tokens", known.output_tokens_max),
            complete_bytes_max: number("output", "complete_bytes_max", known.complete_bytes_max),
            shell_timeout: time(RUN_SHELL_COMMAND, "timeout_ms", known.shell_timeout),
            approval_wait: time("approval", "wait_ms", known.approval_wait),
            approval_expires: time("approval", "expires_ms", known.approval_expires),
            elicit: values.flag("approval", "elicit").unwrap_or(known.elicit),
            answer_within: time("mcp", "answer_within_ms", known.answer_within),
            tasks_max: limits.tasks_max.unwrap_or(known.tasks_max),
            hook_fails_open: on_failure.unwrap_or(known.hook_fails_open),
            retention: Retention {
                days: number("retention", "days", known.retention.days),
                bytes_max: number("retention", "bytes_max", known.retention.bytes_max),
            },
            task_limits: limits.over(&known.task_limits),
        };
        Ok(())
    }
}

/// Takes the places of a file; a later file's goes before an earlier one's of the same name.
fn take_places(config: &mut Config, values: &Values) {
    let default = values.text("place", "default").map(str::to_owned);
    config.default_place = default.or(config.default_place.take());
    for (name, set) in values.places() {
        let text = |key| set.text(PLACES, key).map(str::to_owned);
        let options = set.texts(PLACES, "options").to_vec();
        let reach = match set.text(PLACES, "kind") {
            Some("docker") if text("image").is_some() => {
                PlaceReach::Image { image: text("image").unwrap_or_default(), options }
            }
            Some("docker") => {
                PlaceReach::Docker { container: text("container").unwrap_or_default(), options }
            }
            Some("slurm") => PlaceReach::Slurm { options },
            _ => PlaceReach::Ssh { host: text("host").unwrap_or_default(), options },
        };
        let mut place = PlaceSettings::new(name.clone(), reach);
        place.workspace = text("workspace").map(PathBuf::from);
        place.program = text("program");
        place.state = text("state").map(PathBuf::from);
        config.places.retain(|known| known.name != *name);
        config.places.push(place);
    }
}

/// Takes what a file says of the network.
fn take_network(network: &mut NetworkSettings, values: &Values) {
    const SECTION: &str = "network";
    let mode = values.text(SECTION, "mode").and_then(NetworkMode::from_name);
    network.mode = mode.or(network.mode);
    network.allow.extend_from_slice(values.texts(SECTION, "allow"));
    network.deny.extend_from_slice(values.texts(SECTION, "deny"));
    network.ask = values.flag(SECTION, "ask").unwrap_or(network.ask);
    network.sets.extend(values.lists(SECTION, "sets").iter().cloned());
    let connects = |trust: Trust| values.text(SECTION, trust.as_str()).map(|it| it == "names");
    let known = (network.integrations_connect, network.untrusted_connect);
    network.integrations_connect = connects(Trust::TrustedIntegration).unwrap_or(known.0);
    network.untrusted_connect = connects(Trust::UntrustedExternal).unwrap_or(known.1);
    let limits = &mut network.limits;
    let number = |name| values.number(SECTION, name);
    let connections = number("connections_max").map(|it| u32::try_from(it).unwrap_or(u32::MAX));
    limits.connections_max = connections.unwrap_or(limits.connections_max);
    limits.bytes_out_max = number("bytes_out_max").or(limits.bytes_out_max);
    limits.connect_ms_max = number("connect_ms_max").unwrap_or(limits.connect_ms_max);
}

/// Takes what a project's file says of the network, where that is stricter.
fn tighten_network(network: &mut NetworkSettings, values: &Values) {
    const SECTION: &str = "network";
    let mode = values.text(SECTION, "mode").and_then(NetworkMode::from_name);
    network.mode = network.mode.max(mode);
    network.deny.extend_from_slice(values.texts(SECTION, "deny"));
    let limits = &mut network.limits;
    let number = |name| values.number(SECTION, name).unwrap_or(u64::MAX);
    let connections = u32::try_from(number("connections_max")).unwrap_or(u32::MAX);
    limits.connections_max = limits.connections_max.min(connections);
    let bytes = limits.bytes_out_max.unwrap_or(u64::MAX).min(number("bytes_out_max"));
    limits.bytes_out_max = (bytes < u64::MAX).then_some(bytes);
    limits.connect_ms_max = limits.connect_ms_max.min(number("connect_ms_max"));
}

/// Where files of configuration are, whether they exist or not.
pub(super) fn usual_files(workspace: &Path) -> Vec<(Origin, PathBuf)> {
    let user = user_file().map(|path| (Origin::User, path));
    let system = system_file().map(|path| (Origin::System, path));
    let project = (Origin::Project, workspace.join(PROJECT));
    [system, user, Some(project)].into_iter().flatten().collect()
}

/// A path from the root on, wherever this process goes.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The user's file: `config.toml` in our folder of their configuration.
pub fn user_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(config_base(set)?.join("legwork").join("config.toml"))
}

#[cfg(test)]
mod tests {
    use legwork_gate::keys::{KEYS, Key, Kind, Project, Unset, is_listed};

    use super::*;

    fn config(files: &[(Origin, &str)]) -> Result<Config, ConfigError> {
        let files: Vec<_> = files
            .iter()
            .map(|(origin, text)| (*origin, PathBuf::from("f.toml"), (*text).to_owned()))
            .collect();
        Config::of(&files, Guarding::default())
    }

    /// How much is asked and the level that is set, for this configuration and choice.
    fn guarded(text: &str, guarding: Guarding) -> (Mode, Option<Level>) {
        let files = [(Origin::User, PathBuf::from("f.toml"), text.to_owned())];
        let config = Config::of(&files, guarding).unwrap();
        (config.policy.mode(), config.sandbox.level)
    }

    #[test]
    fn asking_and_confining_are_chosen_apart_and_a_mode_is_a_name_for_both() {
        let (ask, level) = (Some(Mode::Open), Some(Level::ReadOnly));
        let nothing = Guarding::default();
        let open = Guarding::from(Mode::Open);
        assert_eq!(guarded("", nothing), (Mode::Guarded, None));
        assert_eq!(guarded("", open), (Mode::Open, None), "and so no sandbox");
        assert_eq!(guarded("", Mode::Strict.into()), (Mode::Strict, None));
        let never = Guarding { ask, ..nothing };
        assert_eq!(guarded("", never), (Mode::Open, Some(Level::WorkspaceWrite)), "still confined");
        let strict = Guarding { ask: Some(Mode::Strict), ..open };
        assert_eq!(guarded("", strict), (Mode::Strict, Some(Level::None)));
        assert_eq!(guarded("", Guarding { level, ..open }), (Mode::Open, level));
        // The same as keys; a choice goes before them, and a mode weakens no level.
        assert_eq!(guarded("ask = \"strict\"", nothing).0, Mode::Strict);
        assert_eq!(guarded("ask = \"strict\"", open), (Mode::Open, None));
        let read_only = "ask = \"never\"\n[sandbox]\nlevel = \"read-only\"";
        assert_eq!(guarded(read_only, nothing), (Mode::Open, level));
        assert_eq!(guarded(read_only, open), (Mode::Open, level));
        let chosen = Guarding { level: Some(Level::None), ..nothing };
        assert_eq!(guarded(read_only, chosen), (Mode::Open, Some(Level::None)));
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
        assert!(config(&[(Origin::User, "orphan_ttl_ms = \"5\"")]).is_err(), "no unit");
        assert!(config(&[(Origin::User, "[limits]\nprocesses_max = \"5s\"")]).is_err());
    }

    #[test]
    fn places_are_read_and_a_later_file_replaces_one_of_the_same_name() {
        let ssh = |host: &str| format!("[place.build]\nkind = \"ssh\"\nhost = \"{host}\"\n");
        let more = "workspace = \"/w\"\noptions = [\"-p\", \"2\"]\n[place]\ndefault = \"build\"\n";
        let later = format!("{}{more}", ssh("b"));
        let all = [(Origin::User, &*ssh("a")), (Origin::Given, &*later)];
        let config = config(&all).unwrap();
        assert_eq!(config.default_place.as_deref(), Some("build"));
        let [place] = &config.places[..] else { panic!("{:?}", config.places) };
        let options = vec!["-p".to_owned(), "2".to_owned()];
        assert_eq!(place.reach, PlaceReach::Ssh { host: "b".into(), options });
        assert_eq!((place.workspace.as_deref(), &place.program), (Some(Path::new("/w")), &None));
    }

    #[test]
    fn a_place_needs_a_name_that_can_be_typed_and_what_its_kind_needs() {
        let problem = |text: &str| config(&[(Origin::User, text)]).unwrap_err().to_string();
        for (text, expected) in [
            ("[place.build]\nhost = \"a\"", "f.toml:1:8: the place `build` has no `kind`"),
            ("[place.build]\nkind = \"ssh\"", "has no `host`"),
            ("[place.build]\nkind = \"swarm\"", "f.toml:2:8: "),
            ("[place.local]\nkind = \"ssh\"\nhost = \"a\"", "cannot be the name of a place"),
            ("[place.\"a:b\"]\nkind = \"ssh\"\nhost = \"a\"", "cannot be the name of a place"),
            ("[place.build]\nkind = \"ssh\"\nhots = \"a\"", "did you mean `host`?"),
            ("[place]\ndefalt = \"a\"", "unknown key `defalt`"),
            ("place = 5", "`place` is not a table"),
        ] {
            assert!(problem(text).contains(expected), "{text}: {}", problem(text));
        }
        // A project's file may be a command's work.
        let ours = "[place.build]\nkind = \"ssh\"\nhost = \"a\"\n[place]\ndefault = \"build\"";
        let config = config(&[(Origin::Project, ours)]).unwrap();
        assert_eq!((config.places.len(), config.default_place), (0, None));
    }

    #[test]
    fn durations_and_sizes_may_have_units() {
        let text = "orphan_ttl_ms = \"1h\"\n[retention]\ndays = \"2w\"\nbytes_max = \"2GiB\"\n\
                    [limits]\nwall_ms_max = \"1m30s\"";
        let config = config(&[(Origin::User, text)]).unwrap();
        assert_eq!(config.orphan_ttl, Some(Duration::from_secs(3600)));
        assert_eq!(config.settings.retention.days, 14);
        assert_eq!(config.settings.retention.bytes_max, 2 << 30);
        assert_eq!(config.settings.task_limits.wall_ms_max, Some(90_000));
    }

    /// A file with one key in it.
    fn file_with(key: &Key, value: &str) -> String {
        match key.section {
            "" => format!("{} = {value}\n", key.name),
            section => format!("[{section}]\n{} = {value}\n", key.name),
        }
    }

    /// The keys that are read here, and not by the gate.
    fn settings() -> impl Iterator<Item = &'static Key> {
        let by_gate = ["rule", "connect", "coreTools", "excludeTools"];
        KEYS.iter().filter(move |key| !is_listed(key.section) && !by_gate.contains(&key.name))
    }

    /// Everything that a configuration decides here.
    fn shown(config: &Config) -> String {
        let Config { settings, sandbox, roots, orphan_ttl, told, variables, policy, .. } = config;
        let place = config.default_place.as_deref().unwrap_or("local");
        let orphan_ttl = orphan_ttl.unwrap_or(Duration::from_secs(600));
        let mode = policy.mode();
        format!(
            "{settings:?} {sandbox:?} {roots:?} {orphan_ttl:?} {told:?} {variables:?} {mode:?} {place}"
        )
    }

    #[test]
    fn every_key_of_the_table_is_taken() {
        let nothing = shown(&Config::default());
        for key in settings() {
            let value = match key.kind {
                // Less than any default that is not 0, and none of them.
                Kind::Number(_) => "5",
                Kind::Flag if key.unset == Unset::Is("true") => "false",
                Kind::Flag => "true",
                Kind::Choice(known) if known.contains(&"read-only") => "\"read-only\"",
                Kind::Choice(known) if known.contains(&"deny") => "\"allow\"",
                Kind::Choice(known) if known.contains(&"names") => "\"names\"",
                Kind::Lists => "{ x = [\"a.test\"] }",
                Kind::Texts if key.section == "network" => "[\"a.test\"]",
                Kind::Choice(_) => "\"strict\"",
                Kind::Text => "\"x\"",
                Kind::Texts => "[\"/x\"]",
                Kind::Words | Kind::Tables => panic!("{key:?}"),
            };
            let set = config(&[(Origin::User, &file_with(key, value))]).unwrap();
            assert_ne!(shown(&set), nothing, "{key:?}");
            // What a project may do with it is what the table says, and a mistake is one there,
            // too.
            let set = config(&[(Origin::Project, &file_with(key, value))]).unwrap();
            assert_eq!(shown(&set) != nothing, key.project == Project::Tighten, "{key:?}");
            let wrong = if key.kind == Kind::Lists { "5" } else { "{}" };
            assert!(config(&[(Origin::Project, &file_with(key, wrong))]).is_err(), "{key:?}");
        }
    }

    #[test]
    fn the_defaults_of_the_table_are_those_that_count() {
        let nothing = shown(&Config::default());
        for key in settings() {
            if let Unset::Is(value) = key.unset {
                let set = config(&[(Origin::User, &file_with(key, value))]).unwrap();
                assert_eq!(shown(&set), nothing, "{key:?}");
            }
        }
        let options = crate::engine::Options::new("/");
        assert_eq!(options.orphan_ttl, Duration::from_secs(600));
    }
}
