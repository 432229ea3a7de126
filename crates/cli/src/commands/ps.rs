//! `legwork ps`: lists the tasks of the state folder, newest first.

use std::{io::IsTerminal, path::PathBuf, process::ExitCode, time::Duration};

use legwork::{Engine, EventKind, Interest, TaskFilter, ToolError};
use serde_json::json;

use super::{background::HOW_TO_END, listed::Listed};
use crate::{
    arguments::PsOptions,
    platform::window_changes,
    render::{complain_of, print, print_json},
    signals::asked_to_end,
    style::{Style, Tone, grouped},
    terminal,
};

/// Lines of a screen that are not tasks: the titles, the count of the rest, how to end background
/// processes, the cursor's.
const OTHER_LINES: u32 = 4;

/// Most tasks that are listed by default.
const LIMIT: u32 = 20;

/// How often the times of running tasks are shown anew.
const TICK: Duration = Duration::from_secs(1);

pub(crate) async fn ps(options: PsOptions) -> ExitCode {
    match options.state.existing() {
        Err(error) => complain_of(&error),
        Ok(Some(engine)) if options.watch => watch(&engine, &options).await,
        Ok(Some(engine)) => match Listed::read(&engine, filter(&options), limit(&options)).await {
            Ok(listed) => show(&listed, &options),
            Err(error) => complain_of(&error),
        },
        Ok(None) if options.watch => match options.state.with_tasks() {
            Err(error) => complain_of(&error),
            Ok(engine) => watch(&engine, &options).await,
        },
        Ok(None) if options.json => print_json(&json!({ "tasks": [], "total": 0 })),
        Ok(None) if options.quiet => ExitCode::SUCCESS,
        Ok(None) => print("No tasks\n"),
    }
}

/// Most tasks that are listed: ids alone are for another program, which wants all of them.
fn limit(options: &PsOptions) -> u32 {
    options.limit.unwrap_or(if options.quiet { u32::MAX } else { LIMIT })
}

fn filter(options: &PsOptions) -> TaskFilter {
    let real = |path: &PathBuf| {
        let real = path.canonicalize().or_else(|_| std::path::absolute(path));
        real.unwrap_or_else(|_| path.clone()).display().to_string()
    };
    let statuses = options.status.iter().map(|name| name.status()).collect();
    let chosen = TaskFilter { statuses, ..TaskFilter::default() };
    let statuses = if options.running { TaskFilter::open() } else { chosen };
    let workspace = options.workspace.as_ref().map(real);
    TaskFilter { workspace, since_ms: options.since, ..statuses }
}

fn show(listed: &Listed, options: &PsOptions) -> ExitCode {
    if options.json {
        return print_json(&json!({ "tasks": listed.tasks, "total": listed.total }));
    }
    if options.quiet {
        let ids = listed.tasks.iter().map(|task| format!("{}\n", task.task_id));
        return print(&ids.collect::<String>());
    }
    print(&text(listed, options, Style::of_stdout()))
}

fn text(listed: &Listed, options: &PsOptions, style: Style) -> String {
    if listed.tasks.is_empty() {
        let is_all = filter(options) == TaskFilter::default();
        return if is_all { "No tasks\n" } else { "No task matches\n" }.to_owned();
    }
    let mut text =
        if options.all_columns { listed.all_columns(style) } else { listed.table(style) };
    if listed.more() > 0 {
        let more = format!("{} more: -n {}", grouped(listed.more()), listed.total);
        text.push_str(&format!("{}\n", style.paint(Tone::Faint, &more)));
    }
    if listed.has_background() {
        text.push_str(&format!("{}\n", style.paint(Tone::Faint, HOW_TO_END)));
    }
    text
}

/// Shows the list whenever it has changed, until we are asked to end.
async fn watch(engine: &Engine, options: &PsOptions) -> ExitCode {
    let watched = tokio::select! {
        watched = repaint(engine, options) => watched,
        number = asked_to_end() => {
            print("\n");
            return ExitCode::from(128 + number);
        }
    };
    match watched {
        Ok(code) => code,
        Err(error) => complain_of(&error),
    }
}

async fn repaint(engine: &Engine, options: &PsOptions) -> Result<ExitCode, ToolError> {
    // Before the first look, so that nothing falls between.
    let mut events = engine.events(None, Interest::Live).await?;
    let mut resized = window_changes().ok();
    let on_terminal = std::io::stdout().is_terminal();
    loop {
        let rows = terminal::size().filter(|_| on_terminal).map(|size| u32::from(size.rows));
        let room = rows.map_or(u32::MAX, |rows| rows.saturating_sub(OTHER_LINES).max(1));
        let listed = Listed::read(engine, filter(options), limit(options).min(room)).await?;
        let runs = listed.tasks.iter().any(|task| !task.status.is_final());
        // Nothing is read anew in here: what was read is shown with the time that it is now.
        loop {
            let shown = text(&listed, options, Style::of_stdout());
            // Over what was there, so that nothing flickers; then what is left of it goes.
            let code = if on_terminal {
                print(&format!("\u{1b}[H{}\u{1b}[J", shown.replace('\n', "\u{1b}[K\n")))
            } else {
                print(&format!("{shown}\n"))
            };
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
            let next_size = async {
                match &mut resized {
                    Some(resized) => resized.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed(&mut events) => break,
                _ = next_size => break,
                () = tokio::time::sleep(TICK), if runs && on_terminal => {}
            }
        }
    }
}

/// Waits until a task has come or gone, or changed its status.
async fn changed(events: &mut legwork::Events) {
    // Whoever has missed events looks anew, too.
    while let Ok(event) = events.next().await {
        if is_question(&event.what) || event.what.task_id().is_some() && !is_growth(&event.what) {
            return;
        }
    }
}

fn is_question(event: &EventKind) -> bool {
    matches!(event, EventKind::QuestionOpened { .. } | EventKind::QuestionAnswered { .. })
}

fn is_growth(event: &EventKind) -> bool {
    matches!(event, EventKind::OutputGrew { .. } | EventKind::WaitingForInput { .. })
}
