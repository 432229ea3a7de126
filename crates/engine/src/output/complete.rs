//! The complete text of a stream, for tools whose results promise all of it.

use std::io;

use legwork_warden::gaps::Gap;

use super::{
    artifact::Artifact,
    clean::TextEnd,
    mask::{FoundSecret, Mask, Scan, with_markers},
};

/// A stream as one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complete {
    /// The text; bytes that are no text are replaced.
    pub text: String,
    /// Whether the middle was left out.
    pub truncated: bool,
    /// Whether a secret was masked.
    pub masked: bool,
}

impl Artifact {
    /// All of it as text, or head and tail with a marker between them if it is longer than this.
    pub fn complete(&self, mask: &Mask, bytes_max: u64) -> io::Result<Complete> {
        let gap = self.shown_gap();
        if gap.is_none() && self.bytes() <= bytes_max {
            let raw = self.read(0, self.bytes())?;
            let Scan { secrets, .. } = Scan::of(mask, &raw, 0, TextEnd::Final);
            let masked = !secrets.is_empty();
            return Ok(Complete { text: lossy(&raw, &secrets), truncated: false, masked });
        }
        let (head, tail) = halves(gap, self.bytes(), bytes_max);
        let raw = self.read(0, head)?;
        let Scan { secrets, held } = Scan::of(mask, &raw, 0, TextEnd::Open);
        let head = raw.get(..held).unwrap_or_default();
        let head_text = lossy(head, &secrets);
        let head_masked = !secrets.is_empty();
        // A secret may have begun before the tail.
        let start = self.bytes() - tail;
        let kept_from = self.gap().map_or(0, |gap| gap.to);
        let lead = start.saturating_sub(kept_from).min(mask.reach() as u64);
        let raw = self.read(start - lead, lead + tail)?;
        let lead = usize::try_from(lead).unwrap_or(0).min(raw.len());
        let lead =
            lead + raw.iter().skip(lead).take(3).take_while(|byte| is_inside(**byte)).count();
        let Scan { secrets, .. } = Scan::of(mask, &raw, lead, TextEnd::Final);
        let tail = raw.get(lead..).unwrap_or_default();
        let left_out = self.bytes() - (head.len() + tail.len()) as u64;
        let marker = format!("\n[... {left_out} bytes left out{} ...]\n", self.place());
        let masked = head_masked || !secrets.is_empty();
        let text = [head_text, marker, lossy(tail, &secrets)].concat();
        Ok(Complete { text, truncated: true, masked })
    }

    /// Where the rest is, as far as it is anywhere.
    fn place(&self) -> String {
        let path = self.path().map(|path| path.display().to_string());
        match (self.dropped_bytes(), path) {
            (0, Some(path)) => format!("; the whole stream is in {path}"),
            (0, None) => String::new(),
            (dropped, path) => {
                let rest = path.map(|path| format!(", the rest is in {path}")).unwrap_or_default();
                format!("; {dropped} of them were dropped and are not stored{rest}")
            }
        }
    }
}

/// How much of the head and of the tail is shown: one half each, but what one does not have is the
/// other's.
fn halves(gap: Option<Gap>, bytes: u64, bytes_max: u64) -> (u64, u64) {
    let half = bytes_max / 2;
    match gap {
        None => (half, half),
        Some(gap) => {
            let (head, tail) = (gap.from, bytes - gap.to);
            (head.min(bytes_max - tail.min(half)), tail.min(bytes_max - head.min(half)))
        }
    }
}

fn lossy(raw: &[u8], secrets: &[FoundSecret<'_>]) -> String {
    String::from_utf8_lossy(&with_markers(raw, secrets)).into_owned()
}

/// Whether a byte is no character's first.
fn is_inside(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_whole_and_what_does_not_is_cut_between_characters() {
        let short = Artifact::of("grüße\u{1b}[1m".as_bytes());
        let text = "grüße\u{1b}[1m".into();
        let whole = Complete { text, ..Complete::default() };
        assert_eq!(short.complete(&Mask::default(), 100).unwrap(), whole);
        for bytes_max in 6..40 {
            let cut = Artifact::of("ä€😀".repeat(20).as_bytes())
                .complete(&Mask::default(), bytes_max)
                .unwrap();
            assert!(cut.truncated);
            assert!(!cut.text.contains(char::REPLACEMENT_CHARACTER), "{bytes_max}: {}", cut.text);
            let (head, rest) = cut.text.split_once("\n[... ").unwrap();
            let (left_out, rest) = rest.split_once(" bytes left out").unwrap();
            let (_, tail) = rest.split_once(" ...]\n").unwrap();
            let left_out: usize = left_out.parse().unwrap();
            assert_eq!(head.len() + left_out + tail.len(), 9 * 20);
        }
    }

    #[test]
    fn a_mask_of_nothing_leaves_everything_as_it_is() {
        let token = format!("ghp_{}\n", "a1B2".repeat(9));
        let artifact = Artifact::of(token.as_bytes());
        assert_ne!(artifact.complete(&Mask::default(), 100).unwrap().text, token);
        assert_eq!(artifact.complete(&Mask::none(), 100).unwrap().text, token);
        let cut = artifact.complete(&Mask::none(), 10).unwrap().text;
        assert!(cut.starts_with("ghp_a\n[... 31 bytes left out"), "{cut}");
    }

    #[test]
    fn what_was_dropped_is_said_at_its_place() {
        let content = b"first\nhalf|dropped|half\nlast\n";
        let artifact = || Artifact::of(content).with_gap(10, 19);
        let all = artifact().complete(&Mask::default(), 100).unwrap();
        let said = "[... 18 bytes left out; 9 of them were dropped and are not stored, \
                    the rest is in /artifact ...]";
        assert_eq!(
            all.text,
            format!("first\n\n{said}\nlast\n"),
            "lines that were cut are not shown"
        );
        assert!(all.truncated);
        let cut = artifact().complete(&Mask::default(), 8).unwrap();
        assert!(cut.text.starts_with("firs\n[... 21 bytes left out; 9 "), "{}", cut.text);
        assert!(cut.text.ends_with("...]\nast\n"), "{}", cut.text);
    }

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        let artifact = Artifact::of(b"a\xffb");
        assert_eq!(artifact.complete(&Mask::default(), 10).unwrap().text, "a\u{fffd}b");
    }
}
