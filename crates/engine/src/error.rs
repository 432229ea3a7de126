//! Errors as a caller sees them: a kind, a message, a hint, and whether trying again can help.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::output::Mask;

/// Why a call failed.
///
/// An outcome is not an error: a command that exits with a code, dies by a signal or is already running
/// is a result.
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

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// A configured limit is reached.
    LimitExceeded,
    /// The state folder cannot be used: disk full, ledger locked.
    StateUnavailable,
    /// Anything else that kept us from doing our part.
    ToolExecutionFailed,
}

impl ToolError {
    /// A failure of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(kind, ErrorKind::LimitExceeded | ErrorKind::StateUnavailable);
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

    /// The same without secrets.
    pub(crate) fn masked(mut self, mask: &Mask) -> Self {
        mask.string(&mut self.message);
        if let Some(hint) = &mut self.recovery_hint {
            mask.string(hint);
        }
        if let Some(details) = &mut self.details {
            mask.fields(details);
        }
        self
    }

    /// A state folder that cannot be used.
    pub fn state(problem: &impl std::fmt::Display) -> Self {
        Self::new(
            ErrorKind::StateUnavailable,
            format!("the state folder cannot be used: {problem}"),
        )
        .hint(
            "see to its space and permissions, or name another folder with --state, then try again",
        )
    }

    /// Arguments that cannot be parsed.
    pub fn unparsable(tool: &str, problem: &impl std::fmt::Display) -> Self {
        let mut error = Self::new(
            ErrorKind::InvalidToolInput,
            format!("the input of {tool} does not match its schema: {problem}"),
        );
        error.details = as_map(json!({ "tool_name": tool, "parse_error": problem.to_string() }));
        error.hint(schema_hint(tool))
    }

    /// An argument with a value that is not allowed.
    pub fn invalid_field(tool: &str, field: &str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        let mut error =
            Self::new(ErrorKind::InvalidToolInput, format!("{tool}: `{field}` {problem}"));
        error.details =
            as_map(json!({ "tool_name": tool, "field": field, "validation_error": problem }));
        error.hint(schema_hint(tool))
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
