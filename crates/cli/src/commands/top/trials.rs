//! The trials: commands that ran on a copy, which one is looked at, and what it would change.

use legwork::TaskId;

use super::{lines::wrapped, state::TrialVerb};
use crate::style::Tone;

/// Characters of an id that are shown.
const ID_CHARS: usize = 8;

/// A trial, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrialRow {
    pub id: TaskId,
    pub status: (Tone, String),
    /// Whether its command still runs: nothing of it is applied or discarded then.
    pub runs: bool,
    pub command: String,
    pub folder: String,
    /// How old it is, what it takes on the disk, and whether a part of it was applied.
    pub facts: String,
}

impl TrialRow {
    /// The first characters of its id.
    pub(super) fn short(&self) -> &str {
        self.id.as_str().get(..ID_CHARS).unwrap_or(self.id.as_str())
    }
}

/// The changes of a trial: its files, and the difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TrialText {
    pub lines: Vec<(Tone, String)>,
    /// Whether there is something to apply.
    pub can_apply: bool,
}

impl TrialText {
    /// The lines of a list of files and of a diff, in the tones of what they tell.
    pub(super) fn of(counted: &str, list: &str, diff: &str, can_apply: bool) -> Self {
        let mut lines = vec![(Tone::Strong, counted.to_owned())];
        let tone = |first: Option<char>| match first {
            Some('+') => Tone::Good,
            Some('-') => Tone::Bad,
            Some('~' | '.') => Tone::Notable,
            _ => Tone::Plain,
        };
        for line in list.lines() {
            lines.push((tone(line.trim_start().chars().next()), line.to_owned()));
        }
        lines.push((Tone::Plain, String::new()));
        for line in diff.lines() {
            let line = line.replace('\t', "    ");
            let tone = if line.starts_with("@@") {
                Tone::Faint
            } else if line.starts_with("--- ") || line.starts_with("+++ ") {
                Tone::Strong
            } else {
                tone(line.chars().next().filter(|first| matches!(first, '+' | '-')))
            };
            lines.push((tone, line));
        }
        Self { lines, can_apply }
    }

    /// The words for why it cannot be shown.
    pub(super) fn problem(words: &str) -> Self {
        Self { lines: vec![(Tone::Notable, words.to_owned())], can_apply: false }
    }
}

/// What has to be read for the view of trials.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TrialWanted {
    List,
    Changes(TaskId),
}

/// The trials, and the one that is looked at.
#[derive(Debug, Default)]
pub(super) struct TrialPane {
    /// None before they were read.
    rows: Option<Vec<TrialRow>>,
    place: usize,
    /// Whether the list has to be read.
    is_stale: bool,
    /// The changes of a trial, and before they are here whose are being read.
    shown: Option<(TaskId, Option<TrialText>)>,
    /// The row of the changes that is shown first.
    first: usize,
}

impl TrialPane {
    /// Notes that the list may be another one by now.
    pub(super) fn look_again(&mut self) {
        self.is_stale = true;
    }

    /// What has to be read now; each is told once.
    pub(super) fn wanted(&mut self) -> Vec<TrialWanted> {
        let mut wanted = Vec::new();
        if std::mem::take(&mut self.is_stale) {
            wanted.push(TrialWanted::List);
        }
        let selected = self.selected().filter(|row| !row.runs).map(|row| row.id.clone());
        if let Some(id) = selected
            && self.shown.as_ref().is_none_or(|(shown, _)| *shown != id)
        {
            self.shown = Some((id.clone(), None));
            self.first = 0;
            wanted.push(TrialWanted::Changes(id));
        }
        wanted
    }

    /// Takes the list; the selection stays with its trial.
    pub(super) fn take_list(&mut self, rows: Vec<TrialRow>) {
        let selected = self.selected().map(|row| &row.id);
        let place = rows.iter().position(|row| Some(&row.id) == selected);
        self.place = place.unwrap_or(self.place).min(rows.len().saturating_sub(1));
        self.shown = self.shown.take().filter(|(id, _)| rows.iter().any(|row| row.id == *id));
        self.rows = Some(rows);
    }

    /// Takes what a trial would change.
    pub(super) fn take_text(&mut self, id: &TaskId, text: TrialText) {
        if let Some((shown, place)) = &mut self.shown
            && shown == id
        {
            *place = Some(text);
        }
    }

    /// None before they were read.
    pub(super) fn rows(&self) -> Option<&[TrialRow]> {
        self.rows.as_deref()
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// The one that is looked at.
    pub(super) fn selected(&self) -> Option<&TrialRow> {
        self.rows.as_ref()?.get(self.place)
    }

    /// The one that a verb is for, if it can be: what is applied was shown.
    pub(super) fn meant(&self, verb: TrialVerb) -> Option<&TrialRow> {
        let row = self.selected().filter(|row| !row.runs)?;
        let shown = self.shown.as_ref().filter(|(id, _)| *id == row.id);
        let can_apply =
            shown.and_then(|(_, text)| text.as_ref()).is_some_and(|text| text.can_apply);
        (verb == TrialVerb::Discard || can_apply).then_some(row)
    }

    /// Selects the trial at a place, or the last one.
    pub(super) fn select(&mut self, place: usize) {
        let last = self.rows.as_ref().map_or(0, |rows| rows.len().saturating_sub(1));
        self.place = place.min(last);
    }

    /// Selects another one, so many places away.
    pub(super) fn step(&mut self, places: isize) {
        self.select(self.place.saturating_add_signed(places));
    }

    /// Moves the view of the changes down, or up where the number is negative.
    pub(super) fn scroll(&mut self, rows: isize) {
        self.first = self.first.saturating_add_signed(rows);
    }

    /// The rows of the changes for a place of this size, and how many are below them. None while
    /// they are being read.
    pub(super) fn text(
        &mut self,
        width: usize,
        height: usize,
    ) -> Option<(Vec<(Tone, String)>, usize)> {
        let selected = &self.selected()?.id;
        let (id, text) = self.shown.as_ref()?;
        let text = text.as_ref().filter(|_| id == selected)?;
        let rows: Vec<(Tone, String)> = text
            .lines
            .iter()
            .flat_map(|(tone, line)| {
                wrapped(line, width.max(1)).into_iter().map(move |row| (*tone, row))
            })
            .collect();
        self.first = self.first.min(rows.len().saturating_sub(height));
        let below = rows.len().saturating_sub(self.first + height);
        Some((rows.into_iter().skip(self.first).take(height).collect(), below))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::top::list::tests::row;

    pub(in crate::commands::top) fn trial(number: usize, runs: bool) -> TrialRow {
        TrialRow {
            id: row(number, "", true).id,
            status: (Tone::Plain, if runs { "running" } else { "completed" }.into()),
            runs,
            command: format!("rm -rf folder-{number}"),
            folder: "~/project".into(),
            facts: "3m ago, 4 KiB".into(),
        }
    }

    #[test]
    fn what_has_to_be_read_is_told_once() {
        let mut pane = TrialPane::default();
        assert_eq!(pane.wanted(), []);
        pane.look_again();
        assert_eq!(pane.wanted(), [TrialWanted::List]);
        pane.take_list(vec![trial(1, false), trial(2, false), trial(3, true)]);
        let id = |number| trial(number, false).id;
        assert_eq!(pane.wanted(), [TrialWanted::Changes(id(1))]);
        assert_eq!(pane.wanted(), []);
        pane.step(1);
        assert_eq!(pane.wanted(), [TrialWanted::Changes(id(2))]);
        // What comes late is for nobody.
        pane.take_text(&id(1), TrialText::problem("late"));
        assert_eq!(pane.text(20, 5), None);
        pane.step(5);
        assert_eq!((pane.place(), pane.wanted()), (2, vec![]), "one that runs has no changes yet");
        // The selection stays with its trial, also when others go.
        pane.step(-1);
        pane.take_list(vec![trial(2, false)]);
        assert_eq!(pane.selected().unwrap().id, id(2));
        pane.take_list(Vec::new());
        assert_eq!(pane.selected(), None);
    }

    #[test]
    fn what_is_applied_was_shown() {
        let mut pane = TrialPane::default();
        pane.take_list(vec![trial(1, false), trial(2, true)]);
        pane.wanted();
        assert!(pane.meant(TrialVerb::Apply).is_none());
        assert!(pane.meant(TrialVerb::Discard).is_some());
        let id = trial(1, false).id;
        pane.take_text(&id, TrialText::of("nothing changed", "", "", false));
        assert!(pane.meant(TrialVerb::Apply).is_none());
        pane.take_text(&id, TrialText::of("1 made", "  + a\n", "--- a\n+++ b\n@@\n+x\n", true));
        assert!(pane.meant(TrialVerb::Apply).is_some());
        let (rows, below) = pane.text(40, 4).unwrap();
        assert_eq!((rows.len(), below), (4, 3));
        pane.scroll(100);
        let (rows, below) = pane.text(40, 4).unwrap();
        assert_eq!((rows.last(), below), (Some(&(Tone::Good, "+x".into())), 0));
        pane.select(1);
        assert!(pane.meant(TrialVerb::Discard).is_none(), "it runs");
    }
}
