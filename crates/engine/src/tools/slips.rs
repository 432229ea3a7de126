//! Hints for the commonest mistakes in a tool's input: the name of the field that was meant.

/// Names that mean the same in different tools: whoever writes one of them is told which one it is
/// here.
const SAME: [&[&str]; 5] = [
    &["cmd", "command", "script", "code", "input", "shell_command", "commandLine"],
    &["workdir", "cwd", "directory", "dir", "working_directory", "path", "folder"],
    &["timeout", "timeout_ms", "timeout_seconds", "yield_time_ms", "wait_ms"],
    &["task_id", "id", "taskId", "task_ids", "task"],
    &["max_output_tokens", "max_tokens", "limit"],
];

/// Units of the fields whose names say none.
const UNITS: [(&str, &str); 4] = [
    ("timeout", "in seconds"),
    ("timeout_ms", "in milliseconds"),
    ("yield_time_ms", "in milliseconds; it is how long to wait, and stops nothing"),
    ("wait_ms", "in milliseconds"),
];

/// What to write instead, from what a parser says of an unknown field: it names the field and those
/// that there are.
pub(super) fn hint(problem: &str) -> Option<String> {
    let mut names = problem.split('`').skip(1).step_by(2);
    let written = if problem.contains("unknown field") {
        // The path of the field may come before what is wrong with it.
        names.by_ref().find(|name| problem.contains(&format!("unknown field `{name}`")))?
    } else {
        return None;
    };
    let known: Vec<&str> = names.filter(|name| *name != written).collect();
    let meant = SAME.iter().find(|same| same.contains(&written)).and_then(|same| {
        let here = known.iter().find(|name| same.contains(name))?;
        Some(*here)
    });
    let meant = meant?;
    let unit = UNITS.iter().find(|(name, _)| *name == meant).map(|(_, unit)| format!(" ({unit})"));
    Some(format!("it is called `{meant}` here{}", unit.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_another_tool_is_told_by_the_one_that_is_known_here() {
        let unknown = |written: &str, known: &str| {
            hint(&format!("`{written}`: unknown field `{written}`, expected one of {known}"))
        };
        let exec = "`cmd`, `workdir`, `shell`, `yield_time_ms`";
        assert_eq!(unknown("command", exec).unwrap(), "it is called `cmd` here");
        assert_eq!(unknown("cwd", exec).unwrap(), "it is called `workdir` here");
        assert!(unknown("timeout", exec).unwrap().contains("`yield_time_ms` here (in milli"));
        assert_eq!(unknown("cmd", "`command`, `args`").unwrap(), "it is called `command` here");
        assert_eq!(unknown("moon", exec), None);
        assert_eq!(hint("missing field `cmd`"), None);
    }
}
