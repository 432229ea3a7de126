//! One question at the terminal, from its first row to its answer.

use std::io;

use legwork::{Approval, Reply, gate::visible};

use super::{
    ANSWER_KEYS, CANCELLED_LETTER, CONFIRM, PersonSaid, answer_of,
    keyboard::AskingTerminal,
    letters,
    sitting::{Sitting, answer_key, until},
};
use crate::{
    answering::{AnswerKey, DENY, DENY_WITH_NOTE, HINT, Offered, Pressed},
    keys::{Gesture, Keys},
    signals::{Caught, ENDING},
    terminal,
};

/// The byte that a terminal sends for Ctrl-C where it makes no signal of it.
const CTRL_C: u8 = 3;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// Characters of a line that are kept.
const LINE_CHARS_MAX: usize = 1000;

/// A line that is typed: the terminal shows nothing by itself.
#[derive(Debug, Default)]
struct Line(String);

/// The effect of a key on a line.
enum LineKey {
    Goes,
    Sends,
    Leaves,
    Cancels,
}

impl Line {
    fn take(&mut self, key: Gesture, terminal: &mut AskingTerminal) -> io::Result<LineKey> {
        let text = match key {
            Gesture::Ctrl('c' | 'd') => return Ok(LineKey::Cancels),
            Gesture::Enter => return Ok(LineKey::Sends),
            Gesture::Escape => return Ok(LineKey::Leaves),
            Gesture::Backspace => {
                if self.0.pop().is_some() {
                    terminal.write("\u{8} \u{8}")?;
                }
                return Ok(LineKey::Goes);
            }
            Gesture::Char(letter) => letter.to_string(),
            Gesture::Pasted(text) => text,
            _ => return Ok(LineKey::Goes),
        };
        let room = LINE_CHARS_MAX.saturating_sub(self.0.chars().count());
        let text: String = text.chars().take(room).collect();
        terminal.write(&visible(&text))?;
        self.0.push_str(&text);
        Ok(LineKey::Goes)
    }
}

/// Reads a line; none where no line was sent.
pub(super) async fn line(terminal: &mut AskingTerminal) -> io::Result<Option<String>> {
    let mut signals = Caught::new(&ENDING);
    let (mut keys, mut line) = (Keys::default(), Line::default());
    loop {
        let bytes = tokio::select! {
            bytes = terminal.bytes() => bytes?,
            _ = signals.next() => None,
        };
        for key in keys.feed(&bytes.unwrap_or(vec![CTRL_C])) {
            let is_sent = match line.take(key, terminal)? {
                LineKey::Goes => continue,
                LineKey::Sends => true,
                LineKey::Leaves | LineKey::Cancels => false,
            };
            terminal.write("\n")?;
            return Ok(is_sent.then_some(line.0));
        }
    }
}

/// The content of the last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// Only what works at once.
    Denies,
    /// All answers.
    All,
    /// A letter that waits for Enter.
    Armed(char),
    Hint,
}

pub(super) struct Prompt<'a> {
    sitting: &'a mut Sitting,
    text: String,
    replies: &'a [Reply],
    letters: String,
    row: Option<Row>,
    /// The note that is typed for a deny.
    note: Option<Line>,
}

/// A question that ends with an open note is typed at, however long the last key is ago.
impl Drop for Prompt<'_> {
    fn drop(&mut self) {
        if self.note.is_some() {
            self.press(AnswerKey::Text);
        }
    }
}

impl<'a> Prompt<'a> {
    pub(super) fn new(sitting: &'a mut Sitting, approval: &Approval, replies: &'a [Reply]) -> Self {
        let (text, letters) = (approval.question(), letters(replies));
        Self { sitting, text, replies, letters, row: None, note: None }
    }

    pub(super) async fn ask(mut self) -> io::Result<PersonSaid> {
        let mut signals = Caught::new(&ENDING);
        // What was typed before the question could be read does not answer it.
        if self.sitting.terminal.typed_before() {
            self.sitting.press(AnswerKey::Text, &Offered::default());
        }
        self.write(&format!("\n{}\n", self.text))?;
        self.sitting.show(&self.text);
        loop {
            self.draw()?;
            let due = self.sitting.due();
            let bytes = tokio::select! {
                bytes = self.sitting.terminal.bytes() => bytes?,
                () = until(due) => continue,
                _ = signals.next() => {
                    self.write("\n")?;
                    return Ok(PersonSaid::Cancelled);
                }
            };
            let Some(bytes) = bytes else {
                return self.end_with(PersonSaid::Reply(Reply::Deny, None));
            };
            if bytes.is_empty() {
                self.row = None;
            }
            for gesture in self.sitting.keys.feed(&bytes) {
                if let Some(said) = self.take(gesture)? {
                    return self.end_with(said);
                }
            }
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.sitting.terminal.write(text)
    }

    fn end_with(&mut self, said: PersonSaid) -> io::Result<PersonSaid> {
        self.write("\n")?;
        Ok(said)
    }

    fn press(&mut self, key: AnswerKey) -> Pressed {
        let offered = Offered { subject: &self.text, letters: &self.letters, moves: "" };
        self.sitting.press(key, &offered)
    }

    fn take(&mut self, gesture: Gesture) -> io::Result<Option<PersonSaid>> {
        if let Some(note) = self.note.take() {
            return self.take_note(gesture, note);
        }
        match gesture {
            Gesture::Ctrl('c') => return Ok(Some(PersonSaid::Cancelled)),
            Gesture::Ctrl('d') => return Ok(Some(PersonSaid::Reply(Reply::Deny, None))),
            _ => {}
        }
        match self.press(answer_key(&gesture)) {
            Pressed::Denies => return Ok(Some(PersonSaid::Reply(Reply::Deny, None))),
            Pressed::Confirms(letter) => {
                let reply = answer_of(letter).map(|(reply, _)| reply);
                return Ok(reply.map(|reply| PersonSaid::Reply(reply, None)));
            }
            Pressed::DeniesWithNote => {
                self.write("\nDeny, because (Enter sends, Esc goes back): ")?;
                self.note = Some(Line::default());
            }
            Pressed::Cancels => {
                self.write(&format!("\n{CANCELLED_LETTER}"))?;
                self.row = None;
            }
            Pressed::Types | Pressed::Passes if self.row != Some(Row::Hint) => {
                self.write(&format!("\n{HINT}"))?;
                self.row = Some(Row::Hint);
            }
            Pressed::Types | Pressed::Passes | Pressed::Arms(_) => {}
        }
        Ok(None)
    }

    fn take_note(&mut self, gesture: Gesture, mut note: Line) -> io::Result<Option<PersonSaid>> {
        self.press(AnswerKey::Text);
        match note.take(gesture, &mut self.sitting.terminal)? {
            LineKey::Goes => self.note = Some(note),
            LineKey::Sends => {
                let note = Some(note.0.trim().to_owned()).filter(|note| !note.is_empty());
                return Ok(Some(PersonSaid::Reply(Reply::Deny, note)));
            }
            LineKey::Leaves => self.row = None,
            LineKey::Cancels => return Ok(Some(PersonSaid::Cancelled)),
        }
        Ok(None)
    }

    /// Writes the last row, where it is another one now.
    fn draw(&mut self) -> io::Result<()> {
        if self.note.is_some() {
            return Ok(());
        }
        let row = match self.sitting.armed() {
            Some(letter) => Row::Armed(letter),
            None if self.sitting.is_ready() => Row::All,
            None if self.row == Some(Row::Hint) => Row::Hint,
            None => Row::Denies,
        };
        if self.row == Some(row) {
            return Ok(());
        }
        let text = match row {
            // The answers that are ready now stand below those that always were.
            Row::All if self.row == Some(Row::Denies) => format!("\n{}> ", self.allows()),
            Row::All => format!("\n{}\n{}> ", denies(), self.allows()),
            Row::Denies => format!("\n{}", denies()),
            Row::Armed(letter) => {
                let words = answer_of(letter).map_or("", |(_, words)| words);
                format!("\n{words}? {CONFIRM} > ")
            }
            Row::Hint => String::new(),
        };
        self.row = Some(row);
        self.write(&text)
    }

    /// The answers that let something happen, in rows that fit the terminal.
    fn allows(&self) -> String {
        let columns = terminal::size().map_or(COLUMNS, |size| size.cols.into());
        let offered = ANSWER_KEYS.iter().filter(|(reply, ..)| self.replies.contains(reply));
        let (mut text, mut at) = (String::new(), 0);
        for (_, letter, words) in offered {
            let choice = format!("[{letter}] {words}  ");
            if at > 0 && at + choice.len() > columns {
                text.push('\n');
                at = 0;
            }
            at += choice.len();
            text.push_str(&choice);
        }
        text
    }
}

fn denies() -> String {
    format!("[{DENY}] deny  [{DENY_WITH_NOTE}] deny, with a note")
}
