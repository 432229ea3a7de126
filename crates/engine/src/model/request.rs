//! A request: the command that a caller wants to run, and how.

use std::{ffi::OsString, fs::File, path::PathBuf, time::Duration};

use legwork_gate::Manners;
use legwork_warden::{folder::WindowSize, protocol::Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{TaskLimits, lower, tighter};
use crate::platform::OwnedFd;

/// What to do when an equal command is already running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicatePolicy {
    /// Do not start another one; answer with the running task.
    #[default]
    ReuseRunning,
    /// Start another one.
    StartNew,
}

/// A command that somebody wants to run.
///
/// [`Request::script`] and [`Request::program`] begin one, with a default for everything else:
///
/// ```
/// use std::time::Duration;
/// use legwork::{Confinement, Request, Stdin};
///
/// let request = Request::script("sort | uniq -c")
///     .tool("CountWords")
///     .workdir("docs")
///     .confined_to(Confinement::Workspace)
///     .env("LC_ALL", "C")
///     .stdin("b\na\nb\n")
///     .timeout(Duration::from_secs(10));
/// assert!(matches!(request.stdin, Stdin::Bytes(_)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a request does nothing until it is submitted to an engine"]
pub struct Request {
    /// The tool or verb through which it comes: rules of a policy may name it, and the ledger has
    /// it.
    pub tool: String,
    /// How that tool wants its commands to be judged.
    pub manners: Manners,
    /// What to run.
    pub program: Program,
    /// Where, relative to the workspace or absolute; the workspace itself when absent.
    pub workdir: Option<PathBuf>,
    /// The name by which its caller knows that: errors say it.
    pub workdir_field: &'static str,
    /// Where that may be.
    pub confinement: Confinement,
    /// Variables that are set besides the inherited ones.
    pub environment: Vec<(String, String)>,
    /// What the caller says that it is for: the words of a model, perhaps.
    pub description: Option<String>,
    /// Where its stdin comes from.
    pub stdin: Stdin,
    /// Where its stdout and stderr go.
    pub outputs: Outputs,
    /// What to do about an equal command that runs.
    pub duplicates: DuplicatePolicy,
    /// Wall-clock limit, after which the whole tree is stopped.
    pub wall_ms_max: Option<u64>,
    /// What else it may use, where that is less than what is configured.
    pub limits: Limits,
    /// Output past this size goes to files at once, whatever else is so.
    pub memory_bytes_max: u64,
    /// Whether it may run on alone for as long as it likes: a person started it, and knows of it.
    pub is_kept: bool,
    /// Whether somebody waits for its end: a scheduler is asked to start it at once then, where it
    /// has room.
    pub is_awaited: bool,
    /// Whether it is only tried, on a copy of all that it may write.
    pub trial: Option<TrialWish>,
    /// The place to run at, by its name; `local` is this machine. The configured default when
    /// absent.
    pub place: Option<String>,
}

/// Most characters of what a caller says that a command is for.
const PURPOSE_CHARS_MAX: usize = 500;

/// What a caller says that a command is for, as it is kept and shown: none if it says nothing, and
/// not more than a person reads.
pub(crate) fn purpose(text: &str) -> Option<String> {
    let text = text.trim();
    let mut shown: String = text.chars().take(PURPOSE_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Some(shown).filter(|shown| !shown.is_empty())
}

/// A command that is to be tried: what it writes goes into a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrialWish {
    /// Whether it has the network that it would have otherwise; usually it has none, because what
    /// it does there cannot be taken back.
    pub network: bool,
}

impl Request {
    /// A script for a shell: for the user's own if it is bash, zsh or sh, else for `sh`; no login
    /// shell.
    pub fn script(text: impl Into<String>) -> Self {
        Self::new("sh", Program::Script { text: text.into(), shell: None, login: false })
    }

    /// A program and its arguments, without a shell.
    pub fn program<W: Into<OsString>>(argv: impl IntoIterator<Item = W>) -> Self {
        Self::new("program", Program::Argv(argv.into_iter().map(Into::into).collect()))
    }

    fn new(tool: &str, program: Program) -> Self {
        Self {
            tool: tool.to_owned(),
            manners: Manners::default(),
            program,
            workdir: None,
            workdir_field: "workdir",
            confinement: Confinement::Roots,
            environment: Vec::new(),
            description: None,
            stdin: Stdin::Null,
            outputs: Outputs::Separate,
            duplicates: DuplicatePolicy::default(),
            wall_ms_max: None,
            limits: Limits::default(),
            memory_bytes_max: u64::MAX,
            is_kept: false,
            is_awaited: true,
            trial: None,
            place: None,
        }
    }

    /// Lets it only be tried: what it writes goes into a copy, which
    /// [`Engine::apply_trial`](crate::Engine::apply_trial) brings over.
    pub fn tried(mut self, wish: TrialWish) -> Self {
        self.trial = Some(wish);
        self
    }

    /// Chooses the place to run at, by its name in the configuration; `local` is this machine.
    pub fn place(mut self, name: impl Into<String>) -> Self {
        self.place = Some(name.into());
        self
    }

    /// Names the tool or verb through which it comes.
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = name.into();
        self
    }

    /// Says how that tool wants its commands to be judged.
    pub fn manners(mut self, manners: Manners) -> Self {
        self.manners = manners;
        self
    }

    /// Chooses the shell of a script, by name or path; a program has none.
    pub fn shell(mut self, name: impl Into<String>) -> Self {
        if let Program::Script { shell, .. } = &mut self.program {
            *shell = Some(name.into());
        }
        self
    }

    /// Says whether a script's shell is a login shell, which reads the user's profile; a program
    /// has none.
    pub fn login(mut self, is_login: bool) -> Self {
        if let Program::Script { login, .. } = &mut self.program {
            *login = is_login;
        }
        self
    }

    /// Chooses the folder to run in: relative to the workspace, or absolute.
    pub fn workdir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workdir = Some(folder.into());
        self
    }

    /// The same for a folder that may be named in a field of a tool's input, with the name of that
    /// field.
    pub fn workdir_of(mut self, field: &'static str, folder: Option<String>) -> Self {
        self.workdir = folder.map(Into::into);
        self.workdir_field = field;
        self
    }

    /// Says where that folder may be.
    pub fn confined_to(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// Sets a variable. One whose name looks secret is masked wherever it is printed.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Says what it is for: a person who is asked about it sees that.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Chooses its stdin: [`Stdin`], text, bytes or a file.
    pub fn stdin(mut self, stdin: impl Into<Stdin>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Chooses where its stdout and stderr go.
    pub fn outputs(mut self, outputs: Outputs) -> Self {
        self.outputs = outputs;
        self
    }

    /// Says what to do about an equal command that runs.
    pub fn duplicates(mut self, policy: DuplicatePolicy) -> Self {
        self.duplicates = policy;
        self
    }

    /// Stops it, and everything that it started, after this time.
    pub fn timeout(mut self, limit: Duration) -> Self {
        // Past the end of time is no limit.
        self.wall_ms_max = u64::try_from(limit.as_millis()).ok().map(|limit_ms| limit_ms.max(1));
        self
    }

    /// Limits what else it may use, where that is less than what is configured.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Says that nobody waits for its end: where a scheduler starts it, it may take its turn.
    pub fn unawaited(mut self) -> Self {
        self.is_awaited = false;
        self
    }

    /// Lets it run on without any engine for as long as it likes, instead of
    /// [`Options::orphan_ttl`](crate::Options::orphan_ttl): a person started it.
    pub fn kept(mut self) -> Self {
        self.is_kept = true;
        self
    }

    /// Lowers what it asks for to what is configured.
    pub(crate) fn tighten(&mut self, configured: &TaskLimits) {
        self.wall_ms_max = lower(self.wall_ms_max, configured.wall_ms_max);
        self.limits = tighter(&self.limits, &configured.limits);
    }
}

/// Where a command's working directory may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In the workspace or another root.
    Roots,
    /// In the workspace, named relative to it.
    Workspace,
    /// Anywhere.
    None,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A script for a shell.
    Script {
        /// The text, passed verbatim.
        text: String,
        /// The shell; chosen from `$SHELL` when absent.
        shell: Option<String>,
        /// Whether it is started as a login shell.
        login: bool,
    },
    /// A program and its arguments, without a shell.
    Argv(Vec<OsString>),
}

impl Program {
    /// The command in one text, as it is shown and noted.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Script { text, .. } => text.clone(),
            Self::Argv(argv) => {
                let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
        }
    }
}

/// Where a command's stdin comes from.
#[derive(Debug)]
pub enum Stdin {
    /// The null device.
    Null,
    /// A descriptor of the caller.
    Given(OwnedFd),
    /// These bytes, and then its end.
    Bytes(Vec<u8>),
    /// It stays open for input that is sent later.
    Open,
}

impl From<&str> for Stdin {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<String> for Stdin {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&[u8]> for Stdin {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Stdin {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<OwnedFd> for Stdin {
    fn from(descriptor: OwnedFd) -> Self {
        Self::Given(descriptor)
    }
}

impl From<File> for Stdin {
    fn from(file: File) -> Self {
        Self::Given(file.into())
    }
}

/// Where a command's stdout and stderr go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Each to its own artifact.
    Separate,
    /// Both to stdout's, in the exact order in which they were written.
    Merged,
    /// Both to a terminal of this size.
    Terminal(WindowSize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_without_words_is_none() {
        assert_eq!(purpose(" to build\n").as_deref(), Some("to build"));
        for empty in ["", "  \n\t"] {
            assert_eq!(purpose(empty), None);
        }
    }
}
