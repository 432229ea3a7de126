//! The audit log, read from its end.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{
    refusal::{HttpRefusal, answer, failed},
    routes::{Call, Handled},
};
use crate::commands::audit::{folder, told, verify::examine};

/// Entries on a page, if nothing is said.
const PAGE: usize = 100;

/// Most entries on a page.
const PAGE_MAX: usize = 1000;

/// Bytes that are read at a time.
const BLOCK_BYTES: u64 = 256 * 1024;

/// Most bytes that one request looks at; the next page goes on from there.
const LOOKED_AT_MAX: u64 = 32 * 1024 * 1024;

pub(in crate::http) const LIST: &[(&str, &str, &str)] = &[
    ("event", "string", "Only entries of this kind, such as verdict, outcome or approval"),
    ("verdict", "string", "Only verdicts that are allow, ask or deny"),
    ("task_id", "string", "Only entries about this task"),
    ("since_ms", "integer", "Only entries of this time or later, in ms since 1970"),
    ("before", "integer", "The next page: only entries before this place of the log"),
    ("limit", "integer", "Entries on a page: 1 to 1000, 100 by default"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    event: Option<String>,
    verdict: Option<String>,
    task_id: Option<String>,
    since_ms: Option<i64>,
    before: Option<u64>,
    limit: Option<usize>,
}

impl Wanted {
    fn wants(&self, entry: &Value) -> bool {
        let is = |name: &str, wanted: &Option<String>| {
            wanted.is_none() || entry.get(name).and_then(Value::as_str) == wanted.as_deref()
        };
        is("event", &self.event) && is("verdict", &self.verdict) && is("task_id", &self.task_id)
    }

    /// Whether an entry is older than what is asked for: all before it are, too.
    fn is_past(&self, entry: &Value) -> bool {
        let at_ms = entry.get("at_ms").and_then(Value::as_i64);
        self.since_ms.is_some_and(|since| at_ms.is_some_and(|at_ms| at_ms < since))
    }
}

pub(in crate::http) async fn list(call: Call) -> Handled {
    let wanted: Wanted = call.query()?;
    let limit = wanted.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(HttpRefusal::invalid(format!("`limit` must be 1 to {PAGE_MAX}")));
    }
    let path = call.standing.engine().state().audit();
    let read = tokio::task::spawn_blocking(move || page(&path, &wanted, limit)).await;
    match read.unwrap_or_else(|_| Err(io::Error::other("the reader was stopped"))) {
        Ok((entries, next)) => {
            let told: Vec<_> = entries.iter().map(told).collect();
            let page = json!({ "entries": entries, "told": told, "next_before": next });
            Ok(answer(StatusCode::OK, &page))
        }
        Err(error) => {
            let message = format!("the audit log cannot be read: {error}");
            Err(HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "state_unavailable", message))
        }
    }
}

/// Reads the whole log, one request at a time.
pub(in crate::http) async fn verify(call: Call) -> Handled {
    let _alone = call.face.examining.lock().await;
    let folder = match folder(&call.face.realms.place.state) {
        Ok(Some(folder)) => folder,
        Ok(None) => return Ok(answer(StatusCode::OK, &json!({ "whole": true, "lines": 0 }))),
        Err(error) => return Ok(failed(&error)),
    };
    let examined = examine(folder, None).await.map_err(|problem| {
        HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "state_unavailable", problem)
    })?;
    let (mut report, problem) = (examined.json(), examined.problem());
    if let Value::Object(fields) = &mut report {
        fields.insert("whole".into(), problem.is_none().into());
        fields.insert("problem".into(), json!(problem));
    }
    Ok(answer(StatusCode::OK, &report))
}

/// The entries that are wanted, newest first, and the place from which the next page goes on.
fn page(path: &Path, wanted: &Wanted, limit: usize) -> io::Result<(Vec<Value>, Option<u64>)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        // Nothing has been noted yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let from = wanted.before.unwrap_or(length).min(length);
    let (mut found, mut at, mut rest) = (Vec::new(), from, Vec::new());
    while at > 0 {
        if from - at >= LOOKED_AT_MAX {
            return Ok((found, Some(at + rest.len() as u64)));
        }
        let count = BLOCK_BYTES.min(at);
        at -= count;
        let mut block = vec![0; usize::try_from(count).unwrap_or_default()];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut block)?;
        block.append(&mut rest);
        // What stands before the first newline may have begun earlier.
        let mut end = block.len();
        while let Some(newline) = newline_before(&block, end) {
            let line = block.get(newline + 1..end).unwrap_or_default();
            let place = at + newline as u64 + 1;
            if take(line, wanted, &mut found) {
                return Ok((found, None));
            }
            end = newline;
            if found.len() == limit {
                return Ok((found, Some(place)));
            }
        }
        block.truncate(end);
        rest = block;
    }
    take(&rest, wanted, &mut found);
    Ok((found, None))
}

fn newline_before(block: &[u8], end: usize) -> Option<usize> {
    block.get(..end)?.iter().rposition(|byte| *byte == b'\n')
}

/// Takes a line, if it is an entry that is wanted; whether all before it are too old.
fn take(line: &[u8], wanted: &Wanted, found: &mut Vec<Value>) -> bool {
    let Ok(entry) = serde_json::from_slice::<Value>(line) else { return false };
    if wanted.is_past(&entry) {
        return true;
    }
    if wanted.wants(&entry) {
        found.push(entry);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_put_together_are_the_whole_log_backwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let long = "x".repeat(3000);
        let lines: Vec<Value> = (0..500)
            .map(|number| json!({ "number": number, "at_ms": number, "text": &long[..number * 6] }))
            .collect();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        for limit in [1, 7, 499, 500, 501] {
            let (mut all, mut before) = (Vec::new(), None);
            loop {
                let wanted = Wanted {
                    event: None,
                    verdict: None,
                    task_id: None,
                    since_ms: None,
                    before,
                    limit: None,
                };
                let (page, next) = page(&path, &wanted, limit).unwrap();
                all.extend(page);
                before = next;
                if before.is_none() {
                    break;
                }
            }
            all.reverse();
            assert_eq!(all, lines, "{limit}");
        }
    }
}
