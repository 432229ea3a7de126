//! Searches for substitutions in a text that was not understood: anything that looks like one
//! counts as one.

use crate::reading::Substitution;

/// Finds the first opener at or after a place, whatever quotes may be around it.
pub(crate) fn first_opener(text: &str, from: usize) -> Option<Substitution> {
    let bytes = text.as_bytes();
    let mut at = from.min(bytes.len());
    while let Some(byte) = bytes.get(at) {
        let (next, _) = after(bytes, at);
        let construct = match (byte, next) {
            (b'`', _) => Some("`"),
            (b'$', Some(b'(')) => Some("$("),
            (b'<', Some(b'(')) => Some("<("),
            (b'>', Some(b'(')) => Some(">("),
            (b'$', Some(b'{')) => runs_in_braces(bytes, at),
            // Written as a number: whoever does that hides it.
            (b'$', Some(b'\'')) if has_number(bytes, at) => Some("$("),
            _ => None,
        };
        if let Some(construct) = construct {
            return Some(Substitution { construct, offset: at });
        }
        at += 1;
    }
    None
}

/// Whether a character that is written as a number follows.
fn has_number(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.windows(2).any(|pair| matches!(pair, [b'\\', b'x' | b'u' | b'U' | b'0'..=b'7']))
}

/// Whether `${` is the kind that runs commands.
fn runs_in_braces(bytes: &[u8], at: usize) -> Option<&'static str> {
    let (_, brace) = after(bytes, at);
    let (inside, _) = after(bytes, brace);
    matches!(inside, Some(b' ' | b'\t' | b'\n' | b'|')).then_some("${ ")
}

/// The byte after this one, past line continuations.
fn after(bytes: &[u8], at: usize) -> (Option<u8>, usize) {
    let mut next = at + 1;
    // Only an opener can be continued, so a run of continuations is walked once for each opener.
    if !matches!(bytes.get(at), Some(b'$' | b'<' | b'>' | b'{')) {
        return (bytes.get(next).copied(), next);
    }
    while bytes.get(next) == Some(&b'\\') && bytes.get(next + 1) == Some(&b'\n') {
        next += 2;
    }
    (bytes.get(next).copied(), next)
}
