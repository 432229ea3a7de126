//! The types of the gate's input and output: subjects, verdicts, and the grant that only the gate
//! can make.

use serde::{Deserialize, Serialize};

use crate::{
    explain::Explanation,
    reading::{Form, Span, Substitution, Word},
    rule::Level,
};

/// How far a caller is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// A person at this machine, or an agent that acts for one.
    #[default]
    TrustedOperator,
    /// The machine's own services.
    TrustedSystem,
    /// Another system that was connected on purpose.
    TrustedIntegration,
    /// Anybody else: what no rule allows is asked for.
    UntrustedExternal,
}

impl Trust {
    /// All of them, from the most trusted to the least.
    pub const ALL: [Self; 4] = [
        Self::TrustedOperator,
        Self::TrustedSystem,
        Self::TrustedIntegration,
        Self::UntrustedExternal,
    ];

    /// Their names.
    pub(crate) const NAMES: [&'static str; 4] = [
        Self::TrustedOperator.as_str(),
        Self::TrustedSystem.as_str(),
        Self::TrustedIntegration.as_str(),
        Self::UntrustedExternal.as_str(),
    ];

    /// The trust of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trust| trust.as_str() == name)
    }

    /// Whether a caller of this trust is trusted at least as far as one of the other. Operators and
    /// the machine's own services are trusted alike.
    pub fn reaches(self, least: Self) -> bool {
        let rank = |trust| match trust {
            Self::TrustedOperator | Self::TrustedSystem => 2,
            Self::TrustedIntegration => 1,
            Self::UntrustedExternal => 0,
        };
        rank(self) >= rank(least)
    }

    /// The name in JSON and in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TrustedOperator => "trusted_operator",
            Self::TrustedSystem => "trusted_system",
            Self::TrustedIntegration => "trusted_integration",
            Self::UntrustedExternal => "untrusted_external",
        }
    }
}

/// Something that can be judged.
pub trait Subject {
    /// The tool through which it was asked for.
    fn tool(&self) -> &str;

    /// What would run.
    fn script(&self) -> Script<'_>;

    /// How that tool wants its commands to be judged.
    fn manners(&self) -> Manners {
        Manners::default()
    }

    /// How far the caller is trusted.
    fn trust(&self) -> Trust {
        Trust::default()
    }

    /// The workspace of the caller, by its absolute path, where that is known.
    fn workspace(&self) -> Option<&str> {
        None
    }

    /// How far it would be confined, unless a rule says otherwise.
    fn level(&self) -> Level {
        Level::None
    }

    /// Whether that confinement is in force, every layer of it.
    fn sandboxed(&self) -> bool {
        false
    }

    /// The shell that reads the text, its name or its path; bash when absent.
    fn shell(&self) -> Option<&str> {
        None
    }

    /// The file that would really run for a name, links followed, where that is known.
    fn resolve(&self, _name: &str) -> Option<String> {
        None
    }

    /// Whether a sandboxed command could have put the file there that a name stands for.
    fn can_be_planted(&self, _name: &str) -> bool {
        false
    }

    /// Whether the folder that it runs in has a file that `cmd.exe` would run for this name.
    fn is_in_current_folder(&self, _name: &str) -> bool {
        false
    }

    /// Whether it would run on Windows.
    fn is_on_windows(&self) -> bool {
        false
    }

    /// Whether the environment of the command has this variable.
    fn has_variable(&self, _name: &str) -> bool {
        false
    }
}

/// How a tool wants its commands to be judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manners {
    /// Whether everything is asked about that no rule allows, also what only reads.
    pub asks_by_default: bool,
    /// Whether a script in which the shell would substitute a command is refused.
    pub refuses_substitution: bool,
}

/// What would run, as the gate sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script<'a> {
    /// Text for a shell.
    Shell(&'a str),
    /// A program and its arguments, executed directly.
    Argv(&'a [String]),
}

impl Script<'_> {
    /// The text that the spans of an explanation count in.
    pub fn text(&self) -> String {
        match self {
            Self::Shell(text) => (*text).to_owned(),
            Self::Argv(argv) => argv.join(" "),
        }
    }
}

/// The words of a program that is executed directly.
pub(crate) fn argv_words(argv: &[String]) -> Vec<Word> {
    let mut start = 0;
    let word = |text: &String| {
        let span = Span { start, end: start + text.len() };
        start = span.end + 1;
        Word { text: text.clone(), form: Form::Literal, span }
    };
    argv.iter().map(word).collect()
}

/// The gate's answer.
#[derive(Debug)]
pub enum Verdict<P> {
    /// It may run.
    Allow(Grant<P>),
    /// Somebody has to be asked first.
    Ask(Question<P>),
    /// It may not run.
    Deny(Denied),
}

/// A plan that may run, once.
#[derive(Debug)]
pub struct Grant<P> {
    plan: P,
    explanation: Explanation,
}

impl<P> Grant<P> {
    /// Only the gate grants.
    pub(crate) fn new(plan: P, explanation: Explanation) -> Self {
        Self { plan, explanation }
    }

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
    is_understood: bool,
}

impl<P> Question<P> {
    /// Only the gate asks.
    pub(crate) fn new(plan: P, explanation: Explanation, is_understood: bool) -> Self {
        Self { plan, explanation, is_understood }
    }

    /// The plan, to show.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// Why it has to be asked.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// Whether all of the text was understood, so that one answer can count for equal texts.
    pub fn is_understood(&self) -> bool {
        self.is_understood
    }

    /// A person said yes: the question becomes a grant.
    pub fn approve(self, explanation: Explanation) -> Grant<P> {
        Grant { plan: self.plan, explanation }
    }
}

/// A plan that may not run; it is not given back.
#[derive(Debug)]
pub struct Denied {
    /// Why not.
    pub explanation: Explanation,
    /// The substitution, when that alone is the reason.
    pub substitution: Option<Substitution>,
}
