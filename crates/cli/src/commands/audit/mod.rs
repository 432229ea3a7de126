//! `legwork audit`: prints the log of verdicts, answers and outcomes, or verifies its hash chain.

mod follow;
pub(crate) mod verify;
mod words;

use std::{collections::VecDeque, process::ExitCode};

use legwork::{ErrorKind, StateFolder, ToolError, open_state};
use serde_json::Value;

use self::follow::Log;
pub(super) use self::words::describe;
pub(crate) use self::words::told;
use crate::{
    arguments::{AuditShowOptions, AuditVerb, StateChoice, has_records, tell_of_repair},
    render::{complain, complain_of, print, say},
    style::{Style, folded},
};

pub(crate) async fn audit(verb: AuditVerb) -> ExitCode {
    match verb {
        AuditVerb::Show(options) => show(options).await,
        AuditVerb::Verify(options) => verify::check(options).await,
    }
}

/// The state folder, without the engine: the log can be read whatever else is wrong. None if there
/// is none yet.
pub(crate) fn folder(state: &StateChoice) -> Result<Option<StateFolder>, ToolError> {
    let path = state.path()?;
    if !has_records(&path) && !path.join("audit.jsonl").exists() {
        return Ok(None);
    }
    Ok(Some(open_state(&path, tell_of_repair)?))
}

async fn show(options: AuditShowOptions) -> ExitCode {
    let folder = match folder(&options.state) {
        Ok(Some(folder)) => folder,
        Ok(None) if options.follow => match options.state.with_tasks() {
            Ok(_) => return ExitCode::SUCCESS,
            Err(error) => return complain_of(&error),
        },
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return complain_of(&error),
    };
    match shown(&options, &folder).await {
        Ok(code) => code,
        Err(error) => complain(&format!("cannot read the audit log: {error}")),
    }
}

async fn shown(options: &AuditShowOptions, folder: &StateFolder) -> std::io::Result<ExitCode> {
    let style = Style::of_stdout();
    let mut log = Log::open(&folder.audit(), options.follow)?;
    let mut held: VecDeque<Value> = VecDeque::new();
    // Of all that is there only the last ones; what comes later is shown as it comes.
    let mut count = options.last;
    let mut is_known = options.task.is_none();
    let (mut matches, mut refused) = (0_usize, 0_usize);
    loop {
        let mut code = ExitCode::SUCCESS;
        log.read(|entry| {
            is_known = is_known || is_of_task(options, &entry);
            refused += usize::from(is_refusal(options, &entry));
            matches += usize::from(wanted(options, &entry));
            if !wanted(options, &entry) || code != ExitCode::SUCCESS {
                return;
            }
            let Some(count) = count else {
                code = print(&line(options, style, &entry));
                return;
            };
            held.push_back(entry);
            while held.len() > count {
                held.pop_front();
            }
        })?;
        count = None;
        for entry in held.drain(..) {
            code = print(&line(options, style, &entry));
        }
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
        if !options.follow {
            if matches == 0 && is_known && !options.json {
                say(&nothing_matches(options, refused));
            }
            return Ok(if is_known { code } else { unknown_task(options) });
        }
        log.grown().await?;
    }
}

fn line(options: &AuditShowOptions, style: Style, entry: &Value) -> String {
    if options.json {
        return format!("{entry}\n");
    }
    format!("{}\n", folded(&describe(entry), style.width.unwrap_or(usize::MAX)))
}

/// Whether an entry is about the task that was named, if one was.
fn is_of_task(options: &AuditShowOptions, entry: &Value) -> bool {
    let of = entry.get("task_id").and_then(Value::as_str).unwrap_or_default();
    options.task.as_ref().is_none_or(|task| of.starts_with(task.as_str()))
}

fn unknown_task(options: &AuditShowOptions) -> ExitCode {
    let task = options.task.as_deref().unwrap_or_default();
    let problem = format!("the audit log has no entry about a task `{task}`");
    complain_of(
        &ToolError::new(ErrorKind::UnknownTask, problem).hint("`legwork ps` lists the tasks"),
    )
}

/// What is said where no entry is wanted: a call that was asked about and refused has the verdict
/// `ask`, though somebody who looks for denials means it, too.
fn nothing_matches(options: &AuditShowOptions, refused: usize) -> String {
    let is_of_denials = options.verdict.is_some_and(|verdict| verdict.as_str() == "deny");
    match refused {
        1.. if is_of_denials => format!(
            "No entries match. {refused} calls were asked about and refused: \
             legwork audit show --verdict ask"
        ),
        _ => "No entries match".into(),
    }
}

/// Whether an entry of the wanted time is a call that was refused.
fn is_refusal(options: &AuditShowOptions, entry: &Value) -> bool {
    let is_refused = entry.get("event").and_then(Value::as_str) == Some("refused");
    is_refused && is_of_task(options, entry) && is_in_time(options, entry)
}

fn wanted(options: &AuditShowOptions, entry: &Value) -> bool {
    let verdict = entry.get("verdict").and_then(Value::as_str).unwrap_or_default();
    is_of_task(options, entry)
        && options.verdict.is_none_or(|wanted| verdict == wanted.as_str())
        && is_in_time(options, entry)
}

fn is_in_time(options: &AuditShowOptions, entry: &Value) -> bool {
    let at_ms = entry.get("at_ms").and_then(Value::as_i64).unwrap_or(0);
    options.since.is_none_or(|since| at_ms >= since)
        && options.until.is_none_or(|until| at_ms <= until)
}
