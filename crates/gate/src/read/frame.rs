//! The constructs that can be open while a text is read: a stack of these replaces recursion.

use crate::reading::{Assignment, Redirect, RedirectKind, Word};

/// A construct that was opened and not closed yet.
#[derive(Debug)]
pub(super) enum Frame {
    /// Commands, until something closes them.
    List(List),
    /// A word; its builder is on the stack of builders.
    Word(Role),
    /// `"…"`
    Double { opened_at: usize },
    /// `${…}`
    Parameter(Parameter),
    /// `$((…))`, `((…))` and the head of `for ((…))`
    Arithmetic(Arithmetic),
    /// `name=(…)`
    Array { opened_at: usize },
    /// `[[ … ]]`
    Condition(ConditionFrame),
    /// `for` and `select`, until their body begins.
    For { opened_at: usize, state: ForState },
    /// `case`, between its lists.
    Case { opened_at: usize, state: CaseState },
    /// The bodies of here-documents, last first.
    Documents { bodies: Vec<(usize, usize)>, resume_at: usize, limit_before: usize },
}

impl Frame {
    /// Whether the values of variables in it are evaluated as arithmetic.
    pub(super) fn evaluates(&self) -> bool {
        match self {
            Self::Arithmetic(_) => true,
            Self::Parameter(parameter) => {
                matches!(parameter.mode, ParameterMode::Subscript(_) | ParameterMode::Offset)
            }
            _ => false,
        }
    }
}

/// What ends a list of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closer {
    /// The end of the text.
    End,
    /// `)` of a subshell
    Parenthesis,
    /// `)` of a substitution
    Substitution,
    /// `}`
    Brace,
    /// `then`
    Then,
    /// `elif`, `else` or `fi`
    Branch,
    /// `fi`
    Fi,
    /// `do`
    Do,
    /// `done`
    Done,
    /// `;;`, `;&`, `;;&` or `esac`
    Clause,
}

/// What may come next in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// A command has to come, possibly on another line.
    Command,
    /// A command has to come on this line.
    Prefixed,
    /// A command or the closer.
    Optional,
    /// More of a simple command.
    Words,
    /// A compound command has ended: redirects, operators or the closer.
    Compound,
    /// The body of a function.
    Body,
}

/// Commands that are being read.
#[derive(Debug)]
pub(super) struct List {
    pub closer: Closer,
    pub position: Position,
    pub opened_at: usize,
    pub partial: Partial,
    /// The index of the first command of the current and-or list.
    pub item_start: usize,
    /// The index of the first command of the current pipeline.
    pub pipeline_start: usize,
    /// Whether a pipe leads into the current command.
    pub piped: bool,
    /// Whether the current command comes after a pipe of this list.
    pub after_pipe: bool,
}

/// A simple command that is being read.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub words: Vec<Word>,
    pub assignments: Vec<Assignment>,
    pub redirects: Vec<Redirect>,
    pub start: usize,
    pub end: usize,
    /// Whether its first word was written without any quoting.
    pub plain: bool,
}

impl Partial {
    /// Whether nothing of it was read yet.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.assignments.is_empty() && self.redirects.is_empty()
    }
}

/// What a word is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A word of a simple command, or an assignment before it.
    Argument,
    /// The target of a redirect.
    Target(RedirectKind),
    /// An element of an array.
    Element,
    /// A word inside `[[ … ]]`.
    Operand,
    /// The right side of `=~`.
    Expression,
    /// An item of `for`.
    Item,
    /// What `case` looks at.
    Subject,
    /// A pattern of `case`.
    Pattern,
}

/// What surrounds an expansion; it decides which quotes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    /// No quotes.
    Plain,
    /// Double quotes.
    Double,
    /// A here-document or arithmetic: like double quotes, but quotes inside `${…}` are refused.
    Document,
}

/// `${…}` that is being read.
#[derive(Debug)]
pub(super) struct Parameter {
    pub opened_at: usize,
    pub quoting: Quoting,
    pub mode: ParameterMode,
    /// Whether it began with `!`.
    pub indirect: bool,
}

/// Which part of `${…}` is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterMode {
    /// Between `[` and `]`; how many more are open.
    Subscript(usize),
    /// What is used when there is no value.
    Default,
    /// A pattern, or a pattern and its replacement.
    Pattern,
    /// Offset and length, both arithmetic.
    Offset,
}

/// Arithmetic that is being read.
#[derive(Debug)]
pub(super) struct Arithmetic {
    pub opened_at: usize,
    pub kind: ArithmeticKind,
    /// Open parentheses.
    pub depth: usize,
}

/// Where arithmetic stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArithmeticKind {
    /// `$((…))`
    Expansion,
    /// `((…))`
    Command,
    /// `for ((…))`
    For,
}

/// `[[ … ]]` that is being read.
#[derive(Debug)]
pub(super) struct ConditionFrame {
    pub opened_at: usize,
    /// The next word is a regular expression.
    pub expression: bool,
    /// The next word is the argument of `-v` or `-R`.
    pub variable: bool,
    /// The previous word, when it may be an operand of an arithmetic comparison.
    pub operand_varies: bool,
    /// The next word is compared as a number.
    pub number: bool,
    /// Whether a parenthesis was opened.
    pub grouped: bool,
}

/// How far the head of `for` was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForState {
    /// After the name.
    Name,
    /// After `in`.
    Items,
    /// Before `do`.
    Do,
}

/// How far `case` was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseState {
    /// Before `in`.
    In,
    /// Before a clause or `esac`.
    Clause,
    /// After a pattern.
    Pattern,
}
