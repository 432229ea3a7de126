//! Everything that `top` knows and shows, as plain data: keys and messages change it, the view
//! draws it.

use std::collections::HashSet;

use legwork::{Reply, TaskId, ToolError};
use ratatui_core::layout::{Position, Rect};

use super::{
    list::{TaskRow, TaskRows},
    output::{OutputPane, PaneText},
    questions::{OpenedQuestion, QuestionPane},
    trials::{TrialPane, TrialRow, TrialText},
};
use crate::{answering::Answering, keys::Gesture};

/// Tasks that are held; of more than these the oldest that have ended are left out.
pub(super) const TASKS_MAX: u32 = 2000;

/// Characters that can be typed into a field.
const FIELD_CHARS_MAX: usize = 1000;

/// Rows that a page of a trial's changes has.
const TRIAL_ROWS: isize = 10;

/// Rows that the wheel moves.
const WHEEL_ROWS: isize = 3;

/// What keys mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum TopMode {
    /// Moving about.
    #[default]
    Browse,
    /// A filter is typed; this one was there before.
    Filter(String),
    /// Whether a task is to be stopped is asked.
    Stopping(TaskId),
    /// A note to a no is typed, for this question.
    Note(String, String),
    /// The keys are shown.
    Help,
    /// The whole question is shown, from this row on.
    WholeQuestion(usize),
    /// The output of the selected task has the screen, and this was typed for it.
    Attached(String),
    /// The trials have the screen.
    Trials,
}

/// What can be done with a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialVerb {
    Apply,
    Discard,
}

/// What is to be done for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    /// Give this terminal to a task that has one.
    Attach(TaskId),
    Stop(TaskId),
    Answer {
        approval_id: String,
        reply: Reply,
        note: Option<String>,
        told: String,
    },
    /// Send a line to a task.
    Send(TaskId, String),
    /// Apply or discard a trial.
    Settle(TaskId, TrialVerb),
}

/// What was read or has happened.
#[derive(Debug)]
pub(super) enum Message {
    /// All tasks, and how many there are in all.
    Tasks(Vec<TaskRow>, u64),
    /// Tasks that are new or have changed, and those that are gone.
    Changed(Vec<TaskRow>, Vec<TaskId>),
    /// A task waits for input, or no longer.
    Waiting(TaskId, bool),
    Questions(Vec<OpenedQuestion>),
    PaneText(TaskId, PaneText),
    /// What a task uses now.
    Uses(TaskId, Option<String>),
    Trials(Vec<TrialRow>),
    TrialText(TaskId, TrialText),
    /// Something to be said.
    Told(String),
    /// There are no events: `top` would show what is not so any more.
    Failed(ToolError),
}

/// A place on the screen that can be clicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Zone {
    /// The task at this place of the list.
    Task(usize),
    /// The trial at this place of their list.
    Trial(usize),
    List,
    Output,
    /// Stands for a key.
    Key(char),
    Question,
}

/// Everything that is known and shown.
#[derive(Debug, Default)]
pub(super) struct State {
    pub tasks: TaskRows,
    pub questions: QuestionPane,
    pub output: OutputPane,
    pub trials: TrialPane,
    pub mode: TopMode,
    /// Which keys answer, and what was typed lately.
    pub answering: Answering,
    /// What was said last.
    pub told: Option<String>,
    /// Whether a task with a terminal is shown as text instead of its screen.
    pub as_text: bool,
    /// Whether the question on the screen shows all of its command, and all of itself.
    pub question_shows: QuestionShows,
    /// What is where, the smallest places last.
    pub zones: Vec<(Rect, Zone)>,
}

/// How much of a question is on the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QuestionShows {
    pub command: bool,
    pub all: bool,
}

impl State {
    /// Takes what was read.
    pub(super) fn take(&mut self, message: Message) {
        let is_of_tasks = matches!(message, Message::Tasks(..) | Message::Changed(..));
        if is_of_tasks && self.mode == TopMode::Trials {
            self.trials.look_again();
        }
        match message {
            Message::Tasks(rows, total) => self.tasks.replace(rows, total),
            Message::Changed(rows, removed) => {
                self.tasks.change(rows, &removed);
                self.tasks.limit(TASKS_MAX as usize);
            }
            Message::Waiting(id, waits) => self.tasks.set_waiting(&id, waits),
            Message::Questions(open) => {
                let asking = open.iter().filter_map(|one| one.approval.task_id.clone());
                self.tasks.set_asking(asking.collect::<HashSet<_>>());
                self.questions.replace(open);
            }
            Message::PaneText(id, printed) => self.output.take(&id, printed),
            Message::Uses(id, resources) => self.output.take_resources(&id, resources),
            Message::Trials(rows) => self.trials.take_list(rows),
            Message::TrialText(id, text) => self.trials.take_text(&id, text),
            Message::Told(told) => self.told = Some(told),
            Message::Failed(error) => self.told = Some(error.message),
        }
        self.settle();
    }

    /// Takes something that a person did, at this time.
    pub(super) fn press(&mut self, input: Gesture, now_ms: u64) -> Option<Effect> {
        let told = self.told.take();
        let effect = match std::mem::take(&mut self.mode) {
            mode @ (TopMode::Browse | TopMode::WholeQuestion(_) | TopMode::Trials) => {
                self.mode = mode;
                self.decide(&input, told.as_deref(), now_ms)
            }
            mode => {
                self.typed(&input, now_ms);
                self.in_a_field(input, mode)
            }
        };
        self.settle();
        effect
    }

    /// Keys where they answer nothing.
    fn in_a_field(&mut self, input: Gesture, mode: TopMode) -> Option<Effect> {
        match mode {
            TopMode::Filter(before) => self.filter(input, before),
            TopMode::Stopping(id) => {
                let is_yes = input == Gesture::Char('y') || self.key_at(&input) == Some('y');
                is_yes.then_some(Effect::Stop(id))
            }
            TopMode::Note(id, note) => self.note(input, id, note),
            TopMode::Attached(typed) => self.attached(input, typed),
            _ if input == Gesture::Char('q') || input == Gesture::Ctrl('c') => Some(Effect::Quit),
            _ => None,
        }
    }

    /// What depends on the rest follows it.
    fn settle(&mut self) {
        self.output.look_at(self.tasks.selected().map(|row| row.id.clone()));
        let is_gone = match &self.mode {
            TopMode::WholeQuestion(_) => self.questions.current().is_none(),
            TopMode::Note(id, _) => {
                !self.questions.all().iter().any(|one| one.approval.approval_id == *id)
            }
            TopMode::Attached(_) => self.tasks.selected().is_none(),
            _ => false,
        };
        if is_gone {
            self.mode = TopMode::Browse;
        }
    }

    pub(super) fn browse(&mut self, input: &Gesture) -> Option<Effect> {
        match input {
            Gesture::Char('q') | Gesture::Ctrl('c') => return Some(Effect::Quit),
            Gesture::Char('?') => self.mode = TopMode::Help,
            Gesture::Char('/') => self.mode = TopMode::Filter(self.tasks.filter.clone()),
            Gesture::Escape => self.tasks.set_filter(String::new()),
            Gesture::Up | Gesture::Char('k') => self.tasks.step(-1),
            Gesture::Down | Gesture::Char('j') => self.tasks.step(1),
            Gesture::Home | Gesture::Char('g') => self.tasks.select(0),
            Gesture::Char('G') => self.tasks.select(usize::MAX),
            Gesture::PageUp => self.output.page(true),
            Gesture::PageDown => self.output.page(false),
            Gesture::End => self.output.follow_end(),
            Gesture::Char('v') => {
                self.as_text = !self.as_text;
                self.output.follow_end();
            }
            Gesture::Char('e') if self.questions.current().is_some() => {
                self.mode = TopMode::WholeQuestion(0);
            }
            Gesture::Tab => self.questions.next(),
            Gesture::Char('T') => {
                self.trials.look_again();
                self.mode = TopMode::Trials;
            }
            Gesture::Char('x') => {
                self.mode = self
                    .tasks
                    .selected()
                    .map_or(TopMode::Browse, |row| TopMode::Stopping(row.id.clone()));
            }
            Gesture::Enter => return self.attach(),
            Gesture::Click(..) | Gesture::Wheel(..) => return self.point(input),
            _ => {}
        }
        None
    }

    fn attach(&mut self) -> Option<Effect> {
        let row = self.tasks.selected()?;
        if row.tty && row.is_open {
            return Some(Effect::Attach(row.id.clone()));
        }
        self.mode = TopMode::Attached(String::new());
        None
    }

    /// The zone at a place.
    fn zone(&self, column: u16, row: u16) -> Option<&Zone> {
        let at = Position::new(column, row);
        self.zones.iter().rev().find(|(place, _)| place.contains(at)).map(|(_, zone)| zone)
    }

    /// The key that was clicked.
    pub(super) fn key_at(&self, input: &Gesture) -> Option<char> {
        let Gesture::Click(column, row) = input else { return None };
        match self.zone(*column, *row)? {
            Zone::Key(key) => Some(*key),
            _ => None,
        }
    }

    /// The mouse, while nothing else is open.
    fn point(&mut self, input: &Gesture) -> Option<Effect> {
        match *input {
            Gesture::Click(column, row) => match self.zone(column, row)?.clone() {
                Zone::Task(place) if self.tasks.place() == Some(place) => return self.attach(),
                Zone::Task(place) => self.tasks.select(place),
                Zone::Key(key) => return self.browse(&Gesture::Char(key)),
                Zone::Question => self.mode = TopMode::WholeQuestion(0),
                Zone::Trial(_) | Zone::List | Zone::Output => {}
            },
            Gesture::Wheel(column, row, is_up) => match self.zone(column, row)? {
                Zone::Task(_) | Zone::List => self.tasks.step(if is_up { -1 } else { 1 }),
                _ => self.output.scroll(if is_up { WHEEL_ROWS } else { -WHEEL_ROWS }),
            },
            _ => {}
        }
        None
    }

    pub(super) fn whole_question(&mut self, input: &Gesture, row: usize) -> Option<Effect> {
        let page = 8;
        self.mode = match input {
            Gesture::Up | Gesture::Char('k') => TopMode::WholeQuestion(row.saturating_sub(1)),
            Gesture::Down | Gesture::Char('j') => TopMode::WholeQuestion(row + 1),
            Gesture::PageUp => TopMode::WholeQuestion(row.saturating_sub(page)),
            Gesture::PageDown => TopMode::WholeQuestion(row + page),
            Gesture::Home => TopMode::WholeQuestion(0),
            Gesture::Wheel(_, _, true) => TopMode::WholeQuestion(row.saturating_sub(3)),
            Gesture::Wheel(_, _, false) => TopMode::WholeQuestion(row + 3),
            Gesture::Ctrl('c') => return Some(Effect::Quit),
            Gesture::Escape | Gesture::Enter | Gesture::Char('e' | 'q') => TopMode::Browse,
            Gesture::Tab => {
                self.questions.next();
                TopMode::WholeQuestion(0)
            }
            _ => TopMode::WholeQuestion(row),
        };
        None
    }

    /// Keys while the trials have the screen.
    pub(super) fn look_at_trials(&mut self, input: &Gesture) -> Option<Effect> {
        let key = match input {
            Gesture::Char(key) => Some(*key),
            _ => self.key_at(input),
        };
        match (input, key) {
            (Gesture::Ctrl('c'), _) => return Some(Effect::Quit),
            (Gesture::Escape, _) | (_, Some('q' | 'T')) => self.mode = TopMode::Browse,
            (Gesture::Up, _) | (_, Some('k')) => self.trials.step(-1),
            (Gesture::Down, _) | (_, Some('j')) => self.trials.step(1),
            (Gesture::PageUp, _) => self.trials.scroll(-TRIAL_ROWS),
            (Gesture::PageDown, _) => self.trials.scroll(TRIAL_ROWS),
            (Gesture::Home, _) => self.trials.scroll(isize::MIN),
            (Gesture::End, _) => self.trials.scroll(isize::MAX),
            (Gesture::Click(column, row), _) => {
                if let Some(Zone::Trial(place)) = self.zone(*column, *row).cloned() {
                    self.trials.select(place);
                }
            }
            (Gesture::Wheel(column, row, is_up), _) => match self.zone(*column, *row) {
                Some(Zone::Trial(_) | Zone::List) => self.trials.step(if *is_up { -1 } else { 1 }),
                _ => self.trials.scroll(if *is_up { -WHEEL_ROWS } else { WHEEL_ROWS }),
            },
            _ => {}
        }
        None
    }

    fn filter(&mut self, input: Gesture, before: String) -> Option<Effect> {
        match input {
            Gesture::Enter | Gesture::Click(..) => return None,
            Gesture::Escape => {
                self.tasks.set_filter(before);
                return None;
            }
            Gesture::Ctrl('c') => return Some(Effect::Quit),
            Gesture::Up => self.tasks.step(-1),
            Gesture::Down => self.tasks.step(1),
            input => {
                let mut filter = self.tasks.filter.clone();
                edit(&mut filter, &input);
                self.tasks.set_filter(filter);
            }
        }
        self.mode = TopMode::Filter(before);
        None
    }

    fn note(&mut self, input: Gesture, approval_id: String, mut note: String) -> Option<Effect> {
        match input {
            Gesture::Escape => None,
            Gesture::Ctrl('c') => Some(Effect::Quit),
            Gesture::Enter => {
                let mut all = self.questions.all().iter();
                let question = all.find(|one| one.approval.approval_id == approval_id)?;
                let told = question.consequence(Reply::Deny);
                let note = Some(note.trim().to_owned()).filter(|note| !note.is_empty());
                self.questions.remove(&approval_id);
                Some(Effect::Answer { approval_id, reply: Reply::Deny, note, told })
            }
            input => {
                edit(&mut note, &input);
                self.mode = TopMode::Note(approval_id, note);
                None
            }
        }
    }

    /// Keys while the output has the screen: a line for the task's input, and moving about.
    fn attached(&mut self, input: Gesture, mut typed: String) -> Option<Effect> {
        let mut effect = None;
        match input {
            Gesture::Ctrl(']') | Gesture::Escape => return None,
            Gesture::Ctrl('c') => return Some(Effect::Quit),
            Gesture::Up => self.output.scroll(1),
            Gesture::Down => self.output.scroll(-1),
            Gesture::PageUp => self.output.page(true),
            Gesture::PageDown => self.output.page(false),
            Gesture::Home => self.output.scroll(isize::MAX),
            Gesture::End => self.output.follow_end(),
            Gesture::Wheel(_, _, is_up) => {
                self.output.scroll(if is_up { WHEEL_ROWS } else { -WHEEL_ROWS });
            }
            Gesture::Enter => {
                let row = self.tasks.selected().filter(|row| row.is_open);
                effect = row.map(|row| Effect::Send(row.id.clone(), std::mem::take(&mut typed)));
            }
            Gesture::Char('q') if !self.tasks.selected().is_some_and(|row| row.is_open) => {
                return None;
            }
            input => edit(&mut typed, &input),
        }
        self.mode = TopMode::Attached(typed);
        effect
    }
}

/// Types into a field.
fn edit(field: &mut String, input: &Gesture) {
    match input {
        Gesture::Char(character) => field.push(*character),
        Gesture::Pasted(text) => field.push_str(text),
        Gesture::Backspace => drop(field.pop()),
        Gesture::Ctrl('u') => field.clear(),
        _ => {}
    }
    if let Some((end, _)) = field.char_indices().nth(FIELD_CHARS_MAX) {
        field.truncate(end);
    }
}

#[cfg(test)]
mod tests;
