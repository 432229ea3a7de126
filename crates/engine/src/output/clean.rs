//! Turns raw output into text for a model: no control sequences, progress lines in their last state.
//!
//! Each character remembers how far into the raw bytes it reaches, so that a cut in the text is a cut in
//! the bytes. A terminal parser library was not used because it has no such offsets, and because an
//! unterminated string sequence would swallow everything after it; here a line's end ends it.

/// Shown for bytes that are no text.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Longest string sequence (OSC and the like) that is taken for one.
const STRING_CHARS_MAX: usize = 4096;

/// How far to the right a sequence may move the cursor past a line's end.
const COLUMN_MAX: usize = 1024;

/// One character of cleaned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub character: char,
    /// Offset in the raw bytes just behind what this character stands for; never falls.
    pub end: usize,
}

/// Cleaned text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Clean {
    pub cells: Vec<Cell>,
    /// Whether bytes had to be replaced because they are no text.
    pub replaced: bool,
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
        length: usize,
        escape: bool,
    },
}

/// Cleans raw bytes.
pub(super) fn clean(raw: &[u8]) -> Clean {
    let mut cleaner =
        Cleaner { out: Clean::default(), line: Vec::new(), cursor: 0, state: State::Ground };
    let mut offset = 0;
    for chunk in raw.utf8_chunks() {
        for character in chunk.valid().chars() {
            offset += character.len_utf8();
            cleaner.take(character, offset);
        }
        if !chunk.invalid().is_empty() {
            offset += chunk.invalid().len();
            cleaner.replace(offset);
        }
    }
    cleaner.end_line();
    cleaner.out
}

struct Cleaner {
    out: Clean,
    line: Vec<Cell>,
    cursor: usize,
    state: State,
}

impl Cleaner {
    fn take(&mut self, character: char, end: usize) {
        if character == '\n' {
            self.state = State::Ground;
            self.end_line();
            self.out.cells.push(Cell { character, end });
            return;
        }
        match self.state {
            State::Ground => self.ground(character, end),
            State::Escape => self.state = after_escape(character),
            State::Intermediate => self.state = State::Ground,
            State::Control { parameter, private } => self.control(character, parameter, private),
            State::String { length, escape } => self.state = in_string(character, length, escape),
        }
    }

    fn ground(&mut self, character: char, end: usize) {
        match character {
            '\x1b' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Control { parameter: 0, private: false },
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                self.state = State::String { length: 0, escape: false };
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
            'K' if !private => match parameter {
                0 => self.line.truncate(self.cursor),
                1 if self.cursor <= COLUMN_MAX => {
                    for cell in self.line.iter_mut().take(self.cursor) {
                        cell.character = ' ';
                    }
                }
                1 => {}
                _ => {
                    self.line.clear();
                    // Far to the right, every character after this would fill the line up again.
                    self.cursor = self.cursor.min(COLUMN_MAX);
                }
            },
            '\x1b' => self.state = State::Escape,
            'G' if !private => self.move_to(parameter.max(1) - 1),
            'C' if !private => self.move_to(self.cursor.saturating_add(parameter.max(1))),
            'D' if !private => self.cursor = self.cursor.saturating_sub(parameter.max(1)),
            _ => {}
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
        while self.line.len() < self.cursor {
            self.line.push(Cell { character: ' ', end });
        }
        let cell = Cell { character, end };
        match self.line.get_mut(self.cursor) {
            Some(place) => *place = cell,
            None => self.line.push(cell),
        }
        self.cursor += 1;
    }

    /// Moves the line to the output; overwritten places must not make the offsets fall.
    fn end_line(&mut self) {
        let mut reached = self.out.cells.last().map_or(0, |cell| cell.end);
        for mut cell in self.line.drain(..) {
            reached = reached.max(cell.end);
            cell.end = reached;
            self.out.cells.push(cell);
        }
        self.cursor = 0;
    }
}

fn after_escape(character: char) -> State {
    match character {
        '[' => State::Control { parameter: 0, private: false },
        ']' | 'P' | 'X' | '^' | '_' => State::String { length: 0, escape: false },
        ' '..='/' => State::Intermediate,
        '\x1b' => State::Escape,
        _ => State::Ground,
    }
}

fn in_string(character: char, length: usize, escape: bool) -> State {
    let ends = matches!(character, '\x07' | '\u{9c}') || (escape && character == '\\');
    if ends || length >= STRING_CHARS_MAX {
        State::Ground
    } else {
        State::String { length: length + 1, escape: character == '\x1b' }
    }
}

/// Characters that show nothing and can carry hidden instructions or reorder what is shown.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(raw: &[u8]) -> String {
        clean(raw).cells.iter().map(|cell| cell.character).collect()
    }

    #[test]
    fn sequences_are_stripped_and_lines_folded() {
        for (raw, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07after", "after"),
            ("\x1b]52;c;aGk=\x1b\\after", "after"),
            ("\x1b]never ends\nnext line", "\nnext line"),
            ("\x1b(Bx\x1b=y", "xy"),
            ("10%\r50%\r100%\n", "100%\n"),
            ("hello world\rHELLO\n", "HELLO world\n"),
            ("long line\r\x1b[Kshort\n", "short\n"),
            ("abc\x1b[2K\x1b[1Gxy\n", "xy\n"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("ab\x08c", "ac"),
            ("a\x00b", "a\u{fffd}b"),
            ("ring\x07", "ring"),
            ("\x1b[31\x1b[0mx", "x"),
            ("tag\u{e0041}\u{202e}ged", "tagged"),
            ("\x1b[999999999999999999999Cx", &format!("{}x", " ".repeat(COLUMN_MAX))),
        ] {
            assert_eq!(text(raw.as_bytes()), expected, "{raw:?}");
        }
    }

    #[test]
    fn invalid_bytes_are_marked() {
        let cleaned = clean(b"a\xffb\xc3");
        assert!(cleaned.replaced);
        assert_eq!(text(b"a\xffb\xc3"), "a\u{fffd}b\u{fffd}");
        assert!(!clean("ä".as_bytes()).replaced);
    }

    #[test]
    fn sequences_that_erase_a_long_line_again_and_again_take_linear_time() {
        // Quadratic work on this would take minutes, not milliseconds.
        for erase in ["\x1b[2K", "\x1b[1K"] {
            let raw = format!("{}{}", "x".repeat(400_000), format!("{erase}y").repeat(200_000));
            assert!(!clean(raw.as_bytes()).cells.is_empty());
        }
    }

    proptest! {
        #[test]
        fn offsets_never_fall_and_stay_inside(raw in proptest::collection::vec(any::<u8>(), 0..400)) {
            let cleaned = clean(&raw);
            let mut last = 0;
            for cell in &cleaned.cells {
                prop_assert!(cell.end >= last && cell.end <= raw.len());
                prop_assert!(!cell.character.is_control() || matches!(cell.character, '\n' | '\t'));
                last = cell.end;
            }
        }

        #[test]
        fn escape_floods_never_reach_the_text(raw in "[\\x1b\\[\\]P0-9;mKGx\\x07\\r\\n ]{0,300}") {
            prop_assert!(!text(raw.as_bytes()).contains('\x1b'));
        }
    }
}
