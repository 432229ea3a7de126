//! Lines that harm no terminal, in rows that fit.

use legwork::{gate::visible, output::TextLook};
use unicode_width::UnicodeWidthChar;

/// Columns between two stops of a tab.
const TAB: usize = 8;

/// Marks above and below a character that are shown; a pile of them would reach into other rows.
const MARKS_MAX: usize = 2;

/// A line or a row as it is shown: pieces, each of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TextRow(Vec<(TextLook, String)>);

impl TextRow {
    pub(super) fn pieces(&self) -> &[(TextLook, String)] {
        &self.0
    }

    fn push(&mut self, look: TextLook, character: char) {
        match self.0.last_mut() {
            Some((last, text)) if *last == look => text.push(character),
            _ => self.0.push((look, character.to_string())),
        }
    }
}

impl From<&str> for TextRow {
    fn from(text: &str) -> Self {
        Self(if text.is_empty() { Vec::new() } else { vec![(TextLook::default(), text.into())] })
    }
}

#[cfg(test)]
impl PartialEq<&str> for TextRow {
    fn eq(&self, other: &&str) -> bool {
        self.0.iter().map(|(_, text)| text.as_str()).collect::<String>() == **other
    }
}

/// A line of anybody's text as it is shown, with the look of its characters where that is known:
/// one row, no control characters, nothing hidden.
pub(super) fn safe(line: &str, looks: &[TextLook]) -> TextRow {
    let mut row = TextRow::default();
    let (mut column, mut marks) = (0, 0);
    let looks = looks.iter().copied().chain(std::iter::repeat(TextLook::default()));
    for (character, look) in line.chars().zip(looks) {
        let width = character.width().unwrap_or(0);
        marks = if width == 0 { marks + 1 } else { 0 };
        match character {
            '\t' => {
                let blanks = TAB - column % TAB;
                for _ in 0..blanks {
                    row.push(look, ' ');
                }
                column += blanks;
            }
            // What is not printable is made visible below, however much there is of it.
            _ if marks <= MARKS_MAX || is_odd(character) => {
                row.push(look, character);
                column += width;
            }
            _ => {}
        }
    }
    for (_, text) in &mut row.0 {
        *text = visible(text);
    }
    row
}

fn is_odd(character: char) -> bool {
    let mut buffer = [0; 4];
    let text: &str = character.encode_utf8(&mut buffer);
    visible(text) != text
}

/// A line in rows of at most this width.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut taken = 0;
    for character in line.chars() {
        let columns = character.width().unwrap_or(0);
        if taken + columns > width && taken > 0 {
            rows.push(String::new());
            taken = 0;
        }
        taken += columns;
        if let Some(row) = rows.last_mut() {
            row.push(character);
        }
    }
    rows
}

/// The same of a row with looks.
pub(super) fn wrapped_row(line: &TextRow, width: usize) -> Vec<TextRow> {
    let mut rows = vec![TextRow::default()];
    let mut taken = 0;
    for (look, text) in line.pieces() {
        for character in text.chars() {
            let columns = character.width().unwrap_or(0);
            if taken + columns > width && taken > 0 {
                rows.push(TextRow::default());
                taken = 0;
            }
            taken += columns;
            if let Some(row) = rows.last_mut() {
                row.push(*look, character);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::columns;

    #[test]
    fn nothing_of_a_safe_line_reaches_the_terminal_as_an_order() {
        for (line, expected) in [
            ("plain <b>HTML</b> & 漢字", "plain <b>HTML</b> & 漢字"),
            ("a\tb\tc", "a       b       c"),
            ("\u{1b}[2J\u{7}", "\\u{1b}[2J\\u{7}"),
            ("a\u{202e}b\u{200b}c\u{feff}", "a\\u{202e}b\\u{200b}c\\u{feff}"),
            ("e\u{301}", "e\u{301}"),
        ] {
            assert_eq!(safe(line, &[]), expected, "{line:?}");
        }
        let pile = format!("e{}x", "\u{301}".repeat(1000));
        assert_eq!(safe(&pile, &[]), "e\u{301}\u{301}x");
        let hidden = safe(&"\u{200b}".repeat(10), &[]);
        assert_eq!(hidden, "\\u{200b}".repeat(10).as_str());
    }

    #[test]
    fn rows_fit_and_lose_nothing() {
        for line in ["", "short", "日本語のコマンド", "a long line of words and more words"]
        {
            for width in 2..12 {
                let rows = wrapped(line, width);
                assert!(rows.iter().all(|row| columns(row) <= width), "{line} {width}");
                assert_eq!(rows.concat(), line);
                let looks = wrapped_row(&TextRow::from(line), width);
                assert_eq!(looks, rows.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }
}
