//! Approvals in the ledger: asked by one process, answered by another.
//!
//! A question belongs to the session that asked it. What is left of a session whose process is gone
//! (an open question, an answer that nobody has used) serves the next session that asks the very
//! same thing: the key says which that is.

use std::{fs, io, path::Path, time::Duration};

use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::{Ledger, LedgerError};
use crate::{
    clock::now_ms,
    id::{TaskId, random},
    inotify::{Inotify, WatchFlags},
    model::question::{Answered, Approval, Reply},
    presence::{Presence, RELEASE_MS, is_here},
    state::make_private,
};

/// How often to look whether somebody watches where the kernel does not tell.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub(super) const SCHEMA: &str = "
CREATE TABLE approval (
    id                TEXT    PRIMARY KEY,
    key               TEXT    NOT NULL,
    session           TEXT    NOT NULL,
    tool              TEXT    NOT NULL,
    command           TEXT    NOT NULL,
    description       TEXT,
    interpreter       TEXT,
    workdir           TEXT    NOT NULL,
    workspace         TEXT    NOT NULL,
    asked_by          TEXT    NOT NULL,
    trust             TEXT    NOT NULL,
    reason            TEXT    NOT NULL,
    rule              TEXT    NOT NULL,
    cause             TEXT,
    sandbox           TEXT    NOT NULL,
    -- A JSON list of paths that the sandbox will not let it write.
    refused           TEXT    NOT NULL,
    -- Whether it may be allowed to run outside the sandbox.
    may_leave_sandbox INTEGER NOT NULL,
    may_try           INTEGER NOT NULL,
    -- What it did when it was tried, as JSON.
    tried             TEXT,
    -- Whether one answer may count for all equal commands of a session.
    may_repeat        INTEGER NOT NULL,
    -- The running task that is about to execute the program, if the question is about one.
    task_id           TEXT,
    -- A JSON list of the command lines that led to a program.
    lineage           TEXT    NOT NULL,
    parts             TEXT    NOT NULL,
    proposed_rule     TEXT,
    created_at_ms     INTEGER NOT NULL,
    expires_at_ms     INTEGER NOT NULL,
    decision          TEXT,
    note              TEXT,
    answered_by       TEXT,
    -- An answer that allows once is good for one start.
    used              INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX approval_key ON approval (key);
CREATE INDEX approval_open ON approval (created_at_ms) WHERE decision IS NULL;
CREATE INDEX approval_expiry ON approval (expires_at_ms);
";

const COLUMNS: &str = "id, key, session, tool, command, description, interpreter, workdir, workspace, \
    asked_by, trust, reason, rule, cause, sandbox, refused, may_leave_sandbox, may_try, tried, may_repeat, \
    task_id, lineage, parts, proposed_rule, created_at_ms, expires_at_ms, decision, note, answered_by";

/// Whether a question can still be answered, at the time of its parameter: one about a program that
/// a running command is about to execute ends with that command.
const IS_OPEN: &str = "decision IS NULL AND expires_at_ms > ?
    AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = approval.task_id
                                         AND task.outcome IS NOT NULL)";

/// How often somebody tries to come in while others take its file for one that was left behind.
const PRESENCE_TRIES: u32 = 10;

/// Questions that are over are kept for a day, so that a person can see what became of them.
pub(super) const KEPT_MS: i64 = 24 * 3600 * 1000;

fn read(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let decision: Option<String> = row.get("decision")?;
    Ok(Approval {
        approval_id: row.get("id")?,
        key: row.get("key")?,
        session: row.get("session")?,
        tool: row.get("tool")?,
        command: row.get("command")?,
        description: row.get("description")?,
        interpreter: row.get("interpreter")?,
        workdir: row.get("workdir")?,
        workspace: row.get("workspace")?,
        asked_by: row.get("asked_by")?,
        trust: row.get("trust")?,
        reason: row.get("reason")?,
        rule: row.get("rule")?,
        cause: row.get("cause")?,
        sandbox: row.get("sandbox")?,
        refused: serde_json::from_str(&row.get::<_, String>("refused")?).unwrap_or_default(),
        may_leave_sandbox: row.get("may_leave_sandbox")?,
        may_try: row.get("may_try")?,
        tried: row
            .get::<_, Option<String>>("tried")?
            .and_then(|tried| serde_json::from_str(&tried).ok()),
        may_repeat: row.get("may_repeat")?,
        task_id: row.get::<_, Option<String>>("task_id")?.map(TaskId::from),
        lineage: serde_json::from_str(&row.get::<_, String>("lineage")?).unwrap_or_default(),
        parts: serde_json::from_str(&row.get::<_, String>("parts")?).unwrap_or_default(),
        proposed_rule: row.get("proposed_rule")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
        decision: decision.as_deref().and_then(Reply::from_name),
        note: row.get("note")?,
        answered_by: row.get("answered_by")?,
    })
}

/// Whether the process of a session is gone.
fn is_gone(askers: &Path, session: &str) -> bool {
    !is_here(&askers.join(session))
}

/// The open question about the same, if the asker may join it: its own, or one that a session left
/// behind, which is the asker's from now on.
fn joined(
    connection: &Connection,
    new: &Approval,
    askers: &Path,
) -> rusqlite::Result<Option<Approval>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM approval WHERE key = ? AND decision IS NULL AND expires_at_ms > ?"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    for open in statement.query_map((&new.key, now_ms()), read)? {
        let open = open?;
        if open.session == new.session && open.task_id == new.task_id {
            return Ok(Some(open));
        }
        if is_gone(askers, &open.session) {
            let task_id = new.task_id.as_ref().map(TaskId::as_str);
            let sql = "UPDATE approval SET session = ?, description = ?, task_id = ? WHERE id = ?";
            connection.prepare_cached(sql)?.execute((
                &new.session,
                &new.description,
                task_id,
                &open.approval_id,
            ))?;
            return Ok(Some(Approval {
                session: new.session.clone(),
                description: new.description.clone(),
                task_id: new.task_id.clone(),
                ..open
            }));
        }
    }
    Ok(None)
}

/// An answer that allows a command.
struct Yes {
    id: String,
    session: String,
    decision: Option<Reply>,
}

/// The answers that allow the command of this key and are still good.
fn answers(connection: &Connection, key: &str) -> rusqlite::Result<Vec<Yes>> {
    let sql = "SELECT id, session, decision FROM approval
                WHERE key = ? AND (decision IN ('allow_session', 'allow_rule')
                                   OR (used = 0 AND expires_at_ms > ?))";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map((key, now_ms()), |row| {
        let decision: Option<String> = row.get(2)?;
        let decision = decision.as_deref().and_then(Reply::from_name);
        Ok(Yes { id: row.get(0)?, session: row.get(1)?, decision })
    })?;
    rows.collect()
}

fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Approval>> {
    let sql = format!("SELECT {COLUMNS} FROM approval WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id], read).optional()
}

impl Ledger {
    /// Opens a question, or joins the one that this session has open about the same.
    pub(crate) async fn open_approval(&self, new: Approval) -> Result<Approval, LedgerError> {
        let askers = self.writer.state.askers();
        self.writer
            .write_and_ring(move |connection| {
                if let Some(open) = joined(connection, &new, &askers)? {
                    return Ok(open);
                }
                connection.execute(
                    "DELETE FROM approval WHERE expires_at_ms < ?",
                    [now_ms() - KEPT_MS],
                )?;
                insert(connection, &new)?;
                Ok(new.clone())
            })
            .await
    }

    /// The question of this id.
    pub(crate) async fn approval(&self, id: &str) -> Result<Option<Approval>, LedgerError> {
        let id = id.to_owned();
        self.writer.read_unposted(move |connection| find(connection, &id)).await
    }

    /// The open questions, oldest first.
    pub(crate) async fn open_approvals(&self) -> Result<Vec<Approval>, LedgerError> {
        self.writer
            .read(move |connection| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM approval WHERE {IS_OPEN} ORDER BY created_at_ms"
                );
                let mut statement = connection.prepare_cached(&sql)?;
                let rows = statement.query_map([now_ms()], read)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
            .await
    }

    /// Answers a question; none if it was answered before or is over.
    pub(crate) async fn answer_approval(
        &self,
        id: &str,
        answered: &Answered,
    ) -> Result<Option<Approval>, LedgerError> {
        let (id, answered) = (id.to_owned(), answered.clone());
        self.writer
            .write_and_ring(move |connection| {
                let written = connection
                    .prepare_cached(
                        "UPDATE approval SET decision = :decision, note = :note, answered_by = :by
                          WHERE id = :id AND decision IS NULL AND expires_at_ms > :now",
                    )?
                    .execute(named_params! {
                        ":decision": answered.decision.as_str(), ":note": answered.note,
                        ":by": answered.by, ":id": id, ":now": now_ms(),
                    })?;
                if written == 0 { Ok(None) } else { find(connection, &id) }
            })
            .await
    }

    /// Leaves a question open that its task waits for no longer: the next equal call may.
    pub(crate) async fn leave_approval(&self, id: &str) -> Result<(), LedgerError> {
        let id = id.to_owned();
        self.writer
            .write(move |connection| {
                let sql = "UPDATE approval SET task_id = NULL WHERE id = ?";
                connection.prepare_cached(sql)?.execute([&id]).map(drop)
            })
            .await
    }

    /// Uses up an answer that allows a command, if there is one: for the session that asked, or
    /// once, which also serves whoever asks the same after that session is gone. One that saved a
    /// rule is for those who have waited for it.
    pub(crate) async fn take_approval(
        &self,
        key: &str,
        session: &str,
        has_waited: bool,
    ) -> Result<Option<Approval>, LedgerError> {
        let (key, session) = (key.to_owned(), session.to_owned());
        let askers = self.writer.state.askers();
        self.writer
            .write(move |connection| {
                for yes in answers(connection, &key)? {
                    let ours = yes.session == session;
                    let good = match yes.decision {
                        Some(Reply::AllowSession) => ours,
                        // Later calls go by the rule, for as long as it is there.
                        Some(Reply::AllowRule) => ours && has_waited,
                        Some(
                            Reply::AllowOnce
                            | Reply::AllowOnceUnconfined
                            | Reply::TryFirst
                            | Reply::Apply,
                        ) => ours || is_gone(&askers, &yes.session),
                        Some(Reply::Deny) | None => false,
                    };
                    if good {
                        let sql = "UPDATE approval SET used = used + 1 WHERE id = ?";
                        connection.prepare_cached(sql)?.execute([&yes.id])?;
                        return find(connection, &yes.id);
                    }
                }
                Ok(None)
            })
            .await
    }

    /// Uses up a no to this command that nobody has been told of yet: it is told once, then the
    /// command can be asked about again.
    pub(crate) async fn take_refusal(
        &self,
        key: &str,
        session: &str,
    ) -> Result<Option<Approval>, LedgerError> {
        let (key, session) = (key.to_owned(), session.to_owned());
        let askers = self.writer.state.askers();
        self.writer
            .write(move |connection| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM approval
                      WHERE key = ? AND decision = 'deny' AND used = 0 AND expires_at_ms > ?"
                );
                let mut statement = connection.prepare_cached(&sql)?;
                let noes = statement.query_map((&key, now_ms()), read)?;
                for no in noes.collect::<rusqlite::Result<Vec<_>>>()? {
                    if no.session == session || is_gone(&askers, &no.session) {
                        let sql = "UPDATE approval SET used = 1 WHERE id = ?";
                        connection.prepare_cached(sql)?.execute([&no.approval_id])?;
                        return Ok(Some(no));
                    }
                }
                Ok(None)
            })
            .await
    }

    /// Notes that a session is here that has asked something, until the result is dropped.
    pub(crate) fn note_asker(&self, session: &str) -> Result<Presence, LedgerError> {
        let askers = self.writer.state.askers();
        make_private(&askers)?;
        for entry in fs::read_dir(&askers)?.flatten().filter(|entry| !is_here(&entry.path())) {
            // It was killed: what is left of it is removed.
            drop(Presence::take(&entry.path()));
        }
        // Somebody may just be looking whether it is here.
        for _ in 0..PRESENCE_TRIES {
            if let Some(presence) = Presence::take(&askers.join(session))? {
                return Ok(presence);
            }
        }
        Err(LedgerError::Busy)
    }

    /// Whether a session that has asked something is still here.
    pub(crate) fn has_asker(&self, session: &str) -> bool {
        !is_gone(&self.writer.state.askers(), session)
    }

    /// Notes that somebody is here who answers, for one workspace or for all, until the result is
    /// dropped.
    pub(crate) fn note_watcher(&self, workspace: Option<&str>) -> Result<Answerer, LedgerError> {
        let watchers = self.writer.state.watchers();
        make_private(&watchers)?;
        let of = workspace.map(|it| format!(".{}", mark_of(it))).unwrap_or_default();
        for _ in 0..PRESENCE_TRIES {
            let path = watchers.join(random("").map_err(io::Error::other)? + &of);
            if let Some(presence) = Presence::take(&path)? {
                return Ok(Answerer { _presence: presence });
            }
        }
        Err(LedgerError::Busy)
    }

    /// Whether somebody is here who answers for a workspace.
    pub(crate) fn has_watcher(&self, workspace: &str) -> bool {
        let wanted = mark_of(workspace);
        for entry in fs::read_dir(self.writer.state.watchers()).into_iter().flatten().flatten() {
            let path = entry.path();
            if !is_here(&path) {
                // It was killed: what is left of it is removed.
                drop(Presence::take(&path));
            } else if path.extension().is_none_or(|mark| *mark == *wanted) {
                return true;
            }
        }
        false
    }

    /// Waits until nobody is here any more who answers for a workspace.
    pub(crate) async fn no_watcher(&self, workspace: &str) {
        let watchers = self.writer.state.watchers();
        // Before the first look, so that nobody leaves between the two.
        let ends = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        let told = Inotify::new().and_then(|told| told.add(&watchers, ends).map(|_| told));
        let mut told = told.ok();
        loop {
            for pause_ms in RELEASE_MS {
                sleep(Duration::from_millis(pause_ms)).await;
                if !self.has_watcher(workspace) {
                    return;
                }
            }
            match &told {
                None => sleep(LOOK_EVERY).await,
                Some(inotify) => {
                    let changed = inotify.changed().await;
                    if changed.and_then(|()| inotify.read(|_| {})).is_err() {
                        told = None;
                    }
                }
            }
        }
    }
}

/// What the name of a watcher ends with that is confined to a workspace.
fn mark_of(workspace: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(workspace))
}

/// Somebody who answers questions, until this is dropped: callers who have to ask wait for an
/// answer.
#[derive(Debug)]
pub struct Answerer {
    _presence: Presence,
}

fn insert(connection: &Connection, new: &Approval) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO approval (id, key, session, tool, command, description, interpreter,
                                   workdir, workspace, asked_by, trust, reason, rule, cause,
                                   sandbox, refused, may_leave_sandbox, may_try, tried,
                                   may_repeat, task_id, lineage, parts, proposed_rule, created_at_ms, expires_at_ms)
             VALUES (:id, :key, :session, :tool, :command, :description, :interpreter,
                     :workdir, :workspace, :asked_by, :trust, :reason, :rule, :cause,
                     :sandbox, :refused, :leaves, :tries, :tried, :repeats, :task, :lineage, :parts,
                     :proposed, :created, :expires)",
        )?
        .execute(named_params! {
            ":id": new.approval_id, ":key": new.key, ":session": new.session, ":tool": new.tool,
            ":command": new.command, ":description": new.description,
            ":interpreter": new.interpreter, ":workdir": new.workdir,
            ":workspace": new.workspace, ":asked_by": new.asked_by, ":trust": new.trust,
            ":reason": new.reason, ":rule": new.rule, ":cause": new.cause,
            ":sandbox": new.sandbox,
            ":refused": serde_json::to_string(&new.refused).unwrap_or_default(),
            ":leaves": new.may_leave_sandbox,
            ":tries": new.may_try,
            ":tried": new.tried.as_ref().and_then(|tried| serde_json::to_string(tried).ok()),
            ":repeats": new.may_repeat,
            ":task": new.task_id.as_ref().map(TaskId::as_str),
            ":lineage": serde_json::to_string(&new.lineage).unwrap_or_default(),
            ":parts": serde_json::to_string(&new.parts).unwrap_or_default(),
            ":proposed": new.proposed_rule, ":created": new.created_at_ms,
            ":expires": new.expires_at_ms,
        })
        .map(drop)
}
