//! The list of tasks: those that run first, then the newest; filtered, with one selected.

use std::collections::HashSet;

use legwork::{Task, TaskId, gate::units::shown_ms};

use super::super::listed;
use crate::{
    render::{one_line, time},
    style::{Tone, from_home},
};

/// Characters of a command that are shown and searched.
const COMMAND_CHARS_MAX: usize = 512;

/// Characters of a folder that are.
const FOLDER_CHARS_MAX: usize = 256;

/// Most characters of the words about a sandbox.
const SANDBOX_CHARS_MAX: usize = 256;

/// Characters of an id that are shown.
const ID_CHARS: usize = 8;

/// A task as it is shown: nothing in here is longer than a few rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskRow {
    pub id: TaskId,
    pub status: (Tone, String),
    pub command: String,
    pub folder: String,
    pub asked_by: String,
    /// When it began, as the clock showed it.
    pub began: String,
    /// How long it took, if it has ended.
    pub took: Option<String>,
    pub tty: bool,
    pub is_open: bool,
    /// Its sandbox, in words, and whether it runs outside of that.
    pub sandbox: String,
    pub is_outside: bool,
    created_at_ms: i64,
    /// What is searched, in small letters.
    searched: String,
}

impl TaskRow {
    /// A task, whose secrets are masked already.
    pub(super) fn of(task: &Task) -> Self {
        let status = listed::status(task);
        let command = one_line(&task.command, COMMAND_CHARS_MAX);
        let folder = one_line(&from_home(&task.workdir), FOLDER_CHARS_MAX);
        let asked_by = one_line(&task.asked_by, 64);
        let is_open = !task.status.is_final();
        let searched = format!("{} {} {folder} {asked_by} {command}", task.task_id, status.1);
        Self {
            sandbox: one_line(&task.sandbox.words(), SANDBOX_CHARS_MAX),
            is_outside: task.sandbox.outside.is_some(),
            id: task.task_id.clone(),
            status,
            command,
            folder,
            asked_by,
            began: time(task.created_at_ms),
            took: (!is_open).then(|| shown_ms(listed::ran_ms(task))),
            tty: task.tty,
            is_open,
            created_at_ms: task.created_at_ms,
            searched: searched.to_lowercase(),
        }
    }

    /// The first characters of its id.
    pub(super) fn short(&self) -> &str {
        let id = self.id.as_str();
        id.get(..ID_CHARS).unwrap_or(id)
    }
}

/// The tasks, the filter and the selection.
#[derive(Debug, Default)]
pub(super) struct TaskRows {
    rows: Vec<TaskRow>,
    /// How many there are in the state folder, with those that are not held.
    pub total: u64,
    /// Places of those that match the filter.
    matching: Vec<usize>,
    pub filter: String,
    selected: Option<TaskId>,
    /// Tasks that wait for an answer to a question.
    asking: HashSet<TaskId>,
    /// Tasks that wait for input.
    waiting: HashSet<TaskId>,
}

impl TaskRows {
    /// Takes all tasks anew.
    pub(super) fn replace(&mut self, rows: Vec<TaskRow>, total: u64) {
        (self.rows, self.total) = (rows, total);
        self.arrange();
    }

    /// Takes tasks that are new or have changed, and forgets others.
    pub(super) fn change(&mut self, changed: Vec<TaskRow>, removed: &[TaskId]) {
        for row in changed {
            if let Some(old) = self.rows.iter_mut().find(|old| old.id == row.id) {
                *old = row;
            } else {
                self.rows.push(row);
                self.total += 1;
            }
        }
        let before = self.rows.len();
        self.rows.retain(|row| !removed.contains(&row.id));
        self.total = self.total.saturating_sub((before - self.rows.len()) as u64);
        self.arrange();
    }

    /// Keeps no more than these: the oldest of those that have ended go.
    pub(super) fn limit(&mut self, rows_max: usize) {
        if self.rows.len() > rows_max {
            self.rows.truncate(rows_max);
            self.arrange();
        }
    }

    fn arrange(&mut self) {
        self.rows.sort_by(|one, other| {
            let key = |row: &TaskRow| (!row.is_open, -row.created_at_ms);
            key(one).cmp(&key(other)).then_with(|| one.id.as_str().cmp(other.id.as_str()))
        });
        let open: HashSet<&TaskId> =
            self.rows.iter().filter(|row| row.is_open).map(|row| &row.id).collect();
        self.waiting.retain(|id| open.contains(id));
        self.search();
    }

    /// Says what is looked for.
    pub(super) fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.search();
    }

    fn search(&mut self) {
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        let place = self.place();
        let matches = |row: &TaskRow| words.iter().all(|word| row.searched.contains(word));
        let found = self.rows.iter().enumerate().filter(|(_, row)| matches(row));
        self.matching = found.map(|(at, _)| at).collect();
        let is_there =
            self.selected.as_ref().is_some_and(|id| self.shown().any(|row| row.id == *id));
        if !is_there {
            self.selected = None;
            self.select(place.unwrap_or(0));
        }
    }

    /// Notes which tasks wait for an answer.
    pub(super) fn set_asking(&mut self, asking: HashSet<TaskId>) {
        self.asking = asking;
    }

    /// Notes that a task waits for input, or no longer.
    pub(super) fn set_waiting(&mut self, id: &TaskId, waits: bool) {
        if waits {
            self.waiting.insert(id.clone());
        } else {
            self.waiting.remove(id);
        }
    }

    /// The tasks that match, in order.
    pub(super) fn shown(&self) -> impl Iterator<Item = &TaskRow> {
        self.matching.iter().filter_map(|at| self.rows.get(*at))
    }

    /// How many match.
    pub(super) fn shown_count(&self) -> usize {
        self.matching.len()
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.rows.iter().filter(|row| row.is_open).count()
    }

    /// The status of a task in a word.
    pub(super) fn status<'r>(&self, row: &'r TaskRow) -> (Tone, &'r str) {
        if row.is_open && self.asking.contains(&row.id) {
            return (Tone::Notable, "asks");
        }
        if row.is_open && self.waiting.contains(&row.id) {
            return (Tone::Notable, "input");
        }
        (row.status.0, &row.status.1)
    }

    /// The task that is selected.
    pub(super) fn selected(&self) -> Option<&TaskRow> {
        let id = self.selected.as_ref()?;
        self.rows.iter().find(|row| row.id == *id)
    }

    /// Its place among those that match.
    pub(super) fn place(&self) -> Option<usize> {
        let id = self.selected.as_ref()?;
        self.shown().position(|row| row.id == *id)
    }

    /// Selects the task at a place, or the last one.
    pub(super) fn select(&mut self, place: usize) {
        let last = self.matching.len().saturating_sub(1);
        let found = self.shown().nth(place.min(last)).map(|row| row.id.clone());
        self.selected = found.or(self.selected.take());
    }

    /// Selects another one, so many places away.
    pub(super) fn step(&mut self, places: isize) {
        self.select(self.place().unwrap_or(0).saturating_add_signed(places));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::commands::top) fn row(number: usize, command: &str, is_open: bool) -> TaskRow {
        let id: TaskId = serde_json::from_value(format!("t_{number:026}").into()).unwrap();
        let status = if is_open { (Tone::Good, "running") } else { (Tone::Plain, "exit 0") };
        TaskRow {
            searched: format!("{id} {} ~/project {command}", status.1),
            id,
            status: (status.0, status.1.into()),
            command: command.into(),
            folder: "~/project".into(),
            asked_by: "claude".into(),
            began: "2026-01-31 12:00:00".into(),
            took: (!is_open).then(|| "2.0 s".into()),
            tty: false,
            sandbox: "workspace-write, with network".into(),
            is_outside: false,
            is_open,
            created_at_ms: i64::try_from(number).unwrap(),
        }
    }

    fn commands(list: &TaskRows) -> Vec<&str> {
        list.shown().map(|row| row.command.as_str()).collect()
    }

    #[test]
    fn those_that_run_come_first_and_the_selection_stays_with_its_task() {
        let mut list = TaskRows::default();
        list.replace(vec![row(1, "one", false), row(2, "two", true), row(3, "three", false)], 3);
        assert_eq!(commands(&list), ["two", "three", "one"]);
        assert_eq!(list.selected().unwrap().command, "two");
        list.step(1);
        list.change(vec![row(4, "four", true), row(2, "two", false)], &[row(1, "", true).id]);
        assert_eq!(commands(&list), ["four", "three", "two"]);
        assert_eq!((list.selected().unwrap().command.as_str(), list.total), ("three", 3));
        list.step(100);
        assert_eq!(list.place(), Some(2));
        list.step(-100);
        assert_eq!(list.place(), Some(0));
        list.change(Vec::new(), &[row(4, "", true).id]);
        assert_eq!(list.selected().unwrap().command, "three");
        list.replace(Vec::new(), 0);
        assert_eq!(list.selected(), None);
    }

    #[test]
    fn every_word_of_a_filter_is_looked_for_in_any_case() {
        let mut list = TaskRows::default();
        let rows = [row(1, "cargo test", false), row(2, "npm run dev", true)];
        list.replace(rows.to_vec(), 2);
        for (filter, found) in [
            ("", &["npm run dev", "cargo test"][..]),
            ("DEV", &["npm run dev"]),
            ("cargo exit", &["cargo test"]),
            ("running project", &["npm run dev"]),
            ("nothing", &[]),
        ] {
            list.set_filter(filter.into());
            assert_eq!(commands(&list), found, "{filter}");
            assert_eq!(list.selected().map(|row| row.command.as_str()), found.first().copied());
        }
        list.set_filter(String::new());
        assert!(list.selected().is_some());
    }

    #[test]
    fn a_task_that_asks_or_waits_says_so_while_it_runs() {
        let mut list = TaskRows::default();
        list.replace(vec![row(1, "one", true)], 1);
        let id = row(1, "", true).id;
        list.set_waiting(&id, true);
        assert_eq!(list.status(&row(1, "one", true)).1, "input");
        list.set_asking([id.clone()].into());
        assert_eq!(list.status(&row(1, "one", true)).1, "asks");
        list.change(vec![row(1, "one", false)], &[]);
        assert_eq!(list.status(list.selected().unwrap()).1, "exit 0");
        assert!(list.waiting.is_empty());
    }
}
