//! Runs commands for AI agents, and for the programs around them: judged by a policy, confined in a
//! sandbox, supervised by a process of its own, recorded with every byte that they print.
//!
//! An [`Engine`] is opened for a workspace. A host program runs commands of its own with
//! [`Engine::sh`] and [`Engine::program`]; what a model asks for goes through the tools, by
//! [`Engine::call`]. Both ways lead through the same gate into the same ledger.
//!
//! # A command of your own
//!
//! ```
//! use std::time::Duration;
//! use legwork::{Engine, Options};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     legwork::init(); // first of all: see "Theory of operation"
//!     let options = Options::new("/my/project");
//! #   let folder = tempfile::tempdir()?;
//! #   let options = Options::new(folder.path()).state(folder.path().join("state"));
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//!     runtime.block_on(async {
//!         let engine = Engine::open(options)?;
//!         let counted = engine
//!             .sh("sort | uniq -c | sort -rn")
//!             .stdin("b\na\nb\n")
//!             .env("LC_ALL", "C")
//!             .timeout(Duration::from_secs(10))
//!             .await?;
//!         assert_eq!(counted.code(), Some(0));
//!         assert_eq!(counted.lines().next().map(str::trim), Some("2 b"));
//!
//!         // An outcome is not an error, unless you say so.
//!         let listed = engine.program("ls").arg("no-such-file").await?;
//!         assert!(!listed.success());
//!         let error = listed.into_success().unwrap_err();
//!         assert!(error.message.contains("no-such-file"));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # A task that runs on
//!
//! ```
//! use std::time::Duration;
//! use legwork::{Engine, Options, Stdin};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! legwork::init();
//! let options = Options::new("/my/project");
//! # let folder = tempfile::tempdir()?;
//! # let options = Options::new(folder.path()).state(folder.path().join("state"));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let engine = Engine::open(options)?;
//! let script = "while read name; do echo hello $name; done";
//! let mut task = engine.sh(script).stdin(Stdin::Open).start().await?;
//!
//! // What it prints, as it comes.
//! let mut output = task.output().await?;
//! task.send("world\n").await?;
//! let chunk = output.next().await?.ok_or("it ended")?;
//! assert_eq!(chunk.text(), "hello world\n");
//!
//! // It can go on without this handle; anybody with its id can come back to it, from any program.
//! let id = task.detach().await;
//! let mut task = engine.attach(&id).await?;
//! let finished = task.stop(Duration::from_secs(3)).await?;
//! assert_eq!(finished.stdout(), "hello world\n");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # The tools of a model
//!
//! ```
//! use legwork::{Caller, Engine, Options};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! legwork::init();
//! let options = Options::new("/my/project");
//! # let folder = tempfile::tempdir()?;
//! # let options = Options::new(folder.path()).state(folder.path().join("state"));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let engine = Engine::open(options)?;
//! for tool in engine.registry().definitions() {
//!     println!("{}: {}", tool.name, tool.input_schema); // what the model is told
//! }
//! let input = json!({ "cmd": "echo hi; exit 3", "login": false }); // what it answers
//! let answer = engine.call("ExecCommand", input, &Caller::operator("my agent")).await;
//! assert_eq!(answer.receipt(), "Process exited with code 3\n\nstdout:\nhi"); // for the model
//! assert_eq!(answer.envelope().result.as_ref().unwrap()["exit_status"], 3); // for your program
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Theory of operation
//!
//! A command becomes a [`Request`]; the engine turns it into a plan (shell, arguments, opened
//! folder, environment), the gate judges the plan, and only the grant that comes out of it can be
//! started. What the policy wants to be asked is asked: of whoever the [`Caller`] can ask, or of
//! anybody who answers by [`Engine::answer`] in time.
//!
//! The process is owned by a *warden*, a small process of its own that keeps the output, enforces
//! the limits and records the end, whether the engine lives or not. The ledger has the task before
//! its process starts, and its outcome before you hear of it. Every engine on one state folder
//! knows the same tasks, and [`Engine::events`] tells what any of them does: there is no daemon.
//!
//! Wardens are forked by a *spawner*: this very program, started a second time. [`init`] recognises
//! that second start and never returns from it, so it must come before anything else in `main`:
//! before a thread, and so before a runtime (not inside of `#[tokio::main]`). Without it, starting
//! a command fails with an error that says so; it never runs your `main` twice. A test needs a
//! `main` of its own for that (`harness = false`).
//!
//! An engine needs a tokio runtime with time and I/O, on one thread or many. It starts threads only
//! to wait for the disk.
//!
//! # What dropping does
//!
//! | dropped | what happens |
//! |---|---|
//! | a [`Command`] that was not awaited | nothing: it never started |
//! | the future of an awaited [`Command`] | the command is stopped, with everything below it |
//! | a [`TaskHandle`] of [`Command::start`] | the same, unless it has ended |
//! | one that was [detached](TaskHandle::detach) | nothing: the command goes on |
//! | a [`TaskHandle`] of [`Engine::attach`], an [`OutputStream`], an [`Observer`] | nothing |
//! | a [`Run`] | its command is stopped, unless it has ended |
//! | the last clone of an [`Engine`] | nothing: commands go on under their wardens |
//! | the tokio runtime | what somebody waited for is stopped; what was detached goes on |
//!
//! When the program is killed instead, everything goes on. What has no engine at all is stopped
//! after [`Options::orphan_ttl`]. [`Engine::stop_all`] stops what somebody waits for, and waits for
//! the ends.
//!
//! # Errors
//!
//! `Err` means that the library could not do its part: a [`ToolError`] with a [kind](ErrorKind), a
//! message, details as data, a hint, and whether the same call may succeed later. Whatever a
//! command does is a result.

#![forbid(unsafe_code)]

mod clock;
mod engine;
mod error;
mod events;
mod id;
#[cfg(unix)]
mod inotify;
#[cfg(windows)]
#[path = "platform/windows_inotify.rs"]
mod inotify;
mod judge;
mod meters;
mod model;
pub mod output;
mod place;
mod plain_file;
mod platform;
mod presence;
pub mod service;
mod state;
mod store;
mod task;
mod threads;
pub mod tools;
mod trace;
#[cfg(unix)]
mod trial;
#[cfg(windows)]
#[path = "trial/windows.rs"]
mod trial;

pub use engine::{
    Answer, Chunk, Command, CommandFuture, Definition, Engine, Envelope, Finished, Options,
    OutputStream, Registry, StateContent, TaskHandle, Tool,
};
pub use error::{ErrorKind, StateProblem, ToolError};
pub use events::{Event, EventCursor, EventKind, Events, Interest, Lagged, NoEventCursor};
pub use id::TaskId;
pub use judge::{
    config::{Config, ConfigError, Guarding, Settings, UserPrograms, Variables, user_file},
    files::ConfigFiles,
};
pub use legwork_gate as gate;
pub use legwork_gate::Level;
pub use legwork_warden::{
    folder::{Stream, WindowSize},
    gaps::Gap,
    network::pattern_of as name_pattern,
    protocol::{InputRefusal, Limits, LiveResources, Report},
};
pub use meters::{ConnectionMeter, Meters, Timings, WardenCount};
pub use model::{
    Caller, Confinement, ConnectionCheck, ConnectionRecord, ConnectionVerdict, Denial,
    DuplicatePolicy, EndedBy, Flag, LimitLayer, LimitsKnown, NetworkSettings, Outcome, Outputs,
    Program, RefusedBy, Request, Resources, Session, Stdin, Total, TrialWish, Trust,
    limits::TaskLimits,
    place::{LOCAL_PLACE, PlaceReach, PlaceReport, PlaceSettings},
    question::{
        Answered, Approval, AskFuture, Asker, FaceAnswer, Reply, SharedAsker, TriedCommand,
    },
    sandbox::{
        HeldRule, Hold, MissingLayer, SandboxReport, SandboxSettings, hidden_from_commands,
        hide_from_commands,
    },
    signal_name,
    status::Status,
};
pub use place::post::{PostError, serve as serve_post, serve_job};
pub use service::{Client, Service};
pub use state::{LentReserve, Rebuilt, Repair, SetAside, StateError, StateFolder};
pub use store::{
    audit,
    ledger::{Answerer, Damage, Ledger, LedgerError, Task, TaskFilter},
    open_state,
    retention::{CleanUp, Collected, Retention},
    usage::{RecordSizes, Usage},
};
pub use task::{
    Checker, ForeignShell, ForeignVerdict, Submitted,
    observe::{Change, Controls, InputTaken, Observer},
    progress::Ended,
    run::{Grown, Run, RunControl},
    trials::{ShownChanges, TrialChanges, TrialState},
    wait::{Condition, Until, until},
};

pub use trial::{Applied, ChangeKind, ChangedFile, TriedChange, TriedChanges};

pub use trace::{SpanRecord, SpanSink, SpanValue, Trace, TraceSpan};

/// Makes this program able to start commands: call it as the first statement of `main`.
///
/// Commands are started by a second start of the same program. In that second start this call does
/// the work and never returns; in the first one it returns at once.
pub fn init() {
    legwork_warden::take_over_if_spawner();
}

/// Prepares for a command that follows at once, for a program that starts, runs one command and
/// ends: call it in `main`, after [`init`] and before the first thread.
///
/// Saves the second start of the program by a fork. It is never required, and forks nothing in a
/// process that has several threads already.
pub fn init_at_once() {
    legwork_warden::fork_spawner_ahead();
}

/// Keeps the page about tools true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-a-tool.md")]
struct AddingATool;

/// Keeps the page about embedding true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;
