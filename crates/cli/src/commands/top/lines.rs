//! Lines that harm no terminal, in rows that fit.

use legwork::gate::visible;
use unicode_width::UnicodeWidthChar;

/// Columns between two stops of a tab.
const TAB: usize = 8;

/// Marks above and below a character that are shown; a pile of them would reach into other rows.
const MARKS_MAX: usize = 2;

/// A line of anybody's text as it is shown: one row, no control characters, nothing hidden.
pub(super) fn safe(line: &str) -> String {
    let mut expanded = String::new();
    let (mut column, mut marks) = (0, 0);
    for character in line.chars() {
        let width = character.width().unwrap_or(0);
        marks = if width == 0 { marks + 1 } else { 0 };
        match character {
            '\t' => {
                let blanks = TAB - column % TAB;
                expanded.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            // What is not printable is made visible below, however much there is of it.
            _ if marks <= MARKS_MAX || is_odd(character) => {
                expanded.push(character);
                column += width;
            }
            _ => {}
        }
    }
    visible(&expanded)
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
            assert_eq!(safe(line), expected, "{line:?}");
        }
        let pile = format!("e{}x", "\u{301}".repeat(1000));
        assert_eq!(safe(&pile), "e\u{301}\u{301}x");
        let hidden = safe(&"\u{200b}".repeat(10));
        assert_eq!(hidden, "\\u{200b}".repeat(10));
    }

    #[test]
    fn rows_fit_and_lose_nothing() {
        for line in ["", "short", "日本語のコマンド", "a long line of words and more words"]
        {
            for width in 2..12 {
                let rows = wrapped(line, width);
                assert!(rows.iter().all(|row| columns(row) <= width), "{line} {width}");
                assert_eq!(rows.concat(), line);
            }
        }
    }
}
