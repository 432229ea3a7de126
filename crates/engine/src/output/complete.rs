//! The complete text of a stream, for tools whose results promise all of it.

use std::io;

use super::{
    artifact::Artifact,
    clean::End,
    mask::{Found, Mask, Scan, with_markers},
};

/// A stream as one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complete {
    /// The text; bytes that are no text are replaced.
    pub text: String,
    /// Whether the middle was left out.
    pub truncated: bool,
}

impl Artifact {
    /// All of it as text, or head and tail with a marker between them if it is longer than this.
    pub fn complete(&self, mask: &Mask, bytes_max: u64) -> io::Result<Complete> {
        if self.bytes() <= bytes_max {
            let raw = self.read(0, self.bytes())?;
            let Scan { secrets, .. } = Scan::of(mask, &raw, 0, End::Final);
            return Ok(Complete { text: lossy(&raw, &secrets), truncated: false });
        }
        let half = bytes_max / 2;
        let raw = self.read(0, half)?;
        let Scan { secrets, held } = Scan::of(mask, &raw, 0, End::Open);
        let head = raw.get(..held).unwrap_or_default();
        let head_text = lossy(head, &secrets);
        // A secret may have begun before the tail.
        let start = self.bytes() - half;
        let lead = start.min(mask.reach() as u64);
        let raw = self.read(start - lead, lead + half)?;
        let lead = usize::try_from(lead).unwrap_or(0).min(raw.len());
        let lead =
            lead + raw.iter().skip(lead).take(3).take_while(|byte| is_inside(**byte)).count();
        let Scan { secrets, .. } = Scan::of(mask, &raw, lead, End::Final);
        let tail = raw.get(lead..).unwrap_or_default();
        let left_out = self.bytes() - (head.len() + tail.len()) as u64;
        let place = self.path().map(|path| format!("; the whole stream is in {}", path.display()));
        let marker =
            format!("\n[... {left_out} bytes left out{} ...]\n", place.unwrap_or_default());
        Ok(Complete { text: [head_text, marker, lossy(tail, &secrets)].concat(), truncated: true })
    }
}

fn lossy(raw: &[u8], secrets: &[Found<'_>]) -> String {
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
        let whole = Complete { text: "grüße\u{1b}[1m".into(), truncated: false };
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
    fn bytes_that_are_no_text_are_marked() {
        let artifact = Artifact::of(b"a\xffb");
        assert_eq!(artifact.complete(&Mask::default(), 10).unwrap().text, "a\u{fffd}b");
    }
}
