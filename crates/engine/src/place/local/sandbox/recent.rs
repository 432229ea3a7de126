//! Lists the tasks whose artifacts a sandboxed command may read: the latest of its workspace.
//!
//! One small file a workspace, shared by every process: a line for each run that has a folder. It
//! costs nothing where no run has one, and no question to the ledger where some have.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    id::TaskId,
    state::{
        aside::{FileKind, set_aside_strange},
        make_private,
    },
};

/// How many are shown.
const SHOWN: usize = 32;

/// A line is an id and a newline.
const LINE_BYTES: u64 = 32;

/// Past this size the file is begun anew with its last lines.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The latest tasks of a workspace that have a folder.
#[derive(Debug)]
pub(crate) struct Recent {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The file's size when it was read.
    bytes: u64,
    ids: Vec<String>,
}

impl Recent {
    pub(crate) fn new(state: &Path, workspace: &str) -> Self {
        Self { path: state.join("recent").join(workspace), known: Mutex::default() }
    }

    /// Adds a task; what cannot be noted is not shown.
    pub(crate) fn add(&self, id: &TaskId) {
        if self.shown().iter().any(|known| known == id.as_str()) {
            return;
        }
        if let Err(error) = self.append(id) {
            tracing::debug!(%error, "its artifacts will not be shown to sandboxed commands");
        }
    }

    fn append(&self, id: &TaskId) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            make_private(folder)?;
        }
        set_aside_strange(&self.path, FileKind::File)?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let (bytes, known) = (file.metadata()?.len(), self.shown());
        let is_noise = bytes > 0 && known.is_empty();
        if is_noise || bytes > FILE_BYTES_MAX {
            let kept: String = known.iter().rev().map(|id| format!("{id}\n")).collect();
            let fresh = self.path.with_extension("new");
            set_aside_strange(&fresh, FileKind::File)?;
            fs::write(&fresh, kept)?;
            fs::rename(&fresh, &self.path)?;
            file = OpenOptions::new().append(true).open(&self.path)?;
        }
        file.write_all(format!("{id}\n").as_bytes())
    }

    /// The latest ones.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = fs::metadata(&self.path).map_or(0, |data| data.len());
        if bytes != known.bytes {
            known.ids = self.read(bytes).unwrap_or_default();
            known.bytes = bytes;
        }
        known.ids.clone()
    }

    fn read(&self, bytes: u64) -> io::Result<Vec<String>> {
        let tail = bytes.min(LINE_BYTES * SHOWN as u64);
        let mut buffer = vec![0; usize::try_from(tail).unwrap_or(0)];
        File::open(&self.path)?.read_exact_at(&mut buffer, bytes - tail)?;
        let text = String::from_utf8_lossy(&buffer);
        let lines: Vec<&str> = text.lines().filter(|line| TaskId::parse(line).is_some()).collect();
        Ok(lines.iter().rev().take(SHOWN).map(|line| (*line).to_owned()).collect())
    }
}
