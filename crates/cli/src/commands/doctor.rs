//! `legwork doctor`: checks this machine, the configuration and the state folder by trying them
//! out.
//!
//! Whatever is tried is tried in a temporary state folder: nothing is left behind, and a folder
//! that does not exist yet is not made.

mod clients;
mod layers;

use std::{
    fmt::Write,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use legwork::{
    Caller, Config, Engine, ErrorKind, Level, Options, Registry, ToolError, Trust, Usage,
    audit::repairs,
    gate::{Mode, Policy, units::shown_bytes},
};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{clients::FoundClient, layers::ProtectionLayer};
use super::{audit::describe as describe_entry, listed::age};
use crate::{
    OUR_FAILURE,
    arguments::{DoctorOptions, Rules, StateChoice, StatePlace},
    hints,
    platform::{NO_COPIES, SHELL, STARTER, ended_with},
    render::{print, print_json},
    style::{Style, Tone, from_home},
};

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into() }
    }

    fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into() }
    }

    fn of(name: &'static str, error: &ToolError) -> Self {
        Self::failed(name, error.message.clone())
    }
}

/// What is in force for commands of a trusted caller.
#[derive(Debug, Serialize)]
struct Effective {
    ask: &'static str,
    sandbox: Level,
    /// Whether nothing on this machine holds commands to that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sandbox_not_enforced: bool,
    network: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    network_by_name: bool,
    /// True if no copy-on-write view can be made: then there are no trials.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_copies: bool,
}

/// All that was found out.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    checks: Vec<Check>,
    usage: Option<Usage>,
    /// Entries of the audit log.
    repairs: Vec<Value>,
    layers: Vec<ProtectionLayer>,
    effective: Option<Effective>,
    configuration: Vec<PathBuf>,
    clients: Vec<FoundClient>,
}

pub(crate) async fn doctor(options: DoctorOptions) -> ExitCode {
    let found = diagnose(&options.place, &options.rules).await;
    let printed = if options.json { print_json(&found.json()) } else { print(&found.text()) };
    if found.is_healthy() { printed } else { ExitCode::from(OUR_FAILURE) }
}

/// Examines this machine.
pub(crate) async fn diagnose(place: &StatePlace, rules: &Rules) -> Diagnosis {
    let workspace = place.folder();
    let (mut checks, config) = configuration(&workspace, rules);
    let Findings { checks: of_state, usage, repairs } = examine(&place.state).await;
    checks.extend(of_state);
    let (effective, layers) = match Trial::open(&workspace, &config) {
        Ok(trial) => {
            checks.extend(trial.checks().await);
            checks.extend(trial.places().await);
            (trial.effective().await, layers::of(trial.guarded.protection(STRICTEST).await))
        }
        Err(error) => {
            checks.push(Check::of("command", &error));
            (None, layers::of(Err(error)))
        }
    };
    checks.extend(ended_with().map(|why| Check::ok("survival", why)));
    let configuration = Config::files(&workspace, &rules.policy);
    let clients = clients::found(&workspace);
    Diagnosis { checks, usage, repairs, layers, effective, configuration, clients }
}

impl Diagnosis {
    fn is_healthy(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let of = |event: &str| -> Vec<&Value> {
            let is_it = |entry: &&Value| entry.get("event").is_some_and(|it| it == event);
            self.repairs.iter().filter(is_it).collect()
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"), "healthy": self.is_healthy(),
            "checks": self.checks, "usage": self.usage, "rebuilds": of("rebuilt"),
            "set_aside": of("set_aside"), "layers": self.layers, "effective": self.effective,
            "configuration": self.configuration, "clients": self.clients,
        })
    }

    /// For people.
    fn text(&self) -> String {
        let style = Style::of_stdout();
        let mut text = report(&self.checks, self.effective.as_ref(), &self.layers, style);
        if !self.clients.is_empty() {
            text.push_str("\nClients with a configuration here:\n");
        }
        for client in &self.clients {
            let _ = writeln!(text, "{}", client.line());
        }
        for entry in &self.repairs {
            let _ = writeln!(text, "\n{}", describe_entry(entry));
        }
        let _ = writeln!(text, "\n{}", conclusion(&self.checks, &self.layers, style));
        text
    }
}

/// The trust whose sandbox needs every layer.
const STRICTEST: Trust = Trust::UntrustedExternal;

/// Reads the configuration; where that is wrong, the defaults count for the rest.
fn configuration(workspace: &Path, rules: &Rules) -> (Vec<Check>, Config) {
    let files = Config::files(workspace, &rules.policy);
    let files: Vec<String> =
        files.iter().map(|file| from_home(&file.display().to_string())).collect();
    match rules.config(workspace) {
        Ok(config) if files.is_empty() => {
            (vec![Check::ok("configuration", "defaults: there is no file")], config)
        }
        Ok(config) => {
            let ignored = config.policy.ignored().iter().map(ToString::to_string);
            let told: Vec<String> = [files.join(", ")].into_iter().chain(ignored).collect();
            (vec![Check::ok("configuration", told.join("; "))], config)
        }
        Err(error) => (vec![Check::failed("configuration", error.to_string())], Config::default()),
    }
}

/// What was found out about the state folder.
#[derive(Default)]
struct Findings {
    checks: Vec<Check>,
    usage: Option<Usage>,
    /// Entries of the audit log.
    repairs: Vec<Value>,
}

async fn examine(state: &StateChoice) -> Findings {
    let path = match state.path() {
        Ok(path) => path,
        Err(error) => {
            let checks = vec![Check::failed("state", error.to_string())];
            return Findings { checks, ..Findings::default() };
        }
    };
    let place = from_home(&path.display().to_string());
    let engine = match state.existing() {
        Ok(Some(engine)) => engine,
        Ok(None) => {
            let checks = vec![not_there(&path, &place)];
            return Findings { checks, ..Findings::default() };
        }
        Err(error) => {
            let checks = vec![Check::of("state", &error)];
            return Findings { checks, ..Findings::default() };
        }
    };
    let mut findings = Findings::default();
    findings.checks.push(match try_writing(&path) {
        Ok(()) => Check::ok("state", place),
        Err(error) => Check::failed("state", format!("{place} cannot be written: {error}")),
    });
    findings.checks.push(match engine.check_ledger().await {
        Ok(()) => Check::ok("ledger", "database intact"),
        Err(error) => Check::of("ledger", &error),
    });
    // After the check of the ledger, which may be the reason of one.
    findings.repairs = repairs(&engine.state().audit()).unwrap_or_default();
    match engine.usage().await {
        Ok(usage) => {
            findings.checks.push(Check::ok("disk", describe(&usage)));
            findings.usage = Some(usage);
        }
        Err(error) => findings.checks.push(Check::of("disk", &error)),
    }
    // Nobody goes on with them, and what they hold may be all that there is of a file.
    for journal in engine.stuck_applies() {
        let journal = journal.display();
        findings.checks.push(Check::failed(
            "apply",
            format!("cut off, neither finished nor undone: see `staging` in {journal} for the files that it replaced, then remove both"),
        ));
    }
    findings
}

/// A state folder that the first task will make, if it can.
fn not_there(path: &Path, place: &str) -> Check {
    let above = std::path::absolute(path).and_then(|path| {
        let above = path.ancestors().find(|folder| folder.exists());
        above.map(Path::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
    });
    match above.and_then(|folder| try_writing(&folder)) {
        Ok(()) => Check::ok("state", format!("{place}, made with the first task")),
        Err(error) => Check::failed("state", format!("{place} cannot be created: {error}")),
    }
}

/// Creates a folder in this one, and removes it. Permissions alone do not tell: the filesystem may
/// be read-only, or of a kind that nobody can write, such as `/proc`.
fn try_writing(folder: &Path) -> io::Result<()> {
    let trial = tempfile::Builder::new().prefix(".legwork-doctor-").tempdir_in(folder);
    trial.map_err(|error| error.kind().into()).and_then(TempDir::close)
}

fn describe(usage: &Usage) -> String {
    let oldest = match usage.oldest_at_ms {
        Some(at_ms) => format!(", the oldest {} old", age(at_ms)),
        None => String::new(),
    };
    let counted = |count: u64, name: &str| match count {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    };
    format!(
        "ledger {}; {}{oldest}; {}, {}",
        shown_bytes(usage.ledger_bytes),
        counted(usage.tasks, "task"),
        counted(usage.folders, "folder"),
        shown_bytes(usage.folder_bytes)
    )
}

/// Engines on a temporary state folder, which is gone in the end.
struct Trial {
    /// As it is configured.
    guarded: Engine,
    /// The same without questions: the doctor's own command needs no answer.
    asking_nobody: Engine,
    ask: &'static str,
    _state: TempDir,
}

impl Trial {
    fn open(workspace: &Path, config: &Config) -> Result<Self, ToolError> {
        let state = tempfile::Builder::new().prefix("legwork-doctor-").tempdir();
        let state = state.map_err(|error| {
            let problem = format!("cannot create a temporary folder: {error}");
            ToolError::new(ErrorKind::StateUnavailable, problem)
        })?;
        let open = |config: Config| {
            let mut options = Options::configured(workspace, config);
            options.state = Some(state.path().to_owned());
            // The doctor's own command is for this machine.
            options.default_place = None;
            options.files = None;
            options.hint = hints::of;
            options.for_the_user = hints::for_the_user;
            Engine::open_with(options, Registry::builtin())
        };
        let mut asking_nobody = config.clone();
        if config.policy.mode() != Mode::Open {
            asking_nobody.sandbox.level.get_or_insert(Level::WorkspaceWrite);
        }
        asking_nobody.policy = Policy::default().in_mode(Mode::Open);
        Ok(Self {
            guarded: open(config.clone())?,
            asking_nobody: open(asking_nobody)?,
            ask: config.policy.mode().asks(),
            _state: state,
        })
    }

    async fn effective(&self) -> Option<Effective> {
        let report = self.guarded.protection(Trust::TrustedOperator).await.ok()?;
        Some(Effective {
            ask: self.ask,
            sandbox: report.level,
            sandbox_not_enforced: report.level != Level::None && !report.holds_files(),
            network: report.network,
            network_by_name: report.network_by_name,
            no_copies: !self.guarded.can_try(),
        })
    }

    /// Whether each place can be reached, and has what commands need.
    async fn places(&self) -> Vec<Check> {
        let names: Vec<String> =
            self.guarded.places().into_iter().map(|place| place.name).collect();
        let mut checks = Vec::new();
        for name in names {
            checks.push(match self.guarded.check_place(&name).await {
                Ok(report) => match report.workspace {
                    Ok(folder) => {
                        let folder = folder.display();
                        Check::ok("place", format!("{name}: {} answers, {folder}", report.host))
                    }
                    Err(problem) => Check::failed("place", format!("{name}: {problem}")),
                },
                Err(error) => Check::of("place", &error),
            });
        }
        checks
    }

    async fn checks(&self) -> Vec<Check> {
        let engine = &self.asking_nobody;
        let mut checks = Vec::new();
        match engine.warm_up(Trust::TrustedOperator).await {
            Ok(_) => checks.push(Check::ok(STARTER, "starts and answers")),
            Err(error) => return vec![Check::of(STARTER, &error)],
        }
        let input = json!({ "cmd": "echo well", "shell": SHELL, "login": false });
        let answer = engine.call("ExecCommand", input, &Caller::operator("doctor")).await;
        checks.push(match answer.error() {
            Some(error) => Check::of("command", error),
            None if answer.receipt().contains("well") => {
                Check::ok("command", "runs, and its output arrives")
            }
            None => {
                Check::failed("command", answer.envelope().summary_text.clone().unwrap_or_default())
            }
        });
        if let Some(folder) = self.guarded.unsearched().await {
            let folder = folder.display();
            let detail = format!("too many folders: not guarded in {folder} and others");
            checks.push(Check::ok("repositories", detail));
        }
        checks
    }
}

fn report(
    checks: &[Check],
    effective: Option<&Effective>,
    layers: &[ProtectionLayer],
    style: Style,
) -> String {
    let mut text = format!("legwork {}\n\n", env!("CARGO_PKG_VERSION"));
    for check in checks {
        let (tone, mark) = if check.ok { (Tone::Good, "ok") } else { (Tone::Bad, "FAILED") };
        let mark = style.paint(tone, &format!("{mark:<7}"));
        let _ = writeln!(text, "{:<14} {mark} {}", check.name, check.detail);
    }
    if let Some(effective) = effective {
        text.push_str("\nIn force for a trusted caller:\n");
        for (name, value) in effective.told() {
            let _ = writeln!(text, "{name:<14} {value}");
        }
    }
    text.push_str(&layers::report(layers, style));
    text
}

/// The last line: whether all is well, in agreement with the rows above.
fn conclusion(checks: &[Check], layers: &[ProtectionLayer], style: Style) -> String {
    let failed: Vec<&str> = checks.iter().filter(|check| !check.ok).map(|it| it.name).collect();
    let missing = layers::missing(layers).count();
    let layers = if missing == 1 { "layer" } else { "layers" };
    match (failed.len(), missing) {
        (0, 0) => "All checks passed, and no protection is missing.".into(),
        (0, _) => format!("All checks passed; {missing} {layers} of protection missing (above)."),
        (1, _) => style.paint(Tone::Bad, &format!("1 check failed: {}", failed.join(", "))),
        (count, _) => {
            style.paint(Tone::Bad, &format!("{count} checks failed: {}", failed.join(", ")))
        }
    }
}

/// A level that nothing here holds.
const NOT_ENFORCED: &str = "asked for, and not enforced here: commands may write everywhere";

impl Effective {
    fn told(&self) -> Vec<(&'static str, String)> {
        let asked = match self.ask {
            "never" => "nobody is asked",
            "strict" => "a person is asked about all that no rule allows",
            _ => "a person is asked where tools and rules say so",
        };
        let writable = match self.sandbox {
            Level::None => "commands may write everywhere",
            _ if self.sandbox_not_enforced => NOT_ENFORCED,
            Level::WorkspaceWrite => "commands may write in their workspace and in /tmp",
            Level::ReadOnly => "commands may write nothing",
        };
        let network = match (self.network, self.network_by_name) {
            (true, true) => "by name: hosts that rules allow",
            (true, false) => "yes",
            (false, _) => "no",
        };
        let mut told = vec![
            ("ask", format!("{}: {asked}", self.ask)),
            ("sandbox", format!("{}: {writable}", self.sandbox.as_str())),
            ("network", network.to_owned()),
        ];
        if self.no_copies {
            told.push(("trials", format!("refused: {NO_COPIES}")));
        }
        told
    }
}
