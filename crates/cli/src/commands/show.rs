//! `legwork show`: what is known of one task.

use std::{fmt::Write, process::ExitCode};

use legwork::{Outcome, Task, output::TaskOutput, signal_name};

use crate::{
    arguments::TaskOptions,
    render::{complain_of, one_line, print, print_json, time},
};

pub(crate) async fn show(options: TaskOptions) -> ExitCode {
    let shown = async {
        let engine = options.state.open()?;
        let task = engine.task(&options.task).await?;
        let output = engine.output(&task.task_id).await?;
        Ok((task, output))
    };
    match shown.await {
        Err(error) => complain_of(&error),
        Ok((task, _)) if options.json => print_json(&task),
        Ok((task, output)) => print(&describe(&task, &output)),
    }
}

fn describe(task: &Task, output: &TaskOutput) -> String {
    let mut lines = Lines::default();
    lines.add("Task", task.task_id.as_str());
    let reason = task.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    lines.add("Status", &format!("{}{reason}", task.status.as_str()));
    lines.add("Command", &one_line(&task.command, usize::MAX));
    lines.add("Folder", &one_line(&task.workdir, usize::MAX));
    if let Some(shell) = &task.shell {
        lines.add("Shell", &format!("{shell}{}", if task.login { " (login)" } else { "" }));
    }
    let asked_by = one_line(&task.asked_by, usize::MAX);
    lines.add("Asked by", &format!("{asked_by} through {} ({})", task.tool, task.trust));
    lines.add("Started", &time(task.created_at_ms));
    if let Some(outcome) = &task.outcome {
        describe_outcome(&mut lines, outcome);
    }
    for (name, artifact) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if artifact.bytes() > 0 {
            let place =
                artifact.path().map_or("in the ledger".into(), |path| path.display().to_string());
            lines.add(name, &format!("{} bytes, {place}", artifact.bytes()));
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
    if outcome.exit_status.is_some() || outcome.signal.is_some() {
        lines.add("Duration", &format!("{} ms", outcome.duration_ms));
    }
    let dropped = outcome.stdout.dropped_bytes + outcome.stderr.dropped_bytes;
    if dropped > 0 {
        lines.add("Not stored", &format!("{dropped} bytes of output"));
    }
    if !outcome.background_pids.is_empty() {
        let pids: Vec<String> = outcome.background_pids.iter().map(u32::to_string).collect();
        lines.add("Left behind", &format!("processes {}", pids.join(", ")));
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, value: &str) {
        let _ = writeln!(self.0, "{:<13} {value}", format!("{label}:"));
    }
}
