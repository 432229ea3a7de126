//! Colours, and texts that fit a terminal.

use std::io::{self, IsTerminal};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal;

/// What a colour stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it is.
    Plain,
    /// A title.
    Strong,
    /// Less important than the rest.
    Faint,
    /// Something goes on, or is well.
    Good,
    /// Somebody should look at it.
    Notable,
    /// It failed.
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Notable => "33",
            Self::Bad => "31",
        }
    }
}

/// How to write on our stdout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub colours: bool,
    /// The columns that there are; none where nothing is to be cut.
    pub width: Option<usize>,
}

impl Style {
    /// For stdout as it is: `NO_COLOR` and `CLICOLOR_FORCE` go before what the stream is, and
    /// `COLUMNS` before what the terminal says.
    pub(crate) fn of_stdout() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let forced =
            std::env::var_os("CLICOLOR_FORCE").is_some_and(|it| !it.is_empty() && it != "0");
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = io::stdout().is_terminal();
        let colours = !set("NO_COLOR") && (forced || (is_terminal && !dumb));
        let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let seen = || terminal::size().filter(|_| is_terminal).map(|size| size.cols.into());
        Self { colours, width: named.filter(|columns| *columns > 0).or_else(seen) }
    }

    /// The same where nothing is to be cut.
    pub(crate) fn uncut(self) -> Self {
        Self { width: None, ..self }
    }

    /// A text in a tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        match tone.code() {
            code if self.colours && !code.is_empty() && !text.is_empty() => {
                format!("\u{1b}[{code}m{text}\u{1b}[0m")
            }
            _ => text.to_owned(),
        }
    }
}

/// Columns that a text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The longest beginning that takes no more columns than these.
fn beginning(text: &str, width: usize) -> &str {
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        taken += character.width().unwrap_or(0);
        if taken > width {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// The longest end that takes no more columns than these.
fn end(text: &str, width: usize) -> &str {
    let mut taken = 0;
    for (at, character) in text.char_indices().rev() {
        taken += character.width().unwrap_or(0);
        if taken > width {
            return text.get(at + character.len_utf8()..).unwrap_or_default();
        }
    }
    text
}

/// A text with its middle left out, if it is too wide: of a command both ends tell most.
pub(crate) fn cut_middle(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 3;
    format!("{}…{}", beginning(text, kept - tail), end(text, tail))
}

/// A text with its beginning left out, if it is too wide: of a path the end tells most.
pub(crate) fn cut_start(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let kept = end(text, width.saturating_sub(1));
    // At a folder's name, where one begins in what is kept.
    let whole = kept.find('/').and_then(|at| kept.get(at..)).filter(|whole| whole.len() > 1);
    format!("…{}", whole.unwrap_or(kept))
}

/// A text in lines of at most this width, broken at spaces; all but the first are indented.
pub(crate) fn folded(text: &str, width: usize) -> String {
    folded_below(text, width, 4)
}

/// The same with an indent of so many columns.
fn folded_below(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        let is_begun = !line.trim().is_empty();
        if is_begun && columns(&line) + columns(word.trim_end()) > width {
            lines.push_str(&format!("{}\n", line.trim_end()));
            line = " ".repeat(indent);
        }
        line.push_str(word);
    }
    lines + &line
}

/// Prose in lines that fit; what is indented is to be copied, and stays as it is.
pub(crate) fn folded_prose(text: &str, style: Style) -> String {
    let Some(width) = style.width else { return text.to_owned() };
    let fold = |line: &str| match line.chars().next() {
        Some(' ') => line.to_owned(),
        // A sentence; anything else begins with a label.
        Some(first) if first.is_uppercase() => folded_below(line, width, 0),
        _ => folded(line, width),
    };
    text.lines().map(|line| format!("{}\n", fold(line))).collect()
}

/// A value behind its label, in lines that fit; all but the first begin below the value.
pub(crate) fn labelled(label: &str, value: &str, style: Style) -> String {
    const LABEL: usize = 14;
    const VALUE_MIN: usize = 20;
    let width = style.width.map_or(usize::MAX, |width| width.saturating_sub(LABEL).max(VALUE_MIN));
    let value = folded_below(value, width, 0).replace('\n', &format!("\n{}", " ".repeat(LABEL)));
    format!("{}{value}\n", padded(label, LABEL))
}

/// A text with spaces behind it, up to a width.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// A number with a comma at each thousand.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A path with `~` for the home folder.
pub(crate) fn from_home(path: &str) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let home = home.trim_end_matches('/');
    match path.strip_prefix(home) {
        Some("") if !home.is_empty() => "~".into(),
        Some(rest) if !home.is_empty() && rest.starts_with('/') => format!("~{rest}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_fits_and_keeps_what_tells_most() {
        assert_eq!(cut_middle("cargo test", 10), "cargo test");
        assert_eq!(cut_middle("cargo test --workspace --locked", 16), "cargo test…ocked");
        assert_eq!(cut_start("~/a/project/src", 13), "…/project/src");
        assert_eq!(cut_start("~/a/project/src", 12), "…/src");
        assert_eq!(cut_start("/a/very-long-name-of-a-folder", 10), "…-a-folder");
        for width in 1..20 {
            for text in ["日本語のコマンド", "a日b本c語d", "plain and long enough to be cut"]
            {
                assert!(columns(&cut_middle(text, width)) <= width, "{text} {width}");
                assert!(columns(&cut_start(text, width)) <= width, "{text} {width}");
            }
        }
    }

    #[test]
    fn what_is_folded_fits_and_what_is_to_be_copied_stays_whole() {
        let style = Style { colours: false, width: Some(30) };
        let copied = "    key = \"a long line of a configuration\"\n";
        let prose = format!(
            "why: two three four five six seven\n{copied}One two three four five six seven\n"
        );
        let shown = format!(
            "why: two three four five six\n    seven\n{copied}One two three four five six\nseven\n"
        );
        assert_eq!(folded_prose(&prose, style), shown);
        assert_eq!(folded_prose(&prose, style.uncut()), prose);
        let below = " ".repeat(14);
        assert_eq!(
            labelled("Why:", "one two three four five /a/path/that/is/too/long", style),
            format!(
                "Why:          one two three four\n{below}five\n{below}/a/path/that/is/too/long\n"
            )
        );
        assert_eq!(labelled("Why:", "a b", style.uncut()), "Why:          a b\n");
    }

    #[test]
    fn numbers_have_commas() {
        for (number, shown) in [(0, "0"), (999, "999"), (1023, "1,023"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), shown);
        }
    }
}
