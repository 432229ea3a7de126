//! The table of tasks that `ps` and `legwork` alone print: short id, age, time, status, folder,
//! command.

use std::collections::HashSet;

use legwork::{
    EndedBy, Engine, Status, Task, TaskFilter, TaskId, ToolError, gate::units::shown_ms,
    signal_name,
};

use super::background::counted;
use crate::{
    render::{escaped, now_ms, time},
    style::{Style, Tone, cut_start, from_home},
    table::{Table, TableCell},
};

/// Least characters of an id: fewer would not look like one.
const ID_CHARS_MIN: usize = 6;

/// A terminal that is narrower has no room for folders.
const FOLDER_FROM: usize = 70;

/// A terminal that is narrower has no room for the words of a sandbox.
const SANDBOX_FROM: usize = 140;

/// What the column takes that says when a task is stopped for having no client.
const ALONE_COLUMNS: usize = 14;

/// What the column takes that counts processes in the background.
const BACKGROUND_COLUMNS: usize = 12;

/// Tasks to be shown.
pub(super) struct Listed {
    pub tasks: Vec<Task>,
    /// How many there are in all.
    pub total: u64,
    /// For each of them the characters of its id that are enough.
    short: Vec<usize>,
    /// For each of them when it will be stopped for having no client.
    alone: Vec<Option<i64>>,
    /// Those that wait for an answer to a question.
    asking: HashSet<TaskId>,
    /// For each of them how many processes it left running in the background.
    background: Vec<usize>,
}

impl Listed {
    /// The newest of the tasks that are wanted, without secrets.
    pub(super) async fn read(
        engine: &Engine,
        filter: TaskFilter,
        limit: u32,
    ) -> Result<Self, ToolError> {
        let (tasks, total) = engine.tasks_matching(filter, limit).await?;
        Self::of(engine, tasks, total).await
    }

    /// Finished tasks that left processes running in the background.
    pub(super) async fn left_running(engine: &Engine, limit: u32) -> Result<Self, ToolError> {
        let mut tasks = engine.tasks_left_running().await?;
        let total = tasks.len() as u64;
        tasks.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Self::of(engine, tasks, total).await
    }

    async fn of(engine: &Engine, tasks: Vec<Task>, total: u64) -> Result<Self, ToolError> {
        let short = engine.distinct_chars(tasks.iter().map(|it| it.task_id.clone()).collect());
        let short = short.await?;
        let alone = tasks.iter().map(|task| engine.alone_until_ms(task)).collect();
        let open = engine.approvals().await?;
        let asking = open.into_iter().filter_map(|question| question.task_id).collect();
        let background = tasks.iter().map(|task| engine.background_processes(task).len()).collect();
        let mask = engine.mask();
        let tasks = tasks.into_iter().map(|task| task.masked(&mask)).collect();
        Ok(Self { tasks, total, short, alone, asking, background })
    }

    /// The status of one of them.
    fn status(&self, task: &Task) -> (Tone, String) {
        if self.asking.contains(&task.task_id) {
            return (Tone::Notable, "asks".into());
        }
        status(task)
    }

    /// Whether a task of the list left processes running.
    pub(super) fn has_background(&self) -> bool {
        self.background.iter().any(|count| *count > 0)
    }

    /// How many are not shown.
    pub(super) fn more(&self) -> u64 {
        self.total.saturating_sub(self.tasks.len() as u64)
    }

    /// The list as it fits.
    pub(super) fn table(&self, style: Style) -> String {
        let is_alone = self.alone.iter().any(Option::is_some);
        let has_left = self.has_background();
        let taken = if is_alone { ALONE_COLUMNS } else { 0 }
            + if has_left { BACKGROUND_COLUMNS } else { 0 };
        let folders = style.width.is_none_or(|width| width >= FOLDER_FROM + taken);
        let sandboxes = style.width.is_none_or(|width| width >= SANDBOX_FROM + taken);
        let folder_width = style.width.map_or(usize::MAX, |width| (width / 5).clamp(10, 30));
        let mut titles = vec!["TASK", "AGE", "TIME", "STATUS"];
        titles.extend(is_alone.then_some("NO CLIENT"));
        titles.extend(has_left.then_some("BACKGROUND"));
        titles.extend(sandboxes.then_some("SANDBOX"));
        titles.extend(folders.then_some("FOLDER"));
        titles.push("COMMAND");
        let mut table = Table::new(titles);
        for (index, (task, short)) in self.tasks.iter().zip(&self.short).enumerate() {
            let (alone, left) = (self.alone_at(index), self.left_at(index));
            let id = task.task_id.as_str();
            let folder = cut_start(&escaped(&from_home(&task.workdir)), folder_width);
            let (tone, status) = self.status(task);
            let mut row: Vec<TableCell> = vec![
                id.get(..(*short).max(ID_CHARS_MIN)).unwrap_or(id).to_owned().into(),
                age(task.created_at_ms).into(),
                shown_ms(ran_ms(task)).into(),
                TableCell::new(tone, status),
            ];
            row.extend(is_alone.then(|| TableCell::new(Tone::Notable, stops(alone))));
            row.extend(has_left.then(|| TableCell::new(Tone::Notable, left)));
            row.extend(sandboxes.then(|| sandbox(task)));
            row.extend(folders.then(|| TableCell::new(Tone::Faint, folder)));
            row.push(command(task));
            table.add(row);
        }
        table.render(style)
    }

    /// Everything that a list can tell, uncut.
    pub(super) fn all_columns(&self, style: Style) -> String {
        let mut table = Table::new([
            "TASK",
            "STARTED",
            "TIME",
            "STATUS",
            "NO CLIENT",
            "BACKGROUND",
            "SANDBOX",
            "TOOL",
            "ASKED BY",
            "FOLDER",
            "COMMAND",
        ]);
        for (index, task) in self.tasks.iter().enumerate() {
            let (tone, status) = self.status(task);
            table.add([
                task.task_id.to_string().into(),
                time(task.created_at_ms).into(),
                shown_ms(ran_ms(task)).into(),
                TableCell::new(tone, status),
                TableCell::new(Tone::Notable, stops(self.alone_at(index))),
                TableCell::new(Tone::Notable, self.left_at(index)),
                sandbox(task),
                escaped(&task.tool).into(),
                escaped(&task.asked_by).into(),
                escaped(&task.workdir).into(),
                command(task),
            ]);
        }
        table.render(style.uncut())
    }

    fn alone_at(&self, index: usize) -> Option<i64> {
        self.alone.get(index).copied().flatten()
    }

    /// How many processes a task left running, in words.
    fn left_at(&self, index: usize) -> String {
        let left = self.background.get(index).copied().filter(|left| *left > 0);
        left.map(counted).unwrap_or_default()
    }
}

/// When a task is stopped that has no client.
fn stops(alone: Option<i64>) -> String {
    alone.map_or_else(String::new, |at_ms| format!("stops in {}", in_time(at_ms)))
}

/// How long ago something was, in one unit.
pub(super) fn age(at_ms: i64) -> String {
    in_one_unit(now_ms().saturating_sub(at_ms))
}

/// How long it is until then, in one unit.
pub(super) fn in_time(at_ms: i64) -> String {
    in_one_unit(at_ms.saturating_sub(now_ms()))
}

fn in_one_unit(time_ms: i64) -> String {
    let seconds = time_ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long a task has run.
pub(super) fn ran_ms(task: &Task) -> u64 {
    match &task.outcome {
        Some(outcome) => outcome.duration_ms,
        None => now_ms().saturating_sub(task.created_at_ms).max(0).cast_unsigned(),
    }
}

/// A status in a few words: what ended it, or its exit code, or the signal as a shell counts it.
pub(super) fn status(task: &Task) -> (Tone, String) {
    let outcome = task.outcome.as_ref();
    let ended_by = outcome.and_then(|outcome| outcome.ended_by);
    match (task.status, ended_by) {
        (Status::Queued, _) => (Tone::Notable, "queued".into()),
        (Status::Running, _) => (Tone::Good, "running".into()),
        (Status::Cancelling, _) => (Tone::Notable, "stopping".into()),
        (_, Some(EndedBy::StoppedByScheduler)) => (Tone::Bad, "scheduler".into()),
        (Status::Interrupted, _) => (Tone::Bad, "lost".into()),
        (_, Some(EndedBy::Stopped)) => (Tone::Notable, "stopped".into()),
        (_, Some(EndedBy::Abandoned)) => (Tone::Notable, "no client".into()),
        (_, Some(EndedBy::Timeout)) => (Tone::Bad, "timeout".into()),
        (_, Some(EndedBy::CpuLimit)) => (Tone::Bad, "cpu limit".into()),
        (_, Some(EndedBy::OomKilled)) => (Tone::Bad, "memory".into()),
        (_, Some(EndedBy::FileSizeLimit)) => (Tone::Bad, "file size".into()),
        (_, Some(EndedBy::LayerLimit)) => (Tone::Bad, "layer size".into()),
        (_, None) => exit(task),
    }
}

fn exit(task: &Task) -> (Tone, String) {
    let outcome = task.outcome.as_ref();
    let code = outcome.and_then(|outcome| outcome.exit_status);
    let signal = outcome.and_then(|outcome| outcome.signal);
    match (code, signal) {
        (Some(0), _) => (Tone::Plain, "exit 0".into()),
        (Some(code), _) => (Tone::Bad, format!("exit {code}")),
        (None, Some(signal)) => {
            let name = signal_name(signal);
            (Tone::Bad, format!("{} {}", 128 + signal, name.trim_start_matches("SIG")))
        }
        (None, None) => (Tone::Bad, "no start".into()),
    }
}

/// Marks a command that a rule or a person let run outside the sandbox.
pub(super) const OUTSIDE: &str = "OUTSIDE";

/// The sandbox of a task, in words.
fn sandbox(task: &Task) -> TableCell {
    let tone = if task.sandbox.outside.is_some() { Tone::Bad } else { Tone::Faint };
    TableCell::new(tone, escaped(&task.sandbox.words()))
}

/// A command, with its mark.
fn command(task: &Task) -> TableCell {
    let command = escaped(&task.command);
    match &task.sandbox.outside {
        Some(_) => TableCell::new(Tone::Bad, format!("{OUTSIDE} {command}")),
        None => command.into(),
    }
}
