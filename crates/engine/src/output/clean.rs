//! Turns raw output into text for a model: no control sequences, progress lines in their last
//! state.
//!
//! Each character remembers how far into the raw bytes it reaches, so that a cut in the text is a
//! cut in the bytes. A terminal parser library was not used because it has no such offsets, and
//! because an unterminated string sequence would swallow everything after it; here a line's end
//! ends it.

mod stripped;

use super::{look::TextLook, mask::FoundSecret};

pub(super) use stripped::Stripped;

/// Shown for bytes that are no text.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Longest sequence, in characters, that is taken for one.
const SEQUENCE_CHARS_MAX: usize = 4096;

/// No sequence is longer than this many bytes, so neither is what may be unfinished at a stream's
/// end.
pub(super) const SEQUENCE_BYTES_MAX: u64 = 4 * (SEQUENCE_CHARS_MAX as u64 + 4);

/// How far to the right a sequence may move the cursor past a line's end.
const COLUMN_MAX: usize = 1024;

/// One character of cleaned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub character: char,
    /// Offset in the raw bytes just behind what this character stands for; never falls.
    ///
    /// Where it grows from one cell to the next, the bytes can be cut: nothing that comes later in
    /// the text came earlier in the bytes.
    pub end: usize,
    /// The secret that it is a part of, counted from 1; 0 for none.
    pub secret: u16,
    pub look: TextLook,
}

/// Cleaned text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Clean {
    pub cells: Vec<Cell>,
    /// Whether bytes had to be replaced because they are no text.
    pub replaced: bool,
    /// Whether something was overwritten or erased: then the text is not all that was written.
    pub folded: bool,
    /// Where a character or a sequence begins that the bytes do not finish; their end if there is
    /// none.
    pub reached: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    Escape,
    /// One more character belongs to the sequence.
    Intermediate,
    Control {
        parameter: usize,
        private: bool,
    },
    String {
        escape: bool,
    },
}

/// Whether more bytes may follow the raw ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextEnd {
    /// These are all: what they do not finish stays so.
    Final,
    /// What they do not finish may be finished by the bytes that follow.
    Open,
}

/// Cleans raw bytes, and marks the characters of the secrets that are known in them.
pub(super) fn clean(raw: &[u8], end: TextEnd, secrets: &[FoundSecret<'_>]) -> Clean {
    let mut cleaner = Cleaner { secrets, ..Cleaner::default() };
    cleaner.out.reached = cleaner.run(raw, end);
    cleaner.end_line();
    cleaner.out
}

/// Takes the control sequences out of raw bytes.
pub(super) fn strip(raw: &[u8], end: TextEnd) -> Stripped {
    let mut cleaner = Cleaner { stripped: Some(Stripped::default()), ..Cleaner::default() };
    let reached = cleaner.run(raw, end);
    Stripped { reached, ..cleaner.stripped.unwrap_or_default() }
}

/// Whether the bytes are the beginning of a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

struct Cleaner<'a> {
    out: Clean,
    /// Takes what is written instead of the line, if lines are not to be folded.
    stripped: Option<Stripped>,
    /// All of the bytes.
    raw: &'a [u8],
    /// The look of what is written now.
    look: TextLook,
    /// The secrets in the raw bytes, in order.
    secrets: &'a [FoundSecret<'a>],
    /// How many of them are behind.
    passed: usize,
    /// Where the character begins that is being taken.
    start: usize,
    line: Vec<Cell>,
    cursor: usize,
    state: State,
    /// Where the sequence began that the state is in.
    began: usize,
    /// How many characters of it were taken.
    length: usize,
}

impl Default for Cleaner<'_> {
    fn default() -> Self {
        Self {
            out: Clean::default(),
            stripped: None,
            raw: &[],
            look: TextLook::default(),
            secrets: &[],
            passed: 0,
            start: 0,
            line: Vec::new(),
            cursor: 0,
            state: State::Ground,
            began: 0,
            length: 0,
        }
    }
}

impl<'a> Cleaner<'a> {
    /// Takes all bytes; returns where something begins that they do not finish.
    fn run(&mut self, raw: &'a [u8], end: TextEnd) -> usize {
        self.raw = raw;
        let mut offset = 0;
        for chunk in raw.utf8_chunks() {
            for character in chunk.valid().chars() {
                self.start = offset;
                offset += character.len_utf8();
                self.take(character, offset);
            }
            let invalid = chunk.invalid();
            let last = offset + invalid.len() == raw.len();
            if end == TextEnd::Open && last && is_unfinished(invalid) {
                break;
            }
            if !invalid.is_empty() {
                self.start = offset;
                offset += invalid.len();
                self.replace(offset);
            }
        }
        match end {
            TextEnd::Final => raw.len(),
            TextEnd::Open if self.state == State::Ground => offset,
            TextEnd::Open => self.began,
        }
    }

    fn take(&mut self, character: char, end: usize) {
        if character == '\n' {
            self.state = State::Ground;
            self.end_line();
            let cell = self.cell(character, end);
            match &mut self.stripped {
                Some(stripped) => stripped.push(character, self.start, end),
                None => self.out.cells.push(cell),
            }
            return;
        }
        let was_outside = self.state == State::Ground;
        match self.state {
            State::Ground => self.ground(character, end),
            State::Escape => {
                self.state = after_escape(character);
                // The terminal is as it was at first.
                if character == 'c' {
                    self.look = TextLook::default();
                }
            }
            State::Intermediate => self.state = State::Ground,
            State::Control { parameter, private } => self.control(character, parameter, private),
            State::String { escape } => self.state = in_string(character, escape),
        }
        // An escape character inside a sequence begins a new one.
        if was_outside || self.state == State::Escape {
            self.began = end - character.len_utf8();
            self.length = 0;
        }
        self.length += 1;
        if self.length > SEQUENCE_CHARS_MAX {
            self.state = State::Ground;
        }
    }

    fn ground(&mut self, character: char, end: usize) {
        match character {
            '\x1b' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Control { parameter: 0, private: false },
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                self.state = State::String { escape: false };
            }
            '\r' => self.cursor = 0,
            '\x08' => self.cursor = self.cursor.saturating_sub(1),
            '\t' => self.put(character, end),
            '\x07' | '\u{80}'..='\u{9f}' => {}
            _ if is_hidden(character) => {}
            _ if character.is_control() => self.replace(end),
            _ => self.put(character, end),
        }
    }

    /// Takes a character of a control sequence; the few that edit a line are followed.
    fn control(&mut self, character: char, parameter: usize, private: bool) {
        self.state = State::Ground;
        match character {
            '0'..='9' => {
                let digit = character.to_digit(10).unwrap_or(0) as usize;
                let parameter = parameter.saturating_mul(10).saturating_add(digit);
                self.state = State::Control { parameter, private };
            }
            ' '..='?' => {
                self.state = State::Control { parameter: 0, private: private || character != ';' };
            }
            'm' => self.paint(),
            'K' if !private => self.erase(parameter),
            '\x1b' => self.state = State::Escape,
            'G' if !private => self.move_to(parameter.max(1) - 1),
            'C' if !private => self.move_to(self.cursor.saturating_add(parameter.max(1))),
            'D' if !private => self.cursor = self.cursor.saturating_sub(parameter.max(1)),
            _ => {}
        }
    }

    /// Changes the look of what comes; the sequence has two bytes before its parameters.
    fn paint(&mut self) {
        let parameters = self.raw.get(self.began + 2..self.start).unwrap_or_default();
        self.look = self.look.after(parameters);
    }

    /// Erases the line from the cursor on, up to it, or all of it.
    fn erase(&mut self, parameter: usize) {
        self.out.folded |= !self.line.is_empty();
        match parameter {
            0 => self.line.truncate(self.cursor),
            1 if self.cursor <= COLUMN_MAX => {
                for cell in self.line.iter_mut().take(self.cursor) {
                    (cell.character, cell.look) = (' ', TextLook::default());
                }
            }
            1 => {}
            _ => {
                self.line.clear();
                // Far to the right, every character after this would fill the line up again.
                self.cursor = self.cursor.min(COLUMN_MAX);
            }
        }
    }

    fn move_to(&mut self, column: usize) {
        self.cursor = column.min(self.line.len().max(COLUMN_MAX));
    }

    fn replace(&mut self, end: usize) {
        self.state = State::Ground;
        self.out.replaced = true;
        self.put(REPLACEMENT, end);
    }

    fn put(&mut self, character: char, end: usize) {
        if let Some(stripped) = &mut self.stripped {
            return stripped.push(character, self.start, end);
        }
        let cell = self.cell(character, end);
        while self.line.len() < self.cursor {
            self.line.push(Cell { character: ' ', look: TextLook::default(), ..cell });
        }
        match self.line.get_mut(self.cursor) {
            Some(place) => {
                *place = cell;
                self.out.folded = true;
            }
            None => self.line.push(cell),
        }
        self.cursor += 1;
    }

    /// A character with the secret that it belongs to. Characters come in the order of the bytes.
    fn cell(&mut self, character: char, end: usize) -> Cell {
        while self.secrets.get(self.passed).is_some_and(|secret| secret.end < end) {
            self.passed += 1;
        }
        let inside = self.secrets.get(self.passed).is_some_and(|secret| secret.start < end);
        let number = if inside { self.passed + 1 } else { 0 };
        // Past so many, neighbours share a marker.
        let secret = u16::try_from(number).unwrap_or(u16::MAX);
        Cell { character, end, secret, look: self.look }
    }

    /// Moves the line to the output; overwritten places must not make the offsets fall.
    fn end_line(&mut self) {
        let first = self.out.cells.len();
        let mut reached = self.out.cells.last().map_or(0, |cell| cell.end);
        for cell in &self.line {
            reached = reached.max(cell.end);
            self.out.cells.push(Cell { end: reached, ..*cell });
        }
        // A cell with an older one behind it reaches as far as that one: they can only be cut
        // together.
        let (mut shared, mut oldest) = (reached, usize::MAX);
        let moved = self.out.cells.get_mut(first..).unwrap_or_default();
        for (cell, before) in moved.iter_mut().zip(&self.line).rev() {
            if oldest > cell.end {
                shared = cell.end;
            }
            cell.end = shared;
            oldest = oldest.min(before.end);
        }
        self.line.clear();
        self.cursor = 0;
    }
}

fn after_escape(character: char) -> State {
    match character {
        '[' => State::Control { parameter: 0, private: false },
        ']' | 'P' | 'X' | '^' | '_' => State::String { escape: false },
        ' '..='/' => State::Intermediate,
        '\x1b' => State::Escape,
        _ => State::Ground,
    }
}

fn in_string(character: char, escape: bool) -> State {
    let ends = matches!(character, '\x07' | '\u{9c}') || (escape && character == '\\');
    if ends { State::Ground } else { State::String { escape: character == '\x1b' } }
}

/// Whether a text stays as it is when it is stripped.
pub(super) fn is_plain(text: &str) -> bool {
    let is_odd = |character: char| {
        let control = character.is_control() && !matches!(character, '\n' | '\t');
        control || is_hidden(character) || is_invisible(character)
    };
    !text.contains(is_odd)
}

/// Characters that show nothing, wherever they are.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}')
}

/// Characters that show nothing and can carry hidden instructions or reorder what is shown.
pub(super) fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
