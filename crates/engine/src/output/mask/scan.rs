//! Finds secrets in raw bytes, where control sequences may be in the middle of them.

use super::{FoundSecret, Mask};
use crate::output::clean::{Stripped, TextEnd, is_plain, strip};

/// The name of what is so long that it cannot be waited for.
const UNFINISHED: &str = "unfinished";

/// What a search through raw bytes has found.
#[derive(Debug)]
pub(in crate::output) struct Scan<'a> {
    /// The secrets, in order and apart.
    pub secrets: Vec<FoundSecret<'a>>,
    /// Where something begins that the bytes do not finish, a character, a sequence or a secret;
    /// their end if nothing does.
    pub held: usize,
}

impl<'a> Scan<'a> {
    /// Searches raw bytes behind a lead, which is not part of the result: all places count from its
    /// end.
    pub(in crate::output) fn of(mask: &'a Mask, raw: &[u8], lead: usize, end: TextEnd) -> Self {
        let plain = Plain::of(raw, end);
        let (found, held) = match end {
            TextEnd::Final => (mask.find(plain.text()), raw.len()),
            TextEnd::Open => {
                let (found, held) = mask.find_open(plain.text());
                (found, plain.begin(held).min(plain.reached()))
            }
        };
        let in_raw = |found: FoundSecret<'a>| {
            let (start, end) = (plain.begin(found.start), plain.end(found.end));
            FoundSecret { start, end, ..found }
        };
        let mut secrets: Vec<FoundSecret<'a>> = found.into_iter().map(in_raw).collect();
        let mut held = held;
        // Sequences between its characters can make any secret as long as they like. Nobody waits
        // for its end then.
        if plain.reached().saturating_sub(held) > mask.reach() {
            secrets.push(FoundSecret { start: held, end: plain.reached(), name: UNFINISHED });
            held = plain.reached();
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
enum Plain<'a> {
    /// They are.
    Same(&'a str),
    Stripped {
        text: Stripped,
        raw_bytes: usize,
    },
}

impl<'a> Plain<'a> {
    fn of(raw: &'a [u8], end: TextEnd) -> Self {
        match std::str::from_utf8(raw) {
            Ok(text) if is_plain(text) => Self::Same(text),
            _ => Self::Stripped { text: strip(raw, end), raw_bytes: raw.len() },
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Same(text) => text,
            Self::Stripped { text, .. } => &text.text,
        }
    }

    /// Where something begins that the bytes do not finish.
    fn reached(&self) -> usize {
        match self {
            Self::Same(text) => text.len(),
            Self::Stripped { text, .. } => text.reached,
        }
    }

    /// Where in the bytes the character at a place of the text begins.
    fn begin(&self, place: usize) -> usize {
        match self {
            Self::Same(_) => place,
            Self::Stripped { text, raw_bytes } => text.begin(place).unwrap_or(*raw_bytes),
        }
    }

    /// Where in the bytes the character before a place of the text ends.
    fn end(&self, place: usize) -> usize {
        match self {
            Self::Same(_) => place,
            Self::Stripped { text, .. } => text.end(place),
        }
    }
}

/// The bytes with a marker in the place of each secret.
pub(in crate::output) fn with_markers(raw: &[u8], secrets: &[FoundSecret<'_>]) -> Vec<u8> {
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
