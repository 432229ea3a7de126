//! What a task has printed, as it is shown: rows that fit, the end of them or further up.

use legwork::TaskId;

use super::lines::wrapped;

/// The end of a task's output, or its screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PaneText {
    /// Lines that harm no terminal.
    pub lines: Vec<String>,
    /// Whether there is output before them.
    pub is_cut: bool,
    /// Whether they are the screen of a terminal, whose lines are not wrapped.
    pub is_screen: bool,
    /// Bytes that the task has printed.
    pub bytes: u64,
    /// Why there is nothing to be shown.
    pub problem: Option<String>,
    /// What the task uses, or has used, in a few words.
    pub resources: Option<String>,
}

/// The output of one task, and how far up it is looked at.
#[derive(Debug, Default)]
pub(super) struct OutputPane {
    task: Option<TaskId>,
    /// How often another task was looked at: what was read before that is forgotten.
    turn: u64,
    shown: PaneText,
    /// What came while somebody looked further up.
    newer: Option<PaneText>,
    rows: Vec<String>,
    /// The width that the rows are made for; none if they are not made yet.
    width: Option<usize>,
    /// Rows below those that are shown.
    below: usize,
    /// Rows that were shown last.
    height: usize,
}

impl OutputPane {
    /// Looks at another task, of which nothing is known yet.
    pub(super) fn look_at(&mut self, task: Option<TaskId>) {
        if self.task != task {
            let turn = self.turn + 1;
            *self = Self { task, turn, height: self.height, ..Self::default() };
        }
    }

    /// The task that is looked at, and since which turn.
    pub(super) fn task(&self) -> Option<(&TaskId, u64)> {
        self.task.as_ref().map(|task| (task, self.turn))
    }

    pub(super) fn shown(&self) -> &PaneText {
        &self.shown
    }

    /// Takes what a task has printed. While somebody looks further up nothing moves.
    pub(super) fn take(&mut self, task: &TaskId, printed: PaneText) {
        if self.task.as_ref() != Some(task) {
            return;
        }
        if self.below > 0 && printed.is_screen == self.shown.is_screen {
            self.newer = Some(printed);
        } else {
            (self.shown, self.width, self.newer, self.below) = (printed, None, None, 0);
        }
    }

    /// Whether somebody looks further up.
    pub(super) fn is_scrolled(&self) -> bool {
        self.below > 0
    }

    /// Moves the view up, or down where the number is negative.
    pub(super) fn scroll(&mut self, rows: isize) {
        let most = self.rows.len().saturating_sub(self.height);
        self.below = self.below.saturating_add_signed(rows).min(most);
        self.follow_again();
    }

    /// Moves the view by almost a page.
    pub(super) fn page(&mut self, is_up: bool) {
        let rows = isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1);
        self.scroll(if is_up { rows } else { -rows });
    }

    /// Goes to the end, and follows it.
    pub(super) fn follow_end(&mut self) {
        self.below = 0;
        self.follow_again();
    }

    fn follow_again(&mut self) {
        if self.below == 0
            && let Some(newer) = self.newer.take()
        {
            (self.shown, self.width) = (newer, None);
        }
    }

    /// The rows for a place of this size.
    pub(super) fn rows(&mut self, width: usize, height: usize) -> &[String] {
        if self.width != Some(width) {
            let lines = self.shown.lines.iter();
            self.rows = if self.shown.is_screen {
                lines.cloned().collect()
            } else {
                lines.flat_map(|line| wrapped(line, width)).collect()
            };
            self.width = Some(width);
        }
        self.height = height;
        self.below = self.below.min(self.rows.len().saturating_sub(height));
        let end = self.rows.len() - self.below;
        self.rows.get(end.saturating_sub(height)..end).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::top::list::tests::row;

    pub(in crate::commands::top) fn printed(lines: &[&str]) -> PaneText {
        PaneText { lines: lines.iter().map(|it| (*it).into()).collect(), ..PaneText::default() }
    }

    #[test]
    fn the_end_is_followed_until_somebody_looks_further_up() {
        let task = row(1, "", true).id;
        let mut pane = OutputPane::default();
        pane.look_at(Some(task.clone()));
        pane.take(&task, printed(&["one", "two", "three"]));
        assert_eq!(pane.rows(10, 2), ["two", "three"]);
        pane.scroll(5);
        assert_eq!(pane.rows(10, 2), ["one", "two"]);
        pane.take(&task, printed(&["two", "three", "four"]));
        assert_eq!(pane.rows(10, 2), ["one", "two"], "nothing moves under the reader's eyes");
        pane.follow_end();
        assert_eq!(pane.rows(10, 2), ["three", "four"]);
        pane.take(&row(2, "", true).id, printed(&["of another task"]));
        assert_eq!(pane.rows(10, 2), ["three", "four"]);
        let turn = pane.task().unwrap().1;
        pane.look_at(Some(row(2, "", true).id));
        assert_eq!(pane.rows(10, 2), [""; 0]);
        pane.look_at(Some(task));
        assert!(pane.task().unwrap().1 > turn, "it has to be read again");
    }

    #[test]
    fn rows_are_made_anew_for_another_width() {
        let task = row(1, "", true).id;
        let mut pane = OutputPane::default();
        pane.look_at(Some(task.clone()));
        pane.take(&task, printed(&["abcdef"]));
        assert_eq!(pane.rows(4, 5), ["abcd", "ef"]);
        assert_eq!(pane.rows(3, 5), ["abc", "def"]);
        pane.take(&task, PaneText { is_screen: true, ..printed(&["abcdef"]) });
        assert_eq!(pane.rows(3, 5), ["abcdef"]);
    }
}
