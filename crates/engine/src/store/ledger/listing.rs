//! Lists of tasks for people: some of them, newest first, with ids as short as can be.

use rusqlite::Connection;

use super::{Ledger, LedgerError, Task, names, select};
use crate::{id::TaskId, model::status::Status};

/// Which tasks are wanted; everything that is absent is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only those of these statuses; empty: all.
    pub statuses: Vec<Status>,
    /// Only those of this workspace, by its absolute path, and of workspaces inside of it.
    pub workspace: Option<String>,
    /// Of that workspace alone, and not of those inside of it.
    pub exact: bool,
    /// Only those that were registered at this time or later, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Only those that were registered before the task of this id: the next page. They all count.
    pub before: Option<String>,
}

impl TaskFilter {
    /// The tasks that have not ended.
    pub fn open() -> Self {
        let open = Status::ALL.into_iter().filter(|status| !status.is_final());
        Self { statuses: open.collect(), ..Self::default() }
    }

    /// The condition; `?1` is the workspace, `?2` the time, `?3` the id of the task before.
    fn sql(&self) -> String {
        let statuses = names(|status| self.statuses.is_empty() || self.statuses.contains(&status));
        let is_open = !self.statuses.is_empty() && !self.statuses.iter().any(|it| it.is_final());
        // Most rows have ended, and the index holds the few that have not.
        let few = if is_open { "INDEXED BY task_open WHERE outcome IS NULL AND" } else { "WHERE" };
        let inside =
            if self.exact { "" } else { "OR substr(workspace, 1, length(?1) + 1) = ?1 || '/'" };
        format!(
            "{few} status IN ({statuses}) AND created_at_ms >= ?2
                  AND (?1 IS NULL OR workspace = ?1 {inside})
                  AND (?3 IS NULL OR sequence < (SELECT sequence FROM task WHERE id = ?3))"
        )
    }

    /// The values of the condition.
    fn values(&self) -> (Option<&str>, i64) {
        let inside = |path: &str| path.trim_end_matches('/').len();
        let workspace = match self.workspace.as_deref() {
            // The root is a workspace like any other; what is inside of it is everything.
            Some(path) if self.exact => Some(path),
            Some(path) => path.get(..inside(path)).filter(|path| !path.is_empty()),
            None => None,
        };
        (workspace, self.since_ms.unwrap_or(i64::MIN))
    }
}

impl Ledger {
    /// The tasks that are wanted, newest first and at most so many, and how many there are in all.
    pub(crate) async fn matching(
        &self,
        filter: TaskFilter,
        limit: u32,
    ) -> Result<(Vec<Task>, u64), LedgerError> {
        // Without a condition, and for what is open, nothing has to be counted.
        let is_all = filter == TaskFilter::default();
        if is_all || filter == TaskFilter::open() {
            let tasks = self.list(None, is_all, limit).await?;
            return Ok((tasks, self.count(None, is_all).await?));
        }
        let listed = self.writer.read(move |connection| {
            let (condition, (workspace, since_ms)) = (filter.sql(), filter.values());
            let sql = format!(
                "SELECT {} FROM task WHERE sequence IN
                     (SELECT sequence FROM task {condition} ORDER BY sequence DESC LIMIT ?4)
                  ORDER BY sequence DESC",
                Task::COLUMNS,
            );
            let tasks = select(connection, &sql, (workspace, since_ms, &filter.before, limit))?;
            let mut statement =
                connection.prepare_cached(&format!("SELECT count(*) FROM task {condition}"))?;
            let total: i64 =
                statement.query_row((workspace, since_ms, None::<String>), |row| row.get(0))?;
            Ok((tasks, total.cast_unsigned()))
        });
        listed.await
    }

    /// For each id, how many characters of it no other task's id begins with.
    pub(crate) async fn distinct_chars(&self, ids: Vec<TaskId>) -> Result<Vec<usize>, LedgerError> {
        let count = move |connection: &Connection| {
            ids.iter().map(|id| distinct_chars(connection, id.as_str())).collect()
        };
        self.writer.read(count).await
    }
}

/// Of all ids, the neighbours in their order have the most in common with one.
fn distinct_chars(connection: &Connection, id: &str) -> rusqlite::Result<usize> {
    let sql = "SELECT (SELECT id FROM task WHERE id < ?1 ORDER BY id DESC LIMIT 1),
                      (SELECT id FROM task WHERE id > ?1 ORDER BY id LIMIT 1)";
    let neighbours: [Option<String>; 2] =
        connection.prepare_cached(sql)?.query_row([id], |row| Ok([row.get(0)?, row.get(1)?]))?;
    let common = |other: &String| {
        id.bytes().zip(other.bytes()).take_while(|(mine, theirs)| mine == theirs).count()
    };
    Ok(neighbours.iter().flatten().map(common).max().unwrap_or(0) + 1)
}
