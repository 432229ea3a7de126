//! Puts markers into cleaned text.

use super::{FoundSecret, Mask};
use crate::output::clean::{Cell, Clean};

/// The cells with a marker in the place of each secret; also whether there were any.
///
/// A marker's cells all end where the secret ends: the bytes can be cut before it and behind it,
/// not inside.
pub(in crate::output) fn marked(
    mask: &Mask,
    cleaned: Clean,
    secrets: &[FoundSecret<'_>],
) -> (Vec<Cell>, bool) {
    let Clean { mut cells, folded, .. } = cleaned;
    let mut names: Vec<FoundSecret<'_>> = secrets.to_vec();
    if folded {
        // What was overwritten may have put a secret together that was never written as one.
        let text: String = cells.iter().map(|cell| cell.character).collect();
        for found in mask.find(&text) {
            names.push(found);
            number(&mut cells, found, u16::try_from(names.len()).unwrap_or(u16::MAX));
        }
    }
    if names.is_empty() {
        return (cells, false);
    }
    let mut shown = Vec::with_capacity(cells.len());
    for run in cells.chunk_by(|one, next| one.secret == next.secret) {
        let (Some(last), Some(secret)) = (run.last(), run.first().map(|cell| cell.secret)) else {
            continue;
        };
        match usize::from(secret).checked_sub(1).and_then(|place| names.get(place)) {
            Some(found) => {
                let cell = |character| Cell { character, ..*last };
                shown.extend(found.marker().chars().map(cell));
            }
            None => shown.extend_from_slice(run),
        }
    }
    let any = shown.iter().any(|cell| cell.secret != 0);
    (shown, any)
}

/// Gives a number to the cells of what was found in their text.
fn number(cells: &mut [Cell], found: FoundSecret<'_>, number: u16) {
    let mut place = 0;
    for cell in cells {
        if (found.start..found.end).contains(&place) {
            cell.secret = number;
        }
        place += cell.character.len_utf8();
    }
}
