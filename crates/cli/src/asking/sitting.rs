//! A person at a terminal: what they type there counts for each question that they are asked, and
//! for what is behind an answer.

use std::{io, time::Instant};

use legwork::{Approval, Reply};

use super::{PersonSaid, keyboard::AskingTerminal, prompt::Prompt};
use crate::{
    answering::{AnswerKey, Answering, Offered, Pressed},
    keys::{Gesture, Keys},
    signals::{Caught, ENDING},
};

/// Longest time for which typing behind an answer is kept from the program that reads the terminal
/// next.
const BEHIND_ANSWER_MS: u64 = 30_000;

/// The hint for typing behind an answer.
const IGNORED: &str = "Ignored: pause a moment before you type on\n";

/// The hint for typing while no question is open.
const NOT_ASKED: &str = "No question is open: typing answers nothing\n";

/// A terminal, what was typed there lately, and which of that answers.
pub(crate) struct Sitting {
    pub(super) terminal: AskingTerminal,
    pub(super) keys: Keys,
    answering: Answering,
    began: Instant,
}

impl Sitting {
    pub(crate) fn open() -> io::Result<Self> {
        let (keys, answering) = (Keys::default(), Answering::default());
        Ok(Self { terminal: AskingTerminal::open()?, keys, answering, began: Instant::now() })
    }

    /// Asks until there is an answer; the end of the input is a deny. Safe to cancel.
    pub(crate) async fn ask(
        &mut self,
        approval: &Approval,
        replies: &[Reply],
    ) -> io::Result<PersonSaid> {
        let _open = super::Opened::new();
        Prompt::new(self, approval, replies).ask().await
    }

    /// Takes what is typed while no question is open. Ends with the terminal; safe to cancel.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        self.show("");
        let mut is_said = false;
        while let Some(bytes) = self.terminal.bytes().await? {
            // Typing after a pause gets the hint again.
            is_said &= !self.is_ready();
            self.ignore(&bytes, NOT_ASKED, &mut is_said)?;
        }
        Ok(())
    }

    /// Keeps the rest of a note, of which one letter has denied or which came too late, from the
    /// program that reads the terminal next: a shell would run it. Ends when nothing was typed for
    /// a while; true if we were asked to end.
    pub(super) async fn leave(mut self) -> io::Result<bool> {
        self.show("");
        let end_ms = self.now_ms() + BEHIND_ANSWER_MS;
        let mut signals = Caught::new(&ENDING);
        let mut is_said = false;
        while !self.is_ready() && self.now_ms() < end_ms {
            let due = self.due();
            let bytes = tokio::select! {
                bytes = self.terminal.bytes() => bytes?,
                () = until(due) => continue,
                _ = signals.next() => None,
            };
            let Some(bytes) = bytes else { return Ok(true) };
            self.ignore(&bytes, IGNORED, &mut is_said)?;
        }
        Ok(false)
    }

    fn ignore(&mut self, bytes: &[u8], words: &str, is_said: &mut bool) -> io::Result<()> {
        for gesture in self.keys.feed(bytes) {
            self.press(answer_key(&gesture), &Offered::default());
            if !std::mem::replace(is_said, true) {
                self.terminal.write(words)?;
            }
        }
        Ok(())
    }

    /// True if somebody is typing right now.
    pub(super) fn is_typed_at(&self) -> bool {
        self.answering.is_typed_at(self.now_ms())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes what is on the screen now.
    pub(super) fn show(&mut self, subject: &str) {
        self.answering.show(subject, self.now_ms());
    }

    pub(super) fn press(&mut self, key: AnswerKey, offered: &Offered<'_>) -> Pressed {
        self.answering.press(key, offered, self.now_ms())
    }

    /// The letter that Enter confirms now.
    pub(super) fn armed(&self) -> Option<char> {
        self.answering.armed(self.now_ms())
    }

    /// True if nothing was typed for a while.
    pub(super) fn is_ready(&self) -> bool {
        self.answering.is_ready(self.now_ms())
    }

    /// The next time at which keys mean something else.
    pub(super) fn due(&self) -> Option<Instant> {
        let due_ms = self.answering.due(self.now_ms())?;
        Some(self.began + std::time::Duration::from_millis(due_ms))
    }
}

/// A key, as the decision sees it.
pub(super) fn answer_key(gesture: &Gesture) -> AnswerKey {
    match gesture {
        Gesture::Char(letter) => AnswerKey::Letter(*letter),
        Gesture::Backspace => AnswerKey::Letter('\u{8}'),
        Gesture::Pasted(_) => AnswerKey::Text,
        Gesture::Enter => AnswerKey::Enter,
        _ => AnswerKey::Other,
    }
}

pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
