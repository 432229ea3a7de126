//! Commands that are tried before they are allowed: run on a copy, asked about with what they did,
//! then applied, run for real, or forgotten.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use legwork_gate::{Question, Subject as _, Verdict};

use super::{
    Submitted, Tasks,
    observe::Observer,
    only_tried,
    plan::{Plan, Surroundings},
    run::Run,
    trials::{ShownChanges, still_runs},
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::{Asked, Consent, denied},
    model::{
        Caller, Outcome,
        question::{Approval, Reply, TriedCommand},
    },
    platform::Signal,
};

/// How many commands that were tried are remembered, for answers that come later.
const TRIED_MAX: usize = 16;

/// How much of a difference a question shows.
const IN_QUESTION: ShownChanges = ShownChanges { lines_max: 60, diff: Some((150, 12 * 1024)) };

/// How much of what a command printed a question shows.
const OUTPUT_BYTES: u64 = 1500;

/// How long a trial's processes may take to end that its command has left behind.
const GRACE: Duration = Duration::from_millis(500);

impl Tasks {
    /// Goes on with a request after somebody was asked about it.
    pub(super) async fn after_question(
        self: &Arc<Self>,
        id: TaskId,
        answered: (Question<Plan>, Consent),
        caller: &Caller,
        refused: Vec<String>,
    ) -> Result<Submitted, ToolError> {
        let (now, asked) = self.by_the_rules_of_now(&id, answered, caller).await?;
        let question = match asked {
            Asked::Granted(grant) => return now.begin(id, grant, caller).await,
            Asked::Apply(trial) => return now.apply_answered(&trial).await,
            Asked::TryFirst(question) => question,
        };
        now.after_trial(id, question, caller, refused).await
    }

    /// Tries the command of a question, and goes on with what is said of the trial.
    async fn after_trial(
        self: &Arc<Self>,
        id: TaskId,
        question: Question<Plan>,
        caller: &Caller,
        refused: Vec<String>,
    ) -> Result<Submitted, ToolError> {
        let mut run = self.try_out(&question, caller).await?;
        let trial = run.task_id().clone();
        let asked = async {
            let tried = self.describe(&mut run).await?;
            let answered = self.judge.ask_tried(question, caller, refused, tried).await?;
            let decided = self.by_the_rules_of_now(&id, answered, caller).await;
            decided.map(|(_, asked)| asked)
        };
        match asked.await {
            Ok(Asked::Apply(answered)) => {
                self.remember_tried(run);
                if answered != trial {
                    self.forget_trial(&trial).await?;
                }
                self.apply_answered(&answered).await
            }
            Ok(Asked::Granted(grant)) => {
                self.forget_trial(&trial).await?;
                self.current().await.begin(id, grant, caller).await
            }
            // It is not offered twice.
            Ok(Asked::TryFirst(_)) => {
                Err(ToolError::new(ErrorKind::ToolExecutionFailed, "the command was tried already"))
            }
            Err(error) => {
                let may_come = [ErrorKind::ApprovalUnavailable, ErrorKind::ApprovalExpired];
                if may_come.contains(&error.kind) {
                    self.remember_tried(run);
                } else {
                    self.forget_trial(&trial).await?;
                }
                Err(error)
            }
        }
    }

    /// What follows from an answer. A person takes a while: where the configuration has changed
    /// since the question was opened, the command is judged again, and what is denied by now does
    /// not run.
    async fn by_the_rules_of_now(
        self: &Arc<Self>,
        id: &TaskId,
        (question, consent): (Question<Plan>, Consent),
        caller: &Caller,
    ) -> Result<(Arc<Self>, Asked<Plan>), ToolError> {
        let now = self.current().await;
        if Arc::ptr_eq(&now, self) {
            return Ok((now, consent.to(question)));
        }
        now.judge.check()?;
        let explanation = question.explanation().clone();
        let plan = now.plan_again(question.approve(explanation).into_plan()).await?;
        let asked = match now.judged(id, plan, caller).await? {
            Verdict::Deny(denial) => return Err(denied(denial)),
            Verdict::Allow(grant) => consent.to_allowed(grant),
            Verdict::Ask(question) if now.judge.is_consent_to(&consent, &question, caller)? => {
                consent.to(question)
            }
            Verdict::Ask(_) => return Err(something_else_now()),
        };
        Ok((now, asked))
    }

    /// Decides again what depends on the configuration.
    async fn plan_again(&self, plan: Plan) -> Result<Plan, ToolError> {
        let place = match plan.place().name() {
            Some(name) => self.chosen_place(Some(name))?,
            None => self.place.clone(),
        };
        let wanted = self.judge.wanted(plan.trust());
        let sandbox = self.sandbox_at(&place, wanted).await?;
        let sandboxed = sandbox.is_some_and(|sandbox| sandbox.is_whole());
        let around = Surroundings { trust: plan.trust(), wanted, sandboxed };
        plan.again(&self.ground, place, around, &self.judge.settings.task_limits)
    }

    /// Runs the command of a question on a copy, as a task of its own, and waits for its end.
    async fn try_out(
        self: &Arc<Self>,
        question: &Question<Plan>,
        caller: &Caller,
    ) -> Result<Run, ToolError> {
        let plan = question.plan().to_try();
        let id = TaskId::random().map_err(|error| {
            ToolError::new(ErrorKind::ToolExecutionFailed, format!("no random id: {error}"))
        })?;
        let grant = match self.judged(&id, plan, caller).await? {
            Verdict::Allow(grant) => grant,
            Verdict::Ask(question) => only_tried(question),
            Verdict::Deny(denial) => return Err(denied(denial)),
        };
        let started = Box::pin(self.begin(id.clone(), grant, caller)).await;
        let ended = match started {
            Ok(Submitted::Started(mut run)) => run.ended().await.map(|_| run),
            Ok(Submitted::AlreadyRunning(_)) => {
                Err(ToolError::new(ErrorKind::ToolExecutionFailed, "the trial was not started"))
            }
            Err(error) => Err(error),
        };
        if ended.is_err() {
            let _ = self.forget_trial(&id).await;
        }
        ended
    }

    /// What a command did that was tried. What it left running is stopped first.
    async fn describe(self: &Arc<Self>, run: &mut Run) -> Result<TriedCommand, ToolError> {
        let ended = run.ended().await?;
        let (id, left) = (run.task_id().clone(), !ended.outcome.background_pids.is_empty());
        let mut is_over = self.is_warden_gone(&run.warden(), left).await;
        if left && !is_over {
            let task = self.one(id.as_str()).await?;
            let mut observer = Observer::of(self.clone(), task.clone()).await?;
            observer.own_controls().stop(Signal::TERM.as_raw(), GRACE).await?;
            is_over = self.is_let_go(&task).await;
        }
        if !is_over {
            return Err(still_runs(&id));
        }
        let shown = self.shown_changes(id.clone(), Vec::new(), IN_QUESTION).await?;
        let mask = self.mask.get();
        let output = run.output(&ended).and_then(|it| it.tail(&mask, OUTPUT_BYTES, true));
        Ok(TriedCommand {
            task_id: id,
            ended: ended_in_words(&ended.outcome),
            sandbox: run.sandbox().words(),
            summary: shown.counted,
            list: shown.list,
            diff: shown.diff.unwrap_or_default(),
            output: output.unwrap_or_default().text.trim_end().to_owned(),
        })
    }

    /// Brings over what a trial did that somebody was asked about. Whoever made the call again gets
    /// the result of the trial: the command has run.
    async fn apply_answered(self: &Arc<Self>, trial: &TaskId) -> Result<Submitted, ToolError> {
        let run = self.tried.lock().unwrap_or_else(PoisonError::into_inner).remove(trial);
        let task = self.one(trial.as_str()).await?;
        if self.trials_folder().has(trial) {
            self.apply_trial(&task, Vec::new(), "the person who was asked").await?;
        }
        match run {
            Some(run) => Ok(Submitted::Started(run)),
            None => Err(ToolError::new(
                ErrorKind::ToolExecutionFailed,
                format!(
                    "this command was tried as task {trial}, and what it changed was brought over: it is done"
                ),
            )
            .detail("task_id", trial.as_str())
            .hint("read the output of that task; do not run the command again")),
        }
    }

    /// Does what follows from an answer about a trial: it is forgotten after a no, and applied here
    /// where its asker is gone.
    pub(crate) async fn settle_tried(
        self: &Arc<Self>,
        question: &Approval,
    ) -> Result<(), ToolError> {
        let Some(tried) = &question.tried else { return Ok(()) };
        match question.decision {
            Some(Reply::Apply) if !self.judge.is_asking(question) => {
                let task = self.one(tried.task_id.as_str()).await?;
                let by = question.answered_by.as_deref().unwrap_or("the user");
                self.apply_trial(&task, Vec::new(), by).await.map(drop)
            }
            Some(Reply::Deny) => self.forget_trial(&tried.task_id).await,
            _ => Ok(()),
        }
    }

    fn remember_tried(&self, run: Run) {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.len() >= TRIED_MAX {
            tried.clear();
        }
        tried.insert(run.task_id().clone(), run);
    }
}

/// The error of an answer that does not fit any more.
fn something_else_now() -> ToolError {
    let problem = "this was approved, but the configuration has changed since it was asked: it would \
                   be confined in another way now";
    let mut error = ToolError::new(ErrorKind::ApprovalExpired, problem)
        .hint("make the same call again: the person is asked about it as it is now");
    error.retryable = true;
    error
}

/// How a command ended.
fn ended_in_words(outcome: &Outcome) -> String {
    match (outcome.ended_by, outcome.exit_status, outcome.signal) {
        (Some(by), ..) => by.sentence().to_owned(),
        (None, Some(code), _) => format!("exit code {code}"),
        (None, None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None, None) => "its outcome is unknown".to_owned(),
    }
}
