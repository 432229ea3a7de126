//! `legwork audit verify`: finds lines of the audit log that were changed, removed or inserted.

use std::{path::Path, process::ExitCode, sync::Arc};

use legwork::{
    Ledger, LedgerError, StateFolder,
    audit::{AuditHead, Tampering, Verified, compare, verify},
};
use serde_json::{Value, json};

use super::folder;
use crate::{
    arguments::AuditVerifyOptions,
    render::{complain, complain_of, print, print_json},
};

pub(super) async fn check(options: AuditVerifyOptions) -> ExitCode {
    let folder = match folder(&options.state) {
        Ok(Some(folder)) => folder,
        Ok(None) if options.json => return print_json(&Verified::default()),
        Ok(None) => return print("0 lines: nothing was recorded yet\n"),
        Err(error) => return complain_of(&error),
    };
    let path = folder.audit();
    let verified = match verify(&path) {
        Ok(verified) => verified,
        Err(error) => return complain(&format!("cannot read the audit log: {error}")),
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
        Err(error) => return complain(&format!("cannot read the audit log: {error}")),
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
        return complain(&format!(
            "line {line} of the audit log was changed or damaged: {problem}"
        ));
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
    print(&format!("{} lines, none changed, removed or inserted\n", verified.lines))
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
                "the audit log is cut: the ledger knows {length} bytes of {log}, and it has fewer; after a \
                 power cut its end can be lost, too"
            )
        }
        Tampering::Rewritten => format!(
            "the audit log was rewritten: the line that ends at byte {length} of {log} is not the one that the \
             ledger knows; after a power cut its end can be another one, too"
        ),
    }
}
