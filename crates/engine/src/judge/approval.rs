//! Approvals: questions about commands, kept in the ledger so that any process of the user can
//! answer.
//!
//! A call that has to be asked about opens a question, or joins the one that its session has open
//! about the same. Its own face may be able to ask (a client, a terminal), and any other process of
//! the user may answer first. Where nobody can be asked, the call fails at once and the question
//! stays open for a while: answered later, it lets the next equal call pass, once.
//!
//! What is approved is what runs: an answer is bound to the file that is executed, the text or the
//! arguments, the variables, the folder, the workspace, the level of the sandbox, the network,
//! whether it may be let out of there, and the caller's trust and name. A question belongs to its
//! asker, which is a session: one engine, for as long as it lives. An answer for the session counts
//! for no other. An answer for once counts for the session that asked; when its process is gone,
//! for the next call that is equal in all of the above, since `legwork call` asks in one process
//! and comes again in another.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::PoisonError,
};

use legwork_gate::{Explanation, Grant, Level, Question};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{Facts, Judge, config::user_file, herald::Announcement, refusals::explained};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    events::Interest,
    id::{TaskId, random},
    model::{
        Caller, Trust,
        question::{Answered, Approval, FaceAnswer, Reply, SharedAsker, TriedCommand},
        sandbox::Wanted,
    },
    platform::{FlockOperation, NO_WAIT, OpenOptionsExt, flock, user},
    store::{audit::AuditEntry, ledger::Answerer},
    threads::in_thread,
};

/// The rule by which a command runs that a person has let out of its sandbox, once.
pub(crate) const APPROVED_UNCONFINED: &str = "approved-unconfined";

/// That a rule or a person lets a command run outside the sandbox, in the words of every face; none
/// where the sandbox is as it was configured.
pub(crate) fn outside(wanted: Wanted, explanation: &Explanation) -> Option<String> {
    let is_let_out = wanted.level == Level::None && explanation.sandbox == Some(Level::None);
    let why = match explanation.rule.as_str() {
        APPROVED_UNCONFINED => "approved once".to_owned(),
        rule => format!("rule {}", explanation.asked_by.as_deref().unwrap_or(rule)),
    };
    is_let_out.then(|| format!("runs OUTSIDE the sandbox ({why})"))
}

/// Who has approved a command that passes by an answer of before.
const EARLIER: &str = "an earlier answer";

/// What an approval's id begins with.
const PREFIX: &str = "a_";

/// What an approval is bound to, in one digest.
#[derive(Default)]
pub(super) struct ApprovalKey(Sha256);

impl ApprovalKey {
    /// Binds one more thing, with its length: nothing can be taken for a part of what is beside it.
    pub(super) fn bind(&mut self, part: impl AsRef<[u8]>) {
        self.0.update((part.as_ref().len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(super) fn into_text(self) -> String {
        data_encoding::HEXLOWER.encode(&self.0.finalize())
    }
}

/// Saves the proposed rule in the user's file, and says which that is.
async fn save_rule(approval: &Approval) -> Result<PathBuf, ToolError> {
    let Some(rule) = approval.proposed_rule.clone() else {
        return Err(no_such_reply(Reply::AllowRule));
    };
    let save = move || {
        let path = user_file();
        let path =
            path.ok_or_else(|| io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))?;
        append(&path, &rule).map(|()| path)
    };
    let saved = in_thread(save).await;
    let saved = saved.unwrap_or_else(|| Err(io::Error::other("it was cut off")));
    saved.map_err(|error| {
        ToolError::new(
            ErrorKind::ToolExecutionFailed,
            format!("the answer counts, but its rule was not saved: {error}"),
        )
        .hint("see to the space and permissions of the user's configuration, then write the rule there")
    })
}

/// The error of an answer for the session of an asker that is gone.
fn session_over() -> ToolError {
    let problem = "the program that asked is gone: its session is over";
    ToolError::new(ErrorKind::InvalidToolInput, problem)
        .hint("allow it once: then the next equal call passes")
}

/// An answer that this question does not take.
fn no_such_reply(reply: Reply) -> ToolError {
    let (problem, hint) = match reply {
        Reply::AllowOnceUnconfined => (
            "this command cannot be allowed to run outside the sandbox: it has none, the caller is not \
             trusted that far, or `[sandbox] required` is set",
            "allow it once, inside the sandbox",
        ),
        Reply::TryFirst => (
            "this command cannot be tried first: it was tried already, or nothing can be tried here",
            "allow it once, or refuse it",
        ),
        Reply::Apply => (
            "there is nothing to apply: this command was not tried",
            "have it tried first, or allow it once",
        ),
        Reply::AllowSession => (
            "this command cannot be allowed for the session: its text is not understood",
            "allow it once",
        ),
        _ => (
            "no rule can be saved for this command: it would allow more than was asked",
            "allow it once",
        ),
    };
    ToolError::new(ErrorKind::InvalidToolInput, problem).hint(hint)
}

/// Appends to a file that is its owner's alone; what is missing above it is made. One process does
/// it at a time, and what cannot be written whole is taken back: half a rule would break the file.
fn append(path: &Path, rule: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(0o600).custom_flags(NO_WAIT);
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    flock(&file, FlockOperation::LockExclusive)?;
    let before = file.metadata()?.len();
    file.write_all(format!("\n{rule}").as_bytes()).inspect_err(|_| {
        let _ = file.set_len(before);
    })
}

impl Judge {
    /// Turns a question into a grant, or into a trial, if somebody says so, or a rule. `refused`
    /// are the paths that its sandbox will not let it write.
    pub(crate) async fn ask<F: Facts>(
        &self,
        question: Question<F>,
        caller: &Caller,
        refused: Vec<String>,
        may_try: bool,
    ) -> Result<(Question<F>, Consent), ToolError> {
        let approval = self.open_question(&question, caller, refused)?;
        let approval = Approval { may_try, ..approval };
        if may_try {
            // It may have been tried for an earlier call, and somebody has answered since.
            let tried = Approval { key: tried_key(&approval), ..approval.clone() };
            if let Some(earlier) = self.answered_earlier(&tried).await? {
                return Ok((question, Consent::Given(Box::new(earlier), EARLIER.into())));
            }
            if question.explanation().tries {
                return Ok((question, Consent::TryFirst));
            }
        }
        let asker = caller.asker.as_ref();
        let (taken, by) = self.obtain(approval, asker, question.explanation()).await?;
        Ok((question, Consent::Given(Box::new(taken), by)))
    }

    /// Asks about a command that was tried: whether what it did is to be brought over.
    pub(crate) async fn ask_tried<F: Facts>(
        &self,
        question: Question<F>,
        caller: &Caller,
        refused: Vec<String>,
        tried: TriedCommand,
    ) -> Result<(Question<F>, Consent), ToolError> {
        let approval = self.open_question(&question, caller, refused)?;
        let approval = Approval {
            key: tried_key(&approval),
            tried: Some(Box::new(tried)),
            may_leave_sandbox: false,
            may_repeat: false,
            proposed_rule: None,
            ..approval
        };
        let asker = caller.asker.as_ref();
        let (taken, by) = self.obtain(approval, asker, question.explanation()).await?;
        Ok((question, Consent::Given(Box::new(taken), by)))
    }

    /// Whether an answer that was given by other rules is about this question, too.
    pub(crate) fn is_consent_to<F: Facts>(
        &self,
        consent: &Consent,
        question: &Question<F>,
        caller: &Caller,
    ) -> Result<bool, ToolError> {
        let Consent::Given(approval, _) = consent else {
            return Ok(question.explanation().tries);
        };
        let asked = self.open_question(question, caller, Vec::new())?;
        Ok([tried_key(&asked), asked.key].contains(&approval.key))
    }

    /// Turns a question into a grant, if that was answered already; otherwise opens it, and waits
    /// for nobody.
    pub(crate) async fn ask_later<F: Facts>(
        &self,
        question: Question<F>,
        caller: &Caller,
    ) -> Result<Grant<F>, ToolError> {
        let approval = self.open_question(&question, caller, Vec::new())?;
        if let Some(earlier) = self.answered_earlier(&approval).await? {
            return Ok(granted(question, &earlier, EARLIER));
        }
        let (approval, told) = self.publish(approval).await?;
        told.heard().await;
        Err(unavailable(&approval, question.explanation()))
    }

    /// An answer that lets pass what a question is about, and who gave it; an error if there is
    /// none.
    pub(super) async fn obtain(
        &self,
        approval: Approval,
        asker: Option<&SharedAsker>,
        explanation: &Explanation,
    ) -> Result<(Approval, String), ToolError> {
        if let Some(earlier) = self.answered_earlier(&approval).await? {
            return Ok((earlier, EARLIER.to_owned()));
        }
        self.say_that_we_ask()?;
        let (approval, told) = self.publish(approval).await?;
        let answered = match self.wait_for_answer(&approval, asker, explanation).await {
            Ok(answered) => answered,
            Err(error) => {
                told.heard().await;
                return Err(error);
            }
        };
        if answered.decision == Reply::Deny {
            // It is told now, and not again.
            self.take_refusal(&approval).await?;
            return Err(refusal(&approval, "it was refused", answered.note.as_deref()));
        }
        if let Some(asker) = asker
            && !asker.lets_go().await
        {
            return Err(closed(&approval, explanation));
        }
        // The answer is good for one of all who wait for it; the others ask again.
        match self.take(&approval, true).await? {
            Some(taken) => Ok((taken, answered.by)),
            None => Err(refusal(&approval, "the answer was used by an equal call", None)),
        }
    }

    /// Uses up an answer that was given earlier; an error if that was a no.
    async fn answered_earlier(&self, approval: &Approval) -> Result<Option<Approval>, ToolError> {
        if let Some(earlier) = self.take(approval, false).await? {
            self.note_use(&earlier).await;
            return Ok(Some(earlier));
        }
        match self.take_refusal(approval).await? {
            Some(no) => Err(refusal(&no, "it was refused", no.note.as_deref())),
            None => Ok(None),
        }
    }

    /// Opens a question, or joins the one that is open about the same, and tells of a new one.
    async fn publish(&self, approval: Approval) -> Result<(Approval, Announcement), ToolError> {
        let own = approval.approval_id.clone();
        let approval = self.store.ledger.open_approval(approval).await?;
        let herald = self.herald.as_ref().filter(|_| approval.approval_id == own);
        let told = herald.map_or_else(Announcement::nobody, |herald| herald.tell(&approval));
        Ok((approval, told))
    }

    /// Notes that a call passes by an answer that was given earlier.
    async fn note_use(&self, earlier: &Approval) {
        let decision = earlier.decision.map(Reply::as_str);
        let entry = AuditEntry::new("approval_used").own("decision", &decision);
        self.store.note(about(entry, earlier)).await;
    }

    fn open_question<F: Facts>(
        &self,
        question: &Question<F>,
        caller: &Caller,
        refused: Vec<String>,
    ) -> Result<Approval, ToolError> {
        let (plan, explanation) = (question.plan(), question.explanation());
        let wanted = self.wanted_by(plan.wanted(), explanation);
        let (sandbox, outside) = (wanted.to_string(), outside(wanted, explanation));
        let executed = plan.executed();
        let mut key = ApprovalKey::default();
        key.bind(plan.fingerprint());
        for (name, value) in plan.environment() {
            key.bind(name);
            key.bind(value);
        }
        for part in [&executed, plan.tool(), &sandbox, caller.trust.as_str(), &caller.name] {
            key.bind(part);
        }
        // What is answered is what was asked: another policy asks for another reason.
        key.bind(&explanation.rule);
        key.bind(&explanation.reason);
        let may_leave_sandbox = plan.starts_anew() && self.may_leave(wanted, caller.trust);
        // An answer that lets it out is worth nothing where that is not offered any more.
        key.bind([u8::from(may_leave_sandbox)]);
        let approval_id = Self::new_approval_id()?;
        Ok(Approval {
            parts: self.parts(plan),
            refused,
            may_repeat: question.is_understood(),
            task_id: None,
            lineage: Vec::new(),
            may_leave_sandbox,
            may_try: false,
            tried: None,
            proposed_rule: self
                .proposal(plan, &format!("approved-{}", approval_id.trim_start_matches(PREFIX))),
            approval_id,
            tool: plan.tool().to_owned(),
            command: plan.text().to_owned(),
            description: plan.description().map(str::to_owned),
            interpreter: Some(executed).filter(|_| !plan.is_default_shell()),
            workdir: plan.workdir().display().to_string(),
            workspace: self.workspace.clone(),
            asked_by: caller.name.clone(),
            trust: caller.trust.as_str().to_owned(),
            reason: explanation.reason.clone(),
            rule: explanation.rule.clone(),
            cause: explanation.command.clone(),
            // A person who relies on it must know what it is worth.
            sandbox: if plan.sandboxed() || wanted.level == Level::None {
                wanted.words(outside.as_deref())
            } else {
                format!("{sandbox}; not all of it is in force on this machine")
            },
            created_at_ms: now_ms(),
            expires_at_ms: self.expiry(),
            decision: None,
            note: None,
            answered_by: None,
            key: key.into_text(),
            session: self.session.clone(),
        })
    }

    pub(super) fn new_approval_id() -> Result<String, ToolError> {
        random(PREFIX).map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })
    }

    /// Until when a question that is asked now can be answered.
    pub(super) fn expiry(&self) -> i64 {
        let expires = i64::try_from(self.settings.approval_expires.as_millis());
        now_ms().saturating_add(expires.unwrap_or(i64::MAX))
    }

    /// Uses up an answer to this question, or to an equal one of this session.
    pub(crate) async fn take(
        &self,
        approval: &Approval,
        has_waited: bool,
    ) -> Result<Option<Approval>, ToolError> {
        let Approval { key, session, .. } = approval;
        Ok(self.store.ledger.take_approval(key, session, has_waited).await?)
    }

    /// Uses up a no to this question, or to an equal one of this session.
    pub(crate) async fn take_refusal(
        &self,
        approval: &Approval,
    ) -> Result<Option<Approval>, ToolError> {
        Ok(self.store.ledger.take_refusal(&approval.key, &approval.session).await?)
    }

    /// Says that this session is here: its questions are nobody else's for as long as it is.
    fn say_that_we_ask(&self) -> Result<(), ToolError> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.is_none() {
            *asking = Some(self.store.ledger.note_asker(&self.session)?);
        }
        Ok(())
    }

    /// The questions that wait for an answer, oldest first.
    pub(crate) async fn questions(&self) -> Result<Vec<Approval>, ToolError> {
        Ok(self.store.ledger.open_approvals().await?)
    }

    /// Whether the session that asked is still here.
    pub(crate) fn is_asking(&self, approval: &Approval) -> bool {
        self.store.ledger.has_asker(&approval.session)
    }

    /// The answers that can be given now, the safest first: one for the session is of no use to an
    /// asker that is gone.
    pub(crate) fn replies(&self, approval: &Approval) -> Vec<Reply> {
        let mut replies = approval.replies();
        if !self.is_asking(approval) {
            replies.retain(|reply| *reply != Reply::AllowSession);
        }
        replies
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
        let id = &approval.approval_id;
        if !self.replies(&approval).contains(&answered.decision) {
            // Before it is answered, so that it can still be.
            let would_do = approval.replies().contains(&answered.decision);
            return Err(if would_do { session_over() } else { no_such_reply(answered.decision) });
        }
        let recorded = self.record(id, &answered).await?;
        recorded.ok_or_else(|| {
            unknown(format!("the question `{id}` was answered just now, or is over"))
        })
    }

    /// Writes an answer down, does what follows from it and notes it; none if another one counts.
    async fn record(&self, id: &str, answered: &Answered) -> Result<Option<Approval>, ToolError> {
        let Some(approval) = self.store.ledger.answer_approval(id, answered).await? else {
            return Ok(None);
        };
        let saved = match answered.decision {
            Reply::AllowRule => Some(save_rule(&approval).await),
            _ => None,
        };
        let file = saved.as_ref().and_then(|saved| saved.as_ref().ok());
        let rule = approval.proposed_rule.as_deref().filter(|_| file.is_some());
        let entry = AuditEntry::new("approval")
            .own("decision", answered.decision.as_str())
            .own("uid", &user())
            .with("answered_by", answered.by.as_str())
            .with("note", answered.note.clone())
            .with("rule_saved", rule)
            .with("rule_file", file.map(|path| path.display().to_string()));
        self.store.note(about(entry, &approval)).await;
        saved.transpose()?;
        Ok(Some(approval))
    }

    /// Whether a person may let a command of this trust run outside its sandbox.
    fn may_leave(&self, wanted: Wanted, trust: Trust) -> bool {
        wanted.level != Level::None
            && trust.reaches(Trust::TrustedSystem)
            && !self.requires_protection()
    }

    /// Says that somebody is here who answers questions, of one workspace or of all, until the
    /// result is dropped.
    pub(crate) fn watch(&self, workspace: Option<&str>) -> Result<Answerer, ToolError> {
        Ok(self.store.ledger.note_watcher(workspace)?)
    }

    /// Waits for whoever answers first: the caller's own face, or anybody else of this user.
    async fn wait_for_answer(
        &self,
        approval: &Approval,
        asker: Option<&SharedAsker>,
        explanation: &Explanation,
    ) -> Result<Answered, ToolError> {
        let watched = self.store.ledger.has_watcher(&approval.workspace);
        let wait = match (asker, watched) {
            (Some(_), _) | (_, true) => self.settings.approval_expires,
            (None, false) => self.settings.approval_wait,
        };
        if wait.is_zero() {
            return Err(unavailable(approval, explanation));
        }
        let own_face = async {
            match asker {
                Some(asker) => asker.ask(approval.clone()).await,
                None => std::future::pending().await,
            }
        };
        let deadline = Instant::now() + wait;
        tokio::select! {
            answer = own_face => {
                let error = match answer {
                    FaceAnswer::Answered(answered) => {
                        return self.answered_here(approval, answered).await;
                    }
                    FaceAnswer::Closed => closed(approval, explanation),
                    FaceAnswer::NotShown => unavailable(approval, explanation),
                };
                // Somebody else may answer.
                self.answered_by_others(approval, watched, error).await
            }
            answered = async {
                match asker {
                    None if watched => {
                        let error = unavailable(approval, explanation);
                        self.answered_by_others(approval, watched, error).await
                    }
                    _ => self.answered_elsewhere(approval).await,
                }
            } => answered,
            // Whoever answers in the last moment has answered.
            () = tokio::time::sleep_until(deadline) => match self.answer_to(approval).await? {
                Some(answered) => Ok(answered),
                None => Err(expired(approval)),
            },
        }
    }

    /// Takes the answer of the caller's own face; the first one counts, whoever gave it.
    async fn answered_here(
        &self,
        approval: &Approval,
        mut answered: Answered,
    ) -> Result<Answered, ToolError> {
        // Anything but a clear yes is a no.
        if !approval.replies().contains(&answered.decision) {
            answered.decision = Reply::Deny;
        }
        match self.record(&approval.approval_id, &answered).await? {
            Some(_) => Ok(answered),
            None => self.answered_elsewhere(approval).await,
        }
    }

    /// Waits for the answer of another process, for as long as somebody watches who may give it,
    /// and then a while; the error is for where nobody has.
    async fn answered_by_others(
        &self,
        approval: &Approval,
        watched: bool,
        error: ToolError,
    ) -> Result<Answered, ToolError> {
        let given_up = async {
            if watched {
                self.store.ledger.no_watcher(&approval.workspace).await;
            }
            tokio::time::sleep(self.settings.approval_wait).await;
        };
        tokio::select! {
            answered = self.answered_elsewhere(approval) => answered,
            // Whoever answers in the last moment has answered.
            () = given_up => self.answer_to(approval).await?.ok_or(error),
        }
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
                let by = found.answered_by.unwrap_or_else(|| "the user".into());
                Ok(Some(Answered { decision, note: found.note, by }))
            }
            None if found.is_expired() => Err(expired(approval)),
            None => Ok(None),
        }
    }
}

/// An answer to a question that is no refusal.
#[derive(Debug)]
pub(crate) enum Consent {
    /// A person said so; who that was.
    Given(Box<Approval>, String),
    /// A rule has it tried.
    TryFirst,
}

impl Consent {
    /// What follows for the question that it was given to.
    pub(crate) fn to<F>(&self, question: Question<F>) -> Asked<F> {
        match self {
            Self::Given(approval, by) => asked(question, approval, by),
            Self::TryFirst => Asked::TryFirst(question),
        }
    }

    /// What follows where nobody has to be asked any more.
    pub(crate) fn to_allowed<F>(&self, grant: Grant<F>) -> Asked<F> {
        match self {
            Self::Given(approval, _) => match tried_by(approval) {
                Some(trial) => Asked::Apply(trial),
                None => Asked::Granted(grant),
            },
            Self::TryFirst => Asked::Granted(grant),
        }
    }
}

/// The trial that is to be brought over by an answer.
fn tried_by(approval: &Approval) -> Option<TaskId> {
    let tried = approval.tried.as_ref().filter(|_| approval.decision == Some(Reply::Apply))?;
    Some(tried.task_id.clone())
}

/// What follows from an answer that is no refusal.
#[derive(Debug)]
pub(crate) enum Asked<F> {
    /// It may run.
    Granted(Grant<F>),
    /// It is tried on a copy first, and then asked about again.
    TryFirst(Question<F>),
    /// What this trial of it did is brought over.
    Apply(TaskId),
}

/// The key of the question about a command that was tried.
fn tried_key(approval: &Approval) -> String {
    let mut key = ApprovalKey::default();
    key.bind(&approval.key);
    key.bind("tried");
    key.into_text()
}

fn asked<F>(question: Question<F>, approval: &Approval, by: &str) -> Asked<F> {
    match tried_by(approval) {
        Some(trial) => Asked::Apply(trial),
        None if approval.decision == Some(Reply::TryFirst) => Asked::TryFirst(question),
        None => Asked::Granted(granted(question, approval, by)),
    }
}

/// A question that somebody has answered with a yes.
fn granted<F>(question: Question<F>, approval: &Approval, by: &str) -> Grant<F> {
    let explanation = question.explanation();
    let reason = format!("approved by {by}; {}", explanation.reason);
    let asked_by = Some(explanation.rule.clone());
    let mut approved =
        Explanation { rule: "approved".into(), reason, asked_by, ..explanation.clone() };
    if approval.decision == Some(Reply::AllowOnceUnconfined) {
        approved.rule = APPROVED_UNCONFINED.into();
        approved.sandbox = Some(Level::None);
    }
    approved.note.clone_from(&approval.note);
    question.approve(approved)
}

/// An entry with what the question was about.
fn about(entry: AuditEntry, approval: &Approval) -> AuditEntry {
    entry
        .own("approval_id", &approval.approval_id)
        .own("trust", &approval.trust)
        .with("asked_by", approval.asked_by.as_str())
        .with("tool", approval.tool.as_str())
        .with("workspace", approval.workspace.as_str())
        .with("workdir", approval.workdir.as_str())
        .with("interpreter", approval.interpreter.as_deref())
        .with("sandbox", approval.sandbox.as_str())
        .command(&approval.command)
}

fn refusal(approval: &Approval, why: &str, note: Option<&str>) -> ToolError {
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

/// What a caller can do about a question that nobody has answered.
fn answer_first(approval: &Approval) -> String {
    let id = &approval.approval_id;
    format!("ask the person to approve question `{id}`, then make the same call again")
}

fn expired(approval: &Approval) -> ToolError {
    ToolError::new(
        ErrorKind::ApprovalExpired,
        format!("this has to be approved, and nobody answered in time: {}", approval.reason),
    )
    .detail("approval_id", approval.approval_id.as_str())
    .hint(answer_first(approval))
}

/// Nobody is there who could be asked.
fn unavailable(approval: &Approval, explanation: &Explanation) -> ToolError {
    unanswered(approval, explanation, "nobody can be asked now")
}

/// The question was shown and closed.
fn closed(approval: &Approval, explanation: &Explanation) -> ToolError {
    unanswered(approval, explanation, "the question was closed without an answer")
}

fn unanswered(approval: &Approval, explanation: &Explanation, why: &str) -> ToolError {
    let problem = format!("this has to be approved, and {why}: {}", approval.reason);
    explained(ErrorKind::ApprovalUnavailable, problem, explanation)
        .detail("approval_id", approval.approval_id.as_str())
        .hint(answer_first(approval))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn rules_that_are_saved_at_once_are_all_saved_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("folder/config.toml");
        let rule = |number: usize| {
            let long = "x".repeat(20_000);
            format!("[[rule]]\nid = \"r{number}\"\ndecision = \"allow\"\nprogram = \"{long}\"\n")
        };
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (path, rule) = (&path, rule(number));
                scope.spawn(move || append(path, &rule).unwrap());
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        for number in 0..16 {
            assert!(text.contains(&rule(number)), "{number}");
        }
        assert_eq!(text.len(), (0..16).map(|number| rule(number).len() + 1).sum::<usize>());
    }

    #[test]
    fn a_rule_is_saved_in_no_pipe() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("config.toml");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(append(&path, "[[rule]]\n").is_err());
    }
}
