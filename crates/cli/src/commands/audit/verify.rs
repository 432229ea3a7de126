//! `legwork audit verify`: finds lines of the audit log that were changed, removed or inserted.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

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
    let examined = match examine(folder, options.heads.as_deref()).await {
        Ok(examined) => examined,
        Err(problem) => return complain(&problem),
    };
    if options.json {
        print_json(&examined.json());
    }
    match examined.problem() {
        Some(problem) => complain(&problem),
        None if options.json => ExitCode::SUCCESS,
        None => {
            let lines = examined.verified.lines;
            print(&format!("{lines} lines, none changed, removed or inserted\n"))
        }
    }
}

/// What was found out about a log.
#[derive(Debug)]
pub(crate) struct ExaminedLog {
    path: PathBuf,
    verified: Verified,
    /// The heads that it was compared with.
    heads: Vec<AuditHead>,
    tampering: Vec<(Tampering, AuditHead)>,
    /// Why it was not compared with the ledger.
    uncompared: Option<String>,
}

/// Reads the whole log of a state folder, and compares it with what the ledger knows of it, and
/// with heads that were sent elsewhere.
pub(crate) async fn examine(
    folder: StateFolder,
    sent_to: Option<&Path>,
) -> Result<ExaminedLog, String> {
    let path = folder.audit();
    let (mut heads, uncompared) = match anchors(folder).await {
        Ok(heads) => (heads, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    if let Some(file) = sent_to {
        heads = newest_of_each(sent(file)?.into_iter().chain(heads));
    }
    // In a thread: a log can be long.
    let read = tokio::task::spawn_blocking(move || -> io::Result<ExaminedLog> {
        let (verified, tampering) = (verify(&path)?, compare(&path, &heads)?);
        Ok(ExaminedLog { path, verified, heads, tampering, uncompared })
    });
    let read = read.await.map_err(io::Error::other).and_then(|read| read);
    read.map_err(|error| format!("cannot read the audit log: {error}"))
}

impl ExaminedLog {
    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some((line, problem)) = &self.verified.broken {
            return Some(format!("line {line} of the audit log was changed or damaged: {problem}"));
        }
        if let Some((how, head)) = self.tampering.first() {
            return Some(told(how, head, &self.path));
        }
        let problem = self.uncompared.as_ref()?;
        Some(format!("the audit log was not compared with the ledger: {problem}"))
    }

    pub(crate) fn json(&self) -> Value {
        let known: Vec<Value> =
            self.tampering.iter().map(|(how, head)| json!([how, head])).collect();
        let mut report = serde_json::to_value(&self.verified).unwrap_or_default();
        if let Value::Object(fields) = &mut report {
            let anchored = self.heads.first().map(|head| head.length);
            fields.insert("anchored_bytes".into(), json!(anchored));
            fields.insert("tampering".into(), json!(known));
            fields.insert("uncompared".into(), json!(self.uncompared));
        }
        report
    }
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
