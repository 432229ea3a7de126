//! Runs commands for AI agents: judged, supervised, recorded.
//!
//! The shortest program that works:
//!
//! ```no_run
//! use legwork::{Caller, Engine, Options};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     legwork::init(); // first statement of main: see below
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//!     runtime.block_on(async {
//!         let engine = Engine::open(Options::new("/my/workspace"))?;
//!         let input = serde_json::json!({ "cmd": "echo hi", "login": false });
//!         let answer = engine.call("ExecCommand", input, &Caller::operator("example")).await;
//!         println!("{}", answer.receipt());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Theory of operation
//!
//! A tool call becomes a [`Request`]; the engine turns it into a plan (shell, arguments, opened
//! folder, environment), the gate judges the plan, and only the grant that comes out of it can be
//! started. The process is owned by a *warden*, a small process of its own that keeps the output and
//! records the end, whether the engine lives or not. The answer is rendered from the record.
//!
//! Wardens are forked by a *spawner*: this very program, started a second time. [`init`] recognises
//! that second start and never returns from it, so it must come before anything else in `main`. Without
//! it, starting a command fails with an error that says so; it never runs your `main` twice.
//!
//! Dropping a [`Run`] stops its command; dropping an [`Engine`] does not stop commands that others own.

#![forbid(unsafe_code)]

mod clock;
mod engine;
mod error;
mod events;
mod id;
mod inotify;
mod judge;
mod model;
pub mod output;
mod place;
mod plain_file;
mod presence;
pub mod service;
mod state;
mod store;
mod task;
mod threads;
pub mod tools;

pub use engine::{Answer, Definition, Engine, Envelope, Options, Registry, Tool};
pub use error::{ErrorKind, ToolError};
pub use events::{Event, EventCursor, EventKind, Events, Interest, Lagged, NoEventCursor};
pub use id::TaskId;
pub use judge::config::{Config, ConfigError, Settings, user_file};
pub use legwork_gate as gate;
pub use legwork_gate::Level;
pub use legwork_warden::{
    folder::{Stream, WindowSize},
    gaps::Gap,
    protocol::{InputRefusal, Limits, Report},
};
pub use model::{
    Caller, Confinement, Denial, DuplicatePolicy, EndedBy, Flag, LimitLayer, LimitsKnown, Outcome,
    Outputs, Program, Request, Stdin, Total, Trust,
    limits::TaskLimits,
    question::{Answered, Approval, AskFuture, Asker, Decision, SharedAsker},
    sandbox::{MissingLayer, SandboxReport, SandboxSettings},
    signal_name,
    status::Status,
};
pub use service::{Client, Service};
pub use state::{StateError, StateFolder};
pub use store::{
    audit,
    ledger::{Answerer, Damage, Ledger, LedgerError, Rebuilt, Task},
    retention::{Collected, Retention},
    usage::Usage,
};
pub use task::{
    Submitted,
    observe::{Change, InputTaken, Observer},
    run::{Ended, Grown, Run, RunControl},
    wait::{Condition, Until, until},
};

/// Makes this program able to start commands: call it as the first statement of `main`.
///
/// Commands are started by a second start of the same program. In that second start this call does the
/// work and never returns; in the first one it returns at once.
pub fn init() {
    legwork_warden::take_over_if_spawner();
}

/// Keeps the page about tools compiling.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding-a-tool.md")]
struct AddingATool;
