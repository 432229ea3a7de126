//! Judges commands before they run: [`judge`] is a pure function from a plan to a [`Verdict`].
//!
//! A plan goes in by value and comes out only wrapped: in a [`Grant`] when it may run, in a
//! [`Question`] when somebody has to be asked, in a [`Denial`] when it may not. A `Grant` has no public
//! constructor, and starting a process consumes one, so a command that skipped the gate does not
//! compile.
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

#![forbid(unsafe_code)]

mod data;
mod read;
mod reading;
mod unwrap;

use serde::Serialize;

pub use reading::{
    Assignment, Form, Later, Reading, Redirect, RedirectKind, Refusal, Run, SimpleCommand, Span,
    Substitution, Word,
};

/// Reads a text as bash would, without judging it.
pub fn read(text: &str) -> Reading {
    let mut reading = read::read_text(text);
    unwrap::unwrap(&mut reading);
    reading
}

/// Finds the first substitution that bash would perform in a text, by its quoting rules.
///
/// Where the text is not understood, anything that looks like one counts.
pub fn substitution(text: &str) -> Option<Substitution> {
    read(text).substitution
}

/// Something that can be judged.
pub trait Subject {
    /// The tool through which it was asked for.
    fn tool(&self) -> &str;
    /// What would run.
    fn script(&self) -> Script<'_>;
}

/// What would run, as the gate sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script<'a> {
    /// Text for a shell.
    Shell(&'a str),
    /// A program and its arguments, executed directly.
    Argv(&'a [String]),
}

/// The rules in force.
///
/// There are none yet beyond the default for the callers of this machine, which is to allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    _private: (),
}

/// The gate's answer.
#[derive(Debug)]
pub enum Verdict<P> {
    /// It may run.
    Allow(Grant<P>),
    /// Somebody has to be asked first.
    Ask(Question<P>),
    /// It may not run.
    Deny(Denial),
}

/// Why a verdict is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The rule that decided.
    pub rule: String,
    /// The reason, as a sentence for a person or a model.
    pub reason: String,
}

/// A plan that may run, once.
#[derive(Debug)]
pub struct Grant<P> {
    plan: P,
    explanation: Explanation,
}

impl<P> Grant<P> {
    /// The plan, to look at.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// Why it may run.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// Gives the plan out, for the one start that this grant is good for.
    pub fn into_plan(self) -> P {
        self.plan
    }
}

/// A plan that somebody has to be asked about.
#[derive(Debug)]
pub struct Question<P> {
    plan: P,
    explanation: Explanation,
}

impl<P> Question<P> {
    /// The plan, to show.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// Why it has to be asked.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// A person said yes: the question becomes a grant.
    pub fn approve(self, explanation: Explanation) -> Grant<P> {
        Grant { plan: self.plan, explanation }
    }
}

/// A plan that may not run; it is not given back.
#[derive(Debug)]
pub struct Denial {
    /// Why not.
    pub explanation: Explanation,
}

/// Judges a plan.
pub fn judge<P: Subject>(_policy: &Policy, plan: P) -> Verdict<P> {
    let explanation = Explanation {
        rule: "default".into(),
        reason: format!("no rule speaks of this command, and {} allows by default", plan.tool()),
    };
    Verdict::Allow(Grant { plan, explanation })
}
