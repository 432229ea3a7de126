//! `legwork show`: the details of one task.

use std::process::ExitCode;

use legwork::{
    Approval, LiveResources, Outcome, Report, Task,
    gate::units::{shown_bytes, shown_ms},
    output::TaskOutput,
    signal_name,
};

use super::{background, listed::age, resources};
use crate::{
    arguments::{ShowOptions, StateChoice},
    render::{complain_of, escaped, print, print_json, reason, time},
    style::{Style, Tone, labelled},
};

pub(crate) async fn show(options: ShowOptions) -> ExitCode {
    let shown = async {
        let engine = options.state.with_tasks()?;
        let mut observer = engine.observe(engine.task(&options.task).await?).await?;
        let output = observer.output().await.unwrap_or_default();
        let report = observer.report().await?;
        let uses = observer.resources().await?;
        let run = report.map(|report| RunNow { report, uses });
        let left = engine.background_processes(observer.task());
        let task = observer.task().clone().masked(&engine.mask());
        let open = engine.approvals().await?;
        let held = open.into_iter().find(|one| one.task_id.as_ref() == Some(&task.task_id));
        Ok((task, output, run, held, left))
    };
    match shown.await {
        Err(error) => complain_of(&error),
        Ok((task, ..)) if options.json => print_json(&task),
        Ok((task, output, run, held, left)) => {
            let mut text = describe(&task, &output, run.as_ref(), held.as_ref());
            text.push_str(&describe_background(&task, &left, &options.state));
            print(&text)
        }
    }
}

fn describe(
    task: &Task,
    output: &TaskOutput,
    run: Option<&RunNow>,
    held: Option<&Approval>,
) -> String {
    let mut lines = Lines::new();
    lines.add("Task", task.task_id.as_str());
    lines.add("Status", &status(task));
    lines.add("Command", &escaped(&task.command));
    if let Some(description) = &task.description {
        lines.add("Purpose", &format!("{} (the caller's words)", escaped(description)));
    }
    if let Some(place) = task.place() {
        lines.add("Place", place);
    }
    lines.add("Folder", &escaped(&task.workdir));
    let sandbox = escaped(&task.sandbox.words());
    let tone = if task.sandbox.outside.is_some() { Tone::Bad } else { Tone::Plain };
    lines.add("Sandbox", &lines.style.paint(tone, &sandbox));
    if let Some(shell) = &task.shell {
        lines.add("Shell", &format!("{shell}{}", if task.login { " (login)" } else { "" }));
    }
    let asked_by = escaped(&task.asked_by);
    lines.add("Asked by", &format!("{asked_by} through {} ({})", task.tool, task.trust));
    lines
        .add("Started", &format!("{} ({} ago)", time(task.created_at_ms), age(task.created_at_ms)));
    if let Some(question) = held {
        let program = escaped(question.cause.as_deref().unwrap_or_default());
        let id = &question.approval_id;
        lines.add("Asks", &format!("may `{program}` run? legwork approvals {id} shows more"));
    }
    match (&task.outcome, run) {
        (Some(outcome), _) => describe_outcome(&mut lines, outcome),
        (None, Some(run)) => describe_run(&mut lines, run),
        (None, None) => {}
    }
    for (name, artifact) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if artifact.bytes() > 0 {
            let place =
                artifact.path().map_or("in the ledger".into(), |path| path.display().to_string());
            lines.add(name, &format!("{}, {place}", shown_bytes(artifact.kept_bytes())));
        }
    }
    lines.text
}

/// What a warden tells of a command that runs.
struct RunNow {
    report: Report,
    uses: Option<LiveResources>,
}

fn describe_run(lines: &mut Lines, RunNow { report, uses }: &RunNow) {
    lines.add("Process", &report.pid.to_string());
    lines.add("Running for", &shown_ms(report.duration_ms));
    if let Some(uses) = uses {
        lines.add("Uses", &resources::uses(uses));
    }
    if let Some(size) = report.terminal {
        lines.add("Terminal", &format!("{} x {}", size.rows, size.cols));
    }
    match report.waiting_for_input {
        Some(true) => lines.add("Waits", "for input"),
        Some(false) => {}
        None => lines.add("Waits", "unknown whether for input"),
    }
}

fn describe_outcome(lines: &mut Lines, outcome: &Outcome) {
    if let Some(code) = outcome.exit_status {
        lines.add("Exit status", &code.to_string());
    }
    if let Some(signal) = outcome.signal {
        lines.add("Signal", &format!("{} ({signal})", signal_name(signal)));
    }
    if outcome.exit_status.is_some() || outcome.signal.is_some() {
        lines.add("Duration", &shown_ms(outcome.duration_ms));
    }
    if let Some(used) = &outcome.resources {
        lines.add("Used", &resources::used(used));
    }
    if let Some(by) = outcome.ended_by {
        lines.add("Ended by", by.as_str());
        lines.add("", by.sentence());
    }
    let flags: Vec<String> = outcome.flags.iter().map(|flag| flag.as_str().to_owned()).collect();
    if !flags.is_empty() {
        lines.add("Flags", &flags.join(", "));
    }
    for warning in &outcome.warnings {
        lines.add("Warning", &escaped(warning));
    }
    for missing in &outcome.limits.missing {
        lines.add("Not limited", missing);
    }
    let dropped = outcome.stdout.dropped_bytes + outcome.stderr.dropped_bytes;
    if dropped > 0 {
        lines.add("Not stored", &format!("{} of output", shown_bytes(dropped)));
    }
}

/// The processes that still run after the command's end, and how to end them.
fn describe_background(task: &Task, left: &[(u32, String)], state: &StateChoice) -> String {
    let mut lines = Lines::new();
    for (index, line) in background::lines(left).iter().enumerate() {
        lines.add(if index == 0 { "Background" } else { "" }, line);
    }
    if !left.is_empty() {
        lines.add("", &background::ending(task, left.len(), state));
    }
    lines.text
}

/// The status, with its reason in words.
fn status(task: &Task) -> String {
    let status = task.status.as_str();
    let why = task.reason.as_deref().map(|name| format!(" ({})", reason(name)));
    format!("{status}{}", why.unwrap_or_default())
}

/// Lines of labels and values, as they fit our stdout.
struct Lines {
    text: String,
    style: Style,
}

impl Lines {
    fn new() -> Self {
        Self { text: String::new(), style: Style::of_stdout() }
    }

    fn add(&mut self, label: &str, value: &str) {
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        self.text.push_str(&labelled(&label, value, self.style));
    }
}
