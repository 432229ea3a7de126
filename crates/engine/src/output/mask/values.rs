//! The values of secret variables, in the forms in which they are printed.

use super::spelled;
use crate::output::clean::{TextEnd, strip};

/// A line of a value of several lines is a secret of its own from this many characters on: `echo
/// $KEY` joins them with blanks, `sed` indents them.
const LINE_CHARS_MIN: usize = 16;

/// Fewer bytes of a secret's beginning are not held back: any text may end with them.
const BEGINNING_BYTES_MIN: usize = 4;

/// A text that stands for a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub text: String,
    /// The variable's name.
    pub name: String,
    /// For each prefix, the length of its longest proper end that is a prefix too.
    borders: Vec<usize>,
}

impl Value {
    fn new(name: &str, text: String) -> Self {
        let borders = borders(text.as_bytes());
        Self { text, name: name.to_owned(), borders }
    }

    /// All forms of a variable's value.
    pub(super) fn forms(name: &str, value: &str) -> Vec<Self> {
        let value = value.trim();
        let mut texts = vec![plain(value), as_json(value)];
        texts.extend(spelled::all(value));
        if value.contains('\n') {
            let lines = value.lines().map(|line| plain(line.trim()));
            // The frame of a key is the same for all keys.
            let own = |line: &String| {
                line.chars().count() >= LINE_CHARS_MIN && !line.starts_with("-----")
            };
            texts.extend(lines.filter(own));
        }
        texts.sort();
        texts.dedup();
        texts.retain(|text| !text.is_empty());
        texts.into_iter().map(|text| Self::new(name, text)).collect()
    }

    /// How many bytes at the end of a text are the beginning of this one; none if too few to tell.
    pub(super) fn begun(&self, text: &str) -> usize {
        let value = self.text.as_bytes();
        let first = text.len().saturating_sub(value.len().saturating_sub(1));
        let mut matched = 0;
        for byte in text.as_bytes().get(first..).unwrap_or_default() {
            while matched > 0 && value.get(matched) != Some(byte) {
                matched = self.borders.get(matched - 1).copied().unwrap_or(0);
            }
            if value.get(matched) == Some(byte) {
                matched += 1;
            }
        }
        if matched < BEGINNING_BYTES_MIN { 0 } else { matched }
    }
}

/// A value as it is left of it when its control sequences are taken out.
fn plain(value: &str) -> String {
    strip(value.as_bytes(), TextEnd::Final).text
}

/// A value as it stands in a JSON string.
fn as_json(value: &str) -> String {
    let quoted = serde_json::to_string(value).unwrap_or_default();
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

fn borders(text: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; text.len()];
    let mut matched: usize = 0;
    for (place, byte) in text.iter().enumerate().skip(1) {
        while matched > 0 && text.get(matched) != Some(byte) {
            matched = borders.get(matched - 1).copied().unwrap_or(0);
        }
        if text.get(matched) == Some(byte) {
            matched += 1;
        }
        if let Some(border) = borders.get_mut(place) {
            *border = matched;
        }
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_forms_in_which_it_is_printed() {
        let texts = |value: &str| -> Vec<String> {
            Value::forms("X", value).into_iter().map(|value| value.text).collect()
        };
        assert_eq!(texts("plain-text"), ["plain-text"], "a token has one form");
        assert_eq!(texts("plain text"), ["plain text", "plain\\ text"]);
        assert_eq!(
            texts("a \"quoted\" one"),
            ["a \"quoted\" one", "a \\\"quoted\\\" one", "a\\ \\\"quoted\\\"\\ one"]
        );
        let lines = texts("-----BEGIN\r\n  a line that is long\nshort\r\n");
        for form in [
            "-----BEGIN\n  a line that is long\nshort",
            "-----BEGIN\\r\\n  a line that is long\\nshort",
            "a line that is long",
        ] {
            assert!(lines.iter().any(|line| line == form), "{form}: {lines:?}");
        }
    }

    #[test]
    fn a_beginning_at_the_end_of_a_text_is_measured() {
        let [value] = Value::forms("X", "abcabcabd").try_into().unwrap();
        for (text, begun) in [
            ("", 0),
            ("abc", 0),
            ("xabca", 4),
            ("abcabcabc", 6),
            ("abcabcab", 8),
            ("abcabcabd", 0),
            ("zzzzabcabcabcab", 8),
        ] {
            assert_eq!(value.begun(text), begun, "{text}");
        }
    }
}
