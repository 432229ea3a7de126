//! The end of what a task printed, for whoever looks at it live: text without control sequences and
//! without secrets.

use std::io;

use super::{
    artifact::TaskOutput,
    cursor::{Cursor, Selection},
    look::TextLook,
    mask::Mask,
    view::Edges,
};

/// Bytes before the tail that are parsed but not shown, so that it does not begin inside a
/// character or a sequence.
const LEAD_BYTES: u64 = 4096;

/// The end of a task's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputTail {
    /// The text, in the order in which both streams came. It may begin inside a line.
    pub text: String,
    /// The look of each character of it.
    pub looks: Vec<TextLook>,
    /// Whether there is output before it.
    pub is_cut: bool,
}

impl TaskOutput {
    /// Reads the end of both streams, at most so many bytes of them, however much came before.
    ///
    /// Unless the task is complete, half a character, sequence or secret at the end is not shown.
    pub fn tail(&self, mask: &Mask, bytes_max: u64, complete: bool) -> io::Result<OutputTail> {
        let view = self.view(mask, Selection::Both, Cursor::default())?;
        let start = view.bytes().saturating_sub(bytes_max);
        let lead = LEAD_BYTES.min(start);
        let edges = Edges { inside: start > lead, complete };
        let piece = view.read(start - lead, view.bytes(), edges)?;
        let lead = usize::try_from(lead).unwrap_or(0);
        let shown = piece.cells.iter().filter(|cell| cell.end > lead);
        let (text, looks) = shown.map(|cell| (cell.character, cell.look)).unzip();
        Ok(OutputTail { text, looks, is_cut: start > 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::SmallOutput;

    fn output(stdout: &str) -> TaskOutput {
        let (stdout, stderr, timeline) = (stdout.as_bytes().to_vec(), Vec::new(), Vec::new());
        TaskOutput::from(&SmallOutput { stdout, stderr, timeline })
    }

    fn tail(stdout: &str, bytes_max: u64) -> (String, bool) {
        let tail = output(stdout).tail(&Mask::default(), bytes_max, true).unwrap();
        (tail.text, tail.is_cut)
    }

    #[test]
    fn a_tail_has_no_control_sequences() {
        let coloured = "\u{1b}[31mone\u{1b}[0m\ntwo\nthree\n";
        assert_eq!(tail(coloured, 1000), ("one\ntwo\nthree\n".into(), false));
        assert_eq!(tail("one\ntwo\nthree\n", 9), ("wo\nthree\n".into(), true));
        assert_eq!(tail("", 9), (String::new(), false));
    }

    #[test]
    fn a_tail_has_the_look_of_what_was_printed() {
        let printed = "\u{1b}[31mreddish\u{1b}[m \u{1b}[1mto\rgo\u{1b}c \u{1b}]8;;\u{1b}[32mx\n\
                       \u{9b}34mblue\u{1b}[3";
        let tail = output(printed).tail(&Mask::default(), 1000, true).unwrap();
        assert_eq!(tail.text, "go dish to\nblue");
        let fronts: String = tail
            .looks
            .iter()
            .map(|look| look.front().map_or('.', |front| char::from(b'0' + front)))
            .collect();
        assert_eq!(fronts, "...1111....4444");
        let bold: String =
            tail.looks.iter().map(|look| if look.is_bold() { 'b' } else { '.' }).collect();
        assert_eq!(bold, "bb......bb.....");
    }

    #[test]
    fn a_tail_begins_inside_no_sequence_and_a_long_line_is_not_lost() {
        let title = format!("{}\u{1b}]0;a long title\u{7}end", "x".repeat(5000));
        assert_eq!(tail(&title, 10), ("end".into(), true));
        let (line, is_cut) = tail(&"y".repeat(1_000_000), 64 * 1024);
        assert_eq!((line.len(), is_cut), (64 * 1024, true));
    }

    #[test]
    fn half_a_secret_at_the_beginning_is_masked() {
        let mask = Mask::new(&[("API_TOKEN".into(), "very-secret-value".into())]);
        let printed = output(&format!("{} very-secret-value", "x".repeat(6000)));
        for bytes_max in 1..20 {
            let text = printed.tail(&mask, bytes_max, true).unwrap().text;
            assert!(!text.contains("value"), "{bytes_max}: {text}");
        }
    }
}
