//! The complete text of a stream, for tools whose results promise all of it.

use std::io;

use super::artifact::Artifact;

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
    pub fn complete(&self, bytes_max: u64) -> io::Result<Complete> {
        if self.bytes() <= bytes_max {
            let text = lossy(&self.read(0, self.bytes())?);
            return Ok(Complete { text, truncated: false });
        }
        let half = bytes_max / 2;
        let head = self.read(0, half)?;
        let tail = self.read(self.bytes() - half, half)?;
        let head = whole_start(&head);
        let tail = whole_end(&tail);
        let left_out = self.bytes() - (head.len() + tail.len()) as u64;
        let place = self.path().map(|path| format!("; the whole stream is in {}", path.display()));
        let marker =
            format!("\n[... {left_out} bytes left out{} ...]\n", place.unwrap_or_default());
        Ok(Complete { text: [lossy(head), marker, lossy(tail)].concat(), truncated: true })
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes without half a character at their end.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let cut = (1..=3.min(bytes.len())).find_map(|back| {
        let place = bytes.len() - back;
        let lead = *bytes.get(place)?;
        let needed = lead.leading_ones() as usize;
        match needed {
            // In the middle of a character: look further back.
            1 => None,
            2..=4 if needed > back => Some(place),
            _ => Some(bytes.len()),
        }
    });
    bytes.get(..cut.unwrap_or(bytes.len())).unwrap_or(bytes)
}

/// The bytes without half a character at their beginning.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let broken = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    bytes.get(broken..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_whole_and_what_does_not_is_cut_between_characters() {
        let short = Artifact::of("grüße\u{1b}[1m".as_bytes());
        let whole = Complete { text: "grüße\u{1b}[1m".into(), truncated: false };
        assert_eq!(short.complete(100).unwrap(), whole);
        for bytes_max in 6..40 {
            let cut = Artifact::of("ä€😀".repeat(20).as_bytes()).complete(bytes_max).unwrap();
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
        assert_eq!(artifact.complete(10).unwrap().text, "a\u{fffd}b");
    }
}
