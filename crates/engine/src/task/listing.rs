//! Finding tasks: by workspace, by id, by the beginning of an id.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{Tasks, observe::Observer};
use crate::{
    clock::now_ms,
    error::{ErrorKind, ToolError},
    id::TaskId,
    model::Session,
    platform::Signal,
    store::ledger::{Task, TaskFilter},
};

/// Among this many of the latest tasks those are looked for that have left processes behind.
const LEFT_AMONG: u32 = 200;
/// How long what ends with its session may take to end by itself.
const GRACE: Duration = Duration::from_millis(400);
/// What may run on alone for longer than a year is kept for good.
const KEPT_MS: i64 = 365 * 24 * 3_600_000;

impl Tasks {
    /// The tasks of all workspaces, newest first; those that only seem to run are settled before.
    pub(crate) async fn all(&self, finished_too: bool, limit: u32) -> Result<Vec<Task>, ToolError> {
        self.listed(None, finished_too, limit).await.map(|(tasks, _)| tasks)
    }

    /// The tasks that are wanted, newest first, and how many there are in all.
    pub(crate) async fn matching(
        &self,
        filter: TaskFilter,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.settle_all().await?;
        Ok(self.store.ledger.matching(filter, limit).await?)
    }

    /// When a task will be stopped because it has lost its engine, in milliseconds since 1970; none
    /// if it has one, or is kept.
    pub(crate) fn alone_until_ms(&self, task: &Task) -> Option<i64> {
        let now = now_ms();
        let told = || self.place.alone_until_ms(&task.warden);
        let until = if task.status.is_final() { None } else { told() };
        until.filter(|until| (now..now.saturating_add(KEPT_MS)).contains(until))
    }

    /// For each id, how many characters of it no other task's id begins with.
    pub(crate) async fn distinct_chars(&self, ids: Vec<TaskId>) -> Result<Vec<usize>, ToolError> {
        Ok(self.store.ledger.distinct_chars(ids).await?)
    }

    /// The tasks of this workspace, newest first, and how many there are in all.
    pub(crate) async fn here(
        &self,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        let workspace = self.visible_workspace();
        let (mut tasks, mut total) = self.listed(workspace.as_deref(), finished_too, limit).await?;
        if !finished_too {
            let left = self.left_running(workspace.as_deref()).await?;
            total += left.len() as u64;
            tasks.extend(left);
            tasks.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok((tasks, total))
    }

    /// Tasks that are over, and of which processes still run in the background; of the latest.
    pub(crate) async fn left_running(
        &self,
        workspace: Option<&str>,
    ) -> Result<Vec<Task>, ToolError> {
        let latest = self.store.ledger.left_behind(workspace, LEFT_AMONG).await?;
        Ok(latest.into_iter().filter(|task| !self.left_by(task).is_empty()).collect())
    }

    /// The processes that a finished task left behind and that still run, with their command lines
    /// as they are. Once its warden is gone, the pids may be those of others.
    pub(crate) fn left_by(&self, task: &Task) -> Vec<(u32, String)> {
        let left = task.outcome.as_ref().map(|outcome| outcome.background_pids.as_slice());
        let Some(pids) = left.filter(|pids| !pids.is_empty()) else { return Vec::new() };
        let is_alive = self.place.is_alive(&task.warden).unwrap_or(false);
        if is_alive { self.place.processes(pids) } else { Vec::new() }
    }

    /// Ends what the commands of a session have left running, if it ends with the session.
    pub(crate) async fn end_session(self: &Arc<Self>, session: &Session) {
        if !session.ends_what_is_left() {
            return;
        }
        let mut ends = JoinSet::new();
        for id in session.all_started() {
            let found = self.store.ledger.find(&id).await.unwrap_or_default();
            for task in found.into_iter().filter(|task| !self.left_by(task).is_empty()) {
                ends.spawn(self.clone().end_left(task));
            }
        }
        ends.join_all().await;
    }

    async fn end_left(self: Arc<Self>, task: Task) {
        let id = task.task_id.clone();
        let ended = async {
            let mut observer = Observer::of(self, task).await?;
            observer.own_controls().stop(Signal::TERM.as_raw(), GRACE).await
        };
        if let Err(error) = ended.await {
            tracing::warn!(task_id = %id, %error, "what a task left running is not ended");
        }
    }

    async fn listed(
        &self,
        workspace: Option<&str>,
        finished_too: bool,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), ToolError> {
        self.settle_all().await?;
        let tasks = self.store.ledger.list(workspace, finished_too, limit).await?;
        Ok((tasks, self.store.ledger.count(workspace, finished_too).await?))
    }

    /// The task of this id, if it is one of this workspace.
    pub(crate) async fn one_here(&self, id: &str) -> Result<Task, ToolError> {
        let workspace = self.visible_workspace();
        let is_meant = |task: &Task| {
            let here = workspace.as_ref().is_none_or(|workspace| *workspace == task.workspace);
            here && task.task_id.as_str() == id
        };
        self.find(id).await?.into_iter().find(is_meant).ok_or_else(|| {
            ToolError::new(ErrorKind::UnknownTask, format!("no task has the id `{id}`"))
                .detail("task_id", id)
                .hint("TaskList shows the tasks of this workspace")
        })
    }

    /// The task whose id begins with this text; `@` is the newest.
    pub(crate) async fn one(&self, prefix: &str) -> Result<Task, ToolError> {
        let found = match prefix {
            "@" => self.store.ledger.list(None, true, 1).await,
            _ => self.find(prefix).await,
        };
        let mut found = found?.into_iter();
        let unknown = |problem: String| {
            ToolError::new(ErrorKind::UnknownTask, problem)
                .detail("prefix", prefix)
                .hint("list the tasks to see their ids")
        };
        match (found.next(), found.next()) {
            (Some(task), None) => Ok(self.settle_if_gone(task).await?),
            (Some(_), Some(_)) => {
                Err(unknown(format!("more than one task begins with `{prefix}`")))
            }
            (None, _) if prefix == "@" => Err(unknown("there is no task yet".into())),
            (None, _) => Err(unknown(format!("no task has the id `{prefix}`"))),
        }
    }

    /// The workspace whose tasks may be known; none if all may.
    pub(super) fn visible_workspace(&self) -> Option<String> {
        (!self.ground.all_workspaces).then(|| self.workspace().display().to_string())
    }
}
