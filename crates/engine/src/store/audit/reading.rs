//! Reads the audit log: its entries, whether its chain holds, and whether it is the log that the
//! ledger knows. Nothing is written.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AuditHead, GENESIS, TAIL_BYTES, digest, split};
use crate::platform::FileExt;

/// What a line has that tells of a repair; in a text the quotes would be escaped.
const REPAIRED: [&[u8]; 2] = [b"\"event\":\"rebuilt\"", b"\"event\":\"set_aside\""];

/// What a check of the log found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Lines that were checked.
    pub lines: u64,
    /// Notes of repairs among them.
    pub repairs: u64,
    /// The first line that is wrong, counted from 1, and what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<(u64, String)>,
}

/// The entries that tell what was repaired in the state folder, oldest first.
pub fn repairs(path: &Path) -> io::Result<Vec<Value>> {
    let mut found = Vec::new();
    for line in BufReader::new(open_to_read(path)?).split(b'\n') {
        let line = line?;
        // Reading every line as JSON would take a hundred times as long.
        if REPAIRED.iter().any(|mark| line.windows(mark.len()).any(|part| part == *mark)) {
            found.extend(serde_json::from_slice(&line).ok());
        }
    }
    Ok(found)
}

/// Checks the whole chain.
pub fn verify(path: &Path) -> io::Result<Verified> {
    let mut verified = Verified { lines: 0, repairs: 0, broken: None };
    let mut previous = GENESIS.to_owned();
    let mut reader = BufReader::new(open_to_read(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(verified);
        }
        let number = verified.lines + 1;
        match check(&line, &previous) {
            Ok((hash, repaired)) => {
                verified.lines = number;
                verified.repairs += u64::from(repaired);
                previous = hash;
            }
            Err(problem) => {
                verified.broken = Some((number, problem));
                return Ok(verified);
            }
        }
    }
}

/// Checks one line; returns its hash, and whether it notes a repair.
fn check(line: &[u8], previous: &str) -> Result<(String, bool), String> {
    let Some(line) = line.strip_suffix(b"\n") else {
        return Err("it is torn: the next entry will note that".into());
    };
    let text = std::str::from_utf8(line).map_err(|_| "it is no text")?;
    let (body, hash) = split(text).ok_or("it has no hash")?;
    if digest(body) != hash {
        return Err("its hash is not that of its content".into());
    }
    let entry: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    if entry.get("prev").and_then(Value::as_str) != Some(previous) {
        return Err("it does not follow the line before it: something was removed or put in".into());
    }
    let repaired = entry.get("event").is_some_and(|event| event == "repaired");
    Ok((hash.to_owned(), repaired))
}

/// A way in which the log is not what the ledger knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tampering {
    /// There is no log.
    Missing,
    /// Its end is gone.
    Cut,
    /// The line that the ledger knows is another one.
    Rewritten,
}

/// Compares the logs in a state folder with the heads that its ledger knows, the newest first; a
/// log that was moved aside counts for as long as it is there, as `audit.jsonl` with something
/// behind it.
pub fn compare(path: &Path, heads: &[AuditHead]) -> io::Result<Vec<(Tampering, AuditHead)>> {
    let mut wrong = Vec::new();
    for (age, head) in heads.iter().enumerate() {
        let found = look_at(path, head)?;
        let Some(tampering) = found else { continue };
        if kept_aside(path, head)? {
            continue;
        }
        // Of an older log nothing is known but that it is not there.
        let tampering = if age == 0 { tampering } else { Tampering::Missing };
        wrong.push((tampering, head.clone()));
    }
    Ok(wrong)
}

/// What is wrong with a log, if it is the one of this head.
fn look_at(path: &Path, head: &AuditHead) -> io::Result<Option<Tampering>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Tampering::Missing));
        }
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() < head.length {
        return Ok(Some(Tampering::Cut));
    }
    let start = head.length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(head.length - start).unwrap_or(0)];
    file.read_exact_at(&mut tail, start)?;
    let line =
        tail.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
    let line = line.and_then(|line| str::from_utf8(line).ok());
    let same = line.and_then(split).is_some_and(|(_, hash)| hash == head.hash);
    Ok((!same).then_some(Tampering::Rewritten))
}

/// Whether a log of this head lies beside the one that is written now.
fn kept_aside(path: &Path, head: &AuditHead) -> io::Result<bool> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    for entry in fs::read_dir(folder)?.flatten() {
        let beside = entry.file_name() != name
            && entry.file_name().as_encoded_bytes().starts_with(name.as_encoded_bytes());
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if beside && is_file && look_at(&entry.path(), head)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the entries, one after the other; a line that is no entry is passed over.
pub fn entries(path: &Path) -> io::Result<impl Iterator<Item = Value> + use<>> {
    let lines = BufReader::new(open_to_read(path)?).split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_slice(&line).ok()))
}

fn open_to_read(path: &Path) -> io::Result<Box<dyn Read>> {
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        // Nothing has been noted yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(io::empty())),
        Err(error) => Err(error),
    }
}
