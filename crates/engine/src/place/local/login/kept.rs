//! Keeps what profiles say to the sandbox for the next process, in the file `logins.json`.
//!
//! It has the complaints themselves, and hashes and paths of what they depend on: nothing of the
//! environment that a profile makes, which may hold secrets. Whatever is not such a file is as
//! good as none: the profile is listened to again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{
    complaints::are_of_sandbox,
    heard::Complaints,
    key::{LoginKey, mark_of},
};
use crate::{clock::now_ms, plain_file::read_text, state::StateFolder};

/// The version of the format.
const VERSION: u32 = 1;

/// Most logins that are kept.
const KEPT_MAX: usize = 64;

/// What was heard counts for this long between processes: a program that a profile calls may have
/// come to say something else.
const AGE_MAX: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptFile {
    version: u32,
    logins: Vec<KeptLogin>,
}

/// What one login's profile says.
#[derive(Debug, Serialize, Deserialize)]
struct KeptLogin {
    key: String,
    complaints: String,
    /// Files that the profile reads, and what they were.
    sources: Vec<PathBuf>,
    sources_mark: String,
    heard_at_ms: i64,
}

impl KeptLogin {
    /// What is kept, if it still counts.
    fn complaints(self) -> Option<Complaints> {
        let age_ms = u128::try_from(now_ms().checked_sub(self.heard_at_ms)?).ok()?;
        let is_known = self.complaints.is_empty() || are_of_sandbox(self.complaints.as_bytes());
        let mark = mark_of(&self.sources);
        let counts = age_ms < AGE_MAX.as_millis() && is_known && hex(&mark) == self.sources_mark;
        counts.then(|| Complaints {
            text: self.complaints.into_bytes().into(),
            sources: self.sources.into(),
            mark,
        })
    }
}

/// What is kept of a login, if it still counts. Reads the disk.
pub(super) fn read(state: &StateFolder, key: &LoginKey) -> Option<Complaints> {
    let key = hex(key);
    read_all(state).into_iter().find(|login| login.key == key)?.complaints()
}

/// The file of what login profiles say to the sandbox.
fn logins_file(state: &StateFolder) -> PathBuf {
    state.path().join("logins.json")
}

fn read_all(state: &StateFolder) -> Vec<KeptLogin> {
    let text = match read_text(&logins_file(state)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        text => text,
    };
    let read = text.map_err(|error| error.to_string());
    let read: Result<KeptFile, _> =
        read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    match read {
        Ok(file) if file.version == VERSION => file.logins,
        Ok(file) => {
            tracing::debug!(version = file.version, "logins.json is of another version");
            Vec::new()
        }
        Err(error) => {
            tracing::debug!(%error, "logins.json is begun anew");
            Vec::new()
        }
    }
}

/// Keeps what was heard of a login. Writes to the disk; where that cannot be done, the next process
/// listens again.
pub(super) fn write(state: &StateFolder, key: &LoginKey, complaints: &Complaints) {
    if let Err(error) = try_write(state, key, complaints) {
        tracing::debug!(%error, "logins.json cannot be written");
    }
}

fn try_write(state: &StateFolder, key: &LoginKey, complaints: &Complaints) -> io::Result<()> {
    let text = str::from_utf8(&complaints.text).map_err(io::Error::other)?;
    let login = KeptLogin {
        key: hex(key),
        complaints: text.to_owned(),
        sources: complaints.sources.to_vec(),
        sources_mark: hex(&complaints.mark),
        heard_at_ms: now_ms(),
    };
    // Of two processes that write, none may lose what the other one has written.
    let alone = File::open(state.path())?;
    flock(&alone, FlockOperation::LockExclusive)?;
    let mut logins = read_all(state);
    logins.retain(|kept| kept.key != login.key);
    logins.push(login);
    logins.drain(..logins.len().saturating_sub(KEPT_MAX));
    let bytes = serde_json::to_vec(&KeptFile { version: VERSION, logins })?;
    let new = logins_file(state).with_extension("json.new");
    // Whatever an interrupted write has left is not written to: it may be another kind of file.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    fs::rename(&new, logins_file(state))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn complaints(text: &str, sources: &[PathBuf]) -> Complaints {
        let mark = mark_of(sources);
        Complaints { text: text.as_bytes().into(), sources: sources.into(), mark }
    }

    #[test]
    fn what_was_heard_is_kept_until_a_file_changes_that_the_profile_reads() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateFolder::open(scratch.path()).unwrap();
        let source = scratch.path().join("sourced");
        fs::write(&source, "one").unwrap();
        let heard = complaints("x: Permission denied\n", std::slice::from_ref(&source));
        assert_eq!(read(&state, &[1; 32]), None);
        write(&state, &[1; 32], &heard);
        write(&state, &[2; 32], &complaints("", &[]));
        assert_eq!(read(&state, &[1; 32]), Some(heard));
        assert_eq!(read(&state, &[2; 32]), Some(complaints("", &[])));
        assert_eq!(read(&state, &[3; 32]), None);
        let mode = fs::metadata(logins_file(&state)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&source, "another").unwrap();
        assert_eq!(read(&state, &[1; 32]), None);
    }

    #[test]
    fn a_file_that_is_garbled_old_or_of_another_version_is_as_good_as_none() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateFolder::open(scratch.path()).unwrap();
        let (heard, key) = (complaints("x: Permission denied\n", &[]), [7; 32]);
        write(&state, &key, &heard);
        let text = fs::read_to_string(logins_file(&state)).unwrap();
        let now = now_ms();
        let at = |text: &str, ms: i64| {
            let begin = text.split_once("heard_at_ms\":").unwrap().0;
            format!("{begin}heard_at_ms\":{ms}}}]}}")
        };
        for (case, spoilt) in [
            ("nothing", String::new()),
            ("cut short", text[..text.len() / 2].to_owned()),
            ("another version", text.replace("\"version\":1", "\"version\":2")),
            ("words that are none of the sandbox", text.replace("Permission denied", "hello")),
            ("of the future", at(&text, now + 60_000)),
            ("too old", at(&text, now - 2 * 60 * 60 * 1000)),
        ] {
            assert_ne!(spoilt, text, "{case}");
            fs::write(logins_file(&state), spoilt).unwrap();
            assert_eq!(read(&state, &key), None, "{case}");
            write(&state, &key, &heard);
            assert_eq!(read(&state, &key).as_ref(), Some(&heard), "{case}");
        }
        for number in 0..=u8::MAX {
            write(&state, &[number; 32], &heard);
        }
        assert_eq!(read_all(&state).len(), KEPT_MAX);
    }
}
