//! `legwork audit`: what was asked, decided and done, and whether the log of it is whole.

use std::{path::Path, process::ExitCode, sync::Arc};

use legwork::{
    Ledger, LedgerError, StateFolder, ToolError,
    audit::{AuditHead, Tampering, compare, entries, verify},
    open_state,
};
use serde_json::{Value, json};

use crate::{
    OUR_FAILURE,
    arguments::{AuditShowOptions, AuditVerb, AuditVerifyOptions, StateChoice, tell_of_repair},
    render::{complain, complain_of, one_line, print, print_json, time},
};

pub(crate) async fn audit(verb: AuditVerb) -> ExitCode {
    match verb {
        AuditVerb::Show(options) => show(options),
        AuditVerb::Verify(options) => check(options).await,
    }
}

/// The state folder, without the engine: the log can be read whatever else is wrong.
fn folder(state: StateChoice) -> Result<StateFolder, ToolError> {
    let path = state.state.map_or_else(StateFolder::default_path, Ok);
    Ok(path.and_then(|path| open_state(&path, tell_of_repair))?)
}

fn show(options: AuditShowOptions) -> ExitCode {
    let AuditShowOptions { task, verdict, since, until, json, state } = options;
    let folder = match folder(state) {
        Ok(folder) => folder,
        Err(error) => return complain_of(&error),
    };
    let entries = match entries(&folder.audit()) {
        Ok(entries) => entries,
        Err(error) => return complain(&format!("the audit log cannot be read: {error}")),
    };
    let text = |entry: &Value, name: &str| {
        entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let wanted = |entry: &Value| {
        let at_ms = entry.get("at_ms").and_then(Value::as_i64).unwrap_or(0);
        task.as_ref().is_none_or(|task| text(entry, "task_id").starts_with(task.as_str()))
            && verdict.as_ref().is_none_or(|verdict| text(entry, "verdict") == *verdict)
            && since.is_none_or(|since| at_ms >= since.as_millisecond())
            && until.is_none_or(|until| at_ms <= until.as_millisecond())
    };
    for entry in entries.filter(wanted) {
        let line = if json { entry.to_string() } else { describe(&entry) };
        if print(&format!("{line}\n")) != ExitCode::SUCCESS {
            return ExitCode::from(OUR_FAILURE);
        }
    }
    ExitCode::SUCCESS
}

/// An entry in one line.
pub(super) fn describe(entry: &Value) -> String {
    let text = |name: &str| match entry.get(name) {
        Some(Value::String(text)) => one_line(text, 200),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let at = time(entry.get("at_ms").and_then(Value::as_i64).unwrap_or(0));
    let task = format!("{:<28}", text("task_id"));
    let what = match text("event").as_str() {
        "verdict" => format!(
            "{:<9} {} {} by {} ({}): {}",
            text("verdict"),
            task,
            text("tool"),
            text("asked_by"),
            text("trust"),
            text("command")
        ),
        "outcome" => {
            let ends = [("exit ", text("exit_status")), ("signal ", text("signal"))];
            let end = ends.into_iter().find(|(_, number)| !number.is_empty());
            let end = end.map(|(name, number)| format!(" {name}{number}")).unwrap_or_default();
            format!("{:<9} {task}{end} after {} ms", text("status"), text("duration_ms"))
        }
        "refused" => {
            format!("refused   {task} {} {}: {}", text("tool"), text("kind"), text("message"))
        }
        "approval" => format!(
            "answered  {} {} by {} (asked by {}): {}",
            text("approval_id"),
            text("decision"),
            text("answered_by"),
            text("asked_by"),
            text("command")
        ),
        "input" => format!(
            "typed     {task} {} bytes for a {} by {} ({}): {}",
            text("input_bytes"),
            text("reader"),
            text("asked_by"),
            text("trust"),
            text("input")
        ),
        "approval_used" => format!(
            "passed    {} {} answered earlier (asked by {}): {}",
            text("approval_id"),
            text("decision"),
            text("asked_by"),
            text("command")
        ),
        "repaired" => format!("repaired  {} torn bytes were cut off", text("torn_bytes")),
        "rebuilt" => rebuilt(entry),
        "cleaned_up" => {
            let why = format!("{} past their time, {} too much", text("by_age"), text("by_size"));
            format!("removed   {} tasks ({why}): {}", text("tasks"), text("task_ids"))
        }
        "set_aside" => {
            format!("set aside `{}`, which {}: {}", text("name"), text("why"), text("set_aside"))
        }
        event => format!("{event:<9} {task} {} {}", text("tool"), text("summary")),
    };
    format!("{at}  {what}")
}

/// A rebuild of the ledger in one line.
fn rebuilt(entry: &Value) -> String {
    let number = |name: &str| entry.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let set_aside = match text("set_aside") {
        "" => String::new(),
        name => format!("; the old one is {name}"),
    };
    format!(
        "rebuilt   the ledger {}: {} tasks from the old one, {} from their folders, {} lost by name{set_aside}",
        one_line(text("why"), 100),
        number("salvaged"),
        number("from_folders"),
        number("lost"),
    )
}

async fn check(options: AuditVerifyOptions) -> ExitCode {
    let folder = match folder(options.state) {
        Ok(folder) => folder,
        Err(error) => return complain_of(&error),
    };
    let path = folder.audit();
    let verified = match verify(&path) {
        Ok(verified) => verified,
        Err(error) => return complain(&format!("the audit log cannot be read: {error}")),
    };
    let (mut heads, uncompared) = match anchors(folder).await {
        Ok(heads) => (heads, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    if let Some(file) = &options.heads {
        match sent(file) {
            Ok(sent) => heads = newest_of_each(sent.into_iter().chain(heads)),
            Err(problem) => return complain(&problem),
        }
    }
    let tampering = match compare(&path, &heads) {
        Ok(tampering) => tampering,
        Err(error) => return complain(&format!("the audit log cannot be read: {error}")),
    };
    if options.json {
        let known: Vec<Value> = tampering.iter().map(|(how, head)| json!([how, head])).collect();
        let mut report = serde_json::to_value(&verified).unwrap_or_default();
        if let Value::Object(fields) = &mut report {
            let anchored = heads.first().map(|head| head.length);
            fields.insert("anchored_bytes".into(), json!(anchored));
            fields.insert("tampering".into(), json!(known));
            fields.insert("uncompared".into(), json!(uncompared));
        }
        print_json(&report);
    }
    if let Some((line, problem)) = &verified.broken {
        return complain(&format!("line {line} of the audit log is wrong: {problem}"));
    }
    if let Some(told) = tampering.first().map(|(how, head)| told(how, head, &path)) {
        return complain(&told);
    }
    if let Some(problem) = uncompared {
        return complain(&format!("the audit log was not compared with the ledger: {problem}"));
    }
    if options.json {
        return ExitCode::SUCCESS;
    }
    print(&format!("{} lines, all whole\n", verified.lines))
}

/// The heads that were sent elsewhere, the newest first.
fn sent(file: &Path) -> Result<Vec<AuditHead>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let heads = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let heads = heads.map(|(number, line)| {
        // The system's log puts its own words before ours.
        let line = line.find('{').and_then(|at| line.get(at..)).unwrap_or(line);
        serde_json::from_str(line).map_err(|error| format!("{shown}:{}: {error}", number + 1))
    });
    let mut heads: Vec<AuditHead> = heads.collect::<Result<_, _>>()?;
    heads.reverse();
    Ok(heads)
}

/// The longest head of each log, in the order in which the logs come: if that holds, and the chain
/// does, all shorter ones do.
fn newest_of_each(heads: impl Iterator<Item = AuditHead>) -> Vec<AuditHead> {
    let mut newest: Vec<AuditHead> = Vec::new();
    for head in heads {
        match newest.iter_mut().find(|known| known.log == head.log) {
            Some(known) if known.length < head.length => *known = head,
            Some(_) => {}
            None => newest.push(head),
        }
    }
    newest
}

/// What the ledger knows of the log.
async fn anchors(folder: StateFolder) -> Result<Vec<AuditHead>, LedgerError> {
    Ledger::open(Arc::new(folder))?.audit_anchors().await
}

/// What is wrong with a log, for a person.
fn told(how: &Tampering, head: &AuditHead, path: &Path) -> String {
    let (log, length) = (path.display(), head.length);
    match how {
        Tampering::Missing => format!(
            "the audit log is missing: the ledger knows one of {length} bytes, and neither {log} nor a file \
             beside it is that"
        ),
        Tampering::Cut => {
            format!(
                "the audit log is cut: the ledger knows {length} bytes of {log}, and it has fewer"
            )
        }
        Tampering::Rewritten => format!(
            "the audit log was rewritten: the line that ends at byte {length} of {log} is not the one that the \
             ledger knows"
        ),
    }
}
