//! The messages between an engine and a post, the process that works for it at another place.
//!
//! Each is a frame of the wardens' protocol, over the stdin and stdout of the post. The engine
//! speaks first, with [`ToPost::Open`]; the post answers with [`FromPost::Hello`], or says why not.
//! Both are of one version, which is checked there: nothing here is read by another program.

use std::{collections::BTreeMap, io, path::PathBuf};

use legwork_gate::{Decision, Level, NetworkMode, ProgramRule};
use legwork_warden::{
    protocol::{Decoder, Spec, StartFailure, encode},
    sandbox::Enforcement,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    model::sandbox::Wanted,
    place::{NoProgram, jobs::folder::Begun},
};

/// The version of the program: both sides are of the same one.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What an engine says to a post.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToPost {
    /// First of all: who asks, and for which folder.
    Open(Box<Opening>),
    /// A question, answered by [`FromPost::Answer`] with its number.
    Ask { number: u64, question: Box<PostQuestion> },
    /// Nobody waits for the answer any longer.
    Withdraw { number: u64 },
    /// Frames for the warden of a stream.
    Frames { stream: u64, bytes: Vec<u8> },
    /// The engine has all that a task has stored: forget it.
    Forget { task: String },
    /// The engine is still there.
    Ping,
    /// Nobody listens to a stream any more; its warden can be used again, or is let go.
    Close { stream: u64, is_reusable: bool },
}

/// What a post says to its engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromPost {
    /// Answers [`ToPost::Open`].
    Hello(Box<Hello>),
    /// In its place: the post cannot work, for this reason.
    Unfit(String),
    /// Answers a question: a value of the type that the question has, or why there is none.
    Answer { number: u64, answer: Result<Vec<u8>, Problem> },
    /// Frames of the warden of a stream.
    Frames { stream: u64, bytes: Vec<u8> },
    /// The warden of a stream is gone.
    Closed { stream: u64 },
}

/// Who asks, and for which folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub version: String,
    /// Of the wardens' protocol.
    pub protocol: u32,
    /// The mark of the engine, which the names of its wardens begin with.
    pub mark: String,
    pub workspace: PathBuf,
    pub sandbox: SandboxPaths,
    pub rules: Vec<FarRule>,
}

/// What was configured about sandboxes and has to be known where they are made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxPaths {
    pub writable: Vec<PathBuf>,
    pub unreadable: Vec<PathBuf>,
    pub deciding: Vec<PathBuf>,
}

/// A rule on a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarRule {
    id: String,
    denies: bool,
    tool: Option<String>,
    program: String,
    args: Vec<Vec<String>>,
}

impl From<&ProgramRule> for FarRule {
    fn from(rule: &ProgramRule) -> Self {
        Self {
            id: rule.id.clone(),
            denies: rule.decision == Decision::Deny,
            tool: rule.tool.clone(),
            program: rule.program.clone(),
            args: rule.args.clone(),
        }
    }
}

impl From<FarRule> for ProgramRule {
    fn from(rule: FarRule) -> Self {
        let decision = if rule.denies { Decision::Deny } else { Decision::Ask };
        Self { id: rule.id, decision, tool: rule.tool, program: rule.program, args: rule.args }
    }
}

/// What an engine has to know of a place once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub version: String,
    pub protocol: u32,
    pub pid: u32,
    pub boot_id: String,
    pub host: String,
    /// The workspace, as a real path; or why it cannot be used.
    pub workspace: Result<PathBuf, String>,
    pub state: PathBuf,
    /// The environment that commands there inherit.
    pub environment: BTreeMap<String, String>,
    pub processors: u64,
    pub memory_bytes: u64,
}

/// What a command is to be confined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FarWanted {
    level: Level,
    network: NetworkMode,
    operator: bool,
}

impl From<Wanted> for FarWanted {
    fn from(Wanted { level, network, operator }: Wanted) -> Self {
        Self { level, network, operator }
    }
}

impl From<FarWanted> for Wanted {
    fn from(FarWanted { level, network, operator }: FarWanted) -> Self {
        Self { level, network, operator }
    }
}

/// What an engine asks; behind each the type of its answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PostQuestion {
    /// A folder, and programs as commands that run in it find them: [`FarSeen`].
    Survey { folder: PathBuf, programs: Vec<String>, paths: Vec<PathBuf> },
    /// More of that, once the folder is known: [`FarSeen`].
    Look(Vec<LookAt>),
    /// A warden that has such a sandbox ready, on a stream of this number: [`ReadyWarden`].
    Ready { stream: u64, wanted: FarWanted },
    /// Start a command with the warden of a stream: `()`.
    Start(Box<Starting>),
    /// What came of the files that others run or trust, during the command of a stream:
    /// `Vec<String>`.
    Warnings { stream: u64 },
    /// A connection to a warden, on a stream of this number: `()`.
    Dial { stream: u64, warden: String },
    /// Whether a warden lives: `bool`.
    IsAlive(String),
    /// Ends what a dead warden's command has left; names what could not be ended: `Vec<u32>`.
    EndLeftBy(String),
    /// Those of these paths that a command in such a sandbox cannot write: `Vec<PathBuf>`.
    RefusedWrites { wanted: FarWanted, paths: Vec<PathBuf> },
    /// Where a path is that a command in such a sandbox names: `Option<PathBuf>`.
    AsSeen { wanted: FarWanted, path: PathBuf },
    /// Answered when the path exists: `()`.
    Appears(PathBuf),
    /// Whether it exists: `bool`.
    Exists(PathBuf),
    /// Those of some processes that run, with their command lines: `Vec<(u32, String)>`.
    Processes(Vec<u32>),
    /// What a job says of itself, which is taken by this: [`JobSaid`].
    Job,
    /// What a task has stored: [`StoredTask`].
    Stored(String),
    /// A piece of what a task has stored, whole but at its end: `Vec<u8>`.
    Read { task: String, file: StoredFile, offset: u64, length: u64 },
    /// The hash of the program: `String`.
    Hash,
    /// What is left of tasks and wardens: [`Leftovers`].
    Leftovers,
}

/// Something to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LookAt {
    /// A program, as commands in this folder find it.
    Program { name: String, folder: PathBuf },
    /// The file that a path leads to, behind all links.
    Real(PathBuf),
    /// Whether a sandboxed command could have put a file there.
    Planted(PathBuf),
    /// A folder.
    Folder(PathBuf),
    /// Whether a path exists.
    Exists(PathBuf),
}

/// What was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SeenAs {
    Program(Result<PathBuf, ProgramProblem>),
    Real(Option<PathBuf>),
    Yes(bool),
    /// Where the folder really is, or the error's number.
    Folder(Result<PathBuf, i32>),
}

/// What was looked at, and what of it was seen.
pub(crate) type FarSeen = Vec<(LookAt, SeenAs)>;

/// Why a program cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProgramProblem {
    Invalid,
    NotExecutable(PathBuf),
    NotFound,
}

impl From<NoProgram> for ProgramProblem {
    fn from(problem: NoProgram) -> Self {
        match problem {
            NoProgram::Invalid => Self::Invalid,
            NoProgram::NotExecutable(path) => Self::NotExecutable(path),
            NoProgram::NotFound => Self::NotFound,
        }
    }
}

impl From<ProgramProblem> for NoProgram {
    fn from(problem: ProgramProblem) -> Self {
        match problem {
            ProgramProblem::Invalid => Self::Invalid,
            ProgramProblem::NotExecutable(path) => Self::NotExecutable(path),
            ProgramProblem::NotFound => Self::NotFound,
        }
    }
}

/// A warden that is ready.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyWarden {
    pub name: String,
    pub sandbox: Option<FarSandbox>,
}

/// A sandbox as it is made there.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FarSandbox {
    pub enforcement: Enforcement,
    pub variables: Vec<(String, String)>,
    pub mark: [u8; 32],
}

/// A command to be started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Starting {
    pub stream: u64,
    pub spec: Spec,
    pub workdir: PathBuf,
    /// What it is to read, where that is there already.
    pub given: Option<Vec<u8>>,
    /// Whether to look at what others run or trust, before and after.
    pub is_checked: bool,
}

/// A file of a task's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredFile {
    Stdout,
    Stderr,
    Terminal,
    Timeline,
}

/// What a task has stored, as of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredTask {
    /// Whether there is anything.
    pub is_there: bool,
    pub is_terminal: bool,
    /// What is stored of stdout or the terminal, of stderr and of the timeline.
    pub stdout: StoredStream,
    pub stderr: StoredStream,
    pub timeline_bytes: u64,
    /// The exit record with what is noted behind it, as it is stored.
    pub exit: Vec<u8>,
    /// What the engine has noted about the task.
    pub note: Vec<u8>,
}

/// What is stored of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredStream {
    pub bytes: u64,
    /// What of that is not kept.
    pub gap: Option<(u64, u64)>,
}

/// What is left at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leftovers {
    /// Wardens that live.
    pub wardens: u64,
    /// Tasks of which something is stored.
    pub tasks: u64,
}

/// What a job says of itself, in a folder that its engine may not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobSaid {
    pub begun: Option<Begun>,
    pub failed: Option<StartFailure>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The number of the system's error, if it is one.
    pub errno: Option<i32>,
    pub text: String,
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self { errno: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<Problem> for io::Error {
    fn from(problem: Problem) -> Self {
        match problem.errno {
            Some(errno) => Self::from_raw_os_error(errno),
            None => Self::other(problem.text),
        }
    }
}

/// The value as bytes of an answer.
pub(crate) fn pack<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    encode(value).map_err(io::Error::other)
}

/// The value of an answer.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    let value = decoder.next_frame().map_err(io::Error::other)?;
    value.ok_or_else(|| io::Error::other("an answer is cut off"))
}
