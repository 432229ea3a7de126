//! Background processes: those that a command left running when it ended, and how to end them.

use legwork::{Engine, Task};

use crate::{
    arguments::StateChoice,
    render::{one_line, say},
};

/// Most columns of a command line.
const COMMAND_MAX: usize = 100;

/// How to see and end the processes that a list counts.
pub(super) const HOW_TO_END: &str = "legwork show TASK lists the processes, stop TASK ends them";

/// Tells on stderr which processes a task that has just ended left running.
pub(super) async fn tell(engine: &Engine, task_id: &str, state: &StateChoice) {
    let Ok(task) = engine.task(task_id).await else { return };
    let processes = engine.background_processes(&task);
    if processes.is_empty() {
        return;
    }
    let what = counted(processes.len());
    say(&format!("legwork: the command left {what} running in the background:"));
    for line in lines(&processes) {
        say(&format!("  {line}"));
    }
    say(&format!("hint: {}", ending(&task, processes.len(), state)));
}

/// The processes, one a line: pid and command line.
pub(super) fn lines(processes: &[(u32, String)]) -> Vec<String> {
    let line = |(pid, command): &(u32, String)| format!("{pid} {}", one_line(command, COMMAND_MAX));
    processes.iter().map(line).collect()
}

/// The command that ends them.
pub(super) fn ending(task: &Task, count: usize, state: &StateChoice) -> String {
    let them = if count == 1 { "it" } else { "them" };
    format!("`legwork stop {}{}` ends {them}", task.task_id, state.as_option())
}

/// A number of processes, in words.
pub(super) fn counted(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}
