//! Judges commands before they run: [`judge`] is a pure function from a plan to a [`Verdict`].
//!
//! A plan goes in by value and comes out only wrapped: in a [`Grant`] when it may run, in a
//! [`Question`] when somebody has to be asked, in a [`Denied`] when it may not. A `Grant` has no
//! public constructor, and starting a process consumes one, so a command that skipped the gate does
//! not compile.
//!
//! ```
//! use legwork_gate::{judge, Policy, Script, Subject, Verdict};
//!
//! struct Plan(String);
//! impl Subject for Plan {
//!     fn tool(&self) -> &str { "ExecCommand" }
//!     fn script(&self) -> Script<'_> { Script::Shell(&self.0) }
//! }
//!
//! let verdict = judge(&Policy::default(), Plan("echo hi".into()));
//! let Verdict::Allow(grant) = verdict else { panic!("not allowed") };
//! assert_eq!(grant.explanation().rule, "default");
//! let Plan(text) = grant.into_plan(); // consumed: one grant, one start
//! assert_eq!(text, "echo hi");
//! ```
//!
//! The way of a text: it is capped and read ([`read()`]) into simple commands; wrappers and shells
//! among them are unwrapped into runs; every run is compared with the rules of the [`Policy`] and
//! the shipped tables; the strictest finding wins. What is not understood is never covered by an
//! allow.

#![forbid(unsafe_code)]

mod check;
mod content;
mod data;
mod downloads;
mod explain;
mod guess;
mod harmless;
mod held;
mod interpreters;
mod judge;
pub mod keys;
mod matching;
mod names;
mod near;
mod parts;
mod plain;
mod policy;
mod proposal;
mod read;
mod reader;
mod reading;
mod rule;
mod settings;
pub mod units;
mod unwrap;
mod verdict;
mod windows;
mod writes;

pub use check::{Checked, Circumstances, check, look};
pub use data::shipped_set;
pub use explain::{Explanation, visible};
pub use held::{ProgramRule, program_rules, rules_at_exec};
pub use judge::judge;
pub use names::{
    ConnectRule, NamePattern, NetworkMode, PatternHost, PatternPorts, connect_proposal,
};
pub use parts::{Part, parts};
pub use plain::{Dialect, NotPlain, PlainCommand, plain};
pub use policy::{Layer, Mode, Policy, PolicyError};
pub use proposal::proposal;
pub use reader::{CodeReader, reads_code};
pub use reading::{
    Assignment, Form, Invocation, Later, Reading, Redirect, RedirectKind, Refusal, SimpleCommand,
    Span, Substitution, Word,
};
pub use rule::{Decision, Level, Origin};
pub use settings::{Values, unit_example};
pub use verdict::{Denied, Grant, Manners, Question, Script, Subject, Trust, Verdict};
pub use windows::program_name as windows_program_name;
pub use writes::written_paths;

/// Reads a text as bash would, without judging it.
pub fn read(text: &str) -> Reading {
    let mut reading = read::read_text(text);
    unwrap::unwrap(&mut reading);
    reading
}

/// Finds the first substitution that bash would perform in a text, by its quoting rules.
///
/// Where the text is not understood, anything that looks like one counts; so does one in a string
/// that the text gives to a shell or to `eval`.
pub fn substitution(text: &str) -> Option<Substitution> {
    read(text).substitution
}

/// The words of a text that is one simple command, all of them written out.
pub fn single_command(text: &str) -> Option<Vec<String>> {
    let reading = read(text);
    let [command] = reading.commands.as_slice() else { return None };
    let alone = command.assignments.is_empty() && command.redirects.is_empty();
    let words = command.words.iter().map(|word| word.literal().map(str::to_owned));
    words.collect::<Option<Vec<_>>>().filter(|words| alone && !words.is_empty())
}
