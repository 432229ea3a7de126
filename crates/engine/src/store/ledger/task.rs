//! A task as a row: what is written when it is registered, and how it reads back.

use std::{borrow::Cow, sync::Arc};

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use super::{LedgerError, daybook::TaskEnd};
use crate::{
    id::TaskId, model::Outcome, model::place::place_of, model::sandbox::SandboxReport,
    model::status::Status, output::Mask,
};

/// A task, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The id.
    pub task_id: TaskId,
    /// The tool or verb through which it came.
    pub tool: String,
    /// The status.
    pub status: Status,
    /// Why it has this status, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command, as it was asked for.
    pub command: String,
    /// What the caller says that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The folder that it runs in.
    pub workdir: String,
    /// The shell, for a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Whether that is a login shell.
    pub login: bool,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The workspace of the caller.
    pub workspace: String,
    /// Who asked.
    pub asked_by: String,
    /// How far that caller is trusted.
    pub trust: String,
    /// When it was registered, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When its status last changed.
    pub updated_at_ms: i64,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What keeps it in its place.
    pub sandbox: Arc<SandboxReport>,
    /// The warden that holds it.
    #[serde(skip)]
    pub(crate) warden: String,
    /// The boot of the machine in which it was started.
    #[serde(skip)]
    pub(crate) boot_id: String,
    /// Equal commands have equal ones.
    #[serde(skip)]
    pub(crate) fingerprint: [u8; 32],
}

impl Task {
    /// The place that it runs at, by its name; none for this machine.
    pub fn place(&self) -> Option<&str> {
        place_of(&self.warden).map(|(name, _)| name)
    }

    /// The same without secrets in what is said of it, to be shown.
    #[must_use]
    pub fn masked(mut self, mask: &Mask) -> Self {
        let said = [&mut self.command, &mut self.workdir, &mut self.workspace, &mut self.asked_by];
        for text in said.into_iter().chain(&mut self.description).chain(&mut self.shell) {
            mask.string(text);
        }
        self
    }

    pub(super) const COLUMNS: &'static str = "id, tool, status, reason, command, description, workdir, shell, login, \
        tty, workspace, asked_by, trust, created_at_ms, updated_at_ms, outcome, sandbox, warden, boot_id, \
        fingerprint";

    /// Reads the [columns](Self::COLUMNS), by place: a search by name would take as long as the
    /// rest.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, LedgerError>> {
        let id: String = row.get(0)?;
        let status: String = row.get(2)?;
        let outcome: Option<String> = row.get(15)?;
        let sandbox: Option<String> = row.get(16)?;
        let outcome = outcome.map(|text| serde_json::from_str(&text)).transpose();
        let (Some(status), Ok(outcome)) = (Status::from_name(&status), outcome) else {
            return Ok(Err(LedgerError::Damaged(id)));
        };
        Ok(Ok(Self {
            task_id: id.into(),
            tool: row.get(1)?,
            status,
            reason: row.get(3)?,
            command: row.get(4)?,
            description: row.get(5)?,
            workdir: row.get(6)?,
            shell: row.get(7)?,
            login: row.get(8)?,
            tty: row.get(9)?,
            workspace: row.get(10)?,
            asked_by: row.get(11)?,
            trust: row.get(12)?,
            created_at_ms: row.get(13)?,
            updated_at_ms: row.get(14)?,
            outcome,
            sandbox: sandbox.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
            warden: row.get(17)?,
            boot_id: row.get(18)?,
            fingerprint: row.get(19)?,
        }))
    }
}

/// Writes a new row, of a task that may have ended meanwhile; says whether there was none.
pub(super) fn insert(
    connection: &Connection,
    task: &Task,
    end: Option<&TaskEnd>,
) -> rusqlite::Result<bool> {
    // What is not confined says so by saying nothing.
    let confined = *task.sandbox != SandboxReport::default();
    let sandbox = confined.then(|| serde_json::to_string(&task.sandbox).unwrap_or_default());
    let (status, reason, outcome) = match (end, &task.outcome) {
        (Some(end), _) => (end.status, &end.reason, Some(Cow::Borrowed(end.outcome.as_str()))),
        (None, outcome) => {
            let json = |outcome| Cow::Owned(serde_json::to_string(outcome).unwrap_or_default());
            (task.status, &task.reason, outcome.as_ref().map(json))
        }
    };
    let output = end.and_then(|end| end.output.as_deref());
    connection
        .prepare_cached(
            "INSERT INTO task (id, tool, status, reason, command, description, workdir, shell, login, tty,
                               workspace, asked_by, trust, created_at_ms, updated_at_ms, outcome, sandbox, warden,
                               boot_id, fingerprint, stdout, stderr, timeline)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
                     ?22, ?23)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            task.task_id.as_str(),
            task.tool,
            status.as_str(),
            reason,
            task.command,
            task.description,
            task.workdir,
            task.shell,
            task.login,
            task.tty,
            task.workspace,
            task.asked_by,
            task.trust,
            task.created_at_ms,
            task.updated_at_ms,
            outcome,
            sandbox,
            task.warden,
            task.boot_id,
            task.fingerprint,
            output.map(|output| &output.stdout),
            output.map(|output| &output.stderr),
            output.map(|output| &output.timeline),
        ])
        .map(|written| written > 0)
}
