//! The frames between engine, spawner and warden: the whole protocol.
//!
//! A frame is a little-endian `u32` length and a postcard body of that length. Descriptors travel
//! beside the first byte of a frame; on Windows, where they cannot, in a frame before it. The first
//! frame from a spawner or a warden is its `Hello`, whose layout never changes: a peer of another
//! version can always read the version and say no.
//!
//! A program can be replaced while tasks run. An engine speaks with the wardens of its own version
//! only: it leaves one of another version alone, and reads the exit record when that has ended.

mod codec;
mod spec;

use serde::{Deserialize, Serialize};

pub use self::{
    codec::{Decoder, FRAME_BYTES_MAX, FrameError, encode},
    spec::{Environment, Limits, OutputRoute, RunCopies, Sandboxed, Spec, StdinSource},
};
use crate::{
    folder::{Stream, WindowSize},
    network::{ConnectionTotal, HeldName},
    record::{ExitRecord, LimitsInForce},
    sandbox::{Enforcement, Profile},
};

/// Version of everything below. Goes up with every change of a frame.
pub const VERSION: u32 = 1;

/// The version that this process speaks.
pub fn version() -> u32 {
    // A test can pretend that this is another program.
    #[cfg(debug_assertions)]
    if let Some(other) = std::env::var_os("LEGWORK_PROTOCOL_VERSION") {
        return other.to_str().and_then(|text| text.parse().ok()).unwrap_or(VERSION);
    }
    VERSION
}

/// What an engine asks of its spawner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// First frame. Carries two descriptors: the `tasks` folder and the `wardens` folder.
    Setup,
    /// Fork a warden. Carries one descriptor: the warden's end of its channel. A warden that cannot
    /// be made says so there, with [`FromWarden::StartFailed`] in the place of its hello.
    Fork {
        /// Name of the warden: its adoption socket is `wardens/<name>.sock`.
        warden: String,
    },
}

/// What a spawner tells its engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSpawner {
    /// Sent once, at start.
    Hello {
        /// [`VERSION`] of the spawner.
        version: u32,
    },
    /// In the place of the hello: it cannot work here, for this reason.
    Unfit {
        /// A sentence for people.
        reason: String,
    },
}

/// What an engine or an observer asks of a warden.
///
/// A warden serves one command after another, so whatever is about a command names its task; what
/// is about another one is not obeyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWarden {
    /// Start the command. Carries the working directory and, with [`StdinSource::Given`], stdin.
    Start(Box<Spec>),
    /// Do something about the command of this task.
    Order {
        /// The task.
        task: String,
        /// What to do.
        order: Order,
    },
    /// Confine sandboxed commands to this from now on, and keep a sandbox ready. Answered with
    /// [`FromWarden::Confined`].
    Confine(Box<Profile>),
    /// On Windows: the numbers of handles that the engine has put into the warden, in the place of
    /// descriptors beside the next frame.
    Handles(Vec<u64>),
}

/// What can be asked about a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Tell me once when there is output beyond these offsets; ask again for the next time.
    Follow {
        /// Bytes of stdout already seen.
        stdout_bytes: u64,
        /// Bytes of stderr already seen.
        stderr_bytes: u64,
    },
    /// Send a signal to the command.
    Signal {
        /// Number of the signal.
        signal: i32,
        /// To its whole process group, as a terminal does, or to its process alone, as `kill` does.
        group: bool,
    },
    /// Nobody reads this stream any more: whoever writes to it is to learn that.
    Close(Stream),
    /// Stop the command and everything below it.
    Stop {
        /// The signal of the polite first round.
        signal: i32,
        /// How long the tree may take to end by itself before it is killed.
        grace_ms: u64,
        /// Recorded as the reason of the end.
        because: EndCause,
    },
    /// The outcome is committed to the ledger: forget it, and be ready for the next command.
    Committed,
    /// Keep the output in the task's folder from now on: somebody will read it there. Answered with
    /// [`FromWarden::Spilled`].
    Spill,
    /// Answer with a [`FromWarden::Report`].
    Report,
    /// Write to the command's stdin or terminal. Answered with [`FromWarden::InputTaken`] when all
    /// of it is written or cannot be; there is one at a time from each peer.
    Input(Vec<u8>),
    /// Give up on the input that is not written yet; its answer comes now.
    WithdrawInput,
    /// The input is over: closes a pipe, types the end-of-file character on a terminal. Answered
    /// like input.
    EndInput,
    /// Give the terminal this size.
    Resize(WindowSize),
    /// Tell me once when one of these is so.
    Watch(WatchFor),
    /// Let me be the owner, if there is none. Answered with [`FromWarden::Adopted`].
    Adopt,
    /// Answers [`FromWarden::ProgramHeld`].
    AnswerProgram {
        /// Which of them.
        number: u64,
        /// Whether the program may be executed.
        allowed: bool,
    },
    /// Answer with [`FromWarden::Measured`].
    Measure,
    /// Answers [`FromWarden::NameHeld`].
    AnswerName {
        /// Which of them.
        number: u64,
        /// Whether connections to it may be made.
        allowed: bool,
    },
}

/// What a warden looks for again and again, because the kernel has no event for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchFor {
    /// This TCP port is listened on: by the command's tree, or by anybody since the watch began.
    pub port: Option<u16>,
    /// The command waits for input.
    pub waiting_for_input: bool,
}

/// What a watch found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Met {
    /// The port is open.
    Port,
    /// The command waits for input.
    WaitingForInput,
}

/// What there is to know of a run at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Process id of the command.
    pub pid: u32,
    /// Since its start, or its whole time if it has ended.
    pub duration_ms: u64,
    /// Whether input can be sent.
    pub takes_input: bool,
    /// The size of its terminal, if it has one.
    pub terminal: Option<WindowSize>,
    /// Whether it is blocked reading its stdin or terminal; none if that cannot be known.
    pub waiting_for_input: Option<bool>,
    /// Processes that are left, once the command itself has ended.
    pub background_pids: Vec<u32>,
    /// Which limits hold it, and which cannot.
    pub limits: LimitsInForce,
}

/// Why input was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputRefusal {
    /// The command was started without an open stdin.
    NoInput,
    /// Its stdin is closed: by the command, or because the input was ended.
    Closed,
    /// The command has ended.
    Ended,
    /// A terminal took no more just then.
    Full,
}

/// A frame from a warden: a message, and the task whose run it is about.
///
/// A warden serves one command after another, and what it says about one may be read when the next
/// has begun. So nobody gets at the message without saying what it has to be about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WardenFrame {
    message: FromWarden,
    /// None if the message names the task itself, or is about the warden.
    task: Option<String>,
}

impl WardenFrame {
    /// A message about the run of a task.
    pub fn about_run(task: &str, message: FromWarden) -> Self {
        let is_named = matches!(message, FromWarden::Ended(_));
        Self { message, task: (!is_named).then(|| task.to_owned()) }
    }

    /// A message about the warden itself.
    pub fn about_warden(message: FromWarden) -> Self {
        Self { message, task: None }
    }

    /// The message, if it is about the run of this task.
    pub fn of_run(self, task: &str) -> Option<FromWarden> {
        let is_meant = match (&self.message, &self.task) {
            // Another task is here now.
            (FromWarden::Hello { task: Some(held), .. }, _) if held != task => {
                return Some(FromWarden::NotHeld);
            }
            (FromWarden::Ended(ended), _) => ended.record.task == task,
            (_, Some(about)) => about == task,
            (_, None) => false,
        };
        is_meant.then_some(self.message)
    }

    /// The message, if it is about the warden itself.
    pub fn of_warden(self) -> Option<FromWarden> {
        let is_meant = matches!(
            self.message,
            FromWarden::Hello { .. } | FromWarden::Confined(_) | FromWarden::StartFailed(_)
        );
        (is_meant && self.task.is_none()).then_some(self.message)
    }
}

/// What a warden tells its engine and its observers, in a [`WardenFrame`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromWarden {
    /// First frame on every connection. Those who are connected already hear it again when the
    /// warden takes a task.
    Hello {
        /// [`VERSION`] of the warden.
        version: u32,
        /// Process id of the warden.
        pid: u32,
        /// The task that it holds.
        task: Option<String>,
    },
    /// The command did not start; nothing is left of it.
    StartFailed(StartFailure),
    /// There is new output (answers one [`Order::Follow`]).
    Grew(NewOutput),
    /// The command ended.
    Ended(Box<RunEnd>),
    /// A stop is through.
    Stopped {
        /// Processes that could not be ended.
        survivors: Vec<u32>,
    },
    /// Answers [`Order::Spill`]: whether the output is in the task's folder.
    Spilled(bool),
    /// Answers [`Order::Report`].
    Report(Box<Report>),
    /// Answers [`Order::Input`], [`Order::WithdrawInput`] and [`Order::EndInput`].
    InputTaken {
        /// Bytes that were written.
        bytes: u64,
        /// Why the rest was not.
        refusal: Option<InputRefusal>,
    },
    /// Answers one [`Order::Watch`].
    Met(Met),
    /// Answers any [`Order`] about a task that is not held here (any more).
    NotHeld,
    /// Answers [`Order::Adopt`]: whether the peer is the owner now.
    Adopted(bool),
    /// Answers [`ToWarden::Confine`]: how far that goes on this machine.
    Confined(Enforcement),
    /// A rule asks about a program that the command is about to execute. It waits for
    /// [`Order::AnswerProgram`]. Only the owner is told, and a new owner is told again.
    ProgramHeld(HeldProgram),
    /// Answers [`Order::Measure`].
    Measured(LiveResources),
    /// A person is to be asked about a name that the command wants to connect to. The connection
    /// waits for [`Order::AnswerName`]. Only the owner is told, and a new owner is told again.
    NameHeld(HeldName),
    /// What the processes that a command left behind sent and received after its end, told when the
    /// last of them is gone. Only the owner is told.
    ConnectedLater(Vec<ConnectionTotal>),
}

/// What a command and everything below it uses at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveResources {
    /// Time on processors in the programs themselves, so far.
    pub user_us: u64,
    /// Time on processors in the kernel, for them, so far.
    pub system_us: u64,
    /// Memory now: what a cgroup counts, or else the resident memory of all processes, in which
    /// what they share is counted for each.
    pub memory_bytes: u64,
    /// Processes now.
    pub processes: u64,
}

/// A system call that the sandbox has refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// Its name, and what it was to do where that matters.
    pub call: String,
}

/// A program that a rule has kept from being executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedProgram {
    /// Its name.
    pub program: String,
    /// Its arguments, as far as they are short.
    pub arguments: Vec<String>,
    /// The rule.
    pub rule: String,
    /// Whether the rule asks and does not deny.
    pub asks: bool,
    /// Whether what was executed in its place is what covers it.
    pub covered: bool,
}

/// A program that waits to be executed, since a rule asks about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProgram {
    /// Its number among those of this run.
    pub number: u64,
    /// The rule.
    pub rule: String,
    /// The path by which it is executed.
    pub path: Vec<u8>,
    /// The file that this leads to; empty if there is none.
    pub file: Vec<u8>,
    /// All of its arguments, the first one being what it is called.
    pub argv: Vec<Vec<u8>>,
    /// The command lines of the processes that led here, the command itself first.
    pub lineage: Vec<String>,
}

/// New output, for a follower.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewOutput {
    /// It is in the task's folder, up to these offsets.
    InFolder {
        /// Of stdout.
        stdout_bytes: u64,
        /// Of stderr.
        stderr_bytes: u64,
    },
    /// Here it is.
    Bytes {
        /// Stdout from the offset on that was named.
        stdout: Vec<u8>,
        /// Stderr from the offset on that was named.
        stderr: Vec<u8>,
    },
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How it ended, cut to what can be stored.
    #[serde(with = "stored_record")]
    pub record: ExitRecord,
    /// Where its output is.
    pub kept: KeptOutput,
    /// Whether the warden can take another command once this one is committed.
    pub reusable: bool,
    /// What the sandbox has refused, as far as the kernel tells.
    pub denials: Vec<RefusedCall>,
    /// Programs that it was not to execute.
    pub refused: Vec<RefusedProgram>,
}

mod stored_record {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::record::ExitRecord;

    pub(super) fn serialize<S: Serializer>(record: &ExitRecord, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&record.packed())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<ExitRecord, D::Error> {
        ExitRecord::from_bytes(<&[u8]>::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Where the output of a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeptOutput {
    /// In the task's folder, with the exit record.
    Folder,
    /// Here; the warden holds it until it is committed.
    Memory {
        /// All of stdout.
        stdout: Vec<u8>,
        /// All of stderr.
        stderr: Vec<u8>,
        /// The rows of the timeline, as they would be stored.
        timeline: Vec<u8>,
    },
}

/// What of ours ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCause {
    /// The wall-clock limit.
    Timeout,
    /// Somebody asked for it.
    Stopped,
    /// No engine came back for it.
    Abandoned,
    /// The limit of processor time.
    CpuLimit,
    /// The kernel, because the tree used more memory than it may.
    OomKilled,
    /// The kernel, because it wrote a file bigger than it may.
    FileSizeLimit,
    /// The limit of what it may write into its copies.
    LayerLimit,
    /// The scheduler that its job belongs to, or the end of that.
    Scheduler,
}

/// Why a command did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// The step that failed.
    pub stage: StartStage,
    /// The error of the system call.
    pub errno: i32,
}

/// The steps of a start, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartStage {
    /// Making the task's folder and reserving the exit record.
    Folder,
    /// Making the pipes and opening stdin.
    Descriptors,
    /// Making the process.
    Process,
    /// Changing to the working directory.
    WorkingDirectory,
    /// Executing the program.
    Execute,
    /// Entering the sandbox.
    Sandbox,
    /// Entering the limits.
    Limits,
}

#[cfg(test)]
mod tests;
