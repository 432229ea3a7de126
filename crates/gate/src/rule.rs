//! Rules, whatever form they were written in, and what they cover.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    data, harmless,
    matching::{Certainty, begins_with, follows, has_flag},
    names::NetworkMode,
    reading::{Form, Invocation, Redirect, RedirectKind, Word},
    unwrap::basename,
    verdict::{Subject, Trust},
    windows::{is_same_path, program_name},
};

/// What a rule or a verdict says, from lax to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It may run.
    Allow,
    /// Somebody has to be asked.
    Ask,
    /// It may not run.
    Deny,
}

impl Decision {
    /// The name in JSON and for a person.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// How far a command is confined, from lax to strict.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Not at all.
    #[default]
    None,
    /// It may write to the workspace, to temporary folders and to declared caches.
    WorkspaceWrite,
    /// It may write to nothing but a temporary folder of its own.
    ReadOnly,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::WorkspaceWrite, Self::None];

    /// Their names.
    pub(crate) const NAMES: [&'static str; 3] =
        [Self::ReadOnly.as_str(), Self::WorkspaceWrite.as_str(), Self::None.as_str()];

    /// The name in configuration, JSON and the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::WorkspaceWrite => "workspace-write",
            Self::ReadOnly => "read-only",
        }
    }

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// Where a layer of rules comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The machine's file.
    System,
    /// The user's file.
    User,
    /// A file in the project, which can only tighten.
    Project,
    /// A file that was given on the command line.
    Given,
}

/// Which files a command may be redirected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectScope {
    /// Only `/dev/null`.
    None,
    /// Files below the working directory.
    Workspace,
    /// Any file.
    Any,
}

/// What a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Everything.
    Everything,
    /// A program and the words after it.
    Program { name: String, args: Vec<Vec<String>> },
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub id: String,
    pub decision: Decision,
    /// The only tool that it counts for.
    pub tool: Option<String>,
    /// The only workspace that it counts for.
    pub workspace: Option<String>,
    /// The least trust of a caller that it counts for.
    pub trust: Option<Trust>,
    pub target: Target,
    pub deny_flags: Vec<String>,
    pub redirect: RedirectScope,
    pub sandbox: Option<Level>,
    /// The network that its command has at most.
    pub network: Option<NetworkMode>,
    pub because: Option<String>,
    /// Whether no further arguments may follow.
    pub exact: bool,
    /// Whether it was written in a short form, which never covers running or writing arguments.
    pub short: bool,
    /// Whether what it asks about is tried on a copy first.
    pub tries: bool,
    /// Whether names are compared as Windows does.
    pub windows: bool,
}

impl Rule {
    /// Whether it counts for a subject: for its tool, its workspace and its caller's trust.
    pub(crate) fn counts_for(&self, subject: &dyn Subject) -> bool {
        self.tool.as_deref().is_none_or(|named| named == subject.tool())
            && self.workspace.as_deref().is_none_or(|only| self.is_in(only, subject))
            && self.trust.is_none_or(|least| subject.trust().reaches(least))
    }

    fn is_in(&self, only: &str, subject: &dyn Subject) -> bool {
        let same = |it| if self.windows { is_same_path(only, it) } else { only == it };
        subject.workspace().is_some_and(same)
    }

    /// The same rule for Windows, which finds one program under many names.
    pub(crate) fn for_windows(mut self) -> Self {
        if let Target::Program { name, .. } = &mut self.target {
            *name = program_name(name);
        }
        self.windows = true;
        self
    }

    /// Whether an allow covers a run, with the redirects that are made for it.
    pub(crate) fn covers(&self, run: &Invocation, redirects: &[&Redirect]) -> bool {
        let redirected = redirects.iter().all(|redirect| self.redirect.covers(redirect));
        let (name, args) = match &self.target {
            Target::Everything => return run.words.first().is_none_or(|w| w.literal().is_some()),
            Target::Program { name, args } => (name, args),
        };
        let Some(word) = run.words.first() else { return redirected };
        let rest = run.words.get(1..).unwrap_or_default();
        let flagged =
            self.deny_flags.iter().any(|flag| has_flag(rest, flag, false) > Certainty::No);
        redirected
            && word.literal().is_some_and(|word| is_same_program(word, name))
            && begins_with(rest, args)
            && (!self.exact || rest.len() == args.len() && run.assignments.is_empty())
            && !flagged
            && (!self.short || is_ordinary(basename(name), rest))
    }

    /// Whether a deny or an ask speaks of a run; `resolved` is the file that would really run.
    pub(crate) fn speaks_of(&self, run: &Invocation, resolved: Option<&str>) -> Certainty {
        let Target::Program { name, args } = &self.target else { return Certainty::Yes };
        let Some(word) = run.words.first() else { return Certainty::No };
        let rest = run.words.get(1..).unwrap_or_default();
        let named = match word.form {
            Form::Literal => self.names(&word.text, resolved),
            Form::Glob | Form::Dynamic | Form::Fields => Certainty::Maybe,
        };
        let here = named.min(follows(rest, args));
        here.max(self.hides_in(run, name))
    }

    /// Whether the rule names this program, as it is written or as it is found.
    fn names(&self, word: &str, resolved: Option<&str>) -> Certainty {
        let Target::Program { name, .. } = &self.target else { return Certainty::Yes };
        // zsh expands `=name` to the path of the program.
        let same = |path: &str| basename(path.trim_start_matches('=')) == basename(name);
        (same(word) || resolved.is_some_and(same)).into()
    }

    /// Whether a program is among the words of one that may run it.
    fn hides_in(&self, run: &Invocation, name: &str) -> Certainty {
        let first = run.name().map_or("", basename);
        let is_meant = |word: &Word| {
            let text = self.compared(&word.text);
            text == name || basename(&text) == name || text.ends_with(&format!("={name}"))
        };
        let among = || run.words.iter().skip(1).any(is_meant);
        if run.unresolved && among() {
            return Certainty::Yes;
        }
        let unknown = first == "?" || !data::keeps_its_arguments(first);
        let rest = run.words.get(1..).unwrap_or_default();
        let mentioned =
            || rest.iter().any(|word| mentions(&self.compared(&word.text), basename(name)));
        let hidden = unknown && among() || mentioned() && data::runs_or_writes(first, rest);
        if hidden { Certainty::Maybe } else { Certainty::No }
    }

    /// A word that may name a program, as it is compared.
    fn compared<'w>(&self, word: &'w str) -> Cow<'w, str> {
        if self.windows { program_name(word).into() } else { word.into() }
    }
}

/// Whether words are what a rule for their program means: known to be harmless, or, where nothing
/// is known of the program, without anything that runs or writes.
pub(crate) fn is_ordinary(name: &str, rest: &[Word]) -> bool {
    harmless::is_harmless(name, rest)
        || !harmless::is_known(name) && !data::runs_or_writes(name, rest)
        || matches!(rest, [only] if matches!(only.literal(), Some("--version" | "--help")))
}

/// Whether a program is named inside an argument that may be code, as in `awk 'BEGIN{system("rm
/// x")}'`.
fn mentions(text: &str, name: &str) -> bool {
    let code =
        if text.starts_with('-') { text.split_once('=').map_or("", |(_, c)| c) } else { text };
    let is_part = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    code.split(|character| !is_part(character)).any(|part| part == name)
}

/// Whether a name as it was written is surely the program of an allow.
pub(crate) fn is_same_program(word: &str, name: &str) -> bool {
    let standard = ["/usr/bin/", "/bin/"].iter().find_map(|folder| word.strip_prefix(folder));
    word == name || !name.contains('/') && standard == Some(name)
}

impl RedirectScope {
    /// Whether a redirect is within the scope.
    pub(crate) fn covers(self, redirect: &Redirect) -> bool {
        let target = &redirect.target;
        match redirect.kind {
            RedirectKind::Duplicate | RedirectKind::Here => true,
            RedirectKind::Read => {
                self == Self::Any || !target.text.starts_with("/dev/") && !target.text.is_empty()
            }
            RedirectKind::Write | RedirectKind::Append | RedirectKind::ReadWrite => {
                let null = target.literal() == Some("/dev/null");
                null || self == Self::Any || self == Self::Workspace && is_inside(target)
            }
        }
    }
}

/// Whether a path is surely below the working directory.
fn is_inside(target: &Word) -> bool {
    let Some(path) = target.literal() else { return false };
    !path.starts_with(['/', '~']) && !path.split('/').any(|part| part == "..")
}
