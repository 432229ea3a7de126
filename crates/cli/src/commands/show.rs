//! `legwork show`: what is known of one task.

use std::{fmt::Write, process::ExitCode};

use legwork::{Engine, Outcome, Stream, Task, signal_name};

use crate::{
    arguments::TaskOptions,
    render::{complain_of, one_line, print, print_json, time},
};

pub(crate) async fn show(options: TaskOptions) -> ExitCode {
    let shown = async {
        let engine = options.state.open()?;
        let task = engine.task(&options.task).await?;
        Ok((engine, task))
    };
    match shown.await {
        Err(error) => complain_of(&error),
        Ok((_, task)) if options.json => print_json(&task),
        Ok((engine, task)) => print(&describe(&engine, &task)),
    }
}

fn describe(engine: &Engine, task: &Task) -> String {
    let mut lines = Lines::default();
    lines.add("Task", task.task_id.as_str());
    let reason = task
        .reason
        .as_deref()
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default();
    lines.add("Status", &format!("{}{reason}", task.status.as_str()));
    lines.add("Command", &one_line(&task.command, usize::MAX));
    lines.add("Folder", &task.workdir);
    if let Some(shell) = &task.shell {
        lines.add(
            "Shell",
            &format!("{shell}{}", if task.login { " (login)" } else { "" }),
        );
    }
    lines.add(
        "Asked by",
        &format!("{} through {} ({})", task.asked_by, task.tool, task.trust),
    );
    lines.add("Started", &time(task.created_at_ms));
    if let Some(outcome) = &task.outcome {
        describe_outcome(&mut lines, outcome);
    }
    for stream in [Stream::Stdout, Stream::Stderr] {
        if let Ok(artifact) = engine.folder(&task.task_id).artifact(stream)
            && artifact.bytes() > 0
        {
            let shown = format!("{} ({} bytes)", artifact.path().display(), artifact.bytes());
            lines.add(stream.file_name(), &shown);
        }
    }
    lines.0
}

fn describe_outcome(lines: &mut Lines, outcome: &Outcome) {
    if let Some(code) = outcome.exit_status {
        lines.add("Exit status", &code.to_string());
    }
    if let Some(signal) = outcome.signal {
        lines.add("Signal", &format!("{} ({signal})", signal_name(signal)));
    }
    lines.add("Duration", &format!("{} ms", outcome.duration_ms));
    if !outcome.background_pids.is_empty() {
        let pids: Vec<String> = outcome.background_pids.iter().map(u32::to_string).collect();
        lines.add("Left running", &pids.join(", "));
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, value: &str) {
        let _ = writeln!(self.0, "{:<13} {value}", format!("{label}:"));
    }
}
