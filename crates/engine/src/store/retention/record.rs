//! What a clean-up leaves for the next one, in the file `retention.json`: what it saw of the
//! clocks, and what it has removed and not noted in the audit log yet.

use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::clock::Evidence;
use crate::{
    plain_file::read_text,
    state::StateFolder,
    store::{
        audit::{Audit, AuditEntry},
        ledger::private_file,
    },
};

/// Most ids of removed tasks that are noted.
const IDS_NOTED: usize = 20;

/// The file. Without it the clocks are watched anew, and nothing is removed for its age meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub evidence: Evidence,
    pub removed: Option<Removed>,
}

/// What one clean-up has removed, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Removed {
    /// Whether somebody asked for it.
    pub asked: bool,
    pub days: u64,
    pub bytes_max: u64,
    /// Tasks that were older than that.
    pub by_age: u64,
    /// Tasks that were too much.
    pub by_size: u64,
    pub task_ids: Vec<String>,
}

impl Removed {
    pub(super) fn add(&mut self, task_id: &str, by_age: bool) {
        *(if by_age { &mut self.by_age } else { &mut self.by_size }) += 1;
        if self.task_ids.len() < IDS_NOTED {
            self.task_ids.push(task_id.to_owned());
        }
    }

    fn entry(&self) -> AuditEntry {
        AuditEntry::new("cleaned_up")
            .own("asked", &self.asked)
            .own("tasks", &(self.by_age + self.by_size))
            .own("by_age", &self.by_age)
            .own("by_size", &self.by_size)
            .own("days", &self.days)
            .own("bytes_max", &self.bytes_max)
            .own("task_ids", &self.task_ids)
    }
}

impl Record {
    pub(super) fn read(state: &StateFolder) -> Self {
        let text = match read_text(&state.path().join("retention.json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            text => text,
        };
        let read = text.map_err(|error| error.to_string());
        let read = read.and_then(|text| serde_json::from_str(&text).map_err(|it| it.to_string()));
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "retention.json is begun anew");
            Self::default()
        })
    }

    /// Writes it. Where nothing can be written, as on a full disk, it is still cleaned up.
    pub(super) fn write(&self, state: &StateFolder) {
        if let Err(error) = self.try_write(state) {
            tracing::warn!(%error, "retention.json cannot be written");
        }
    }

    /// Writes it beside its place, and moves it there: it is there as a whole.
    fn try_write(&self, state: &StateFolder) -> io::Result<()> {
        let new = state.path().join("retention.json.new");
        let file = private_file(&new)?;
        file.set_len(0)?;
        serde_json::to_writer(&file, self)?;
        fs::rename(&new, state.path().join("retention.json"))
    }

    /// Notes what was removed, in the audit log; what cannot be noted is left for the next
    /// clean-up.
    pub(super) fn note(&mut self, state: &StateFolder) {
        if let Some(removed) = self.removed.take().filter(|it| it.by_age + it.by_size > 0) {
            let noted = Audit::open(state).and_then(|it| it.append_now(&removed.entry()));
            if let Err(error) = noted {
                tracing::warn!(%error, "what was removed is not in the audit log yet");
                self.removed = Some(removed);
            }
        }
        self.write(state);
    }
}
