//! Turns the bytes of a terminal into keys, clicks and pasted text.
//!
//! crossterm's own reader is not used: it cannot be stopped while it reads, so that it would take
//! the first key that is meant for an attached task, and it spins when the terminal hangs up.

/// Longest sequence that is taken for one.
const SEQUENCE_BYTES_MAX: usize = 64;

/// Bytes of a pasted text that are kept.
const PASTED_BYTES_MAX: usize = 4096;

/// What ends a pasted text.
const PASTE_END: &[u8] = b"\x1b[201~";

/// Something that a person did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gesture {
    /// A character.
    Char(char),
    /// A letter with Ctrl, or `]`.
    Ctrl(char),
    Enter,
    Escape,
    Tab,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// A key that means nothing here.
    Other,
    /// A text that was pasted, without control characters: never a key.
    Pasted(String),
    /// The left button was pressed on this column and row.
    Click(u16, u16),
    /// The wheel was turned there: up, or down.
    Wheel(u16, u16, bool),
}

/// Reads keys; what is not finished waits for the next bytes.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pending: Vec<u8>,
    /// What was pasted so far, while something is.
    pasted: Option<Vec<u8>>,
}

impl Keys {
    /// Takes bytes as they were read.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Gesture> {
        self.pending.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while !rest.is_empty() {
            let (taken, input) = match &mut self.pasted {
                Some(pasted) => paste(pasted, rest),
                None => key(rest),
            };
            if taken == 0 {
                break;
            }
            rest = rest.get(taken..).unwrap_or_default();
            match input {
                Some(Read::Gesture(input)) => inputs.push(input),
                Some(Read::PasteBegins) => self.pasted = Some(Vec::new()),
                Some(Read::PasteEnds) => inputs.extend(self.pasted.take().map(|it| pasted(&it))),
                None => {}
            }
        }
        self.pending = rest.to_vec();
        inputs
    }
}

/// What bytes mean.
enum Read {
    Gesture(Gesture),
    PasteBegins,
    PasteEnds,
}

/// Takes bytes of a pasted text, and says how many.
fn paste(pasted: &mut Vec<u8>, bytes: &[u8]) -> (usize, Option<Read>) {
    let end = bytes.windows(PASTE_END.len()).position(|window| window == PASTE_END);
    // Half an end may be at the end.
    let plain = end.unwrap_or(bytes.len().saturating_sub(PASTE_END.len() - 1));
    let room = PASTED_BYTES_MAX.saturating_sub(pasted.len());
    pasted.extend(bytes.iter().take(plain.min(room)));
    match end {
        Some(end) => (end + PASTE_END.len(), Some(Read::PasteEnds)),
        None => (plain, None),
    }
}

fn pasted(bytes: &[u8]) -> Gesture {
    let text = String::from_utf8_lossy(bytes);
    Gesture::Pasted(text.chars().filter(|character| !character.is_control()).collect())
}

/// The first key of some bytes and how many are its; none of them if it is not finished.
fn key(bytes: &[u8]) -> (usize, Option<Read>) {
    let Some(first) = bytes.first() else { return (0, None) };
    let input = match first {
        0x1b => return escape(bytes),
        b'\r' | b'\n' => Gesture::Enter,
        b'\t' => Gesture::Tab,
        0x7f | 0x08 => Gesture::Backspace,
        0x1d => Gesture::Ctrl(']'),
        1..=26 => Gesture::Ctrl(char::from(first + b'a' - 1)),
        0..32 => Gesture::Other,
        _ => return character(bytes),
    };
    (1, Some(Read::Gesture(input)))
}

fn character(bytes: &[u8]) -> (usize, Option<Read>) {
    let Some(chunk) = bytes.utf8_chunks().next() else { return (0, None) };
    match chunk.valid().chars().next() {
        Some(character) => (character.len_utf8(), Some(Read::Gesture(Gesture::Char(character)))),
        // A character whose end has not come yet, or bytes that are none.
        None if chunk.invalid().len() == bytes.len() && bytes.len() < 4 => {
            let unfinished = std::str::from_utf8(bytes);
            let waits = unfinished.is_err_and(|error| error.error_len().is_none());
            (if waits { 0 } else { bytes.len() }, None)
        }
        None => (chunk.invalid().len(), None),
    }
}

/// A key that begins with the escape character, or that character alone.
fn escape(bytes: &[u8]) -> (usize, Option<Read>) {
    let input = |taken, input| (taken, Some(Read::Gesture(input)));
    match bytes.get(1) {
        Some(b'O') => match bytes.get(2) {
            None => (0, None),
            Some(letter) => (3, plain(*letter).map(Read::Gesture)),
        },
        Some(b'[') => control(bytes),
        // A terminal sends a whole sequence at once, so this is the key itself. Another key may
        // have been pressed right after it; none of ours is pressed together with Alt.
        None | Some(_) => input(1, Gesture::Escape),
    }
}

/// A control sequence: `ESC [`, parameters, a last byte.
fn control(bytes: &[u8]) -> (usize, Option<Read>) {
    let body = bytes.get(2..).unwrap_or_default();
    let Some(length) = body.iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        let is_endless = bytes.len() > SEQUENCE_BYTES_MAX;
        return (if is_endless { bytes.len() } else { 0 }, None);
    };
    let (parameters, last) = (body.get(..length), body.get(length).copied().unwrap_or_default());
    let parameters = std::str::from_utf8(parameters.unwrap_or_default()).unwrap_or_default();
    let read = match (parameters, last) {
        ("200", b'~') => Some(Read::PasteBegins),
        (_, b'M' | b'm') => mouse(parameters, last).map(Read::Gesture),
        (_, b'~') => numbered(parameters).map(Read::Gesture),
        (_, last) => plain(last).map(Read::Gesture),
    };
    (length + 3, read)
}

fn plain(letter: u8) -> Option<Gesture> {
    Some(match letter {
        b'A' => Gesture::Up,
        b'B' => Gesture::Down,
        b'H' => Gesture::Home,
        b'F' => Gesture::End,
        b'M' => Gesture::Enter,
        // The other arrows, the middle of the keypad, F1 to F4, and Shift with Tab.
        b'C' | b'D' | b'E' | b'P'..=b'S' | b'Z' => Gesture::Other,
        _ => return None,
    })
}

fn numbered(parameters: &str) -> Option<Gesture> {
    Some(match parameters.split(';').next()? {
        "1" | "7" => Gesture::Home,
        "4" | "8" => Gesture::End,
        "5" => Gesture::PageUp,
        "6" => Gesture::PageDown,
        // The end of a text that never began.
        "201" => return None,
        _ => Gesture::Other,
    })
}

/// What the mouse did: `<button;column;row`, counted from one.
fn mouse(parameters: &str, last: u8) -> Option<Gesture> {
    let mut numbers = parameters.strip_prefix('<')?.split(';').map(str::parse::<u16>);
    let mut next = || numbers.next()?.ok();
    let (button, column, row) = (next()?, next()?, next()?);
    let (column, row) = (column.checked_sub(1)?, row.checked_sub(1)?);
    match button {
        0 if last == b'M' => Some(Gesture::Click(column, row)),
        64 => Some(Gesture::Wheel(column, row, true)),
        65 => Some(Gesture::Wheel(column, row, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Gesture> {
        Keys::default().feed(bytes)
    }

    #[test]
    fn bytes_are_keys() {
        for (bytes, expected) in [
            (&b"a"[..], vec![Gesture::Char('a')]),
            ("é漢".as_bytes(), vec![Gesture::Char('é'), Gesture::Char('漢')]),
            (
                b"\r\t\x7f\x1d\x03",
                vec![
                    Gesture::Enter,
                    Gesture::Tab,
                    Gesture::Backspace,
                    Gesture::Ctrl(']'),
                    Gesture::Ctrl('c'),
                ],
            ),
            (b"\x1b", vec![Gesture::Escape]),
            (
                b"\x1b[A\x1bOB\x1b[5~\x1b[6~",
                vec![Gesture::Up, Gesture::Down, Gesture::PageUp, Gesture::PageDown],
            ),
            (b"\x1b[1;5A\x1b[H\x1b[4~", vec![Gesture::Up, Gesture::Home, Gesture::End]),
            (b"\x1b[<0;3;4M\x1b[<0;3;4m", vec![Gesture::Click(2, 3)]),
            (
                b"\x1b[<64;1;1M\x1b[<65;1;2M",
                vec![Gesture::Wheel(0, 0, true), Gesture::Wheel(0, 1, false)],
            ),
            (b"\x1b[<0;0;0M\x1b[201~", vec![]),
            (b"\x1b[C\x1bOD\x1b[99~\x00", vec![Gesture::Other; 4]),
            (
                b"\x1b/\x1b\x1b",
                vec![Gesture::Escape, Gesture::Char('/'), Gesture::Escape, Gesture::Escape],
            ),
            (b"\xff\xfea", vec![Gesture::Char('a')]),
        ] {
            assert_eq!(keys(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_pasted_is_no_key() {
        let pasted = |text: &str| Gesture::Pasted(text.into());
        let all = b"\x1b[200~y\r\x1b[Ano\x1b[201~q";
        assert_eq!(keys(all), [pasted("y[Ano"), Gesture::Char('q')]);
        let mut keys = Keys::default();
        let one_by_one: Vec<Gesture> = all.iter().flat_map(|byte| keys.feed(&[*byte])).collect();
        // One by one, the first byte is the key Escape.
        assert_eq!(one_by_one.first(), Some(&Gesture::Escape));
        let mut keys = Keys::default();
        let mut found = keys.feed(b"\x1b[200~long");
        found.extend(keys.feed(&vec![b'x'; 2 * PASTED_BYTES_MAX]));
        found.extend(keys.feed(b"\x1b[20"));
        found.extend(keys.feed(b"1~q"));
        let [Gesture::Pasted(text), Gesture::Char('q')] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(text.len(), PASTED_BYTES_MAX);
    }

    #[test]
    fn what_is_not_finished_waits_and_what_never_ends_does_not() {
        let mut keys = Keys::default();
        assert_eq!(keys.feed(b"\x1b["), []);
        assert_eq!(keys.feed(b"A"), [Gesture::Up]);
        assert_eq!(keys.feed("漢".as_bytes().get(..2).unwrap()), []);
        assert_eq!(keys.feed("漢".as_bytes().get(2..).unwrap()), [Gesture::Char('漢')]);
        assert_eq!(keys.feed(format!("\u{1b}[{}", "1;".repeat(100)).as_bytes()), []);
        assert_eq!(keys.feed(b"a"), [Gesture::Char('a')]);
    }
}
