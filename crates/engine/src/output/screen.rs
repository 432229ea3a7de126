//! The screen of a terminal task: plays its bytes into a terminal emulator.

use std::{
    io,
    num::NonZeroU16,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use legwork_warden::folder::{TimelineRow, WindowSize};

use super::{
    artifact::{Artifact, TaskOutput},
    clean::is_hidden,
    look::TextLook,
    mask::Mask,
};

/// Bytes of a terminal that are played; a screen is drawn anew long before.
const PLAYED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Bytes played at a time.
const PLAYED_BYTES_AT_ONCE: u64 = 4096;

/// Bytes that are lost when the emulator breaks.
const LOST_BYTES_MAX: usize = 64;

/// How often the emulator may break before nothing more is played: each time is a line in our own
/// log.
const BREAKS_MAX: u32 = 8;

/// After this long only the end is still played: a few bytes can ask for a great deal of drawing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most lines, and most characters in a line, that a screen can have.
const SIDE_MAX: u16 = 1000;

/// The screen of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screen {
    /// How many lines it has.
    pub rows: u16,
    /// How many characters a line has room for.
    pub cols: u16,
    /// One text for each line, without the blanks at its end, and whether the next one goes on with
    /// it.
    lines: Vec<(String, bool)>,
    /// The look of each character of each line.
    looks: Vec<Vec<TextLook>>,
    /// Line and column of the cursor, from zero; none when it is hidden.
    pub cursor: Option<(u16, u16)>,
    /// Whether the program has asked for the other sequences of the moving keys.
    pub application_cursor: bool,
    /// Whether a program has taken the whole screen for itself, as editors and pagers do.
    pub full_screen: bool,
    formatted: String,
}

impl Screen {
    /// Plays what a terminal got, with its changes of size where they came.
    pub fn of(output: &TaskOutput) -> io::Result<Self> {
        Self::within(output, PATIENCE)
    }

    fn within(output: &TaskOutput, patience: Duration) -> io::Result<Self> {
        let artifact = &output.stdout;
        let mut at = artifact.bytes().saturating_sub(PLAYED_BYTES_MAX);
        let mut emulator = Emulator::new(WindowSize::default(), patience);
        for row in output.rows()? {
            if let TimelineRow::Resized { offset, size } = row {
                at = emulator.play(artifact, at, offset)?;
                emulator.resize(size);
            }
        }
        emulator.play(artifact, at, artifact.bytes())?;
        Ok(emulator.screen())
    }

    /// What another terminal has to be sent to show the same, with its colours and modes.
    pub fn formatted(&self) -> &[u8] {
        self.formatted.as_bytes()
    }

    /// All lines, with the secrets on them masked, each with the look of its characters. A line on
    /// which something is masked has none.
    pub fn coloured(&self, mask: &Mask) -> Vec<(String, &[TextLook])> {
        let shown = mask.lines(&self.lines).into_iter();
        let drawn = self.lines.iter().zip(&self.looks);
        let lines = shown.zip(drawn).map(|(shown, ((line, _), looks))| {
            let is_whole = shown == *line && looks.len() == line.chars().count();
            (shown, if is_whole { looks.as_slice() } else { &[] })
        });
        let mut lines: Vec<_> = lines.collect();
        while lines.last().is_some_and(|(line, _)| line.is_empty()) {
            lines.pop();
        }
        lines
    }

    /// All lines, without the blank ones at the end, and with the secrets on them masked.
    pub fn text(&self, mask: &Mask) -> String {
        mask.lines(&self.lines).join("\n").trim_end_matches('\n').to_owned()
    }
}

/// The emulator, held at arm's length: it trusts its own arithmetic, and the bytes are anybody's.
struct Emulator {
    parser: vt100::Parser,
    size: WindowSize,
    started: Instant,
    patience: Duration,
    breaks: u32,
}

impl Emulator {
    fn new(size: WindowSize, patience: Duration) -> Self {
        Self { parser: blank(size), size, started: Instant::now(), patience, breaks: 0 }
    }

    /// Does something with the emulator; where that breaks, what was drawn before is still there.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut vt100::Parser) -> T) -> Option<T> {
        if self.breaks >= BREAKS_MAX {
            return None;
        }
        let done = catch_unwind(AssertUnwindSafe(|| work(&mut self.parser)));
        self.breaks += u32::from(done.is_err());
        done.ok()
    }

    /// Plays a stretch of the artifact and says where it ended.
    fn play(&mut self, artifact: &Artifact, from: u64, to: u64) -> io::Result<u64> {
        let mut at = from;
        while at < to {
            if self.started.elapsed() >= self.patience {
                at = at.max(artifact.bytes().saturating_sub(PLAYED_BYTES_AT_ONCE));
            }
            at = artifact.skip(at);
            let piece = artifact.read(at, to.saturating_sub(at).min(PLAYED_BYTES_AT_ONCE))?;
            if piece.is_empty() {
                break;
            }
            for few in piece.chunks(LOST_BYTES_MAX) {
                self.guarded(|parser| parser.process(few));
            }
            at += piece.len() as u64;
        }
        Ok(at)
    }

    fn resize(&mut self, size: WindowSize) {
        if size.rows > 0 && size.cols > 0 {
            self.size = size;
            if self.guarded(|parser| parser.set_size(side(size.rows), side(size.cols))).is_none() {
                self.parser = blank(size);
            }
        }
    }

    fn screen(mut self) -> Screen {
        self.breaks = 0;
        let shown = self.guarded(|parser| shown(parser.screen()));
        shown.unwrap_or_else(|| self::shown(blank(self.size).screen()))
    }
}

fn blank(size: WindowSize) -> vt100::Parser {
    vt100::Parser::new(side(size.rows), side(size.cols), 0)
}

/// A length of a screen's side within its limits.
fn side(length: u16) -> NonZeroU16 {
    NonZeroU16::new(length.min(SIDE_MAX)).unwrap_or(NonZeroU16::MIN)
}

fn shown(screen: &vt100::Screen) -> Screen {
    let (rows, cols) = screen.size();
    let line = |text: String| text.replace(is_hidden, "").trim_end().to_owned();
    let (row, col) = screen.cursor_position();
    // Behind the last column the cursor waits for a character that wraps.
    let cursor = (row, col.min(cols.get() - 1));
    Screen {
        rows: rows.get(),
        cols: cols.get(),
        lines: screen
            .rows(0, cols.get())
            .zip(0..)
            .map(|(text, row)| (line(text), screen.row_wrapped(row)))
            .collect(),
        looks: (0..rows.get()).map(|row| looks(screen, row, cols.get())).collect(),
        cursor: (!screen.hide_cursor()).then_some(cursor),
        application_cursor: screen.application_cursor(),
        full_screen: screen.alternate_screen(),
        formatted: screen.state_formatted(),
    }
}

/// The looks of the characters of a line, up to its last one.
fn looks(screen: &vt100::Screen, row: u16, cols: u16) -> Vec<TextLook> {
    let cells = (0..cols).filter_map(|col| screen.cell(row, col));
    let (mut looks, mut last) = (Vec::new(), 0);
    for cell in cells.filter(|cell| !cell.is_wide_continuation()) {
        let look = TextLook::of_cell(cell);
        let contents = if cell.has_contents() { cell.contents() } else { " " };
        for character in contents.chars().filter(|character| !is_hidden(*character)) {
            looks.push(look);
            last = if character.is_whitespace() { last } else { looks.len() };
        }
    }
    looks.truncate(last);
    looks
}

#[cfg(test)]
mod tests {
    use legwork_warden::folder::Stream;
    use proptest::prelude::*;

    use super::*;
    use crate::output::SmallOutput;

    fn resized(offset: u64, rows: u16, cols: u16) -> TimelineRow {
        TimelineRow::Resized { offset, size: WindowSize { rows, cols } }
    }

    fn output(bytes: &[u8], rows: &[TimelineRow]) -> TaskOutput {
        let timeline = rows.iter().flat_map(|row| row.to_bytes()).collect();
        TaskOutput::from(&SmallOutput { stdout: bytes.to_vec(), stderr: Vec::new(), timeline })
    }

    fn screen(bytes: &[u8], rows: &[TimelineRow]) -> Screen {
        Screen::of(&output(bytes, rows)).unwrap()
    }

    #[test]
    fn a_screen_shows_what_was_drawn() {
        for (bytes, text, cursor) in [
            ("", "", Some((0, 0))),
            ("one\r\ntwo  ", "one\ntwo", Some((1, 5))),
            ("\x1b[2J\x1b[3;5Hhere\x1b[1;1H", "\n\n    here", Some((0, 0))),
            ("\x1b[?25lhidden", "hidden", None),
            ("old\x1b[?1049hnew\x1b[?1049l", "old", Some((0, 3))),
            ("a\u{e0041}\u{202e}b", "ab", Some((0, 2))),
            (&"x".repeat(80), &"x".repeat(80), Some((0, 79))),
        ] {
            let screen = screen(bytes.as_bytes(), &[]);
            assert_eq!((screen.rows, screen.cols, screen.lines.len()), (24, 80, 24));
            assert_eq!(
                (screen.text(&Mask::default()).as_str(), screen.cursor),
                (text, cursor),
                "{bytes:?}"
            );
        }
        assert!(screen(b"\x1b[?1h", &[]).application_cursor);
        assert!(!screen(b"\x1b[?1h\x1b[?1l", &[]).application_cursor);
    }

    #[test]
    fn a_screen_has_colours_and_a_masked_line_has_none() {
        let drawn = "\u{1b}[31mred\u{1b}[m \u{1b}[7m漢\r\n\u{1b}[32mvery-secret-value\u{1b}[m\r\n";
        let screen = screen(drawn.as_bytes(), &[]);
        let mask = Mask::new(&[("API_TOKEN".into(), "very-secret-value".into())]);
        let lines = screen.coloured(&mask);
        let [(first, looks), (second, none)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((first.as_str(), second.as_str()), ("red 漢", "[masked:API_TOKEN]"));
        assert_eq!(
            looks.iter().map(|look| look.front()).collect::<Vec<_>>(),
            [Some(1), Some(1), Some(1), None, None]
        );
        assert!(looks.last().unwrap().is_reversed() && none.is_empty());
    }

    #[test]
    fn sizes_count_from_where_they_came() {
        let grew = TimelineRow::Grew { stream: Stream::Stdout, offset: 0, time_us: 0 };
        for (rows, size, text) in [
            (&[][..], (24, 80), "abcdef"),
            (&[resized(0, 10, 3)][..], (10, 3), "abc\ndef"),
            (&[grew, resized(0, 10, 3)], (10, 3), "abc\ndef"),
            (&[resized(0, 0, 3), resized(0, 7, 0)], (24, 80), "abcdef"),
            (&[resized(0, u16::MAX, u16::MAX)], (1000, 1000), "abcdef"),
            (&[resized(4, 24, 5)], (24, 5), "abcde\nf"),
            (&[resized(3, 24, 9), resized(1, 24, 20), resized(99, 5, 6)], (5, 6), "abcdef"),
        ] {
            let screen = screen(b"abcdef", rows);
            assert_eq!((screen.rows, screen.cols), size, "{rows:?}");
            assert_eq!(screen.text(&Mask::default()), text, "{rows:?}");
        }
    }

    #[test]
    fn an_emulator_that_breaks_goes_on_for_a_while() {
        let mut emulator = Emulator::new(WindowSize::default(), PATIENCE);
        for place in 0..2 * BREAKS_MAX {
            emulator.guarded(|parser| parser.process(format!("{place} ").as_bytes()));
            emulator.guarded(|_| panic!("as if by odd bytes"));
        }
        assert_eq!(emulator.screen().text(&Mask::default()), "0 1 2 3 4 5 6 7");
    }

    #[test]
    fn without_patience_only_the_end_is_played() {
        // Each of these asks for 65535 characters: all of them would take hours.
        let flood = "x\x1b[65535b".repeat(1_000_000);
        let bytes = format!("{flood}{}\x1b[Hdone", " ".repeat(4096)).into_bytes();
        let screen = Screen::within(&output(&bytes, &[]), Duration::ZERO).unwrap();
        assert_eq!(screen.text(&Mask::default()), "done");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_bytes_break_a_screen(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..600),
                "([a-z漢\u{fe0f}\u{301}\r\n\t\x08]|\x1b[\\[\\]78cMD=>]|[0-9;?]{1,5}|[@A-Za-z~]){0,200}"
                    .prop_map(String::into_bytes),
            ],
            sizes in proptest::collection::vec((0u64..600, 0u16..12, 0u16..12), 0..6),
        ) {
            let rows: Vec<_> = sizes.iter().map(|(at, rows, cols)| resized(*at, *rows, *cols)).collect();
            let screen = screen(&bytes, &rows);
            prop_assert_eq!(screen.lines.len(), usize::from(screen.rows));
            for (line, _) in &screen.lines {
                prop_assert!(!line.chars().any(char::is_control));
            }
            if let Some((row, col)) = screen.cursor {
                prop_assert!(row < screen.rows && col < screen.cols);
            }
        }
    }
}
