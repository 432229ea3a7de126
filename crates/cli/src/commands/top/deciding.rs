//! Which keys answer a question or settle a trial, and what they do then.

use legwork::Reply;

use super::state::{Effect, State, TopMode, TrialVerb};
use crate::{
    answering::{AnswerKey, HINT, Offered, Pressed},
    asking::{CANCELLED_LETTER, CONFIRM, answer_of},
    keys::Gesture,
    style::cut_middle,
};

/// What is asked now.
#[derive(Debug, Default)]
struct Asked {
    subject: String,
    letters: String,
    moves: &'static str,
}

impl State {
    /// What keys can answer on this screen.
    fn question_on_screen(&self) -> Asked {
        let of_question = |moves| match self.questions.current() {
            Some(question) => {
                let letters = question.keys().iter().map(|(letter, _)| *letter).collect();
                Asked { subject: question.subject(), letters, moves }
            }
            None => Asked { moves, ..Asked::default() },
        };
        match self.mode {
            TopMode::Browse => of_question("q?/kjgGveTx"),
            TopMode::WholeQuestion(_) => of_question("kjeq"),
            TopMode::Trials => {
                let row = self.trials.selected();
                let subject = row.map_or_else(String::new, |row| row.id.to_string());
                let verbs = [('a', TrialVerb::Apply), ('d', TrialVerb::Discard)];
                let can_be = verbs.iter().filter(|(_, verb)| self.trials.meant(*verb).is_some());
                Asked {
                    subject,
                    letters: can_be.map(|(letter, _)| letter).collect(),
                    moves: "kjqT",
                }
            }
            _ => Asked::default(),
        }
    }

    /// Notes what is on the screen now.
    pub(super) fn drawn(&mut self, now_ms: u64) {
        let asked = self.question_on_screen();
        self.answering.show(&asked.subject, now_ms);
    }

    /// Notes that something was typed where it answers nothing.
    pub(super) fn typed(&mut self, input: &Gesture, now_ms: u64) {
        let key = match input {
            Gesture::Char(_) | Gesture::Pasted(_) | Gesture::Enter => AnswerKey::Text,
            Gesture::Click(..) | Gesture::Wheel(..) => AnswerKey::Click,
            _ => AnswerKey::Other,
        };
        self.answering.press(key, &Offered::default(), now_ms);
    }

    /// Takes a key on a screen where keys answer.
    pub(super) fn decide(
        &mut self,
        input: &Gesture,
        told: Option<&str>,
        now_ms: u64,
    ) -> Option<Effect> {
        let key = match input {
            Gesture::Ctrl('c') => return Some(Effect::Quit),
            Gesture::Char(letter) => AnswerKey::Letter(*letter),
            Gesture::Backspace => AnswerKey::Letter('\u{8}'),
            Gesture::Pasted(_) => AnswerKey::Text,
            Gesture::Enter => AnswerKey::Enter,
            Gesture::Click(..) | Gesture::Wheel(..) => {
                self.key_at(input).map_or(AnswerKey::Click, AnswerKey::Letter)
            }
            _ => AnswerKey::Other,
        };
        let Asked { subject, letters, moves } = self.question_on_screen();
        let offered = Offered { subject: &subject, letters: &letters, moves };
        match self.answering.press(key, &offered, now_ms) {
            Pressed::Denies => return self.answer(Reply::Deny),
            Pressed::DeniesWithNote => {
                let question = self.questions.current()?;
                let id = question.approval.approval_id.clone();
                self.mode = TopMode::Note(id, String::new());
            }
            Pressed::Arms(letter) => self.see(letter),
            Pressed::Confirms(letter) => return self.confirmed(letter),
            Pressed::Cancels if *input == Gesture::Escape => {
                self.told = Some(CANCELLED_LETTER.into());
            }
            Pressed::Types => {
                // What was answered stays to be read.
                let told = told.filter(|told| !told.ends_with(HINT));
                self.told = Some(told.map_or(HINT.into(), |told| format!("{told}. {HINT}")));
            }
            Pressed::Passes | Pressed::Cancels => {
                return match self.mode {
                    TopMode::WholeQuestion(row) => self.whole_question(input, row),
                    TopMode::Trials => self.look_at_trials(input),
                    _ => self.browse(input),
                };
            }
        }
        None
    }

    /// What is allowed is what was read: where it is not on the screen, it is shown instead.
    fn see(&mut self, letter: char) {
        if self.mode == TopMode::Trials {
            return;
        }
        let is_seen = match answer_of(letter) {
            Some((Reply::AllowRule | Reply::Apply, _)) => self.question_shows.all,
            _ => self.question_shows.command,
        };
        if !is_seen {
            self.answering.disarm();
            self.mode = TopMode::WholeQuestion(0);
        }
    }

    fn confirmed(&mut self, letter: char) -> Option<Effect> {
        if self.mode == TopMode::Trials {
            let verb = if letter == 'a' { TrialVerb::Apply } else { TrialVerb::Discard };
            return self.trials.meant(verb).map(|row| Effect::Settle(row.id.clone(), verb));
        }
        self.answer(answer_of(letter)?.0)
    }

    fn answer(&mut self, reply: Reply) -> Option<Effect> {
        let question = self.questions.current()?;
        let approval_id = question.approval.approval_id.clone();
        let told = question.consequence(reply);
        self.questions.remove(&approval_id);
        self.mode = TopMode::Browse;
        Some(Effect::Answer { approval_id, reply, note: None, told })
    }

    /// What Enter would do now, in so many columns.
    pub(super) fn confirms(&self, now_ms: u64, width: usize) -> Option<String> {
        let letter = self.answering.armed(now_ms)?;
        let words = match (&self.mode, letter) {
            (TopMode::Trials, letter) => {
                let verb = if letter == 'a' { "Apply the changes of" } else { "Discard" };
                let command = self.trials.selected().map_or("", |row| &row.command);
                let room = width.saturating_sub(verb.len() + CONFIRM.len() + 3);
                format!("{verb} {}", cut_middle(command, room))
            }
            _ => answer_of(letter)?.1.to_owned(),
        };
        Some(format!("{words}? {CONFIRM}"))
    }
}
