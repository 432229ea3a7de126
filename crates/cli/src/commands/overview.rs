//! `legwork` without a verb: the running tasks, what finished ones left running, and open
//! questions.

use std::process::ExitCode;

use legwork::{TaskFilter, ToolError};

use super::{approvals::Open, background::HOW_TO_END, listed::Listed};
use crate::{
    arguments::StateChoice,
    render::{complain_of, print},
    style::{Style, Tone, grouped},
};

/// Most running tasks that are shown.
const TASKS_MAX: u32 = 10;

pub(crate) async fn overview(state: StateChoice) -> ExitCode {
    match describe(&state, Style::of_stdout()).await {
        Ok(text) => print(&text),
        Err(error) => complain_of(&error),
    }
}

async fn describe(state: &StateChoice, style: Style) -> Result<String, ToolError> {
    let help = "legwork --help: commands; legwork doctor: a check";
    let help = format!("{}\n", style.paint(Tone::Faint, help));
    let Some(engine) = state.existing()? else {
        return Ok(format!("No tasks yet\n\n{help}"));
    };
    let running = Listed::read(&engine, TaskFilter::open(), TASKS_MAX).await?;
    let open = Open::read(&engine).await?;
    let mut text = String::new();
    if running.tasks.is_empty() {
        text.push_str("No tasks are running; legwork ps lists those that have ended\n");
    } else {
        let title = format!("{} running", count(running.total, "task"));
        text.push_str(&format!("{}\n", style.paint(Tone::Strong, &title)));
        text.push_str(&running.table(style));
        if running.more() > 0 {
            text.push_str(&format!("{} more: legwork ps -r\n", grouped(running.more())));
        }
    }
    let left = Listed::left_running(&engine, TASKS_MAX).await?;
    if !left.tasks.is_empty() {
        let title = format!("{} left processes running", count(left.total, "finished task"));
        text.push_str(&format!("\n{}\n", style.paint(Tone::Strong, &title)));
        text.push_str(&left.table(style));
        text.push_str(&format!("{}\n", style.paint(Tone::Faint, HOW_TO_END)));
    }
    let questions = open.approvals().len() as u64;
    if questions > 0 {
        let title = format!("{} open", count(questions, "question"));
        text.push_str(&format!("\n{}\n", style.paint(Tone::Strong, &title)));
        text.push_str(&open.table(style));
    }
    Ok(format!("{text}\n{help}"))
}

fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}
