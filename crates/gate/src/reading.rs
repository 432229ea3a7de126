//! The result of reading a text: its simple commands, its substitutions, and what was not
//! understood.

use serde::{Deserialize, Serialize};

use crate::plain::NotPlain;

/// A range of bytes in the text that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A place where the shell would run commands and put their output, or a file for it, into the
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Substitution {
    /// How it opens: `$(`, a backtick, `<(`, `>(` or `${ `.
    pub construct: &'static str,
    /// Where it opens, in bytes.
    pub offset: usize,
}

/// The first thing in a text that was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The construct, as it is written.
    pub construct: &'static str,
    /// Where it is, in bytes.
    pub offset: usize,
    /// What is wrong with it and how to write it instead.
    pub reason: &'static str,
}

/// The construct of [`Later`] whose word bash expands twice.
pub(crate) const EXPANDED_AGAIN: &str = ">&";

/// Text that is data now and code later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Later {
    /// What makes it code: a builtin, an expansion or a variable.
    pub construct: String,
    /// Where that is.
    pub span: Span,
}

/// How much of a word is known before it is expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// All of it.
    Literal,
    /// It is a pattern for file names.
    Glob,
    /// Only what comes before the first expansion; it stays one word.
    Dynamic,
    /// Only what comes before the first expansion, and that may make any number of words of it.
    Fields,
}

/// A word after quote removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Word {
    /// The word when it is literal, the pattern, or what comes before the first expansion.
    pub text: String,
    /// How much of it is known.
    pub form: Form,
    /// Where it is.
    pub span: Span,
}

impl Word {
    /// The word, when all of it is known.
    pub fn literal(&self) -> Option<&str> {
        (self.form == Form::Literal).then_some(self.text.as_str())
    }
}

/// A variable that is set for a command, or for the shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Assignment {
    /// The variable's name, without a subscript.
    pub name: String,
    /// What it is set to; for an array, a dynamic word.
    pub value: Word,
}

/// What a redirect does with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedirectKind {
    /// Reads from a file.
    Read,
    /// Writes a file anew.
    Write,
    /// Writes at the end of a file.
    Append,
    /// Opens a file for both.
    ReadWrite,
    /// Duplicates or closes a descriptor.
    Duplicate,
    /// Reads a text that is part of the script.
    Here,
}

/// A redirect and its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redirect {
    /// What it does.
    pub kind: RedirectKind,
    /// The file, the descriptor, or the text.
    pub target: Word,
}

/// A command without operators in it: the unit that is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SimpleCommand {
    /// The program's name and its arguments; empty for assignments or redirects alone.
    pub words: Vec<Word>,
    /// Assignments before the name.
    pub assignments: Vec<Assignment>,
    /// Redirects.
    pub redirects: Vec<Redirect>,
    /// Where it is.
    pub span: Span,
    /// Whether it is inside a substitution.
    pub substituted: bool,
    /// Whether a pipe leads into it or out of it.
    pub piped: bool,
    /// Whether it goes on in the background.
    pub background: bool,
}

impl SimpleCommand {
    /// The name of the program, `?` when it is known only after expansion, nothing when there is
    /// none.
    pub fn name(&self) -> Option<&str> {
        self.words.first().map(|word| word.literal().unwrap_or("?"))
    }
}

/// A program that would be run, by the shell or by another program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Invocation {
    /// Its name and its arguments.
    pub words: Vec<Word>,
    /// Variables that are set for it.
    pub assignments: Vec<Assignment>,
    /// Redirects that are made for it, where it is not the simple command itself.
    pub redirects: Vec<Redirect>,
    /// Where it is.
    pub span: Span,
    /// The index of the simple command that it belongs to.
    pub command: usize,
    /// How many wrappers and shells are around it.
    pub depth: usize,
    /// Whether it runs another program of which it is not known which one.
    pub unresolved: bool,
    /// Whether a pipe leads into it or out of it.
    pub piped: bool,
}

impl Invocation {
    /// The name of the program, `?` when it is known only after expansion, nothing when there is
    /// none.
    pub fn name(&self) -> Option<&str> {
        self.words.first().map(|word| word.literal().unwrap_or("?"))
    }
}

/// Everything that was read in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Reading {
    /// Whether every construct was understood; only then are the commands all of them.
    pub understood: bool,
    /// What was not understood.
    pub refusal: Option<Refusal>,
    /// The simple commands in the order of the text, those inside substitutions too.
    pub commands: Vec<SimpleCommand>,
    /// The first substitution; where the text was not understood, the first that could be one.
    pub substitution: Option<Substitution>,
    /// What makes data of this text code while it runs.
    pub later: Vec<Later>,
    /// The functions that the text defines.
    pub functions: Vec<String>,
    /// Every program that would be run: the simple commands, and what wrappers and shells among
    /// them run.
    pub runs: Vec<Invocation>,
    /// Where arithmetic first looks at something whose value is not known.
    #[serde(skip)]
    pub(crate) arithmetic: Option<Span>,
    /// The first substitution that is only data so far.
    #[serde(skip)]
    pub(crate) quoted_opener: Option<Substitution>,
    /// The names of variables that arithmetic looks at.
    #[serde(skip)]
    pub(crate) arithmetic_names: Vec<String>,
    /// The first construct that plain `sh` may read in another way.
    #[serde(skip)]
    pub(crate) beyond_posix: Option<Refusal>,
    /// Why a text that one of the programs hands to a shell is not plain.
    #[serde(skip)]
    pub(crate) inner_not_plain: Option<NotPlain>,
    /// Whether bash refuses the text before it runs anything of it.
    #[serde(skip)]
    pub runs_nothing: bool,
    /// How many steps the reading took: at most a constant times the length of the text.
    pub steps: usize,
}
