//! Errors as a caller sees them: a kind, a message, a hint, and whether trying again can help.
//!
//! The hints are for whoever holds the library or calls a tool; a face puts its own words in their
//! place ([`Options::hint`](crate::Options::hint)).

use std::{fmt::Display, io};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::output::Mask;

/// Why a call failed.
///
/// An outcome is not an error: a command that exits with a code, dies by a signal or is already
/// running is a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What was wrong and what to do.
    pub message: String,
    /// Particulars, by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// What to try instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_hint: Option<String>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Whether the audit log has it.
    #[serde(skip)]
    pub(crate) noted: bool,
}

/// Kinds of failure, with the names that they have in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments do not fit the tool's schema.
    InvalidToolInput,
    /// The folder is outside the roots.
    ExecutionRootViolation,
    /// The folder does not exist, or is none.
    WorkdirNotFound,
    /// The program could not be started.
    CommandSpawnFailed,
    /// A rule denies the command.
    CommandDenied,
    /// The command contains a substitution that the tool refuses.
    CommandSubstitutionDenied,
    /// Somebody was asked and said no.
    ApprovalRefused,
    /// Nobody can be asked.
    ApprovalUnavailable,
    /// Nobody answered in time.
    ApprovalExpired,
    /// There is no such tool.
    UnknownTool,
    /// There is no such task.
    UnknownTask,
    /// There is no such open question.
    UnknownApproval,
    /// A configured limit is reached.
    LimitExceeded,
    /// The state folder cannot be used, or a part of it: [`ToolError::state_problem`] says why.
    StateUnavailable,
    /// The sandbox that the configuration requires cannot be had, or could not be entered.
    SandboxUnavailable,
    /// A file of the configuration cannot be read, or says something that it may not.
    ConfigurationInvalid,
    /// The command ended otherwise than with exit code 0, where its success was asked for
    /// ([`Finished::into_success`](crate::Finished::into_success)).
    CommandFailed,
    /// The task takes no input, or does not read it
    /// ([`TaskHandle::send`](crate::TaskHandle::send)).
    InputRefused,
    /// What a trial would change is not as it was when the trial ran
    /// ([`Engine::apply_trial`](crate::Engine::apply_trial)).
    ChangedUnderneath,
    /// Anything else that kept us from doing our part.
    ToolExecutionFailed,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 20] = [
        Self::InvalidToolInput,
        Self::ExecutionRootViolation,
        Self::WorkdirNotFound,
        Self::CommandSpawnFailed,
        Self::CommandDenied,
        Self::CommandSubstitutionDenied,
        Self::ApprovalRefused,
        Self::ApprovalUnavailable,
        Self::ApprovalExpired,
        Self::UnknownTool,
        Self::UnknownTask,
        Self::UnknownApproval,
        Self::LimitExceeded,
        Self::StateUnavailable,
        Self::SandboxUnavailable,
        Self::ConfigurationInvalid,
        Self::CommandFailed,
        Self::InputRefused,
        Self::ChangedUnderneath,
        Self::ToolExecutionFailed,
    ];

    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidToolInput => "invalid_tool_input",
            Self::ExecutionRootViolation => "execution_root_violation",
            Self::WorkdirNotFound => "workdir_not_found",
            Self::CommandSpawnFailed => "command_spawn_failed",
            Self::CommandDenied => "command_denied",
            Self::CommandSubstitutionDenied => "command_substitution_denied",
            Self::ApprovalRefused => "approval_refused",
            Self::ApprovalUnavailable => "approval_unavailable",
            Self::ApprovalExpired => "approval_expired",
            Self::UnknownTool => "unknown_tool",
            Self::UnknownTask => "unknown_task",
            Self::UnknownApproval => "unknown_approval",
            Self::LimitExceeded => "limit_exceeded",
            Self::StateUnavailable => "state_unavailable",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::ConfigurationInvalid => "configuration_invalid",
            Self::CommandFailed => "command_failed",
            Self::InputRefused => "input_refused",
            Self::ChangedUnderneath => "changed_underneath",
            Self::ToolExecutionFailed => "tool_execution_failed",
        }
    }
}

impl ToolError {
    /// A failure of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        // The same call can work later, also once somebody has approved it.
        let retryable = matches!(
            kind,
            ErrorKind::LimitExceeded
                | ErrorKind::StateUnavailable
                | ErrorKind::ApprovalUnavailable
                | ErrorKind::ApprovalExpired
        );
        let message = message.into();
        Self { kind, message, details: None, recovery_hint: None, retryable, noted: false }
    }

    /// The same with one more detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.recovery_hint = Some(hint.into());
        self
    }

    /// The same with what helps most before its hint.
    pub(crate) fn hint_before(self, hint: &str) -> Self {
        let general = self.recovery_hint.clone().unwrap_or_default();
        self.hint(format!("{hint}; {general}"))
    }

    /// The same as it may leave: without secrets, and whatever it quotes of its caller's words cut
    /// down to a few lines.
    pub(crate) fn told(self, mask: &Mask) -> Self {
        let mut error = self.masked(mask);
        shorten(&mut error.message);
        if let Some(hint) = &mut error.recovery_hint {
            shorten(hint);
        }
        for value in error.details.iter_mut().flat_map(Map::values_mut) {
            shorten_all(value);
        }
        error
    }

    /// The same without secrets.
    fn masked(mut self, mask: &Mask) -> Self {
        mask.string(&mut self.message);
        if let Some(hint) = &mut self.recovery_hint {
            mask.string(hint);
        }
        if let Some(details) = &mut self.details {
            mask.fields(details);
        }
        self
    }

    /// A state folder that cannot be used, with what the system or the ledger said.
    pub(crate) fn state(problem: StateProblem, said: &impl Display) -> Self {
        let when = if problem.passes() { " now" } else { "" };
        let message = format!("the state folder cannot be used{when}: {said}");
        Self::with_problem(problem, message)
    }

    /// The output of one task that cannot be read; the task itself, and all others, are fine.
    pub(crate) fn unreadable(task_id: &str, said: &impl Display) -> Self {
        let message = format!("the output of task {task_id} cannot be read: {said}");
        Self::with_problem(StateProblem::OutputUnavailable, message).detail("task_id", task_id)
    }

    fn with_problem(problem: StateProblem, message: String) -> Self {
        let mut error = Self::new(ErrorKind::StateUnavailable, message)
            .detail("reason", problem.as_str())
            .hint(problem.hint());
        error.retryable = problem.is_retryable();
        error
    }

    /// What is wrong with the state folder, for [`ErrorKind::StateUnavailable`].
    pub fn state_problem(&self) -> Option<StateProblem> {
        if self.kind != ErrorKind::StateUnavailable {
            return None;
        }
        StateProblem::from_name(self.text_detail("reason")?)
    }

    /// A detail that is a text.
    pub fn text_detail(&self, name: &str) -> Option<&str> {
        self.details.as_ref()?.get(name)?.as_str()
    }

    /// Arguments that cannot be parsed.
    pub fn unparsable(tool: &str, problem: &impl Display) -> Self {
        let mut error = Self::new(
            ErrorKind::InvalidToolInput,
            format!("the input of {tool} does not match its schema: {problem}"),
        );
        let problem = problem.to_string();
        error.details = as_map(json!({ "tool_name": tool, "parse_error": problem }));
        error.hint(schema_hint(tool))
    }

    /// An argument with a value that is not allowed.
    pub fn invalid_field(tool: &str, field: &str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        let mut error =
            Self::new(ErrorKind::InvalidToolInput, format!("{tool}: `{field}` {problem}"));
        error.details = as_map(json!({
            "tool_name": tool,
            "field": field,
            "parse_error": format!("invalid value for field `{field}`"),
            "validation_error": problem,
        }));
        error.hint(schema_hint(tool))
    }
}

/// What is wrong with the state folder: the detail `reason` of [`ErrorKind::StateUnavailable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateProblem {
    /// Another process holds the ledger, its daybook or the clean-up, for longer than is waited
    /// for.
    Busy,
    /// Another process rebuilds the ledger.
    Rebuilding,
    /// The disk has no room or no inode, or the user's quota is used up.
    Full,
    /// The folder may not be written: its permissions, or a filesystem that is read-only.
    NotWritable,
    /// The ledger is damaged and could not be rebuilt, or the row of a task does not read back.
    Damaged,
    /// A newer version of this program has made it.
    TooNew,
    /// No folder was named, and the environment says nothing of a default one.
    NoDefault,
    /// The output of one task cannot be stored or read.
    OutputUnavailable,
    /// The system said no for another reason.
    Failed,
}

impl StateProblem {
    const ALL: [Self; 9] = [
        Self::Busy,
        Self::Rebuilding,
        Self::Full,
        Self::NotWritable,
        Self::Damaged,
        Self::TooNew,
        Self::NoDefault,
        Self::OutputUnavailable,
        Self::Failed,
    ];

    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Rebuilding => "rebuilding",
            Self::Full => "full",
            Self::NotWritable => "not_writable",
            Self::Damaged => "damaged",
            Self::TooNew => "too_new",
            Self::NoDefault => "no_default",
            Self::OutputUnavailable => "output_unavailable",
            Self::Failed => "failed",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|problem| problem.as_str() == name)
    }

    /// The problem that an error of the system stands for.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => Self::Busy,
            _ => Self::Failed,
        }
    }

    /// Whether it passes by itself.
    fn passes(self) -> bool {
        matches!(self, Self::Busy | Self::Rebuilding)
    }

    /// Whether the same call may succeed later, also after somebody has seen to the folder.
    fn is_retryable(self) -> bool {
        !matches!(self, Self::Damaged | Self::TooNew | Self::NoDefault)
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Busy => "another process holds it: try again",
            Self::Rebuilding => "another process rebuilds the ledger: try again in a moment",
            Self::Full => "make room on its disk, or use another state folder, then try again",
            Self::NotWritable => "see to its permissions, or use another state folder",
            Self::Damaged => "set the state folder aside, or use another one",
            Self::TooNew => "use the program that made it, or another state folder",
            Self::NoDefault => "name a state folder",
            Self::OutputUnavailable => "the task itself is not affected: try again",
            Self::Failed => {
                "see to its space and permissions, or use another state folder, then try again"
            }
        }
    }
}

/// Most characters of a text in an error: a caller knows what it has sent.
const TEXT_CHARS_MAX: usize = 2_000;

/// Takes the middle out of a text that is too long.
fn shorten(text: &mut String) {
    let chars = text.chars().count();
    if chars <= TEXT_CHARS_MAX {
        return;
    }
    let half = TEXT_CHARS_MAX / 2;
    let place = |number: usize| text.char_indices().nth(number).map_or(text.len(), |(at, _)| at);
    let (from, to) = (place(half), place(chars - half));
    let left_out = format!(" [{} characters left out] ", chars - 2 * half);
    text.replace_range(from..to, &left_out);
}

/// The same for every text in a value.
fn shorten_all(value: &mut Value) {
    match value {
        Value::String(text) => shorten(text),
        Value::Array(items) => items.iter_mut().for_each(shorten_all),
        Value::Object(fields) => fields.values_mut().for_each(shorten_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn as_map(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn schema_hint(tool: &str) -> String {
    format!("provide input for {tool} that matches the published tool schema")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn a_problem_of_the_state_folder_reads_back_from_the_error() {
        for problem in StateProblem::ALL {
            let error = ToolError::state(problem, &"said");
            assert_eq!(error.state_problem(), Some(problem));
            assert!(error.message.ends_with(": said"), "{error}");
            let json = serde_json::to_value(&error).unwrap();
            assert_eq!(json["kind"], "state_unavailable");
            assert_eq!(json["details"]["reason"], problem.as_str());
            assert_eq!(json["retryable"], problem.is_retryable());
            let read: ToolError = serde_json::from_value(json).unwrap();
            assert_eq!(read, error);
        }
        assert_eq!(ToolError::new(ErrorKind::UnknownTask, "").state_problem(), None);
    }

    #[test]
    fn an_error_quotes_no_more_than_a_few_lines() {
        let long = format!("begin{}end", "\u{fc}".repeat(100_000));
        let error = ToolError::invalid_field("Tool", &long, long.clone())
            .detail("list", json!([{ "text": long }]))
            .hint(long.clone())
            .told(&Mask::none());
        let text = serde_json::to_string(&error).unwrap();
        assert!(text.len() < 6 * 2 * TEXT_CHARS_MAX + 1_000, "{}", text.len());
        assert!(error.message.starts_with("Tool: `begin") && error.message.ends_with("end"));
        assert!(error.message.contains("characters left out]"), "{}", error.message);
        let short = ToolError::new(ErrorKind::UnknownTask, "short").detail("a", "b");
        assert_eq!(short.clone().told(&Mask::none()), short);
    }

    #[test]
    fn what_the_system_says_is_told_apart() {
        use rustix::io::Errno;
        for (errno, problem) in [
            (Errno::NOSPC, StateProblem::Full),
            (Errno::DQUOT, StateProblem::Full),
            (Errno::ACCESS, StateProblem::NotWritable),
            (Errno::PERM, StateProblem::NotWritable),
            (Errno::ROFS, StateProblem::NotWritable),
            (Errno::AGAIN, StateProblem::Busy),
            (Errno::IO, StateProblem::Failed),
            (Errno::NOTDIR, StateProblem::Failed),
        ] {
            assert_eq!(StateProblem::of(&errno.into()), problem, "{errno:?}");
        }
    }
}
