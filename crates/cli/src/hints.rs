//! Hints for errors, in terms of the command line's verbs and options.

use legwork::{ErrorKind, StateFolder, StateProblem, ToolError};

/// The hint that takes the place of the library's own, where the command line knows a better one.
pub(crate) fn of(error: &ToolError) -> Option<String> {
    let hint = match error.kind {
        ErrorKind::StateUnavailable => state(error.state_problem()?)?,
        ErrorKind::UnknownApproval => "`legwork approvals` lists the open questions",
        // Of a task that a tool was asked about, the tool says more.
        ErrorKind::UnknownTask if error.text_detail("prefix").is_some() => {
            "`legwork ps` lists the tasks"
        }
        ErrorKind::SandboxUnavailable => "`legwork doctor` shows what this machine lacks",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// What the person can do about an error.
pub(crate) fn for_the_user(error: &ToolError, state: &StateFolder) -> Option<String> {
    let is_default = StateFolder::default_path().is_ok_and(|path| path == state.path());
    let place =
        if is_default { String::new() } else { format!(" --state {}", state.path().display()) };
    match error.kind {
        ErrorKind::ApprovalUnavailable | ErrorKind::ApprovalExpired => {
            let id = error.text_detail("approval_id")?;
            Some(format!("legwork approve{place} {id} (or deny)"))
        }
        ErrorKind::SandboxUnavailable => Some(format!("legwork doctor{place}")),
        // A caller that only sees a task.
        ErrorKind::CommandDenied if error.text_detail("less").is_some() => {
            let id = error.text_detail("task_id")?;
            Some(format!("legwork attach{place} {id}, or legwork stop{place} {id}"))
        }
        _ => None,
    }
}

fn state(problem: StateProblem) -> Option<&'static str> {
    match problem {
        StateProblem::Full => Some(
            "free space on its disk (`legwork discard --all` removes trials), or name another folder with --state",
        ),
        StateProblem::NotWritable | StateProblem::Failed => Some(
            "check its space and permissions, or name another folder with --state, then try again",
        ),
        StateProblem::TooNew => Some("use the newer program, or name another folder with --state"),
        StateProblem::Damaged => Some("move the folder away, or name another one with --state"),
        StateProblem::NoDefault => Some("name a folder with --state"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_in_words_of_the_command_line() {
        // What a model could switch off it is not told of.
        let approval = ToolError::new(ErrorKind::ApprovalUnavailable, "");
        assert_eq!(of(&approval), None);
        let sought = ToolError::new(ErrorKind::UnknownTask, "").detail("prefix", "t_1");
        assert_eq!(of(&sought).unwrap(), "`legwork ps` lists the tasks");
        let full = ToolError::new(ErrorKind::StateUnavailable, "").detail("reason", "full");
        assert!(of(&full).unwrap().contains("--state"));
        // Here the library's own words are as good.
        let busy = ToolError::new(ErrorKind::StateUnavailable, "").detail("reason", "busy");
        let asked = ToolError::new(ErrorKind::UnknownTask, "").detail("task_id", "t_1");
        for error in [busy, asked, ToolError::new(ErrorKind::CommandDenied, "")] {
            assert_eq!(of(&error), None, "{error:?}");
        }
    }
}
