//! Typed errors for commands that may not run.

use legwork_gate::{Denied, Explanation};
use serde_json::{Value, json};

use crate::error::{ErrorKind, ToolError};

/// The typed error of a command that may not run.
pub(crate) fn denied(denial: Denied) -> ToolError {
    let explanation = denial.explanation;
    let reason = explanation.reason.clone();
    match denial.substitution {
        None => {
            let remedy = explanation.remedy.clone();
            let hint = if explanation.denies_tool {
                "use another tool, or ask the person whose rule it is"
            } else {
                "use another command, or ask the person whose rule it is"
            };
            let error = explained(ErrorKind::CommandDenied, reason, &explanation).hint(hint);
            match remedy {
                Some(remedy) => error.detail("for_the_user", remedy),
                None => error,
            }
        }
        Some(found) => ToolError::new(ErrorKind::CommandSubstitutionDenied, reason)
            .detail("construct", found.construct)
            .detail("offset", json!(found.offset))
            .hint("run the inner command by itself first, and use what it printed"),
    }
}

/// The error of something that a person has allowed and a rule denies by now.
pub(crate) fn denied_by_now(rule: &str) -> ToolError {
    let problem = format!("the rule `{rule}` was added after the question and denies this");
    ToolError::new(ErrorKind::CommandDenied, problem)
        .detail("rule", rule)
        .hint("use another command, or ask the person whose rule it is")
}

/// An error that carries the gate's explanation.
pub(super) fn explained(kind: ErrorKind, problem: String, explanation: &Explanation) -> ToolError {
    let mut error = ToolError::new(kind, problem);
    if let Ok(Value::Object(mut fields)) = serde_json::to_value(explanation) {
        // The message has the reason, and what to do is said apart.
        fields.remove("reason");
        fields.remove("remedy");
        error.details = Some(fields);
    }
    error
}
