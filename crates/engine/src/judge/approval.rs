//! Approvals: questions about commands, kept in the ledger so that any process of the user can
//! answer.
//!
//! A call that has to be asked about opens a question, or joins the one that is open about the same
//! command. Its own face may be able to ask (a client, a terminal), and any other process of the
//! user may answer first. Where nobody can be asked, the call fails at once and the question stays
//! open for a while: answered later, it lets the next equal call pass, once.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use legwork_gate::{Circumstances, Explanation, Grant, Question, Script, check, proposal, read};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Facts, Judge, config::user_file, refusals::explained};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    events::Interest,
    id::random,
    model::{
        Caller,
        question::{Answered, Approval, Reply},
    },
    store::{audit::AuditEntry, ledger::Answerer},
};

/// Most parts of a command that a question lists.
const PARTS_MAX: usize = 20;

/// What an approval's id begins with.
const PREFIX: &str = "a_";

/// Saves the proposed rule in the user's file.
fn save_rule(approval: &Approval) -> Result<(), ToolError> {
    let Some(rule) = &approval.proposed_rule else {
        return Err(no_rule());
    };
    let saved = user_file()
        .ok_or_else(|| io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))
        .and_then(|path| append(&path, rule));
    saved.map_err(|error| {
        ToolError::new(
            ErrorKind::ToolExecutionFailed,
            format!("the answer counts, but its rule was not saved: {error}"),
        )
        .hint("see to the space and permissions of the user's configuration, then write the rule there")
    })
}

fn no_rule() -> ToolError {
    ToolError::new(
        ErrorKind::InvalidToolInput,
        "no rule can be saved for this command: it would allow more than was asked",
    )
    .hint("allow it once, or for the session")
}

/// Appends to a file that is its owner's alone; what is missing above it is made.
fn append(path: &Path, rule: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("\n{rule}").as_bytes())
}

impl Judge {
    /// Turns a question into a grant, if somebody says so.
    pub(crate) async fn ask<F: Facts>(
        &self,
        question: Question<F>,
        caller: &Caller,
    ) -> Result<Grant<F>, ToolError> {
        let approval = self.open_question(&question, caller)?;
        let explanation = question.explanation().clone();
        if self.store.ledger.take_approval(&approval.key, &approval.session).await? {
            return Ok(question.approve(approved(&explanation, "an earlier answer")));
        }
        let approval = self.store.ledger.open_approval(approval).await?;
        let answered = self.wait_for_answer(&approval, caller, &explanation).await?;
        let entry = AuditEntry::new("approval")
            .with("approval_id", approval.approval_id.as_str())
            .with("decision", answered.decision.as_str())
            .with("note", answered.note.clone())
            .with("answered_by", answered.by.as_str())
            .by(caller)
            .command(&approval.command);
        self.store.note(entry).await;
        match answered.decision {
            Reply::AllowOnce | Reply::AllowSession | Reply::AllowRule => {
                // The answer is good for one of all who wait for it; the others ask again.
                if self.store.ledger.take_approval(&approval.key, &approval.session).await? {
                    return Ok(question.approve(approved(&explanation, &answered.by)));
                }
                Err(refused(&approval, "the answer was used by an equal call", None))
            }
            Reply::Deny => Err(refused(&approval, "it was refused", answered.note.as_deref())),
        }
    }

    fn open_question<F: Facts>(
        &self,
        question: &Question<F>,
        caller: &Caller,
    ) -> Result<Approval, ToolError> {
        let (plan, explanation) = (question.plan(), question.explanation());
        let mut key = Sha256::new();
        key.update(plan.fingerprint());
        key.update(plan.tool());
        key.update(self.wanted_by(plan.wanted(), explanation).to_string());
        let expires = i64::try_from(self.settings.approval_expires.as_millis()).unwrap_or(i64::MAX);
        let approval_id = random(PREFIX).map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })?;
        Ok(Approval {
            parts: self.parts(plan),
            proposed_rule: proposal(
                plan.tool(),
                plan.script(),
                &format!("approved-{}", approval_id.trim_start_matches(PREFIX)),
            ),
            approval_id,
            tool: plan.tool().to_owned(),
            command: plan.text().to_owned(),
            description: plan.description().map(str::to_owned),
            workdir: plan.workdir().display().to_string(),
            workspace: self.workspace.clone(),
            asked_by: caller.name.clone(),
            trust: caller.trust.as_str().to_owned(),
            reason: explanation.reason.clone(),
            rule: explanation.rule.clone(),
            sandbox: self.wanted_by(plan.wanted(), explanation).to_string(),
            created_at_ms: now_ms(),
            expires_at_ms: now_ms().saturating_add(expires),
            decision: None,
            note: None,
            key: data_encoding::HEXLOWER.encode(&key.finalize()),
            session: self.session.clone(),
        })
    }

    /// The questions that wait for an answer, oldest first.
    pub(crate) async fn questions(&self) -> Result<Vec<Approval>, ToolError> {
        Ok(self.store.ledger.open_approvals().await?)
    }

    /// Answers the question whose id begins with this text; the first answer counts.
    pub(crate) async fn answer(
        &self,
        prefix: &str,
        answered: Answered,
    ) -> Result<Approval, ToolError> {
        let open = self.questions().await?;
        let mut meant = open.into_iter().filter(|one| one.approval_id.starts_with(prefix));
        let unknown = |problem: String| {
            ToolError::new(ErrorKind::UnknownApproval, problem)
                .detail("approval_id", prefix)
                .hint("list the open questions to see their ids")
        };
        let approval = match (meant.next(), meant.next()) {
            (Some(approval), None) => approval,
            (Some(_), Some(_)) => {
                return Err(unknown(format!("more than one question begins with `{prefix}`")));
            }
            (None, _) => return Err(unknown(format!("no open question has the id `{prefix}`"))),
        };
        let (id, decision) = (&approval.approval_id, answered.decision);
        if decision == Reply::AllowRule && approval.proposed_rule.is_none() {
            // Before it is answered, so that it can still be.
            return Err(no_rule());
        }
        match self.store.ledger.answer_approval(id, &answered).await? {
            Some(approval) => {
                if decision == Reply::AllowRule {
                    save_rule(&approval)?;
                }
                Ok(approval)
            }
            None => Err(unknown(format!("the question `{id}` was answered just now, or is over"))),
        }
    }

    /// Says that somebody is here who answers questions, until the result is dropped.
    pub(crate) fn watch(&self) -> Result<Answerer, ToolError> {
        Ok(self.store.ledger.note_watcher()?)
    }

    /// The simple commands of a script, each judged by itself.
    fn parts<F: Facts>(&self, plan: &F) -> Vec<(String, String)> {
        let Script::Shell(text) = plan.script() else { return Vec::new() };
        let spans = read(text).commands.into_iter().map(|command| command.span);
        let parts = spans.filter_map(|span| text.get(span.start..span.end));
        let judged = parts.take(PARTS_MAX).map(|part| {
            let around = Circumstances {
                trust: plan.trust(),
                manners: plan.manners(),
                ..Circumstances::default()
            };
            let checked = check(&self.policy, plan.tool(), Script::Shell(part), around);
            let verdict = serde_json::to_value(checked.verdict).unwrap_or_default();
            (part.to_owned(), verdict.as_str().unwrap_or_default().to_owned())
        });
        judged.collect()
    }

    /// Waits for whoever answers first: the caller's own face, or anybody else of this user.
    async fn wait_for_answer(
        &self,
        approval: &Approval,
        caller: &Caller,
        explanation: &Explanation,
    ) -> Result<Answered, ToolError> {
        let watched = self.store.ledger.has_watcher().await?;
        let wait = match (&caller.asker, watched) {
            (Some(_), _) | (_, true) => self.settings.approval_expires,
            (None, false) => self.settings.approval_wait,
        };
        if wait.is_zero() {
            return Err(unavailable(approval, explanation));
        }
        let asked = async {
            let answered = match &caller.asker {
                Some(asker) => asker.ask(approval.clone()).await,
                None => None,
            };
            match answered {
                Some(answered) => answered,
                // Somebody else may still answer.
                None => std::future::pending().await,
            }
        };
        let deadline = Instant::now() + wait;
        tokio::select! {
            answered = asked => self.record(approval, answered).await,
            answered = self.answered_elsewhere(approval) => answered,
            // Whoever answers in the last moment has answered.
            () = tokio::time::sleep_until(deadline) => match self.answer_to(approval).await? {
                Some(answered) => Ok(answered),
                None => Err(expired(approval)),
            },
        }
    }

    /// Writes an answer down; the first one counts.
    async fn record(&self, approval: &Approval, answered: Answered) -> Result<Answered, ToolError> {
        let id = &approval.approval_id;
        if self.store.ledger.answer_approval(id, &answered).await?.is_some() {
            if answered.decision == Reply::AllowRule {
                save_rule(approval)?;
            }
            return Ok(answered);
        }
        self.answered_elsewhere(approval).await
    }

    /// Waits for the answer of another process.
    async fn answered_elsewhere(&self, approval: &Approval) -> Result<Answered, ToolError> {
        // Before the first look, so that no answer comes between the two.
        let mut events = self.store.ledger.events(None, Interest::Changes).await?;
        loop {
            if let Some(answered) = self.answer_to(approval).await? {
                return Ok(answered);
            }
            events.of_question(&approval.approval_id).await;
        }
    }

    /// The answer to a question, if there is one; an error if there never will be.
    async fn answer_to(&self, approval: &Approval) -> Result<Option<Answered>, ToolError> {
        let found = self.store.ledger.approval(&approval.approval_id).await?;
        let Some(found) = found else { return Err(expired(approval)) };
        match found.decision {
            Some(decision) => {
                Ok(Some(Answered { decision, note: found.note, by: "the user".into() }))
            }
            None if found.is_expired() => Err(expired(approval)),
            None => Ok(None),
        }
    }
}

/// Why an approved command may run.
fn approved(explanation: &Explanation, by: &str) -> Explanation {
    let reason = format!("approved by {by}; {}", explanation.reason);
    Explanation { rule: "approved".into(), reason, ..explanation.clone() }
}

fn refused(approval: &Approval, why: &str, note: Option<&str>) -> ToolError {
    let said = note.map(|note| format!("; the person says: {note}")).unwrap_or_default();
    let error = ToolError::new(
        ErrorKind::ApprovalRefused,
        format!("this had to be approved, and {why}: {}{said}", approval.reason),
    )
    .detail("approval_id", approval.approval_id.as_str());
    let error = match note {
        Some(note) => error.detail("note", note),
        None => error,
    };
    error.hint("do without this command, or ask the person what to do instead")
}

fn expired(approval: &Approval) -> ToolError {
    ToolError::new(
        ErrorKind::ApprovalExpired,
        format!("this has to be approved, and nobody answered in time: {}", approval.reason),
    )
    .detail("approval_id", approval.approval_id.as_str())
    .hint("ask the person to be there, then call again")
}

fn unavailable(approval: &Approval, explanation: &Explanation) -> ToolError {
    let id = &approval.approval_id;
    let problem =
        format!("this has to be approved, and nobody can be asked now: {}", approval.reason);
    explained(ErrorKind::ApprovalUnavailable, problem, explanation)
        .detail("approval_id", id.as_str())
        .hint(format!(
            "ask the person to approve question `{id}`, then make the same call again; a rule in the policy \
             would allow it for good"
        ))
}
