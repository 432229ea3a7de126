//! Commands that are tried before they are allowed: run on a copy, asked about with what they did,
//! then applied, run for real, or forgotten.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use legwork_gate::{Question, Verdict};

use super::{
    Submitted, Tasks,
    observe::Observer,
    only_tried,
    plan::Plan,
    run::Run,
    trials::{ShownChanges, still_runs},
};
use crate::{
    error::{ErrorKind, ToolError},
    id::TaskId,
    judge::{Asked, denied},
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
        asked: Asked<Plan>,
        caller: &Caller,
        refused: Vec<String>,
    ) -> Result<Submitted, ToolError> {
        let question = match asked {
            Asked::Granted(grant) => return self.begin(id, grant, caller).await,
            Asked::Apply(trial) => return self.apply_answered(&trial).await,
            Asked::TryFirst(question) => question,
        };
        let mut run = self.try_out(&question, caller).await?;
        let trial = run.task_id().clone();
        let asked = match self.describe(&mut run).await {
            Ok(tried) => self.judge.ask_tried(question, caller, refused, tried).await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(Asked::Apply(answered)) => {
                self.remember_tried(run);
                if answered != trial {
                    self.forget_trial(&trial).await?;
                }
                self.apply_answered(&answered).await
            }
            Ok(Asked::Granted(grant)) => {
                self.forget_trial(&trial).await?;
                self.begin(id, grant, caller).await
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
            observer.stop(Signal::TERM.as_raw(), GRACE).await?;
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

/// How a command ended.
fn ended_in_words(outcome: &Outcome) -> String {
    match (outcome.ended_by, outcome.exit_status, outcome.signal) {
        (Some(by), ..) => by.sentence().to_owned(),
        (None, Some(code), _) => format!("exit code {code}"),
        (None, None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None, None) => "its outcome is unknown".to_owned(),
    }
}
