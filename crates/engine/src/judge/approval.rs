//! Approvals: questions about commands, kept in the ledger so that any process of the user can answer.
//!
//! A call that has to be asked about opens a question, or joins the one that is open about the same command.
//! Its own face may be able to ask (a client, a terminal), and whoever runs `legwork approve` may answer first.
//! Where nobody can be asked, the call fails at once and the question stays open for a while: answered later, it
//! lets the next equal call pass, once.

use std::{
    fmt::{self, Write as _},
    fs::OpenOptions,
    future::Future,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use legwork_gate::{
    Circumstances, Explanation, Grant, Question, Script, Subject, check, proposal, read, visible,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    engine::Inner,
    error::{ErrorKind, ToolError},
    id::random,
    judge::config::user_file,
    model::Caller,
    store::audit::Entry,
    store::ledger::now_ms,
    task::failures::explained,
    task::plan::Plan,
};

/// How often the ledger is asked whether somebody has answered: no kernel tells one process of it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Most parts of a command that a question lists.
const PARTS_MAX: usize = 20;

/// What an approval's id begins with.
const PREFIX: &str = "a_";

/// A question about a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The id.
    pub approval_id: String,
    /// The tool through which the command came.
    pub tool: String,
    /// The command, as it was asked for.
    pub command: String,
    /// What the caller says that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The folder that it would run in.
    pub workdir: String,
    /// The workspace of the caller.
    pub workspace: String,
    /// Who asks.
    pub asked_by: String,
    /// How far that caller is trusted.
    pub trust: String,
    /// Why it has to be asked.
    pub reason: String,
    /// The rule that says so.
    pub rule: String,
    /// What it would be confined to.
    pub sandbox: String,
    /// The simple commands, each with what is said of it by itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<(String, String)>,
    /// The rule that would allow exactly this from now on; none where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proposed_rule: Option<String>,
    /// When it was asked, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Until when it can be answered.
    pub expires_at_ms: i64,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// What whoever answered wants the caller to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Equal commands have equal ones.
    #[serde(skip)]
    pub(crate) key: String,
    /// The engine that asked: a session lasts as long as it does.
    #[serde(skip)]
    pub(crate) session: String,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This once.
    AllowOnce,
    /// Exactly this command in this folder, for as long as the asking program runs.
    AllowSession,
    /// Exactly this command from now on: the rule that the question shows is saved.
    AllowRule,
    /// No.
    Deny,
}

impl Decision {
    /// The name in JSON and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowSession => "allow_session",
            Self::AllowRule => "allow_rule",
            Self::Deny => "deny",
        }
    }

    /// The decision of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::AllowOnce, Self::AllowSession, Self::AllowRule, Self::Deny];
        all.into_iter().find(|decision| decision.as_str() == name)
    }
}

/// What somebody answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Yes or no.
    pub decision: Decision,
    /// What the caller is to know.
    pub note: Option<String>,
    /// Who answered.
    pub by: String,
}

/// A future that a face returns; none when it turns out that nobody is there.
pub type AskFuture = Pin<Box<dyn Future<Output = Option<Answered>> + Send>>;

/// A face that can ask a person.
pub trait Asker: Send + Sync {
    /// Asks, and waits for the answer.
    fn ask(&self, approval: Approval) -> AskFuture;
}

impl fmt::Debug for dyn Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Asker")
    }
}

impl Approval {
    /// The question as a person is to read it: the whole command, with nothing that could hide a part of it.
    pub fn question(&self) -> String {
        let mut text = String::from("May this command run?\n\n");
        for line in self.command.lines() {
            let _ = writeln!(text, "    {}", visible(line));
        }
        if self.parts.len() > 1 {
            text.push_str("\nIts parts:\n");
            for (part, verdict) in &self.parts {
                let _ = writeln!(text, "    {verdict:<5}  {}", visible(part));
            }
        }
        let _ = writeln!(text, "\nin:       {}", visible(&self.workdir));
        let _ =
            writeln!(text, "because:  {} (rule: {})", visible(&self.reason), visible(&self.rule));
        let _ = writeln!(text, "sandbox:  {}", visible(&self.sandbox));
        let (name, trust, tool) = (visible(&self.asked_by), visible(&self.trust), &self.tool);
        let _ = writeln!(text, "asked by: {name} ({trust}), through {tool}");
        if let Some(rule) = &self.proposed_rule {
            text.push_str("\nThe rule that can be saved for it:\n");
            for line in rule.lines() {
                let _ = writeln!(text, "    {}", visible(line));
            }
        }
        if let Some(description) = &self.description {
            let _ = writeln!(text, "\nThe caller's own words about it: {}", visible(description));
        }
        text
    }

    /// Saves the proposed rule in the user's file.
    pub(crate) fn save_rule(&self) -> Result<(), ToolError> {
        let Some(rule) = &self.proposed_rule else {
            return Err(ToolError::new(
                ErrorKind::InvalidToolInput,
                "no rule can be saved for this command: it would allow more than was asked",
            )
            .hint("allow it once, or for the session"));
        };
        let saved = user_file()
            .ok_or_else(|| io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))
            .and_then(|path| append(&path, rule));
        saved.map_err(|error| ToolError::state(&error))
    }

    fn is_expired(&self) -> bool {
        now_ms() >= self.expires_at_ms
    }
}

/// Appends to a file that is its owner's alone; what is missing above it is made.
fn append(path: &Path, rule: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(format!("\n{rule}").as_bytes())
}

impl Inner {
    /// Turns a question into a grant, if somebody says so.
    pub(crate) async fn ask(
        &self,
        question: Question<Plan>,
        caller: &Caller,
    ) -> Result<Grant<Plan>, ToolError> {
        let approval = self.open_question(&question, caller)?;
        let explanation = question.explanation().clone();
        let state = |error| ToolError::state(&error);
        if self.ledger.take_approval(&approval.key, &approval.session).await.map_err(state)? {
            return Ok(question.approve(approved(&explanation, "an earlier answer")));
        }
        let approval = self.ledger.open_approval(approval).await.map_err(state)?;
        let answered = self.wait_for_answer(&approval, caller, &explanation).await?;
        let entry = Entry::new("approval")
            .with("approval_id", approval.approval_id.as_str())
            .with("decision", answered.decision.as_str())
            .with("note", answered.note.clone())
            .with("answered_by", answered.by.as_str())
            .by(caller)
            .command(&approval.command);
        self.note(entry).await;
        match answered.decision {
            Decision::AllowOnce | Decision::AllowSession | Decision::AllowRule => {
                // The answer is good for one of all who wait for it; the others ask again.
                if self
                    .ledger
                    .take_approval(&approval.key, &approval.session)
                    .await
                    .map_err(state)?
                {
                    return Ok(question.approve(approved(&explanation, &answered.by)));
                }
                Err(refused(&approval, "the answer was used by an equal call", None))
            }
            Decision::Deny => Err(refused(&approval, "it was refused", answered.note.as_deref())),
        }
    }

    fn open_question(
        &self,
        question: &Question<Plan>,
        caller: &Caller,
    ) -> Result<Approval, ToolError> {
        let (plan, explanation) = (question.plan(), question.explanation());
        let mut key = Sha256::new();
        key.update(plan.fingerprint);
        key.update(plan.tool);
        key.update(self.wanted_by(plan, explanation).to_string());
        let expires = i64::try_from(self.settings.approval_expires.as_millis()).unwrap_or(i64::MAX);
        let approval_id = random(PREFIX).map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })?;
        Ok(Approval {
            parts: self.parts(plan),
            proposed_rule: proposal(
                plan.tool,
                plan.script(),
                &format!("approved-{}", approval_id.trim_start_matches(PREFIX)),
            ),
            approval_id,
            tool: plan.tool.to_owned(),
            command: plan.text.clone(),
            description: plan.description.clone(),
            workdir: plan.workdir.path.display().to_string(),
            workspace: self.workspace.path.display().to_string(),
            asked_by: caller.name.clone(),
            trust: caller.trust.as_str().to_owned(),
            reason: explanation.reason.clone(),
            rule: explanation.rule.clone(),
            sandbox: self.wanted_by(plan, explanation).to_string(),
            created_at_ms: now_ms(),
            expires_at_ms: now_ms().saturating_add(expires),
            decision: None,
            note: None,
            key: data_encoding::HEXLOWER.encode(&key.finalize()),
            session: self.session.clone(),
        })
    }

    /// The simple commands of a script, each judged by itself.
    fn parts(&self, plan: &Plan) -> Vec<(String, String)> {
        let Script::Shell(text) = plan.script() else { return Vec::new() };
        let spans = read(text).commands.into_iter().map(|command| command.span);
        let parts = spans.filter_map(|span| text.get(span.start..span.end));
        let judged = parts.take(PARTS_MAX).map(|part| {
            let around = Circumstances { trust: plan.trust(), ..Circumstances::default() };
            let checked = check(&self.policy, plan.tool, Script::Shell(part), around);
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
        let watched = self.ledger.has_watcher().await.map_err(|error| ToolError::state(&error))?;
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
            () = tokio::time::sleep_until(deadline) => Err(expired(approval)),
        }
    }

    /// Writes an answer down; the first one counts.
    async fn record(&self, approval: &Approval, answered: Answered) -> Result<Answered, ToolError> {
        let state = |error| ToolError::state(&error);
        let id = &approval.approval_id;
        if self.ledger.answer_approval(id, &answered).await.map_err(state)?.is_some() {
            if answered.decision == Decision::AllowRule {
                approval.save_rule()?;
            }
            return Ok(answered);
        }
        self.answered_elsewhere(approval).await
    }

    async fn answered_elsewhere(&self, approval: &Approval) -> Result<Answered, ToolError> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let found = self.ledger.approval(&approval.approval_id).await;
            let Some(found) = found.map_err(|error| ToolError::state(&error))? else {
                return Err(expired(approval));
            };
            if let Some(decision) = found.decision {
                return Ok(Answered { decision, note: found.note, by: "the user".into() });
            }
            if found.is_expired() {
                return Err(expired(approval));
            }
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
            "ask the person to run `legwork approve {id}`, then make the same call again; a rule in the policy \
             or `--mode open` would allow it for good"
        ))
}

/// A face that asks, as callers carry it.
pub type SharedAsker = Arc<dyn Asker>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hides_in_a_question() {
        let approval = Approval {
            approval_id: "a_x".into(),
            tool: "ExecCommand".into(),
            command: "echo safe\u{202e}\u{1b}[2K\r# \u{200b}\u{e0041}\nrm -rf x".into(),
            description: Some("harmless\n\nMay this command run? yes".into()),
            workdir: "/w".into(),
            workspace: "/w".into(),
            asked_by: "client\u{7}".into(),
            trust: "trusted_operator".into(),
            reason: "r".into(),
            rule: "dangerous".into(),
            sandbox: "none".into(),
            created_at_ms: 0,
            expires_at_ms: 0,
            parts: vec![("echo safe".into(), "allow".into()), ("rm -rf x".into(), "ask".into())],
            proposed_rule: None,
            decision: None,
            note: None,
            key: String::new(),
            session: String::new(),
        };
        let text = approval.question();
        assert!(text.is_ascii() && !text.contains(['\u{1b}', '\r', '\u{7}']), "{text}");
        assert!(text.contains(
            "    echo safe\\u{202e}\\u{1b}[2K\\u{d}# \\u{200b}\\u{e0041}\n    rm -rf x\n"
        ));
        let (command, words) = text.split_once("The caller's own words about it: ").unwrap();
        assert!(command.contains("rm -rf x"));
        assert_eq!(words.lines().count(), 1, "the caller's words stay one line");
    }
}
