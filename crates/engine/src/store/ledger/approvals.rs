//! Approvals in the ledger: asked by one process, answered by another.

use std::{fs, io};

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::{Ledger, LedgerError};
use crate::{
    clock::now_ms,
    id::random,
    model::question::{Answered, Approval, Reply},
    presence::{Presence, is_here},
    state::make_private,
};

pub(super) const SCHEMA: &str = "
CREATE TABLE approval (
    id            TEXT    PRIMARY KEY,
    key           TEXT    NOT NULL,
    session       TEXT    NOT NULL,
    tool          TEXT    NOT NULL,
    command       TEXT    NOT NULL,
    description   TEXT,
    workdir       TEXT    NOT NULL,
    workspace     TEXT    NOT NULL,
    asked_by      TEXT    NOT NULL,
    trust         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    parts         TEXT    NOT NULL,
    proposed_rule TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    decision      TEXT,
    note          TEXT,
    answered_by   TEXT,
    -- An answer that allows once is good for one start.
    used          INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX approval_key ON approval (key);
-- Who is there to answer, and since when.
CREATE TABLE watcher (
    id         TEXT    PRIMARY KEY,
    seen_at_ms INTEGER NOT NULL
) STRICT;
";

const COLUMNS: &str = "id, key, session, tool, command, description, workdir, workspace, asked_by, \
    trust, reason, rule, sandbox, parts, proposed_rule, created_at_ms, expires_at_ms, decision, note";

/// A watcher of an older program that was not seen for this long is gone.
const WATCHER_MS: i64 = 3_000;

/// How often a watcher tries to come in while others take its file for one that was left behind.
const WATCHER_TRIES: u32 = 10;

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
        workdir: row.get("workdir")?,
        workspace: row.get("workspace")?,
        asked_by: row.get("asked_by")?,
        trust: row.get("trust")?,
        reason: row.get("reason")?,
        rule: row.get("rule")?,
        sandbox: row.get("sandbox")?,
        parts: serde_json::from_str(&row.get::<_, String>("parts")?).unwrap_or_default(),
        proposed_rule: row.get("proposed_rule")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
        decision: decision.as_deref().and_then(Reply::from_name),
        note: row.get("note")?,
    })
}

fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Approval>> {
    let sql = format!("SELECT {COLUMNS} FROM approval WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id], read).optional()
}

impl Ledger {
    /// Opens a question, or joins the one that is open about the same command.
    pub(crate) async fn open_approval(&self, new: Approval) -> Result<Approval, LedgerError> {
        self.writer
            .write_and_ring(move |connection| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM approval
                      WHERE key = ? AND decision IS NULL AND expires_at_ms > ?"
                );
                let open = connection
                    .prepare_cached(&sql)?
                    .query_row((&new.key, now_ms()), read)
                    .optional()?;
                if let Some(open) = open {
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
            .read_unposted(move |connection| {
                let sql = format!(
                    "SELECT {COLUMNS} FROM approval WHERE decision IS NULL AND expires_at_ms > ?
                      ORDER BY created_at_ms"
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

    /// Uses up an answer that allows a command, if there is one: once, or for the session.
    pub(crate) async fn take_approval(
        &self,
        key: &str,
        session: &str,
    ) -> Result<bool, LedgerError> {
        let (key, session) = (key.to_owned(), session.to_owned());
        self.writer
            .write(move |connection| {
                let once = connection
                    .prepare_cached(
                        "UPDATE approval SET used = 1 WHERE id =
                        (SELECT id FROM approval WHERE key = ? AND decision = 'allow_once'
                            AND used = 0 AND expires_at_ms > ? LIMIT 1)",
                    )?
                    .execute((&key, now_ms()))?;
                if once > 0 {
                    return Ok(true);
                }
                connection
                    .prepare_cached(
                        "SELECT 1 FROM approval
                      WHERE key = ? AND session = ?
                        AND decision IN ('allow_session', 'allow_rule') LIMIT 1",
                    )?
                    .exists((&key, &session))
            })
            .await
    }

    /// Notes that somebody is here who answers, until the result is dropped.
    pub(crate) fn note_watcher(&self) -> Result<Answerer, LedgerError> {
        let watchers = self.writer.state.watchers();
        make_private(&watchers)?;
        for _ in 0..WATCHER_TRIES {
            let path = watchers.join(random("").map_err(io::Error::other)?);
            if let Some(presence) = Presence::take(&path)? {
                return Ok(Answerer { _presence: presence });
            }
        }
        Err(LedgerError::Busy)
    }

    /// Whether somebody is here who answers.
    pub(crate) async fn has_watcher(&self) -> Result<bool, LedgerError> {
        for entry in fs::read_dir(self.writer.state.watchers()).into_iter().flatten().flatten() {
            if is_here(&entry.path()) {
                return Ok(true);
            }
            // It was killed: what is left of it is removed.
            drop(Presence::take(&entry.path()));
        }
        // An older program says so again and again.
        self.writer
            .read_unposted(move |connection| {
                connection
                    .prepare_cached("SELECT 1 FROM watcher WHERE seen_at_ms > ? LIMIT 1")?
                    .exists([now_ms() - WATCHER_MS])
            })
            .await
    }
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
            "INSERT INTO approval (id, key, session, tool, command, description, workdir, workspace,
                                   asked_by, trust, reason, rule, sandbox, parts, proposed_rule,
                                   created_at_ms, expires_at_ms)
             VALUES (:id, :key, :session, :tool, :command, :description, :workdir, :workspace,
                     :asked_by, :trust, :reason, :rule, :sandbox, :parts, :proposed, :created, :expires)",
        )?
        .execute(named_params! {
            ":id": new.approval_id, ":key": new.key, ":session": new.session, ":tool": new.tool,
            ":command": new.command, ":description": new.description, ":workdir": new.workdir,
            ":workspace": new.workspace, ":asked_by": new.asked_by, ":trust": new.trust,
            ":reason": new.reason, ":rule": new.rule, ":sandbox": new.sandbox,
            ":parts": serde_json::to_string(&new.parts).unwrap_or_default(),
            ":proposed": new.proposed_rule, ":created": new.created_at_ms,
            ":expires": new.expires_at_ms,
        })
        .map(drop)
}
