//! The audit log: every verdict and outcome as a line of JSON, each with the hash of the one
//! before.
//!
//! All processes of a state folder append to the same file, one at a time under its lock. Whoever
//! changes, removes or inserts a line breaks the chain from there on, and [`verify`] names the
//! place. A line that was torn by a crash or a full disk is cut off by the next append, which notes
//! that it did. A file in which there is no entry at all is set aside by it; the log that is begun
//! in its place says so in its first line.

mod entry;
mod reading;

use std::{
    borrow::Cow,
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

pub(crate) use self::entry::AuditEntry;
pub use self::reading::{Tampering, Verified, compare, entries, repairs, verify};
pub use super::anchor::AuditHead;
use crate::{
    output::Mask,
    platform::{FileExt as _, FlockOperation, flock, look_at as look_at_file},
    state::{
        Repair, SetAside, StateFolder,
        aside::{FileKind, set_aside, set_aside_strange},
    },
    store::{
        anchor::SharedHead,
        ledger::{FileId, private_file},
    },
    threads::in_thread,
};

/// What the first line follows.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Bytes that are read at the end of the file to find its last line: few at first, which is nearly
/// always enough.
const SHORT_TAIL_BYTES: u64 = 8 * 1024;
const TAIL_BYTES: u64 = 512 * 1024;

/// What a line begins with.
const LINE_BEGINS: &[u8] = b"{\"prev\":\"";

/// What stands between a line's body and its hash.
const HASH_KEY: &str = ",\"hash\":\"";

/// The audit log, as one process appends to it.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    shared: Arc<Mutex<Appender>>,
}

#[derive(Debug)]
struct Appender {
    path: PathBuf,
    tell: fn(&Repair),
    file: File,
    /// Which file that is: another one may come to stand in its place.
    id: FileId,
    /// Where our last append ended, and the hash of that line: if the file still ends there, nobody
    /// else has appended since.
    last: Option<(u64, String)>,
    /// What stood in its place, and is neither noted nor told yet.
    moved: Vec<SetAside>,
    /// Where the log ends, for the ledger.
    head: SharedHead,
}

impl Audit {
    /// Opens the log of a state folder, or makes it, readable by its owner only.
    pub(crate) fn open(state: &StateFolder) -> io::Result<Self> {
        let appender = Appender::open(state.audit(), state.tell)?;
        Ok(Self { shared: Arc::new(Mutex::new(appender)) })
    }

    /// Says from now on where the log ends.
    pub(super) fn tell_head(&self, head: SharedHead) {
        self.lock().head = head;
    }

    /// Appends an entry, without its secrets; waits in a thread if another process is just doing
    /// that.
    pub(crate) async fn append(&self, entry: AuditEntry, mask: &Mask) -> io::Result<()> {
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
    pub(crate) fn append_now(&self, entry: &AuditEntry) -> io::Result<()> {
        self.lock().append(entry, FlockOperation::LockExclusive)
    }

    fn lock(&self) -> MutexGuard<'_, Appender> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often the log is opened anew for one entry, because another file stands in its place.
const OPENS_MAX: u32 = 10;

/// Where the log ends.
struct End {
    /// After its last whole line.
    at: u64,
    /// The hash of that line.
    hash: String,
    /// Bytes of a torn line behind it.
    torn_bytes: u64,
}

impl Appender {
    fn open(path: PathBuf, tell: fn(&Repair)) -> io::Result<Self> {
        let moved = set_aside_strange(&path, FileKind::File)?;
        let file = private_file(&path)?;
        let id = FileId::of(&file)?;
        let moved = moved.into_iter().collect();
        Ok(Self { path, tell, file, id, last: None, moved, head: SharedHead::default() })
    }

    fn append(&mut self, entry: &AuditEntry, how: FlockOperation) -> io::Result<()> {
        for _ in 0..OPENS_MAX {
            flock(&self.file, how)?;
            let appended = self.append_locked(entry);
            let _ = flock(&self.file, FlockOperation::Unlock);
            match appended {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let (moved, head) = (std::mem::take(&mut self.moved), self.head.clone());
                    *self = Self::open(self.path.clone(), self.tell)?;
                    self.moved.extend(moved);
                    self.head = head;
                }
                Err(error) => {
                    self.last = None;
                    return Err(error);
                }
            }
        }
        Err(io::Error::other("the audit log is replaced again and again"))
    }

    /// Appends an entry; says no if another log has to be opened first.
    fn append_locked(&mut self, entry: &AuditEntry) -> io::Result<bool> {
        // One look for both, which file it is and where it ends.
        let Ok(found) = look_at_file(&self.path) else { return Ok(false) };
        if FileId::from(found) != self.id {
            return Ok(false);
        }
        let size = found.bytes;
        let known = match &self.last {
            Some((at, hash)) if *at == size => {
                Some(End { at: size, hash: hash.clone(), torn_bytes: 0 })
            }
            _ => end_of(&self.file, size)?,
        };
        let Some(End { mut at, hash: mut previous, torn_bytes }) = known else {
            self.moved.push(set_aside(&self.path, "has no entry of an audit log in it".into())?);
            return Ok(false);
        };
        let mut text = String::new();
        if torn_bytes > 0 {
            self.file.set_len(at)?;
            let note = AuditEntry::new("repaired").with("torn_bytes", torn_bytes);
            previous = add_line(&mut text, &note, &previous);
        }
        for moved in &self.moved {
            previous = add_line(&mut text, &AuditEntry::of_moved(moved), &previous);
        }
        previous = add_line(&mut text, entry, &previous);
        self.file.write_all_at(text.as_bytes(), at)?;
        at += text.len() as u64;
        let hash = previous.clone();
        self.head.set(AuditHead { log: self.id.number(), length: at, hash });
        self.last = Some((at, previous));
        for moved in self.moved.drain(..) {
            (self.tell)(&Repair::SetAside(moved));
        }
        Ok(true)
    }
}

/// Notes a repair in the audit log.
pub(super) fn note_repair(state: &StateFolder, repair: &Repair) {
    let entry = AuditEntry::of_repair(repair);
    if let Err(error) = Audit::open(state).and_then(|audit| audit.append_now(&entry)) {
        tracing::warn!(%error, "a repair is not in the audit log");
    }
}

/// Adds an entry as a line, and returns its hash.
fn add_line(text: &mut String, entry: &AuditEntry, previous: &str) -> String {
    let body = entry.body(previous);
    let hash = digest(&body);
    text.extend([&body, HASH_KEY, &hash, "\"}\n"]);
    hash
}

fn digest(body: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(body.as_bytes()))
}

/// Where the log ends; none if nothing of what is there is an entry.
fn end_of(file: &File, size: u64) -> io::Result<Option<End>> {
    let tail = Tail::read(file, size, SHORT_TAIL_BYTES)?;
    if let Some(line) = tail.last_line()
        && let Some((_, hash)) = split(&line)
    {
        return Ok(Some(tail.end(hash.to_owned())));
    }
    let tail = Tail::read(file, size, TAIL_BYTES)?;
    if tail.lines_bytes == 0 {
        // Nothing yet, or a first line that was torn.
        let is_beginning =
            LINE_BEGINS.starts_with(&tail.bytes) || tail.bytes.starts_with(LINE_BEGINS);
        let is_ours = tail.start == 0 && is_beginning;
        return Ok(is_ours.then(|| tail.end(GENESIS.into())));
    }
    let mut lines = tail.lines();
    let last = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let hash = match split(&last) {
        Some((_, hash)) => hash.to_owned(),
        // A line that was altered stays where it is: it breaks the chain, which shows that.
        None if lines.any(is_entry) => digest(&last),
        None => return Ok(None),
    };
    Ok(Some(tail.end(hash)))
}

/// The last bytes of a log.
struct Tail {
    /// Where they begin.
    start: u64,
    bytes: Vec<u8>,
    /// How many of them are lines that have ended.
    lines_bytes: usize,
}

impl Tail {
    fn read(file: &File, size: u64, bytes_max: u64) -> io::Result<Self> {
        let start = size.saturating_sub(bytes_max);
        let mut bytes = vec![0; usize::try_from(size - start).unwrap_or(0)];
        file.read_exact_at(&mut bytes, start)?;
        let newline = bytes.iter().rposition(|byte| *byte == b'\n');
        Ok(Self { start, bytes, lines_bytes: newline.map_or(0, |at| at + 1) })
    }

    /// The lines that have ended, the last one first.
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let ended = self.bytes.get(..self.lines_bytes.saturating_sub(1)).unwrap_or_default();
        ended.rsplit(|byte| *byte == b'\n')
    }

    /// The last line that has ended, if all of it is here.
    fn last_line(&self) -> Option<Cow<'_, str>> {
        let mut lines = self.lines();
        let last = lines.next()?;
        (self.start == 0 || lines.next().is_some()).then(|| String::from_utf8_lossy(last))
    }

    /// The end of a log of which the last line has this hash.
    fn end(&self, hash: String) -> End {
        let at = self.start + self.lines_bytes as u64;
        End { at, hash, torn_bytes: (self.bytes.len() - self.lines_bytes) as u64 }
    }
}

/// Whether a line looks like one of ours.
fn is_entry(line: &[u8]) -> bool {
    line.starts_with(LINE_BEGINS) && str::from_utf8(line).is_ok_and(|line| split(line).is_some())
}

/// The body and the hash of a line.
fn split(line: &str) -> Option<(&str, &str)> {
    let (body, rest) = line.rsplit_once(HASH_KEY)?;
    Some((body, rest.strip_suffix("\"}")?))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn entry(number: i64) -> AuditEntry {
        AuditEntry::new("test").with("text", format!("\u{1b}[1m{number}\n,\"hash\":\"x\"}}"))
    }

    async fn written(count: i64) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let audit = opened(&folder);
        for number in 0..count {
            audit.append(entry(number), &Mask::default()).await.unwrap();
        }
        let path = folder.path().join("audit.jsonl");
        (folder, path)
    }

    fn opened(folder: &tempfile::TempDir) -> Audit {
        let state = StateFolder::open(folder.path()).unwrap();
        Audit::open(&state).unwrap()
    }

    #[tokio::test]
    async fn a_chain_of_several_appenders_holds() {
        let (folder, path) = written(3).await;
        let others: Vec<Audit> = (0..4).map(|_| opened(&folder)).collect();
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
    async fn a_chain_goes_on_behind_lines_of_any_length() {
        let (folder, path) = written(2).await;
        // Just shorter and just longer than what is read first, and much longer.
        let short = usize::try_from(SHORT_TAIL_BYTES).unwrap();
        let (rest, long) = (add_line(&mut String::new(), &entry(1), GENESIS).len(), 20 * short);
        for length in (short - rest - 400..short + 100).step_by(37).chain([long]) {
            let entry = AuditEntry::new("verdict").with("text", "x".repeat(length));
            opened(&folder).append(entry, &Mask::default()).await.unwrap();
        }
        opened(&folder).append(entry(9), &Mask::default()).await.unwrap();
        let verified = verify(&path).unwrap();
        assert_eq!((verified.repairs, verified.broken), (0, None));
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
        let (folder, path) = written(3).await;
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        assert_eq!(verify(&path).unwrap().broken.unwrap().0, 3);
        opened(&folder).append(entry(9), &Mask::default()).await.unwrap();
        assert_eq!(verify(&path).unwrap(), Verified { lines: 4, repairs: 1, broken: None });
        let noted: Vec<Value> = entries(&path).unwrap().collect();
        assert!(noted[2]["torn_bytes"].as_u64().unwrap() > 0);
    }

    #[tokio::test]
    async fn a_log_without_an_entry_is_set_aside_and_another_one_says_so() {
        for (spoilt, kept) in [
            (b"noise".to_vec(), 0),
            (b"noise\nnoise\n".to_vec(), 0),
            (vec![0xff; 600_000], 0),
            // A first line that was torn, and lines of which the last was altered.
            (LINE_BEGINS.to_vec(), 1),
            (b"{\"prev\":\"x\",\"hash\":\"y\"}\nnoise\n".to_vec(), 3),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("audit.jsonl");
            let (one, other) = (opened(&folder), opened(&folder));
            std::fs::write(&path, &spoilt).unwrap();
            one.append(entry(1), &Mask::default()).await.unwrap();
            other.append(entry(2), &Mask::default()).await.unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            if kept > 0 {
                assert_eq!(text.lines().count(), 2 + kept - usize::from(kept == 3), "{text}");
                continue;
            }
            assert!(text.lines().next().unwrap().contains("\"event\":\"set_aside\""), "{text}");
            assert_eq!(verify(&path).unwrap(), Verified { lines: 3, repairs: 0, broken: None });
            let aside = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
            let aside = aside.filter(|path| path.to_string_lossy().contains(".aside-"));
            assert_eq!(
                aside.map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(),
                [spoilt]
            );
        }
    }

    #[tokio::test]
    async fn a_log_that_was_moved_away_is_begun_anew_by_whoever_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = opened(&folder);
        audit.append(entry(1), &Mask::default()).await.unwrap();
        std::fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
        audit.append(entry(2), &Mask::default()).await.unwrap();
        assert_eq!(verify(&path).unwrap(), Verified { lines: 1, repairs: 0, broken: None });
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        audit.append(entry(3), &Mask::default()).await.unwrap();
        assert_eq!(verify(&path).unwrap(), Verified { lines: 2, repairs: 0, broken: None });
    }
}
