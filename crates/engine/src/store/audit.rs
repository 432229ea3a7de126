//! The audit log: every verdict and outcome as a line of JSON, each with the hash of the one before.
//!
//! All processes of a state folder append to the same file, one at a time under its lock. Whoever changes,
//! removes or inserts a line breaks the chain from there on, and [`verify`] names the place. A line that was
//! torn by a crash or a full disk is cut off by the next append, which notes that it did.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, flock, fstat};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{clock::now_ms, model::Caller, output::Mask, threads::in_thread};

/// What the first line follows.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Bytes that are read at the end of the file to find its last line.
const TAIL_BYTES: u64 = 512 * 1024;

/// What stands between a line's body and its hash.
const HASH_KEY: &str = ",\"hash\":\"";

/// What a line has that tells of a rebuild; in a text the quotes would be escaped.
const REBUILT: &[u8] = b"\"event\":\"rebuilt\"";

/// The audit log, as one process appends to it.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    shared: Arc<Mutex<Appender>>,
}

#[derive(Debug)]
struct Appender {
    file: File,
    /// Where our last append ended, and the hash of that line: if the file still ends there, nobody else
    /// has appended since.
    last: Option<(u64, String)>,
}

impl Audit {
    /// Opens the log, or makes it, readable by its owner only.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        Ok(Self { shared: Arc::new(Mutex::new(Appender { file, last: None })) })
    }

    /// Appends an entry, without its secrets; waits in a thread if another process is just doing that.
    pub(crate) async fn append(&self, entry: Entry, mask: &Mask) -> io::Result<()> {
        let entry = entry.shown(mask);
        match self.lock().append(&entry, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        let audit = self.clone();
        let patient = move || audit.lock().append(&entry, FlockOperation::LockExclusive);
        let waited = Box::pin(in_thread(patient)).await;
        waited.unwrap_or_else(|| Err(io::Error::other("the wait was cut off")))
    }

    /// Appends an entry that has nothing of a command in it, waiting for whoever else does.
    pub(crate) fn append_now(&self, entry: &Entry) -> io::Result<()> {
        self.lock().append(entry, FlockOperation::LockExclusive)
    }

    fn lock(&self) -> MutexGuard<'_, Appender> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most characters of a text that a line holds; a command's digest is of all of it.
const TEXT_CHARS: usize = 4096;

/// What is noted.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The line from its time on, as far as it is in words of our own, in which there are no secrets.
    own: String,
    /// What others have said.
    foreign: Vec<(&'static str, Value)>,
}

impl Entry {
    /// Something that happens now.
    pub(crate) fn new(event: &'static str) -> Self {
        let at_ms = now_ms();
        let own = format!(",\"at_ms\":{at_ms},\"event\":\"{event}\"");
        Self { own, foreign: Vec::new() }
    }

    /// The same with one more thing that is known of it, by whomever it was said.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.foreign.push((name, value.into()));
        self
    }

    /// The same with something in our own words.
    #[must_use]
    pub(crate) fn own(mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        // Nothing that is noted here can fail to be written as JSON.
        let value = serde_json::to_string(value).unwrap_or_default();
        self.own.extend([",\"", name, "\":", &value]);
        self
    }

    /// The line without its hash and what closes it.
    fn body(&self, previous: &str) -> String {
        let mut body = String::with_capacity(LINE_BYTES);
        body.extend(["{\"prev\":\"", previous, "\"", &self.own]);
        for (name, value) in &self.foreign {
            // Writing to a string cannot fail.
            let _ = write!(body, ",\"{name}\":{value}");
        }
        body
    }

    /// The same with who asked.
    #[must_use]
    pub(crate) fn by(self, caller: &Caller) -> Self {
        self.own("trust", caller.trust.as_str()).with("asked_by", caller.name.as_str())
    }

    /// The same with a command.
    #[must_use]
    pub(crate) fn command(self, text: &str) -> Self {
        self.own("command_digest", &digest(text)).with("command", text)
    }

    /// The same as it is written down: secrets masked, and only then what is very long cut.
    fn shown(mut self, mask: &Mask) -> Self {
        for (_, value) in &mut self.foreign {
            mask.json(value);
            if let Value::String(text) = value
                && let Some((end, _)) = text.char_indices().nth(TEXT_CHARS)
            {
                text.truncate(end);
            }
        }
        self
    }
}

/// Bytes of a usual line.
const LINE_BYTES: usize = 1024;

impl Appender {
    fn append(&mut self, entry: &Entry, how: FlockOperation) -> io::Result<()> {
        flock(&self.file, how)?;
        let result = self.append_locked(entry);
        let _ = flock(&self.file, FlockOperation::Unlock);
        if result.is_err() {
            self.last = None;
        }
        result
    }

    fn append_locked(&mut self, entry: &Entry) -> io::Result<()> {
        let size = fstat(&self.file)?.st_size.cast_unsigned();
        let (mut at, mut previous, torn_bytes) = match &self.last {
            Some((end, hash)) if *end == size => (size, hash.clone(), 0),
            _ => end_of(&mut self.file, size)?,
        };
        let mut text = String::new();
        if torn_bytes > 0 {
            self.file.set_len(at)?;
            let note = Entry::new("repaired").with("torn_bytes", torn_bytes);
            previous = add_line(&mut text, &note, &previous);
        }
        previous = add_line(&mut text, entry, &previous);
        self.file.write_all_at(text.as_bytes(), at)?;
        at += text.len() as u64;
        self.last = Some((at, previous));
        Ok(())
    }
}

/// Adds an entry as a line, and returns its hash.
fn add_line(text: &mut String, entry: &Entry, previous: &str) -> String {
    let body = entry.body(previous);
    let hash = digest(&body);
    text.extend([&body, HASH_KEY, &hash, "\"}\n"]);
    hash
}

fn digest(body: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(body.as_bytes()))
}

/// Where the last whole line ends, its hash, and how many bytes of a torn one follow.
fn end_of(file: &mut File, size: u64) -> io::Result<(u64, String, u64)> {
    let start = size.saturating_sub(TAIL_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let Some(newline) = tail.iter().rposition(|byte| *byte == b'\n') else {
        return Ok((start, GENESIS.into(), size - start));
    };
    let whole = tail.get(..newline).unwrap_or_default();
    let line = whole.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let hash = split(&line).map_or_else(|| digest(&line), |(_, hash)| hash.to_owned());
    let end = start + newline as u64 + 1;
    Ok((end, hash, size.saturating_sub(end)))
}

/// The body and the hash of a line.
fn split(line: &str) -> Option<(&str, &str)> {
    let (body, rest) = line.rsplit_once(HASH_KEY)?;
    Some((body, rest.strip_suffix("\"}")?))
}

/// What a check of the log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Lines that were checked.
    pub lines: u64,
    /// Notes of repairs among them.
    pub repairs: u64,
    /// The first line that is wrong, counted from 1, and what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub broken: Option<(u64, String)>,
}

/// The entries that tell of a rebuild of the ledger, oldest first.
pub fn rebuilds(path: &Path) -> io::Result<Vec<Value>> {
    let mut found = Vec::new();
    for line in BufReader::new(open_to_read(path)?).split(b'\n') {
        let line = line?;
        // Reading every line as JSON would take a hundred times as long.
        if line.windows(REBUILT.len()).any(|part| part == REBUILT) {
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

/// Reads the entries, one after the other; a line that is no entry is passed over.
pub fn entries(path: &Path) -> io::Result<impl Iterator<Item = Value> + use<>> {
    let lines = BufReader::new(open_to_read(path)?).lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()))
}

fn open_to_read(path: &Path) -> io::Result<Box<dyn Read>> {
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        // Nothing has been noted yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(io::empty())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn entry(number: i64) -> Entry {
        Entry::new("test").with("text", format!("\u{1b}[1m{number}\n,\"hash\":\"x\"}}"))
    }

    async fn written(count: i64) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        for number in 0..count {
            audit.append(entry(number), &Mask::default()).await.unwrap();
        }
        (folder, path)
    }

    #[tokio::test]
    async fn a_chain_of_several_appenders_holds() {
        let (_folder, path) = written(3).await;
        let others: Vec<Audit> = (0..4).map(|_| Audit::open(&path).unwrap()).collect();
        for number in 0..20 {
            for audit in &others {
                audit.append(entry(number), &Mask::default()).await.unwrap();
            }
        }
        let verified = verify(&path).unwrap();
        assert_eq!(verified, Verified { lines: 83, repairs: 0, broken: None });
        assert_eq!(entries(&path).unwrap().count(), 83);
    }

    #[tokio::test]
    async fn every_changed_byte_is_found() {
        let (_folder, path) = written(4).await;
        let whole = std::fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            let line = whole[..place].split(|byte| *byte == b'\n').count() as u64;
            let (broken, _) = verify(&path).unwrap().broken.unwrap();
            // A newline that is gone joins two lines.
            assert!(broken == line || broken == line + 1, "byte {place}: {broken} for {line}");
        }
    }

    #[tokio::test]
    async fn a_removed_line_is_found() {
        let (_folder, path) = written(4).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let kept: Vec<&str> =
            text.lines().enumerate().filter(|(n, _)| *n != 1).map(|(_, l)| l).collect();
        std::fs::write(&path, kept.join("\n") + "\n").unwrap();
        assert_eq!(verify(&path).unwrap().broken.unwrap().0, 2);
    }

    #[tokio::test]
    async fn a_torn_line_is_cut_off_and_noted() {
        let (_folder, path) = written(3).await;
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(verify(&path).unwrap().broken.unwrap().0, 3);
        Audit::open(&path).unwrap().append(entry(9), &Mask::default()).await.unwrap();
        assert_eq!(verify(&path).unwrap(), Verified { lines: 4, repairs: 1, broken: None });
        let noted: Vec<Value> = entries(&path).unwrap().collect();
        assert!(noted[2]["torn_bytes"].as_u64().unwrap() > 0);
    }
}
