//! Finds secrets in raw bytes, where control sequences may be in the middle of them.

use std::borrow::Cow;

use super::{Found, Mask};
use crate::output::clean::{End, Stripped, strip};

/// The name of what is so long that it cannot be waited for.
const UNFINISHED: &str = "unfinished";

/// What a search through raw bytes has found.
#[derive(Debug)]
pub(in crate::output) struct Scan<'a> {
    /// The secrets, in order and apart.
    pub secrets: Vec<Found<'a>>,
    /// Where something begins that the bytes do not finish, a character, a sequence or a secret; their end if nothing
    /// does.
    pub held: usize,
}

impl<'a> Scan<'a> {
    /// Searches raw bytes behind a lead, which is not part of the result: all places count from its end.
    pub(in crate::output) fn of(mask: &'a Mask, raw: &[u8], lead: usize, end: End) -> Self {
        let plain = Plain::of(raw, end);
        let (found, held) = match end {
            End::Final => (mask.find(&plain.text), raw.len()),
            End::Open => {
                let (found, held) = mask.find_open(&plain.text);
                (found, plain.begin(held).min(plain.reached))
            }
        };
        let in_raw = |found: Found<'a>| {
            let (start, end) = (plain.begin(found.start), plain.end(found.end));
            Found { start, end, ..found }
        };
        let mut secrets: Vec<Found<'a>> = found.into_iter().map(in_raw).collect();
        let mut held = held;
        // Sequences between its characters can make any secret as long as they like. Nobody waits for its end then.
        if plain.reached.saturating_sub(held) > mask.reach() {
            secrets.push(Found { start: held, end: plain.reached, name: UNFINISHED });
            held = plain.reached;
        }
        secrets.retain(|secret| secret.end > lead);
        for secret in &mut secrets {
            secret.start = secret.start.saturating_sub(lead);
            secret.end -= lead;
        }
        Self { secrets, held: held.saturating_sub(lead) }
    }
}

/// Raw bytes as plain text.
struct Plain<'a> {
    text: Cow<'a, str>,
    /// As in [`Stripped`]; empty if text and bytes are the same.
    places: Vec<(usize, usize, usize)>,
    reached: usize,
    raw_bytes: usize,
}

impl<'a> Plain<'a> {
    fn of(raw: &'a [u8], end: End) -> Self {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        let raw_bytes = raw.len();
        let plain = std::str::from_utf8(raw).ok().filter(|_| raw.iter().all(is_plain));
        if let Some(text) = plain {
            return Self { text: text.into(), places: Vec::new(), reached: raw_bytes, raw_bytes };
        }
        let Stripped { text, places, reached } = strip(raw, end);
        Self { text: text.into(), places, reached, raw_bytes }
    }

    /// Where in the bytes the character at a place of the text begins.
    fn begin(&self, place: usize) -> usize {
        if self.places.is_empty() {
            return if self.text.is_empty() { self.raw_bytes } else { place };
        }
        let index = self.places.partition_point(|(text, _, _)| *text < place);
        self.places.get(index).map_or(self.raw_bytes, |(_, begin, _)| *begin)
    }

    /// Where in the bytes the character before a place of the text ends.
    fn end(&self, place: usize) -> usize {
        if self.places.is_empty() {
            return place;
        }
        let index = self.places.partition_point(|(text, _, _)| *text < place);
        let before = index.checked_sub(1).and_then(|index| self.places.get(index));
        before.map_or(0, |(_, _, end)| *end)
    }
}

/// The bytes with a marker in the place of each secret.
pub(in crate::output) fn with_markers(raw: &[u8], secrets: &[Found<'_>]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(raw.len());
    let mut at = 0;
    for secret in secrets {
        shown.extend_from_slice(raw.get(at..secret.start).unwrap_or_default());
        shown.extend_from_slice(secret.marker().as_bytes());
        at = secret.end;
    }
    shown.extend_from_slice(raw.get(at..).unwrap_or_default());
    shown
}
